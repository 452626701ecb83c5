// The data that the analysis keeps per captured frame.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "wire/opcode.hpp"

namespace roci::plot {

enum class Direction : uint8_t { unknown, in, out };

/// The interface and the direction in which a frame was captured. One capture may have several places, for example both ends of a
/// link.
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
    uint32_t dma_length = 0;  ///< DMA length of the RETH; 0 without RETH
    Place place;
    uint8_t opcode = 0, syndrome = 0;
    bool ack_request = false, marked = false;

    const wire::OpcodeInfo& info() const { return wire::opcode_info(opcode); }
    bool request() const { return info().has(wire::kRequest); }
    bool response() const { return info().has(wire::kResponse); }
    bool cnp() const { return opcode == wire::kCnpOpcode; }
};

/// The key of a flow: the frames from one address (UD: from one QP) to one QP of another address.
struct FlowKey {
    Gid source, dest;
    Qpn dest_qp;
    Qpn source_qp;  ///< set for UD only, because a frame of RC, UC or XRC does not contain the number of the sending QP
    auto operator<=>(const FlowKey&) const = default;
};

struct Flow {
    FlowKey key;
    wire::Service service = wire::Service::cnp;  ///< service of the first frame that is not a CNP
    std::vector<uint32_t> frames = {};           ///< indices of frames, in the order of time
    uint32_t requests = 0, responses = 0, cnps = 0;
};

/// The numbers of frames of a file, by the result of decoding.
struct ReadCounts {
    uint64_t frames = 0;            ///< all frames of the file
    uint64_t roce = 0;              ///< RoCEv2 packets; the page shows only these
    uint64_t other = 0;             ///< not RoCEv2
    uint64_t tcp = 0, roce_v1 = 0;  ///< part of `other`: TCP, and RoCE v1
    uint64_t malformed = 0;         ///< sent to UDP port 4791, but not a RoCEv2 packet
    uint64_t headers_cut = 0;       ///< frames without all headers, because of the snap length
    uint64_t payload_cut = 0;       ///< frames without all payload, so their ICRC is not checked
    uint64_t icrc_good = 0, icrc_wrong = 0;
    bool operator==(const ReadCounts&) const = default;
};

struct Capture {
    std::string name;           ///< name of the capture on the page
    std::vector<Frame> frames;  ///< in the order of time
    std::vector<Flow> flows;
    std::vector<std::string> places;  ///< names of the interfaces, if the file contains names
    ReadCounts counts;
    std::string cut;  ///< error that ended the reading before the end of the file; "": none
    std::vector<std::string> notices;
};

}  // namespace roci::plot
