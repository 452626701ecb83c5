// Included first in instrumented code: a prefetch moves lines too, but the compiler does not instrument it.
#pragma once

extern "C" void roci_prefetch(const void* p, int to_write = 0, int locality = 3);
#define __builtin_prefetch(...) roci_prefetch(__VA_ARGS__)
