// Follows the requests of one end packet by packet. It keeps what it needs to classify the next packet, and writes a Stream.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "stream.hpp"

namespace roci::plot {

/// The first PSNs are counted from here: room for earlier ones, and a multiple of 2^24 and of 10^6, so that round numbers remain
/// round.
inline constexpr int64_t kFirstCircle = (int64_t{1} << 24) * 15'625;

class Tracker {
public:
    /// `mtu` 0: unknown. `requests_known`, `responses_known`: whether Sighting::lost is known.
    Tracker(bool reliable, uint32_t mtu, bool requests_known, bool responses_known);
    void request(const Sighting& s);
    void response(const Sighting& s);
    void cnp(const Sighting& s);
    Stream finish();

private:
    /// A request by its first PSN.
    struct Request {
        uint32_t info = 0;   ///< index in infos_
        uint32_t event = 0;  ///< its newest copy
        uint32_t span = 1;   ///< PSNs: of a READ, those of its responses
        uint32_t copies = 1;
        bool reads = false;
    };
    /// What remains of each request for its message.
    struct Info {
        int64_t psn = 0, time = 0;
        uint32_t payload = 0, dma_length = 0, span = 1, resent = 0;
        uint8_t opcode = 0;
    };
    /// Bytes that an ACK will deliver; those of a READ come with its responses.
    struct Owed {
        uint64_t bytes = 0;
        bool reads = false;
    };
    /// PSNs that others overtook.
    struct Hole {
        int64_t end = 0, time = 0;
        uint64_t requests = 0;  ///< seen before it was
        bool reported = false;  ///< by a NAK
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
    std::map<int64_t, Request> requests_;  ///< recent ones
    std::vector<Info> infos_;
    std::map<int64_t, Hole> holes_;
    int64_t missing_left_ = 1 << 16;  ///< PSNs of holes that may still get an event of their own
    bool begun_ = false;
    int64_t next_ = 0;       ///< behind the highest PSN requested
    int64_t acked_ = -1;     ///< all up to this one
    int64_t last_psn_ = -2;  ///< end of the previous request
    bool last_was_again_ = false;
    int64_t back_from_ = 0, back_to_ = -1;   ///< PSNs that a NAK makes the requester repeat, though they are not known to be lost
    std::set<int64_t> waiting_;              ///< responses behind a missing one
    std::map<int64_t, uint32_t> responses_;  ///< recent ones, with the event of the newest copy
    int64_t response_next_ = 0;              ///< behind the newest response
    int64_t last_response_ = -2;
    bool last_response_again_ = false;
    std::map<int64_t, Owed> owed_;  ///< by last PSN: what is in flight
    uint64_t owed_bytes_ = 0, requests_seen_ = 0;
    bool span_unknown_ = false;  ///< of the newest READ: the PSN behind it is not known
    std::vector<Delivered> first_sights_;
    std::optional<int64_t> least_rtt_;
    int64_t progress_ = 0;  ///< time of the last progress while something is in flight
};

}  // namespace roci::plot
