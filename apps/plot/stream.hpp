// Analyses the requests of one end of a connection and the responses to these requests. The analysis shows which packets were
// sent, sent again, acknowledged, reported as missing, lost or marked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "view.hpp"

namespace roci::plot {

/// The classification of a packet.
enum class Kind : uint8_t {
    sent,      ///< a request that was not sent before
    resent,    ///< a request that was sent before
    late,      ///< a request that was captured after later requests
    missing,   ///< a packet that was lost before the place of the capture
    response,  ///< a response to a READ or an atomic
    response_again,
    ack,
    nak_sequence,
    nak_rnr,
    nak_error,
    cnp,
    count_,
};
/// Returns the name of the kind for the page: "sent", "resent", …
const char* kind_name(Kind kind);

struct Event {
    int64_t time = 0;
    int64_t psn = 0;  ///< PSN, extended beyond 24 bits so that the number never wraps
    uint32_t bytes = 0;
    Kind kind = Kind::sent;
    uint8_t opcode = 0, syndrome = 0;
    bool lost = false, marked = false;
    bool of_responder = false;  ///< sent by the responder to the requester
};

struct Counts {
    uint64_t packets = 0;         ///< captured request packets, including copies
    uint64_t sent = 0;            ///< request packets, without copies
    uint64_t resent = 0;          ///< captured copies of requests that had been sent before
    uint64_t again = 0;           ///< part of `resent`: an earlier copy was captured
    uint64_t needless = 0;        ///< part of `again`: the request had already been acknowledged
    uint64_t lost = 0;            ///< copies of requests and responses that did not arrive
    uint64_t lost_responses = 0;  ///< part of `lost`
    uint64_t late = 0;
    uint64_t not_captured = 0;  ///< packets that are not in the capture although they seem to have arrived
    uint64_t responses = 0, responses_again = 0, acks = 0;
    uint64_t sequence_naks = 0, rnr_naks = 0, error_naks = 0;
    uint64_t marked = 0, cnps = 0;
    uint64_t payload = 0;  ///< bytes that arrived, without repetitions
    bool operator==(const Counts&) const = default;
};

struct RttSample {
    int64_t time = 0;
    int64_t psn = 0;
    int64_t rtt = 0;
};

struct InFlight {
    int64_t time = 0;
    uint64_t packets = 0, bytes = 0;
};

struct Delivered {
    int64_t time = 0;
    uint64_t bytes = 0;
};

struct Acked {
    int64_t time = 0;
    int64_t psn = 0;  ///< all PSNs up to this PSN are acknowledged
};

struct Message {
    std::string name;             ///< such as "WRITE" or "SEND with Immediate"
    int64_t first = 0, last = 0;  ///< first and last PSN
    /// `end` is the time of the acknowledgement, or -1 if the acknowledgement is not in the capture. For UC and UD, `end` is the
    /// time of the last packet.
    int64_t begin = 0, end = -1;
    uint64_t bytes = 0;
    uint32_t resent = 0;
};

/// The longest time in which a reliable requester had packets in flight and received no new acknowledgement.
struct Gap {
    int64_t length = 0, begin = 0, psn = 0;
};

struct Stream {
    bool reliable = false;
    bool lost_known = false;  ///< losses are known, because both ends are in the capture
    bool answered = false;    ///< the capture contains ACKs, NAKs or responses
    std::vector<Event> events;
    std::vector<Acked> acked;
    std::vector<RttSample> rtt;
    std::vector<InFlight> in_flight;
    std::vector<Delivered> delivered;
    std::vector<Message> messages;
    Counts counts;
    Gap longest_gap;
    bool empty() const { return events.empty(); }
};

/// Analyses the requests of one end. `requests` are the packets from the requester to the responder, and `responses` are the
/// packets in the other direction. Both ends may send requests, so each view may contain requests and responses. The function
/// uses only the requests in `requests`, and the responses and CNPs in `responses`.
Stream analyse(const View& requests, const View& responses, wire::Service service);

}  // namespace roci::plot
