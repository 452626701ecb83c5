#include "wire/icrc.hpp"

#include <isa-l/crc.h>

#include <cstring>

#include "base/stage.hpp"
#include "wire/packet.hpp"
#include "wire/short_crc.hpp"

namespace roci::wire {
namespace {

/// CRC-32 (reflected 0xEDB88320, inverted at both ends) of eight bytes of ones: they stand for the LRH that RoCEv2 does not have.
constexpr uint32_t crc_of_ones() {
    uint32_t crc = 0xffffffff;
    for (int bit = 0; bit < 64; ++bit) crc = (crc >> 1) ^ (((crc & 1) ^ 1) != 0 ? 0xedb88320u : 0u);
    return ~crc;
}
constexpr uint32_t kSeed = crc_of_ones();

constexpr uint32_t kMaxIpHeader = 60;
constexpr uint32_t kTail = kUdpLength + kBthLength;

/// Ones where a field may change on the way (A17.3.3). IPv4: type of service, TTL, checksum. IPv6: traffic class, flow label, hop
/// limit. UDP: checksum. BTH: FECN, BECN and the six reserved bits beside them.
constexpr uint8_t kIpv4Mask[kIpv4Length] = {0, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0, 0xff, 0xff};
constexpr uint8_t kIpv6Mask[kIpv6Length] = {0x0f, 0xff, 0xff, 0xff, 0, 0, 0, 0xff};
constexpr uint8_t kTailMask[kTail] = {0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0xff};

/// IP, UDP and BTH with the masks applied, of constant length so that it is a few vector operations.
template <uint32_t kIpLength>
struct Masked {
    static constexpr uint32_t kLength = kIpLength + kTail;
    struct Mask {
        uint8_t bytes[kLength + 16]{};  // zeros at the end: crc_short reads whole blocks
    };
    static constexpr Mask make() {
        constexpr const uint8_t* ip = kIpLength == kIpv4Length ? kIpv4Mask : kIpv6Mask;
        Mask m;
        for (uint32_t i = 0; i < kIpLength; ++i) m.bytes[i] = ip[i];
        for (uint32_t i = 0; i < kTail; ++i) m.bytes[kIpLength + i] = kTailMask[i];
        return m;
    }
    static constexpr Mask kMask = make();
    alignas(16) uint8_t bytes[kLength];
    explicit Masked(const uint8_t* l3) {
        for (uint32_t i = 0; i < kLength; ++i) bytes[i] = uint8_t(l3[i] | kMask.bytes[i]);
    }
};

/// ISA-L's wide kernels return with dirty upper halves of the vector registers. Everything compiled for plain SSE2 then runs
/// several times slower until they are cleared: measured, 145 instead of 35 ns to build a frame.
#ifdef __x86_64__
[[gnu::target("avx"), gnu::noinline]] void clear_upper_halves() { __builtin_ia32_vzeroupper(); }
const bool kHasAvx = __builtin_cpu_supports("avx") != 0;
inline void clean_vector_registers() {
    if (kHasAvx) clear_upper_halves();
}
#else
inline void clean_vector_registers() {}
#endif

#ifdef __x86_64__
const bool kHasCarryless = __builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("sse4.1") != 0;

/// Frames of a few hundred bytes at once; of longer ones the headers, then ISA-L for the rest.
template <uint32_t kIpLength>
uint32_t crc_carryless(const uint8_t* l3, uint32_t length) {
    using Head = Masked<kIpLength>;
    const uint32_t first = length <= kShortCrc ? length : Head::kLength;
    const uint32_t crc = ~crc_short(~kSeed, l3, first, Head::kMask.bytes, Head::kLength);
    if (first == length) return crc;
    const uint32_t all = crc32_gzip_refl(crc, l3 + first, length - first);
    clean_vector_registers();
    return all;
}
#endif

template <uint32_t kIpLength>
uint32_t crc_of(const uint8_t* l3, uint32_t length) {
#ifdef __x86_64__
    if (kHasCarryless) return crc_carryless<kIpLength>(l3, length);
#endif
    const Masked<kIpLength> head(l3);
    // crc32_gzip_refl inverts seed and result itself, so partial results chain.
    const uint32_t crc = crc32_gzip_refl(kSeed, head.bytes, sizeof head.bytes);
    const uint32_t all = crc32_gzip_refl(crc, l3 + sizeof head.bytes, length - sizeof head.bytes);
    clean_vector_registers();
    return all;
}

/// IPv4 with options: rare, any length.
uint32_t crc_with_options(const uint8_t* l3, uint32_t length, uint32_t ip_header_length) {
    uint8_t head[kMaxIpHeader + kTail];
    const uint32_t head_length = ip_header_length + kTail;
    std::memcpy(head, l3, head_length);
    for (uint32_t i = 0; i < kIpv4Length; ++i) head[i] |= kIpv4Mask[i];
    for (uint32_t i = 0; i < kTail; ++i) head[ip_header_length + i] |= kTailMask[i];
    const uint32_t crc = crc32_gzip_refl(kSeed, head, head_length);
    const uint32_t all = crc32_gzip_refl(crc, l3 + head_length, length - head_length);
    clean_vector_registers();
    return all;
}

}  // namespace

uint32_t icrc(const uint8_t* l3, uint32_t length, bool ipv6, uint32_t ip_header_length) {
    ROCI_STAGE(icrc);
    if (ipv6) return crc_of<kIpv6Length>(l3, length);
    if (ip_header_length == kIpv4Length) return crc_of<kIpv4Length>(l3, length);
    return crc_with_options(l3, length, ip_header_length);
}

}  // namespace roci::wire
