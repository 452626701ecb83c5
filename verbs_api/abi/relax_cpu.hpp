// The instruction of the processor for loops that wait for another thread.
#pragma once

namespace roci::abi {

/// Tells the processor that the thread polls in a loop.
inline void relax_cpu() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace roci::abi
