// Converts captured bytes to a Frame. A captured frame may be truncated by a snap length, have no ICRC, or have a link type other
// than Ethernet. The decoder converts each captured frame to a complete Ethernet frame, and passes the Ethernet frame to the
// transport's parser.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "frame.hpp"
#include "wire/packet.hpp"

namespace roci::plot {

/// The kind of header before the IP header of a captured frame.
enum class Link : uint8_t { ethernet, raw_ip, linux_any, linux_any2 };

class Decoder {
public:
    static constexpr size_t kMostFlows = 20'000;

    /// `without_icrc` is true if the frames of the capture end with their payload.
    explicit Decoder(Capture& out, bool without_icrc = false) : out_(out), without_icrc_(without_icrc) {}

    /// Adds one frame to the capture, or counts the reason why the frame is not added. `length` is the length of the frame on the
    /// wire. If `place` is set, it replaces the place from the link header.
    void add(int64_t time, std::span<const uint8_t> bytes, uint32_t length, Link link, std::optional<Place> place);
    /// Returns the number of refused frames that would be valid RoCEv2 packets if an ICRC was added.
    uint64_t only_without_icrc() const { return only_without_icrc_; }

private:
    bool place_ethernet(std::span<const uint8_t> bytes, Link link);
    void add_without_icrc();
    wire::Verdict parse_copy(wire::Packet& packet);
    void count_refused(wire::Verdict verdict);
    std::optional<uint32_t> flow_of(const wire::Packet& packet);
    bool count_icrc(const wire::Packet& packet);

    Capture& out_;
    const bool without_icrc_;
    uint64_t only_without_icrc_ = 0;
    std::map<FlowKey, uint32_t> flows_;
    std::array<uint8_t, 1 << 17> frame_{};
    uint32_t captured_ = 0, length_ = 0;  ///< captured and full length of frame_
    uint32_t dirty_ = 0;                  ///< number of bytes at the start of frame_ that may not be zero
    Place place_;
};

}  // namespace roci::plot
