// CRC-32 kernel with 128-bit vectors. Uses the carry-less multiplication PMULL of ARMv8.
#include "wire/crc/kernel.hpp"

#if defined(__aarch64__)

#include <arm_neon.h>
#include <sys/auxv.h>

#include "wire/crc/constants.hpp"

#if defined(__clang__)
#define ROCI_CRC_TARGET [[gnu::target("aes")]]
#else
#define ROCI_CRC_TARGET [[gnu::target("+crypto")]]
#endif

namespace roci::wire::crc {
namespace {

using Vector = uint8x16_t;
constexpr uint32_t kVectorBytes = 16, kAccumulators = 8;

/// Controls of the byte shuffle. The 16 bytes at offset n move the first n bytes of a block to the block's end and set the other
/// bytes to zero.
alignas(64) constexpr uint8_t kToEnd[32] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
                                            0x80, 0x80, 0x80, 0x80, 0x80, 0,    1,    2,    3,    4,    5,
                                            6,    7,    8,    9,    10,   11,   12,   13,   14,   15};

ROCI_CRC_TARGET inline Vector load(const uint8_t* p) { return vld1q_u8(p); }
ROCI_CRC_TARGET inline void store(uint8_t* p, Vector v) { vst1q_u8(p, v); }
ROCI_CRC_TARGET inline Vector load_end(const uint8_t* p, uint32_t n) { return vqtbl1q_u8(load(p), load(kToEnd + n)); }
ROCI_CRC_TARGET inline Vector load_factors(const Factors* f) { return load(reinterpret_cast<const uint8_t*>(f)); }
ROCI_CRC_TARGET inline Vector spread(const Factors& f) { return load_factors(&f); }
ROCI_CRC_TARGET inline Vector either(Vector a, Vector b) { return vorrq_u8(a, b); }
ROCI_CRC_TARGET inline Vector add(Vector a, Vector b) { return veorq_u8(a, b); }
ROCI_CRC_TARGET inline Vector product_of_low(Vector a, Vector b) {
    const uint64_t x = vgetq_lane_u64(vreinterpretq_u64_u8(a), 0), y = vgetq_lane_u64(vreinterpretq_u64_u8(b), 0);
    return vreinterpretq_u8_p128(vmull_p64(x, y));
}
ROCI_CRC_TARGET inline Vector product_of_high(Vector a, Vector b) {
    return vreinterpretq_u8_p128(vmull_high_p64(vreinterpretq_p64_u8(a), vreinterpretq_p64_u8(b)));
}
ROCI_CRC_TARGET inline Vector times(Vector a, Vector f) { return add(product_of_low(a, f), product_of_high(a, f)); }
ROCI_CRC_TARGET inline Vector times_add(Vector a, Vector f, Vector c) {
    return add(product_of_low(a, f), add(product_of_high(a, f), c));
}
ROCI_CRC_TARGET inline Vector place_state(uint32_t state, const uint8_t* control) {
    return vqtbl1q_u8(vreinterpretq_u8_u32(vdupq_n_u32(state)), load(control));
}
/// Reduces the 96 bits in bytes 4 to 15 to 32 bits by Barrett's method.
ROCI_CRC_TARGET inline uint32_t remainder(Vector sum) {
    const Vector factors = load_factors(&kBarrett), zero = vdupq_n_u8(0);
    const Vector rest = vextq_u8(sum, zero, 4);
    const Vector quotient = product_of_low(rest, factors);
    const Vector multiple = product_of_low(quotient, vextq_u8(factors, zero, 8));
    return vgetq_lane_u32(vreinterpretq_u32_u8(add(rest, multiple)), 2);
}

}  // namespace
}  // namespace roci::wire::crc

#include "wire/crc/fold.hpp"

namespace roci::wire::crc {
namespace {
bool supported() { return (getauxval(AT_HWCAP) & HWCAP_PMULL) != 0; }
}  // namespace

constinit const Kernel kPmull{"pmull", crc_folded, crc_folded_copying, supported};

}  // namespace roci::wire::crc

#endif
