// The instruction of the processor for loops that wait for another thread.
#pragma once

namespace roci::abi {

/// Executes PAUSE (x86-64) or YIELD (AArch64). These instructions are hints to the processor that the thread polls in a loop.
inline void relax_cpu() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace roci::abi
