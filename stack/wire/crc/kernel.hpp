// CRC-32 of a frame. A kernel is one implementation of the CRC. Each kernel has its own file. All kernels except kTable need
// certain processor instructions. choose.cpp selects one kernel at start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace roci::wire::crc {

/// The bits at the start of a message that the CRC replaces by ones. Kernels read the mask in whole vectors, so zeros precede and
/// follow the bits.
struct alignas(64) Mask {
    static constexpr size_t kLength = 64;
    uint8_t before[kLength]{};
    uint8_t bits[kLength]{};
    uint8_t after[kLength]{};
};
inline constexpr Mask kNoMask{};

/// Returns the CRC-32 register after the `n` bytes at `p`. `state` is the register before these bytes. The register is reflected.
/// The function does not invert the register. Length and alignment are arbitrary. No byte outside of the message is read.
using Crc = uint32_t(uint32_t state, const uint8_t* p, size_t n, const Mask& mask);

/// Like Crc, for a message that consists of `head_length` bytes at `head` and `n` bytes at `from`. Copies the `n` bytes behind
/// the head. The function reads each byte at `from` once, so the CRC matches the copy even if a client writes to `from`
/// meanwhile. `head_length` is from kLeastHead to kMostHead. `n` is a nonzero multiple of kCopyStep. The mask must be zero behind
/// the head.
using CopyingCrc = uint32_t(uint32_t state, uint8_t* head, uint32_t head_length, const Mask& mask, const uint8_t* from, size_t n);
inline constexpr uint32_t kLeastHead = 16, kMostHead = 128, kCopyStep = 256;

struct Kernel {
    std::string_view name;
    Crc* crc;
    CopyingCrc* copying;
    bool (*supported)();  ///< true if this processor and its operating system support the kernel
};

extern const Kernel kTable;
Crc crc_by_table;
CopyingCrc copying_by_table;
#if defined(__x86_64__)
extern const Kernel kVpclmul512, kVpclmul256, kPclmul;
#elif defined(__aarch64__)
extern const Kernel kPmull, kArmCrc;
#endif

/// Returns all kernels of this architecture, usually the fastest first. The last kernel runs on every processor.
std::span<const Kernel* const> kernels();

/// Returns true if the kernel computes correct CRCs and copies for messages of many lengths. The lengths cover all code paths of
/// the kernel.
bool self_test(const Kernel& kernel);

struct Choice {
    const Kernel* kernel = nullptr;
    const Kernel* failed = nullptr;  ///< the first kernel that this processor supports and that failed its self-test
    const Kernel* slow = nullptr;    ///< the first usable kernel, if `kernel` is another one because it is much faster
    bool unknown_name = false;       ///< `wanted` names no kernel, or a kernel that is unsupported or failed its self-test
};
/// Time that a kernel takes for the same message as other kernels, in any unit.
using Time = uint64_t(const Kernel& kernel);
/// Measures a kernel once, in units of the processor's time stamp counter. Returns 0 if the time cannot be measured.
Time measured_time;
/// Chooses the kernel `wanted` if that kernel is supported and passes its self-test. Otherwise chooses the first kernel of
/// `from` that is supported and passes its self-test. A later kernel replaces the first one if it takes less than 3/4 of its
/// time, because the carry-less multiplication of an emulated processor may be slower than a table.
Choice choose(std::span<const Kernel* const> from, std::string_view wanted, Time* time = measured_time);

/// Returns the choice from kernels(). The wanted kernel is the value of the environment variable ROCI_CRC. The choice is made
/// once, before main().
const Choice& chosen();

/// The functions of the chosen kernel. Before the choice is made, these are the functions of the kernel kTable.
extern constinit Crc* crc;
extern constinit CopyingCrc* copying;

}  // namespace roci::wire::crc
