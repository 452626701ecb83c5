#include "crc_floors.hpp"

#include <isa-l/crc.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "report.hpp"
#include "wire/crc/kernel.hpp"

namespace roci::bench {
namespace {

using wire::crc::Kernel;

constexpr uint32_t kMtu = 4096;

/// If the processor has AVX, ISA-L selects kernels that leave the upper halves of vector registers dirty. Dirty upper
/// halves slow down code that is compiled for SSE. So by_isal() clears the upper halves.
#ifdef __x86_64__
[[gnu::target("avx"), gnu::noinline]] void clear_upper_halves() { __builtin_ia32_vzeroupper(); }
const bool kHasAvx = __builtin_cpu_supports("avx") != 0;
#else
void clear_upper_halves() {}
constexpr bool kHasAvx = false;
#endif
uint32_t by_isal(uint32_t state, const uint8_t* p, size_t n, const wire::crc::Mask&) {
    const uint32_t crc = ~crc32_gzip_refl(~state, p, n);
    if (kHasAvx) clear_upper_halves();
    return crc;
}
constexpr Kernel kIsal{"isal", by_isal, wire::crc::copying_by_table, [] { return true; }};

std::vector<const Kernel*> candidates() {
    if (std::getenv("ROCI_CRC") != nullptr) return {wire::crc::chosen().kernel};
    std::vector<const Kernel*> all{&kIsal};
    for (const Kernel* k : wire::crc::kernels())
        if (k->supported() && self_test(*k)) all.push_back(k);
    return all;
}

std::unique_ptr<uint8_t[]> memory(size_t bytes) {
    auto m = std::make_unique_for_overwrite<uint8_t[]>(bytes);
    std::memset(m.get(), 0x5a, bytes);
    return m;
}

/// Returns the rate of a kernel in GB/s. The kernel repeatedly reads the same message of `bytes` bytes, which is in
/// the nearest cache.
double crc_rate(const Kernel& kernel, size_t bytes, bool quick) {
    const auto message = memory(bytes);
    const size_t rounds = (size_t{1} << 20) / bytes;
    uint32_t sum = 0;
    const double ns = best_ns(quick ? 10 : 40, [&] {
        for (size_t i = 0; i < rounds; ++i) sum ^= kernel.crc(sum, message.get(), bytes, wire::crc::kNoMask);
    });
    asm volatile("" ::"r"(sum));
    return double(bytes * rounds) / ns;
}

/// Prints one row per kernel and size. Returns the kernel that is fastest for 4 KiB.
const Kernel& crc_rows(bool quick) {
    constexpr std::pair<const char*, size_t> kSizes[] = {{"64B", 64}, {"1KiB", 1024}, {"4KiB", kMtu}};
    const Kernel* best = nullptr;
    double best_rate = 0;
    for (const Kernel* k : candidates()) {
        double rate = 0;
        for (const auto& [name, bytes] : kSizes) {
            rate = crc_rate(*k, bytes, quick);
            report("floor.crc." + std::string(k->name) + "." + name, rate, "GB/s");
        }
        if (rate <= best_rate) continue;
        best_rate = rate;
        best = k;
    }
    return *best;
}

/// The number of header bytes before a payload.
constexpr uint32_t kHead = 40;

uint32_t copied_then_summed(const Kernel& kernel, uint8_t* frame, const uint8_t* from) {
    std::memcpy(frame + kHead, from, kMtu);
    return kernel.crc(0, frame, kHead + kMtu, wire::crc::kNoMask);
}
uint32_t copied_in_one_pass(const Kernel& kernel, uint8_t* frame, const uint8_t* from) {
    return kernel.copying(0, frame, kHead, wire::crc::kNoMask, from, kMtu);
}
using Out = decltype(copied_then_summed);

/// Passes a message of `bytes` bytes through frames without a transport. One side copies into a frame and computes
/// the CRC. The other side computes the CRC and copies the bytes out of the frame.
void copy_crc_floor(const std::string& figure, Out* out, size_t bytes, const Kernel& kernel, bool quick) {
    constexpr size_t kFrames = 64, kRoom = 4480, kLine = 64;
    const auto from = memory(bytes), to = memory(bytes), frames = memory(kFrames * kRoom);
    const size_t rounds = std::max<size_t>(1, (size_t{16} << 20) / bytes);
    uint32_t sum = 0;
    const double ns = best_ns(quick ? 5 : 15, [&] {
        for (size_t r = 0; r < rounds; ++r) {
            for (size_t at = 0; at < bytes; at += kMtu) {
                uint8_t* frame = frames.get() + at / kMtu % kFrames * kRoom + kLine - kHead;
                sum ^= out(kernel, frame, from.get() + at);
                sum ^= kernel.crc(0, frame, kHead + kMtu, wire::crc::kNoMask);
                std::memcpy(to.get() + at, frame + kHead, kMtu);
            }
        }
    });
    asm volatile("" ::"r"(sum));
    report(figure, double(bytes * rounds) / ns, "GB/s");
}

}  // namespace

void crc_floors(bool quick) {
    constexpr std::pair<const char*, size_t> kSizes[] = {
        {"4KiB", 4096}, {"64KiB", 64 << 10}, {"1MiB", 1 << 20}, {"64MiB", 64 << 20}};
    const Kernel& best = crc_rows(quick);
    for (const auto& [name, bytes] : kSizes) {
        copy_crc_floor(std::string("floor.copy_crc_both_sides.") + name, copied_then_summed, bytes, best, quick);
        copy_crc_floor(std::string("floor.one_pass_out.") + name, copied_in_one_pass, bytes, best, quick);
    }
}

}  // namespace roci::bench
