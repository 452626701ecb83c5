// What the analysis keeps of a captured frame.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "wire/opcode.hpp"

namespace roci::plot {

enum class Direction : uint8_t { unknown, in, out };

/// Where a frame was seen. One capture may have several places, for example both ends of a link.
struct Place {
    uint16_t interface = 0;
    Direction direction = Direction::unknown;
    auto operator<=>(const Place&) const = default;
};

struct Frame {
    int64_t time = 0;  ///< nanoseconds since 1970
    uint32_t flow = 0;
    uint32_t psn = 0;
    uint32_t payload = 0;
    uint32_t dma_length = 0;  ///< RETH
    Place place;
    uint8_t opcode = 0, syndrome = 0;
    bool ack_request = false, marked = false;

    const wire::OpcodeInfo& info() const { return wire::opcode_info(opcode); }
    bool request() const { return info().has(wire::kRequest); }
    bool response() const { return info().has(wire::kResponse); }
    bool cnp() const { return opcode == wire::kCnpOpcode; }
};

/// Frames from one address to one QP of another. A frame of RC, UC or XRC does not name the QP that sent it.
struct FlowKey {
    Gid source, dest;
    Qpn dest_qp;
    Qpn source_qp;  ///< UD only
    auto operator<=>(const FlowKey&) const = default;
};

struct Flow {
    FlowKey key;
    wire::Service service = wire::Service::cnp;  ///< of its first frame that is not a CNP
    std::vector<uint32_t> frames = {};           ///< indices, by time
    uint32_t requests = 0, responses = 0, cnps = 0;
};

/// Frames of a file by what became of them.
struct ReadCounts {
    uint64_t frames = 0;            ///< in the file
    uint64_t roce = 0;              ///< drawn
    uint64_t other = 0;             ///< no RoCEv2
    uint64_t tcp = 0, roce_v1 = 0;  ///< of `other`
    uint64_t malformed = 0;         ///< to port 4791, but no RoCEv2 packet
    uint64_t headers_cut = 0;       ///< the snap length cut the headers off
    uint64_t payload_cut = 0;       ///< the snap length cut the payload: no ICRC to check
    uint64_t icrc_good = 0, icrc_wrong = 0;
    bool operator==(const ReadCounts&) const = default;
};

struct Capture {
    std::string name;           ///< what the page calls it
    std::vector<Frame> frames;  ///< by time
    std::vector<Flow> flows;
    std::vector<std::string> places;  ///< names of interfaces, where the file has them
    ReadCounts counts;
    std::string cut;  ///< why reading ended before the end of the file; "": it did not
    std::vector<std::string> notices;
};

}  // namespace roci::plot
