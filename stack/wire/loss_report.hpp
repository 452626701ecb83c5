// Loss reports. A requester requests reports from its peer by an inquiry. The peer then sends reports that list the packets that
// arrived behind a gap. Only Rocinante implements reports and inquiries. Any other receiver drops these packets silently for two
// reasons: the opcode is reserved for manufacturers and belongs to no transport service (IBA 9.2.1), and the transport version is
// not 0 (IBA 9.2.2). The opcode alone is not sufficient, because Soft-RoCE (Linux) processes a packet with an unknown opcode as a
// response. But Soft-RoCE drops all packets whose version is not 0.
#pragma once

#include <array>
#include <cstdint>

#include "base/types.hpp"

namespace roci::wire {

enum class ReportKind : uint8_t { inquiry = 0, report = 1 };

/// The payload of a loss report or an inquiry, in host byte order. For an inquiry, the receiver uses only `kind`.
struct LossReport {
    static constexpr uint32_t kMost = 256;  ///< largest number of PSNs that a report covers
    static constexpr uint32_t kBytes = 20 + kMost / 8;

    ReportKind kind = ReportKind::inquiry;
    uint16_t serial = 0;                       ///< number of the report; a report older than the last one has no effect
    uint16_t length = 0;                       ///< number of PSNs that the report covers, from `base` on
    uint16_t places = 0;                       ///< a missing packet may still arrive after this many later packets
    Psn base;                                  ///< expected PSN of the responder; all earlier packets have arrived
    Psn newest;                                ///< newest PSN that has arrived
    std::array<uint8_t, kMost / 8> arrived{};  ///< bit i, from the least significant bit of byte 0 on: base + i has arrived

    bool has(uint32_t i) const { return (arrived[i / 8] >> i % 8 & 1) != 0; }
    void set(uint32_t i) { arrived[i / 8] = uint8_t(arrived[i / 8] | 1u << i % 8); }
};

/// Writes kBytes bytes.
void write_loss_report(uint8_t* out, const LossReport& report);
/// Sets `out` to the report or inquiry. Returns false if the bytes are no loss report or inquiry of a supported version, or if
/// the values of the report contradict each other.
bool read_loss_report(const uint8_t* bytes, uint32_t length, LossReport& out);

}  // namespace roci::wire
