// CRC-32 of short stretches by carry-less multiplication: the headers of a frame, and small frames as a whole. ISA-L's kernels
// are made for kilobytes; on a hundred bytes most of their time is set-up and serial folding.
//
// The message is cut into 16-byte blocks. Each is multiplied by the power of x that carries it to the place of the last block,
// all independently of each other; the sum has the same remainder as the message, and is reduced to 32 bits once (Gopal et al.,
// "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ"). Bit-reflected throughout, as the ICRC is.
#pragma once

#ifdef __x86_64__

#include <immintrin.h>

#include <array>
#include <cstdint>

namespace roci::wire {

/// Longest stretch that crc_short takes.
inline constexpr uint32_t kShortCrc = 272;

namespace short_crc {

inline constexpr uint32_t kBlock = 16, kBlocks = kShortCrc / kBlock;

/// x^bits mod P, reflected and shifted by one: a factor for the reflected product of two 64-bit halves, which comes out one bit
/// short.
constexpr uint64_t power(uint32_t bits) {
    uint32_t r = 0x80000000;  // 1
    for (uint32_t i = 0; i < bits; ++i) r = (r >> 1) ^ ((r & 1) != 0 ? 0xedb88320u : 0u);
    return uint64_t{r} << 1;
}
/// Carries the low and the high half of a block over `n` blocks.
struct alignas(16) Carry {
    uint64_t low, high;
};
inline constexpr auto kCarry = [] {
    std::array<Carry, kBlocks + 1> t{};
    for (uint32_t n = 0; n <= kBlocks; ++n) t[n] = {power(n == 0 ? 0 : 128 * n + 32), power(n == 0 ? 0 : 128 * n - 32)};
    return t;
}();
static_assert(kCarry[1].low == 0x1751997d0 && kCarry[1].high == 0x0ccaa009e);  // as published
static_assert(kCarry[4].low == 0x154442bd4 && kCarry[4].high == 0x1c6e41596);

/// Bytes 16 - n … 31 - n select from a vector what lies n bytes further on, zero beyond its end; bytes 16 + n … what lies n bytes
/// back.
alignas(16) inline constexpr uint8_t kSlide[48] = {
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,  //
    0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,    //
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80};

[[gnu::target("pclmul,sse4.1")]] inline __m128i load(const uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

[[gnu::target("pclmul,sse4.1")]] inline __m128i carry(__m128i block, uint32_t blocks) {
    const __m128i k = _mm_load_si128(reinterpret_cast<const __m128i*>(&kCarry[blocks]));
    return _mm_xor_si128(_mm_clmulepi64_si128(block, k, 0x00), _mm_clmulepi64_si128(block, k, 0x11));
}

/// 128 bits to 32 (Barrett).
[[gnu::target("pclmul,sse4.1")]] inline uint32_t reduce(__m128i x) {
    const __m128i low32 = _mm_setr_epi32(-1, 0, 0, 0);
    const __m128i k64 = _mm_setr_epi32(int(power(64)), int(power(64) >> 32), 0, 0);
    const __m128i barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);  // floor(x^64 / P), P
    x = _mm_xor_si128(_mm_clmulepi64_si128(x, _mm_loadu_si128(reinterpret_cast<const __m128i*>(&kCarry[1])), 0x10),
                      _mm_srli_si128(x, 8));
    x = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(x, low32), k64, 0x00), _mm_srli_si128(x, 4));
    __m128i q = _mm_clmulepi64_si128(_mm_and_si128(x, low32), barrett, 0x10);
    q = _mm_clmulepi64_si128(_mm_and_si128(q, low32), barrett, 0x00);
    return uint32_t(_mm_extract_epi32(_mm_xor_si128(x, q), 1));
}

}  // namespace short_crc

/// CRC-32 (not inverted, neither at its start nor at its end) of `n` bytes at `p`, 32 <= n <= kShortCrc, after `state`. The first
/// `masked` bytes are read with `mask` laid over them by OR; `mask` has 16 zero bytes after them.
[[gnu::target("pclmul,sse4.1")]] inline uint32_t crc_short(uint32_t state, const uint8_t* p, uint32_t n, const uint8_t* mask,
                                                           uint32_t masked) {
    using namespace short_crc;
    const uint32_t blocks = n / kBlock, tail = n % kBlock;
    __m128i sum = _mm_setzero_si128();
    const __m128i start = _mm_cvtsi32_si128(int(state));
    for (uint32_t at = 0, after = blocks; after-- != 0; at += kBlock) {
        __m128i block = load(p + at);
        if (at < masked) block = _mm_or_si128(block, load(mask + at));
        if (at == 0) block = _mm_xor_si128(block, start);
        sum = _mm_xor_si128(sum, after == 0 ? block : carry(block, after));
    }
    if (tail == 0) return reduce(sum);
    // The sum and the tail are 16 + tail bytes: the first `tail` of them are carried over one block, the rest is the last block.
    __m128i end = load(p + n - kBlock);
    if (n - kBlock < masked) end = _mm_or_si128(end, load(mask + n - kBlock));
    const __m128i first = _mm_shuffle_epi8(sum, load(kSlide + tail));
    const __m128i rest = _mm_shuffle_epi8(sum, load(kSlide + kBlock + tail));
    const __m128i keep =
        _mm_cmpgt_epi8(_mm_set1_epi8(char(tail)), _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
    return reduce(_mm_xor_si128(carry(first, 1), _mm_or_si128(rest, _mm_and_si128(end, keep))));
}

}  // namespace roci::wire

#endif
