// Factors of carry-less multiplication for CRC-32. The compiler computes the factors. All bits are reflected, as in the ICRC: bit
// 0 of a word is the coefficient of the word's highest power of x. tests/unit/wire/crc_test.cpp checks every factor by long
// division.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace roci::wire::crc {

/// The polynomial P of CRC-32 without its term x^32.
inline constexpr uint32_t kPolynomial = 0xedb88320;

constexpr uint32_t times_x(uint32_t a) { return a >> 1 ^ ((a & 1) != 0 ? kPolynomial : 0u); }

/// Returns a · b mod P.
constexpr uint32_t product(uint32_t a, uint32_t b) {
    uint32_t sum = 0;
    for (uint32_t bit = 0x80000000; bit != 0; bit >>= 1, a = times_x(a))
        if ((b & bit) != 0) sum ^= a;
    return sum;
}

/// Returns x^n mod P.
constexpr uint32_t power(uint64_t n) {
    uint32_t result = 0x80000000, square = 0x40000000;
    for (; n != 0; n >>= 1, square = product(square, square))
        if ((n & 1) != 0) result = product(result, square);
    return result;
}

/// Factors of the two 64-bit halves of a 16-byte block. The sum of the two products has 128 bits.
struct alignas(16) Factors {
    uint64_t low, high;
};

inline constexpr uint32_t kBlock = 16;

/// Returns the factors that move a block towards the end of the message by `blocks` blocks. The sum of the two products is a
/// block again. The carry-less product of two reflected 64-bit words is one power of x too low, so each factor is shifted left by
/// one bit.
constexpr Factors carry(uint32_t blocks) {
    return {uint64_t{power(128 * blocks + 32)} << 1, uint64_t{power(128 * blocks - 32)} << 1};
}

/// Returns the factors for a block that is followed by `blocks` blocks of the message. The sum of the two products is the block's
/// contribution to message · x^32. The degree of the sum is 95 at most.
constexpr Factors finish(uint32_t blocks) {
    return {uint64_t{power(128 * blocks + 95)} << 32, uint64_t{power(128 * blocks + 31)} << 32};
}

/// The largest number of blocks of a message that is computed without folding (crc_short() in fold.hpp).
inline constexpr uint32_t kFinishBlocks = 32;

/// The results of finish() for the last kFinishBlocks blocks of a message. The last entry is for the last block.
inline constexpr auto kFinish = [] {
    std::array<Factors, kFinishBlocks> t{};
    for (uint32_t i = 0; i < kFinishBlocks; ++i) t[i] = finish(kFinishBlocks - 1 - i);
    return t;
}();

/// Entry n contains the factors that move a block by n * kVectorBlocks blocks.
template <uint32_t kVectorBlocks, uint32_t kMost>
inline constexpr auto kCarry = [] {
    std::array<Factors, kMost + 1> t{};
    for (uint32_t n = 1; n <= kMost; ++n) t[n] = carry(n * kVectorBlocks);
    return t;
}();

/// Returns the two factors of Barrett's reduction from 96 to 32 bits: floor(x^95 / P), and P times x^31.
constexpr Factors barrett() {
    uint64_t quotient = 0;
    uint32_t rest = 0x80000000;  // x^0; each of the 95 steps multiplies `rest` by x
    for (int i = 0; i < 95; ++i) {
        const uint64_t carried = rest & 1;
        rest = times_x(rest);
        if (i >= 31) quotient |= carried << (i - 31);
    }
    return {quotient, uint64_t{kPolynomial} << 1 | 1};
}
inline constexpr Factors kBarrett = barrett();

/// Table for the computation of one byte at a time.
inline constexpr auto kByteTable = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
        t[i] = i;
        for (int bit = 0; bit < 8; ++bit) t[i] = times_x(t[i]);
    }
    return t;
}();

}  // namespace roci::wire::crc
