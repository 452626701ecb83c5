// Follows the requests of one end packet by packet. A Tracker keeps the state to classify the next packet, and writes a Stream.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "stream.hpp"

namespace roci::plot {

/// The extended PSN of PSN 0 when a capture begins. Smaller numbers are left for earlier PSNs. The value is a multiple of 2^24
/// and of 10^6, so that round PSNs remain round.
inline constexpr int64_t kFirstCircle = (int64_t{1} << 24) * 15'625;

class Tracker {
public:
    /// `mtu` is 0 if unknown. If `requests_known` (`responses_known`) is true, Sighting::lost of requests (responses) is known.
    Tracker(bool reliable, uint32_t mtu, bool requests_known, bool responses_known);
    void request(const Sighting& s);
    void response(const Sighting& s);
    void cnp(const Sighting& s);
    Stream finish();

private:
    /// A recent request. The key in requests_ is its first PSN.
    struct Request {
        uint32_t info = 0;    ///< index in infos_
        uint32_t event = 0;   ///< event of the newest copy
        uint32_t span = 1;    ///< number of PSNs; for a READ, the number of its responses
        uint32_t copies = 1;  ///< including a copy that was lost before the place of the capture
        bool reads = false;
    };
    /// The data of a request that make_messages() uses.
    struct Info {
        int64_t psn = 0, time = 0;
        uint32_t payload = 0, dma_length = 0, span = 1, resent = 0;
        uint8_t opcode = 0;
    };
    /// The payload of a request in flight. If `reads` is true, responses carry the payload. Otherwise an ACK confirms it.
    struct Owed {
        uint64_t bytes = 0;
        bool reads = false;
    };
    /// PSNs that are not captured yet, although later PSNs are captured.
    struct Hole {
        int64_t end = 0, time = 0;
        uint64_t requests = 0;  ///< number of requests before the hole was found
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
    std::map<int64_t, Request> requests_;  ///< recent requests, by first PSN
    std::vector<Info> infos_;
    std::map<int64_t, Hole> holes_;
    int64_t missing_left_ = 1 << 16;  ///< number of missing PSNs that may still get a separate event
    bool begun_ = false;
    int64_t next_ = 0;       ///< the PSN after the highest requested one
    int64_t acked_ = -1;     ///< all PSNs up to this one are acknowledged
    int64_t last_psn_ = -2;  ///< last PSN of the previous request
    bool last_was_again_ = false;
    int64_t back_from_ = 0, back_to_ = -1;   ///< PSNs that the requester repeats because of a NAK, although they may not be lost
    std::set<int64_t> waiting_;              ///< responses behind a missing one
    std::map<int64_t, uint32_t> responses_;  ///< recent responses: PSN → event of the newest copy
    int64_t response_next_ = 0;              ///< the PSN after the highest response
    int64_t last_response_ = -2;
    bool last_response_again_ = false;
    std::map<int64_t, Owed> owed_;  ///< payload in flight, by last PSN
    uint64_t owed_bytes_ = 0, requests_seen_ = 0;
    bool span_unknown_ = false;  ///< the length of the newest READ is unknown, and so is the next PSN
    std::vector<Delivered> first_sights_;
    std::optional<int64_t> least_rtt_;
    int64_t progress_ = 0;  ///< time of the last progress while something is in flight
};

}  // namespace roci::plot
