// CRC-32 of a frame. There is one kernel per file, each for certain processor instructions; choose.cpp selects one at start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace roci::wire::crc {

/// Bits that are read as ones at the start of a message. The zeros around them let a kernel read whole vectors of any alignment.
struct alignas(64) Mask {
    static constexpr size_t kLength = 64;
    uint8_t before[kLength]{};
    uint8_t bits[kLength]{};
    uint8_t after[kLength]{};
};
inline constexpr Mask kNoMask{};

/// The register of CRC-32 (reflected, inverted neither at its start nor at its end) after `n` bytes at `p`, from `state`. Any
/// length, any alignment. Nothing outside of the message influences the result; bytes outside of it are not read.
using Crc = uint32_t(uint32_t state, const uint8_t* p, size_t n, const Mask& mask);

/// The same for a message that consists of `head_length` bytes at `head` and `n` bytes at `from`. Copies the latter behind the
/// head. Each byte is read once, so the CRC matches the copy even if a client writes to `from` meanwhile. `head_length` is from
/// kLeastHead to kMostHead; `n` is a multiple of kCopyStep, not 0. The mask covers bytes of the head only.
using CopyingCrc = uint32_t(uint32_t state, uint8_t* head, uint32_t head_length, const Mask& mask, const uint8_t* from, size_t n);
inline constexpr uint32_t kLeastHead = 16, kMostHead = 128, kCopyStep = 256;

struct Kernel {
    std::string_view name;
    Crc* crc;
    CopyingCrc* copying;
    bool (*supported)();  ///< by this processor and its operating system
};

extern const Kernel kTable;
Crc crc_by_table;
CopyingCrc copying_by_table;
#if defined(__x86_64__)
extern const Kernel kVpclmul512, kVpclmul256, kPclmul;
#elif defined(__aarch64__)
extern const Kernel kPmull, kArmCrc;
#endif

/// All kernels of this architecture, in order of preference. The last one runs everywhere.
std::span<const Kernel* const> kernels();

/// Compares the kernel with a bitwise computation, over lengths and alignments that cover all of its code paths.
bool self_test(const Kernel& kernel);

struct Choice {
    const Kernel* kernel = nullptr;
    const Kernel* failed = nullptr;  ///< the first one that this processor has and that failed its self-test
    bool unknown_name = false;       ///< `wanted` is no kernel, or none that this processor can run
};
/// Chooses the kernel `wanted` if the processor supports it and it passes its self-test, else the first such kernel of `from`.
Choice choose(std::span<const Kernel* const> from, std::string_view wanted);

/// The choice from kernels() and the environment variable ROCI_CRC, made once before main().
const Choice& chosen();

/// The function of the chosen kernel; before the choice that of the table kernel.
extern constinit Crc* crc;
extern constinit CopyingCrc* copying;

}  // namespace roci::wire::crc
