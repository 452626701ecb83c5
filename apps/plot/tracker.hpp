// Classifies the requests of one end and their responses, packet by packet. A Tracker contains the state that is necessary to
// classify the next packet. Its result is a Stream.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "stream.hpp"

namespace roci::plot {

/// The extended PSN of PSN 0 at the beginning of a capture. Smaller numbers are available for earlier PSNs. The value is a
/// multiple of 2^24, so that the low 24 bits of an extended PSN are the PSN. The value is also a multiple of 10^6, so that the
/// last 6 decimal digits of an extended PSN are those of the PSN.
inline constexpr int64_t kFirstCircle = (int64_t{1} << 24) * 15'625;

class Tracker {
public:
    /// `mtu` is 0 if unknown. If `requests_known` is true, Sighting::lost is valid for requests. If `responses_known` is true,
    /// Sighting::lost is valid for responses.
    Tracker(bool reliable, uint32_t mtu, bool requests_known, bool responses_known);
    void request(const Sighting& s);
    void response(const Sighting& s);
    void cnp(const Sighting& s);
    Stream finish();

private:
    /// A recent request. Its key in `requests_` is its first PSN.
    struct Request {
        uint32_t info = 0;    ///< index in infos_
        uint32_t event = 0;   ///< event of the newest copy
        uint32_t span = 1;    ///< number of PSNs; for a READ, the number of its responses
        uint32_t copies = 1;  ///< number of times that the request was sent, including a copy that is not in the capture
        bool reads = false;
    };
    /// The data of a request that make_messages() uses.
    struct Info {
        int64_t psn = 0, time = 0;
        uint32_t payload = 0, dma_length = 0, span = 1, resent = 0;
        uint8_t opcode = 0;
    };
    /// The payload of a request in flight. If `reads` is true, responses carry the payload. Otherwise the request carries the
    /// payload.
    struct Owed {
        uint64_t bytes = 0;
        bool reads = false;
    };
    /// A range of PSNs that are not captured yet, although later PSNs are captured. The key in `holes_` is the first PSN.
    struct Hole {
        int64_t end = 0, time = 0;
        uint64_t requests = 0;  ///< requests_seen_ when the hole was found
        bool reported = false;  ///< a NAK reported the hole
    };

    int64_t unwrap(uint32_t psn, int64_t near) const;
    uint32_t span_of(const Frame& f) const;
    Event& add(const Sighting& s, Kind kind, int64_t psn);
    void restart(int64_t psn);
    void first_sight(const Sighting& s, int64_t psn, uint32_t span);
    void owe(const Sighting& s, int64_t psn, uint32_t span);
    bool fill_hole(const Sighting& s, int64_t psn);
    void again(const Sighting& s, int64_t psn, Request& request);
    void mark_lost(Event& event);
    void missing(int64_t time, int64_t psn, bool response);
    std::map<int64_t, Hole>::iterator hole_with(int64_t psn);
    std::map<int64_t, Request>::iterator read_with(int64_t psn);
    void prune();

    void acknowledgement(const Sighting& s, int64_t psn);
    void nak(const Sighting& s, int64_t psn);
    void correct_reported(int64_t psn);
    void read_response(const Sighting& s, int64_t psn);
    void advance(int64_t time, int64_t psn);
    void measure(int64_t time, int64_t psn);
    void note_flight(int64_t time);
    void deliver(int64_t time, uint64_t bytes);
    void repeated_response(const Sighting& s, int64_t psn, uint32_t earlier);
    void finish_holes();
    void make_messages();
    int64_t acked_at(int64_t psn) const;

    const bool reliable_, requests_known_, responses_known_;
    const uint32_t mtu_;
    Stream out_;
    std::map<int64_t, Request> requests_;  ///< key: first PSN
    std::vector<Info> infos_;
    std::map<int64_t, Hole> holes_;
    int64_t missing_left_ = 1 << 16;  ///< number of missing PSNs that may still get a separate event
    bool begun_ = false;
    int64_t next_ = 0;       ///< the PSN after the highest requested PSN
    int64_t acked_ = -1;     ///< all PSNs up to this PSN are acknowledged
    int64_t last_psn_ = -2;  ///< last PSN of the previous request
    bool last_was_again_ = false;
    int64_t back_from_ = 0, back_to_ = -1;  ///< PSNs that the requester repeats after a NAK; these packets may have arrived
    std::map<int64_t, uint32_t>
        reported_;               ///< packets that a sequence NAK reported as lost: PSN → index of the event of that copy
    std::set<int64_t> waiting_;  ///< PSNs of responses that are captured although an earlier response is missing
    std::map<int64_t, uint32_t> responses_;  ///< recent responses: PSN → index of the event of the newest copy
    int64_t response_next_ = 0;              ///< the PSN after the highest response
    int64_t last_response_ = -2;
    bool last_response_again_ = false;
    std::map<int64_t, Owed> owed_;  ///< payload in flight; key: last PSN of the request
    uint64_t owed_bytes_ = 0, requests_seen_ = 0;
    bool span_unknown_ = false;  ///< true: the number of PSNs of the newest READ is unknown, so the next PSN is also unknown
    std::vector<Delivered> first_sights_;
    std::optional<int64_t> least_rtt_;
    int64_t progress_ = 0;  ///< begin of the current time without progress: the last new acknowledgement or the first packet
};

}  // namespace roci::plot
