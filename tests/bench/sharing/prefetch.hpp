// Included first in instrumented code. A prefetch also moves lines, but the compiler does not instrument prefetches.
#pragma once

extern "C" void roci_prefetch(const void* p, int to_write = 0, int locality = 3);
#define __builtin_prefetch(...) roci_prefetch(__VA_ARGS__)
