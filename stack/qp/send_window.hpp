// The PSNs of a requester. Only the functions of SendWindow write these PSNs.
#pragma once

#include <cassert>
#include <cstdint>

#include "base/types.hpp"

namespace roci::qp {

/// Returns the number of steps forward from `from` to `to`, modulo 2^24.
inline uint32_t psn_span(Psn from, Psn to) { return (to.value() - from.value()) & kMask24; }

/// The PSNs are ordered: acked <= next <= highest_sent <= allocated. If next == acked, no response is awaited. After go_back(),
/// next < highest_sent until all packets have been sent again.
class SendWindow {
public:
    /// Limit of outstanding PSNs: half of the PSN space (IBA 9.7.2). If more PSNs were outstanding, the peer would take a
    /// repeated packet for a new one. The longest request, 2^31 bytes in packets of 256 bytes, takes kMaxOutstanding PSNs.
    static constexpr uint32_t kMaxOutstanding = 1u << 23;
    /// While more PSNs than this are allocated and not acknowledged, no work request is fetched.
    static constexpr uint32_t kMaxAllocated = 1u << 22;
    /// Largest number of PSNs from acked() to allocated(). kMaxAllocated is checked before the length of the next request is
    /// known, so one request of any length (up to kMaxOutstanding PSNs) may follow.
    static constexpr uint32_t kMaxSpan = kMaxAllocated + kMaxOutstanding;

    Psn acked() const { return acked_; }                ///< oldest PSN that is not acknowledged
    Psn next() const { return next_; }                  ///< PSN of the next packet to be sent
    Psn highest_sent() const { return highest_sent_; }  ///< one past the newest PSN ever sent
    Psn allocated() const { return allocated_; }        ///< one past the newest PSN of a fetched work request

    uint32_t in_flight() const { return psn_span(acked_, next_); }
    uint32_t unanswered() const { return psn_span(acked_, highest_sent_); }
    bool awaits_answer() const { return acked_ != next_; }
    /// Returns true if packets remain to be sent again after go_back().
    bool repeats() const { return next_ != highest_sent_; }
    /// Returns the number of PSNs, from acked() on, that are treated as lost. Their packets are sent again while newer PSNs
    /// remain outstanding.
    uint32_t lost() const { return lost_; }
    bool repair_due() const { return repaired_ < lost_; }
    Psn repair_next() const { return acked_ + repaired_; }
    uint32_t repair_left() const { return lost_ - repaired_; }
    /// Returns true if the PSN was sent and is not acknowledged. Only such a PSN is valid in a response (C9-157).
    bool may_answer(Psn psn) const { return psn_span(acked_, psn) < unanswered(); }
    /// Returns true if a packet that uses `psns` PSNs may be sent now. Only READs use more than one PSN.
    bool may_send(uint32_t psns) const { return in_flight() + psns <= kMaxOutstanding; }
    /// Returns true if another work request may be fetched.
    bool has_room() const { return psn_span(acked_, allocated_) <= kMaxAllocated; }

    void start(Psn first) {
        acked_ = next_ = highest_sent_ = allocated_ = first;
        lost_ = repaired_ = 0;
    }
    /// Allocates the PSNs of a work request. Returns the first PSN.
    Psn allocate(uint32_t packets) {
        const Psn first = allocated_;
        allocated_ = first + packets;
        return first;
    }
    /// Records that the packet at `next` was sent. A READ request uses the PSNs of its responses. Returns true if the packet was
    /// sent for the first time.
    bool sent(uint32_t psns) {
        next_ = next_ + psns;
        assert(psn_span(acked_, next_) <= psn_span(acked_, allocated_));
        const bool first = in_flight() > unanswered();
        if (first) highest_sent_ = next_;
        return first;
    }
    /// Acknowledges the oldest `psns` PSNs. Returns true if go_back() had scheduled some of these PSNs to be sent again. The
    /// send queue's cursor must then skip these PSNs.
    bool acknowledge(uint32_t psns) {
        assert(psns <= unanswered());
        const bool overtaken = psns > in_flight();
        acked_ = acked_ + psns;
        if (overtaken) next_ = acked_;
        lost_ -= psns < lost_ ? psns : lost_;
        repaired_ -= psns < repaired_ ? psns : repaired_;
        return overtaken;
    }
    /// For services without acknowledgements: counts all sent packets as acknowledged.
    void acknowledge_all_sent() { acked_ = next_; }
    /// Goes back to the oldest unacknowledged PSN: its packet and all packets behind it are sent again.
    void go_back() {
        next_ = acked_;
        lost_ = repaired_ = 0;
    }
    /// Marks the oldest `psns` outstanding packets as lost. Only the packets marked as lost are sent again.
    void report_lost(uint32_t psns) {
        lost_ = psns < in_flight() ? psns : in_flight();
        repaired_ = 0;
    }
    /// Records that `psns` packets from repair_next() on were sent again, or need not be sent again.
    void repaired(uint32_t psns) {
        assert(psns <= repair_left());
        repaired_ += psns;
    }
    /// Ends sending. Afterwards no packet is outstanding.
    void abandon() { start(allocated_); }

    /// Returns a description of a violated invariant, or nullptr.
    const char* check() const;

private:
    Psn acked_, next_, highest_sent_, allocated_;
    uint32_t lost_ = 0, repaired_ = 0;
};
static_assert(sizeof(SendWindow) == 24);

}  // namespace roci::qp
