#include "wire/icrc_identification.hpp"

namespace roci::wire {
namespace {

// Polynomials over GF(2) modulo the CRC-32 polynomial, in the reflected form that the ICRC has: bit 31 is the coefficient of x^0.
constexpr uint32_t kPolynomial = 0xedb88320, kOne = 0x80000000, kX = 0x40000000;
/// The polynomial is primitive, so x has this order, and x^(kOrder - n) is the inverse of x^n.
constexpr uint32_t kOrder = 0xffffffff;

constexpr uint32_t times_x(uint32_t a) { return (a >> 1) ^ ((a & 1) != 0 ? kPolynomial : 0); }

constexpr uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int i = 31; i >= 0; --i) {
        if ((a >> i & 1) != 0) product ^= b;
        b = times_x(b);
    }
    return product;
}

constexpr uint32_t power_of_x(uint32_t exponent) {
    uint32_t result = kOne;
    for (uint32_t square = kX; exponent != 0; exponent >>= 1, square = multiply(square, square))
        if ((exponent & 1) != 0) result = multiply(result, square);
    return result;
}
static_assert(multiply(power_of_x(1000), power_of_x(kOrder - 1000)) == kOne);

/// Offsets of the ends of the two 16-bit words in the IPv4 header, bytes.
constexpr uint32_t kIdentificationEnd = 6, kFlagsEnd = 8;

/// Returns x^(8 * rest + 32). A word that is followed by `rest` bytes of the message contributes the word times this power of x
/// to the remainder.
constexpr uint32_t factor(uint32_t rest) { return power_of_x(8 * rest + 32); }

/// Converts a word to a polynomial. The message contains the bytes of the word in network order. The CRC processes the lowest bit
/// of each byte first.
constexpr uint32_t polynomial_of(uint16_t word) { return uint32_t(uint16_t(word << 8 | word >> 8)) << 16; }
constexpr uint16_t word_of(uint32_t polynomial) {
    const auto swapped = uint16_t(polynomial >> 16);
    return uint16_t(swapped << 8 | swapped >> 8);
}

}  // namespace

IcrcShift::IcrcShift(uint32_t covered)
    : covered_(covered),
      flags_(factor(covered - kFlagsEnd)),
      inverse_(power_of_x(kOrder - (8 * (covered - kIdentificationEnd) + 32))) {
    const uint32_t identification = factor(covered - kIdentificationEnd);
    for (uint32_t bit = 0; bit < of_bit_.size(); ++bit)
        of_bit_[bit] = multiply(polynomial_of(uint16_t(1u << bit)), identification);
}

uint32_t IcrcShift::of_flags(uint16_t change) const { return multiply(polynomial_of(change), flags_); }

std::optional<uint16_t> IcrcShift::identification_for(uint32_t difference) const {
    const uint32_t word = multiply(difference, inverse_);
    if ((word & 0xffff) != 0) return std::nullopt;
    return word_of(word);
}

}  // namespace roci::wire
