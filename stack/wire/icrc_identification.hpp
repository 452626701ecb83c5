// The ICRC covers the identification of the IPv4 header (A17.3.3 masks only type of service, TTL and checksum). With a UDP
// socket, rocid can neither set nor read the identification. A CRC is linear, so the ICRC for another identification needs no
// second pass over the frame. The sender computes the change of the ICRC from the change of the identification. The receiver
// computes the unknown identification from the difference between two ICRCs.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>

namespace roci::wire {

/// The word of the IPv4 header that contains flags and fragment offset, with only the don't-fragment bit set.
inline constexpr uint16_t kDontFragmentWord = 0x4000;

/// The factors of these computations for one frame length. `covered` is the number of bytes that the ICRC covers, from the IP
/// header to the byte before the ICRC.
class IcrcShift {
public:
    IcrcShift() = default;
    explicit IcrcShift(uint32_t covered);
    uint32_t covered() const { return covered_; }
    /// Returns the value by which the ICRC changes (XOR) if the identification is XORed with `change`. The ICRC is the value as
    /// stored in memory (little endian).
    uint32_t of_identification(uint16_t change) const {
        uint32_t sum = 0;
        for (uint32_t left = change; left != 0; left &= left - 1) sum ^= of_bit_[uint32_t(std::countr_zero(left))];
        return sum;
    }
    /// Like of_identification(), for the word of flags and fragment offset.
    uint32_t of_flags(uint16_t change) const;
    /// Returns the change of the identification that causes `difference` between two ICRCs, or nullopt if no change causes it.
    /// Only 2^16 of the 2^32 possible differences have a result. So only one of 65,536 corrupt frames remains undetected.
    std::optional<uint16_t> identification_for(uint32_t difference) const;

private:
    uint32_t covered_ = 0;
    uint32_t flags_ = 0, inverse_ = 0;   ///< powers of x modulo the CRC's polynomial
    std::array<uint32_t, 16> of_bit_{};  ///< of_identification() of each bit
};

/// Caches the factors of recently used frame lengths, because a flow has few different frame lengths.
class IcrcShiftCache {
public:
    const IcrcShift& of(uint32_t covered) {
        IcrcShift& line = lines_[covered / 4 % lines_.size()];
        if (line.covered() != covered) line = IcrcShift(covered);
        return line;
    }

private:
    std::array<IcrcShift, 64> lines_{};
};

}  // namespace roci::wire
