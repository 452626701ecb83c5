// Replaces __builtin_prefetch by a function that reports the prefetch to the model (hooks.cpp), because gcc does not
// instrument prefetches. The build includes this header before all other code of an instrumented file.
#pragma once

extern "C" void roci_prefetch(const void* p, int to_write = 0, int locality = 3);
#define __builtin_prefetch(...) roci_prefetch(__VA_ARGS__)
