// Chooses the CRC kernel and tests kernels. If the environment variable ROCI_CRC names a usable kernel, chooses this kernel.
// Otherwise chooses the first usable kernel in order of preference, unless a later one is much faster. A usable kernel is
// supported by the processor and passes the self-test.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "wire/crc/constants.hpp"
#include "wire/crc/kernel.hpp"

namespace roci::wire::crc {
namespace {

#if defined(__x86_64__)
constexpr const Kernel* kKernels[] = {&kVpclmul512, &kVpclmul256, &kPclmul, &kTable};
#elif defined(__aarch64__)
constexpr const Kernel* kKernels[] = {&kPmull, &kArmCrc, &kTable};
#else
constexpr const Kernel* kKernels[] = {&kTable};
#endif

uint32_t after_byte(uint32_t state, uint8_t byte) {
    state ^= byte;
    for (int bit = 0; bit < 8; ++bit) state = times_x(state);
    return state;
}

/// The self-test uses all message lengths from 0 to kEvery, and above kEvery the multiples of kSparse up to kLongest. Lengths up
/// to kEvery cover all code paths for short messages, and all code paths for the first vectors of long messages.
constexpr size_t kEvery = 700, kLongest = 4400, kSparse = 97;

bool agrees(const Kernel& kernel, const uint8_t* p, const Mask& mask) {
    constexpr uint32_t kState = 0x9d0fe176;
    uint32_t expected = kState;
    for (size_t n = 0; n <= kLongest; ++n) {
        if ((n <= kEvery || n % kSparse == 0) && kernel.crc(kState, p, n, mask) != expected) return false;
        expected = after_byte(expected, n < Mask::kLength ? uint8_t(p[n] | mask.bits[n]) : p[n]);
    }
    return true;
}

/// Tests the copying function with heads of several lengths. Compares the CRC, the copy, and the bytes behind the copy.
bool copies(const Kernel& kernel, const uint8_t* p, const Mask& mask) {
    constexpr size_t kMost = 3 * kCopyStep, kGuard = 64;
    uint8_t expected[kMostHead + kMost + kGuard] = {}, made[sizeof expected] = {};
    for (uint32_t head = kLeastHead; head <= kMostHead; head += 7) {
        Mask of_head;
        std::copy_n(mask.bits, std::min<size_t>(head, Mask::kLength), of_head.bits);
        for (size_t n = kCopyStep; n <= kMost; n += kCopyStep) {
            for (uint8_t* message : {expected, made}) std::memcpy(message, p + kCopyStep, head);
            const uint32_t crc = copying_by_table(1, expected, head, of_head, p, n);
            if (kernel.copying(1, made, head, of_head, p, n) != crc || std::memcmp(made, expected, sizeof made) != 0)
                return false;
        }
    }
    return true;
}

constexpr auto kMessage = [] {
    std::array<uint8_t, kLongest + 64> m{};
    uint32_t noise = 1;
    for (uint8_t& byte : m) byte = uint8_t((noise = noise * 1664525 + 1013904223) >> 24);
    return m;
}();

/// Returns true if a kernel should replace the preferred kernel: it takes less than 3/4 of the preferred kernel's time. Two
/// measurements of one kernel seldom differ by so much.
bool much_faster(uint64_t time, uint64_t preferred) { return 4 * time < 3 * preferred; }

/// Returns the processor's time stamp counter. Returns 0 if the function does not know how to read it.
uint64_t time_stamp() {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t v;
    asm volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(v) : : "memory");
    return v;
#else
    return 0;
#endif
}

}  // namespace

std::span<const Kernel* const> kernels() { return kKernels; }

uint64_t measured_time(const Kernel& kernel) {
    constexpr size_t kBytes = 4096, kRuns = 8;
    uint32_t state = 1;
    const uint64_t start = time_stamp();
    for (size_t run = 0; run < kRuns; ++run) state = kernel.crc(state, kMessage.data(), kBytes, kNoMask);
    asm volatile("" : : "r"(state));  // the compiler must not omit the calls
    return time_stamp() - start;
}

bool self_test(const Kernel& kernel) {
    Mask mask;
    for (size_t i = 0; i < Mask::kLength; ++i) mask.bits[i] = i % 3 == 0 ? kMessage[i] : 0;
    return agrees(kernel, kMessage.data(), kNoMask) && agrees(kernel, kMessage.data() + 23, mask) &&
           copies(kernel, kMessage.data() + 5, mask);
}

Choice choose(std::span<const Kernel* const> from, std::string_view wanted, Time* time) {
    Choice c;
    const auto usable = [&](const Kernel& k) {
        if (!k.supported()) return false;
        if (self_test(k)) return true;
        if (c.failed == nullptr) c.failed = &k;
        return false;
    };
    const auto by_name = std::ranges::find(from, wanted, [](const Kernel* k) { return k->name; });
    c.unknown_name = !wanted.empty() && (by_name == from.end() || !usable(**by_name));
    if (!wanted.empty() && !c.unknown_name) {
        c.kernel = *by_name;
        return c;
    }
    struct Candidate {
        const Kernel* kernel;
        uint64_t time;
    };
    std::vector<Candidate> candidates;
    for (const Kernel* k : from)
        if (usable(*k)) candidates.push_back({k, ~uint64_t{0} / 4});
    // The kernels are measured in turn, so that a change of the processor's clock frequency concerns all of them.
    constexpr int kTries = 4;
    for (int i = 0; i < kTries; ++i)
        for (Candidate& candidate : candidates) candidate.time = std::min(candidate.time, time(*candidate.kernel));
    const Candidate* best = nullptr;
    for (const Candidate& candidate : candidates)
        if (best == nullptr || much_faster(candidate.time, best->time)) best = &candidate;
    if (best == nullptr) return c;
    c.kernel = best->kernel;
    if (best != candidates.data()) c.slow = candidates.front().kernel;
    return c;
}

const Choice& chosen() {
    static const Choice choice = [] {
        const char* wanted = std::getenv("ROCI_CRC");
        return choose(kernels(), wanted != nullptr ? wanted : "");
    }();
    return choice;
}

constinit Crc* crc = crc_by_table;
constinit CopyingCrc* copying = copying_by_table;

namespace {
[[maybe_unused]] const bool at_start = [] {
    if (chosen().kernel == nullptr) return false;
    crc = chosen().kernel->crc;
    copying = chosen().kernel->copying;
    return true;
}();
}  // namespace

}  // namespace roci::wire::crc
