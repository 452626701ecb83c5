// The boundaries between the requests into which a requester divides a long READ. On far paths (cc/far.cpp), a peer that got one
// request for all data would send all responses at once, which overflows short queues. To the peer, each request is a READ of its
// own. A repeated request must not cross a boundary. The peer may have executed only the requests before the boundary. Also,
// Soft-RoCE drops a duplicate READ that does not lie within one earlier READ.
#pragma once

#include <array>

#include "base/types.hpp"

namespace roci::qp {

/// The boundaries that are not acknowledged, in the order of their PSNs. Boundaries between two work requests are not included.
class ReadCuts {
public:
    /// Records that a request ends before `at` and that the next request of the same READ begins there. `at` must be behind all
    /// boundaries, and full() must be false.
    void add(Psn at) { cuts_[count_++] = at; }
    bool full() const { return count_ == kMost; }
    /// Returns true if a request of a divided READ begins at `psn`, except the first request of the READ.
    bool begins(Psn psn) const;
    /// Returns the first boundary behind `psn`, or `end` if no boundary lies between them.
    Psn end_of_request(Psn psn, Psn end) const;
    /// Called when all PSNs before `acked` are acknowledged. Removes the boundaries before `acked`. Keeps a boundary at `acked`,
    /// because the request behind it may be repeated. Returns true if there is one, so that a request is completely answered.
    bool advance(Psn acked);
    void clear() { count_ = 0; }
    /// Returns a description of a violated invariant, or nullptr. [acked, sent) are the unacknowledged PSNs that were ever sent.
    const char* check(Psn acked, Psn sent) const;

private:
    /// A QP has at most 16 outstanding READ requests (max_rd_atomic), and one more boundary is at the oldest PSN.
    static constexpr uint32_t kMost = 17;
    std::array<Psn, kMost> cuts_;
    uint8_t count_ = 0;
};

}  // namespace roci::qp
