// The ICRC covers the identification of the IPv4 header (A17.3.3 masks only type of service, TTL and checksum). A UDP socket
// neither chooses nor shows it. A CRC is linear, so both directions need no second pass over the frame: the change of an ICRC
// follows from the change of the identification, and an unknown identification follows from the difference of two ICRCs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace roci::wire {

/// The word of flags and fragment offset, which follows the identification, with only the don't-fragment bit set.
inline constexpr uint16_t kDontFragmentWord = 0x4000;

/// Factors for one length of frame. `covered`: bytes that the ICRC covers, from the IP header to the byte before the ICRC.
class IcrcShift {
public:
    IcrcShift() = default;
    explicit IcrcShift(uint32_t covered);
    uint32_t covered() const { return covered_; }
    /// What to XOR onto the ICRC (as it lies in memory, little endian) when the identification changes by XOR with `change`.
    uint32_t of_identification(uint16_t change) const;
    /// The same for the flags and fragment offset.
    uint32_t of_flags(uint16_t change) const;
    /// The change of the identification alone that makes the difference `difference` between two ICRCs; nothing if none does. Of
    /// 2^32 differences 2^16 have an answer, so a corrupt frame is recognised but for one in 65,536.
    std::optional<uint16_t> identification_for(uint32_t difference) const;

private:
    uint32_t covered_ = 0;
    uint32_t identification_ = 0, flags_ = 0, inverse_ = 0;  ///< powers of x modulo the CRC's polynomial
};

/// Factors of the lengths used last: traffic has few lengths at a time.
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
