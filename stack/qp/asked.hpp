// A list of the PSNs that a requester has requested or sent a second time, in the order of sending. A requester has one list
// for missing responses (missing.cpp) and one list for requests that the peer has not received (loss_reports.cpp). A peer may
// answer repeated requests in the order of their arrival or in the order of their PSNs. Therefore a response with a higher PSN
// does not prove that an earlier response was lost. Only a response to a request that was sent later proves the loss.
#pragma once

#include <algorithm>
#include <array>

#include "qp/send_window.hpp"

namespace roci::qp {

/// A range of consecutive PSNs that have not arrived.
struct Hole {
    Psn first;
    uint32_t length = 0;
    bool operator==(const Hole&) const = default;
};

class Asked {
public:
    static constexpr uint32_t kMost = 32;

    bool full() const { return count_ == kMost; }
    uint32_t count() const { return count_; }
    void clear() { count_ = 0; }
    /// Records that the PSNs of `hole` are requested or sent again now. `next` is the PSN of the next new request. full() must
    /// be false.
    void add(const Hole& hole, Psn next, Nanos now) { add(Part{.hole = hole, .next = next, .at = uint32_t(now)}); }
    /// Like add(), for PSNs whose packets may have arrived already, or for which answers to an earlier request may still arrive.
    /// Therefore an arriving packet with such a PSN does not count as an answer to this entry.
    void add_again(const Hole& hole, Psn next, Nanos now) {
        add(Part{.hole = hole, .next = next, .at = uint32_t(now), .again = true});
    }
    bool covers(Psn psn) const;
    /// Adds one PSN. If the last entry ends directly before `psn` and has the same `next` and the same time, extends the last
    /// entry instead. full() must be false.
    void add_next(Psn psn, Psn next, Nanos now);
    /// Returns the first part of `hole` that is not in the list. If all PSNs of `hole` are in the list, the result has length
    /// 0, and its `first` is one past the end of `hole`.
    Hole uncovered(Hole hole) const;
    /// Removes the entries whose PSNs are all before `acked`.
    void advance(Psn acked);
    /// Called when a response or ACK with this PSN arrives. Removes the PSNs up to `psn` from the entry that the packet
    /// answers. Also removes each entry whose answer must be lost, because the packet answers a later request. A packet cannot
    /// answer an entry that was sent less than `least` ns ago. Returns true if the list has changed.
    bool answered(Psn psn, Nanos now, Nanos least);

    /// Called when a loss report arrives. `arrived(psn)` returns true if the receiver has the packet. `newest` is the newest
    /// PSN that the receiver has. Removes each entry whose packets have all arrived. Also removes each entry that counts as
    /// lost again, because more than `places` packets that were sent later have arrived. Ignores entries that were sent less
    /// than `least` ns ago, because the report cannot include them yet. Returns the send time of the newest entry whose packets
    /// have all arrived, or 0 if there is no such entry.
    template <class Arrived>
    uint32_t reported(Arrived&& arrived, Psn newest, uint32_t places, Nanos now, Nanos least) {
        uint32_t later = 0, sent_at = 0;
        for (uint32_t i = count_; i-- != 0;) {
            const Part p = parts_[i];
            if (uint32_t(now) - p.at < least) continue;
            uint32_t here = 0;
            for (uint32_t k = 0; k < p.hole.length && !p.again; ++k) here += arrived(p.hole.first + k);
            const int32_t newer = std::max((newest + 1).distance_from(p.next), 0);
            const bool all = here == p.hole.length;
            if (all && sent_at == 0) sent_at = p.at;
            if (all || p.overtaken + later + uint32_t(newer) > places) {
                remove(i);
                for (uint32_t k = 0; k < i; ++k) parts_[k].overtaken += here;
            } else {
                later += here;
            }
        }
        return sent_at;
    }

private:
    struct Part {
        Hole hole;
        Psn next;
        uint32_t at = 0;
        bool again = false;
        uint32_t overtaken = 0;  ///< number of packets that were sent again later, arrived, and have no entry any more
    };
    void add(const Part& part);
    void remove(uint32_t i);

    std::array<Part, kMost> parts_{};
    uint32_t count_ = 0;
};

}  // namespace roci::qp
