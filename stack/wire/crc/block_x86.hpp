// Operations of the x86-64 CRC kernels on a single 16-byte block. Each kernel defines ROCI_CRC_TARGET and then includes this
// file, which has no include guard.

#include <immintrin.h>

#include "wire/crc/constants.hpp"

namespace roci::wire::crc {
namespace {

ROCI_CRC_TARGET inline __m128i load_block(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }

/// Controls of the byte shuffle. The 16 bytes at offset n move the first n bytes of a block to the block's end and set the other
/// bytes to zero.
alignas(64) constexpr uint8_t kToEnd[32] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
                                            0x80, 0x80, 0x80, 0x80, 0x80, 0,    1,    2,    3,    4,    5,
                                            6,    7,    8,    9,    10,   11,   12,   13,   14,   15};

/// Returns a block of 16 - n zero bytes and the first `n` bytes at `p`. `n` is from 0 to 16. Reads 16 bytes at `p`.
ROCI_CRC_TARGET inline __m128i load_block_end(const uint8_t* p, uint32_t n) {
    return _mm_shuffle_epi8(load_block(p), load_block(kToEnd + n));
}

/// Reduces the 96 bits in bytes 4 to 15 to 32 bits by Barrett's method.
ROCI_CRC_TARGET inline uint32_t reduce(__m128i sum) {
    const __m128i factors = load_block(&kBarrett);
    const __m128i rest = _mm_srli_si128(sum, 4);
    const __m128i quotient = _mm_clmulepi64_si128(rest, factors, 0x00);
    return uint32_t(_mm_extract_epi32(_mm_xor_si128(rest, _mm_clmulepi64_si128(quotient, factors, 0x10)), 2));
}

}  // namespace
}  // namespace roci::wire::crc
