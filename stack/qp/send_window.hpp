// The PSNs of a requester. SendWindow is the only writer of them; the roles report events to it and read its state.
#pragma once

#include <cassert>
#include <cstdint>

#include "base/types.hpp"

namespace roci::qp {

/// Steps from `from` forward to `to` on the PSN circle.
inline uint32_t psn_span(Psn from, Psn to) { return (to.value() - from.value()) & kMask24; }

/// In PSN order: acked <= next <= highest_sent <= allocated. If next == acked, no response is outstanding. After going back, next
/// < highest_sent.
class SendWindow {
public:
    /// Limit of allocated PSNs: outstanding PSNs must fit into half of the PSN circle (IBA 9.7.2).
    static constexpr uint32_t kMaxAllocated = 1u << 22;
    /// READs and messages of 2^31 bytes in packets of 256 bytes are the longest work requests: one is always accepted.
    static constexpr uint32_t kMaxSpan = kMaxAllocated + (1u << 23);

    Psn acked() const { return acked_; }                ///< oldest PSN that is not acknowledged
    Psn next() const { return next_; }                  ///< of the next packet to be sent
    Psn highest_sent() const { return highest_sent_; }  ///< one past the newest PSN ever sent
    Psn allocated() const { return allocated_; }        ///< one past the newest PSN of a fetched work request

    uint32_t in_flight() const { return psn_span(acked_, next_); }
    uint32_t unanswered() const { return psn_span(acked_, highest_sent_); }
    bool awaits_answer() const { return acked_ != next_; }
    /// True: a part of the packets must be sent again (after going back).
    bool repeats() const { return next_ != highest_sent_; }
    /// Number of the oldest PSNs that are known to be lost. They are repaired while newer ones remain outstanding.
    uint32_t lost() const { return lost_; }
    bool repair_due() const { return repaired_ < lost_; }
    Psn repair_next() const { return acked_ + repaired_; }
    uint32_t repair_left() const { return lost_ - repaired_; }
    /// A response may name only a PSN that was sent and is not acknowledged (C9-157).
    bool may_answer(Psn psn) const { return psn_span(acked_, psn) < unanswered(); }
    bool has_room() const { return psn_span(acked_, allocated_) <= kMaxAllocated; }

    void start(Psn first) {
        acked_ = next_ = highest_sent_ = allocated_ = first;
        lost_ = repaired_ = 0;
    }
    /// Allocates the PSNs of a work request. Returns the first one.
    Psn allocate(uint32_t packets) {
        const Psn first = allocated_;
        allocated_ = first + packets;
        return first;
    }
    /// The packet at `next` was sent; a READ request takes the PSNs of its responses. True: for the first time.
    bool sent(uint32_t psns) {
        next_ = next_ + psns;
        assert(psn_span(acked_, next_) <= psn_span(acked_, allocated_));
        const bool first = in_flight() > unanswered();
        if (first) highest_sent_ = next_;
        return first;
    }
    /// The oldest `psns` are acknowledged. True: some of them were due to be sent again, which is not needed any more; the send
    /// queue's cursor must skip them.
    bool acknowledge(uint32_t psns) {
        assert(psns <= unanswered());
        const bool overtaken = psns > in_flight();
        acked_ = acked_ + psns;
        if (overtaken) next_ = acked_;
        lost_ -= psns < lost_ ? psns : lost_;
        repaired_ -= psns < repaired_ ? psns : repaired_;
        return overtaken;
    }
    /// For services without acknowledgements: all sent packets count as acknowledged.
    void acknowledge_all_sent() { acked_ = next_; }
    /// Goes back: all packets from the oldest unacknowledged PSN on are sent again.
    void go_back() {
        next_ = acked_;
        lost_ = repaired_ = 0;
    }
    /// Only the oldest `psns` outstanding packets must be sent again.
    void report_lost(uint32_t psns) {
        lost_ = psns < in_flight() ? psns : in_flight();
        repaired_ = 0;
    }
    /// `psns` packets from repair_next() on were sent again.
    void repaired(uint32_t psns) {
        assert(psns <= repair_left());
        repaired_ += psns;
    }
    /// Ends sending: no packet is outstanding any more.
    void abandon() { start(allocated_); }

    /// The violated invariant, or nullptr.
    const char* check() const;

private:
    Psn acked_, next_, highest_sent_, allocated_;
    uint32_t lost_ = 0, repaired_ = 0;
};
static_assert(sizeof(SendWindow) == 24);

}  // namespace roci::qp
