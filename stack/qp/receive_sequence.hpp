// The request sequence of a responder: the expected PSN, the MSN, a reported gap, and the pending ACK or NAK. Only
// ReceiveSequence writes these values.
#pragma once

#include <cassert>
#include <cstdint>

#include "base/types.hpp"

namespace roci::qp {

class ReceiveSequence {
public:
    Psn expected() const { return expected_; }
    Msn msn() const { return msn_; }
    /// Returns true if a NAK was scheduled and the expected PSN has not arrived since. Later packets then cause no other NAK (IBA
    /// 9.7.4.1.2).
    bool missing() const { return missing_; }
    bool ack_due() const { return ack_due_; }
    bool nak_due() const { return nak_due_; }
    bool reply_due() const { return ack_due_ || nak_due_; }
    /// Returns true if a fatal NAK was scheduled. The QP enters ERR when this NAK is sent. No request is executed after the NAK
    /// was scheduled.
    bool refused() const { return fatal_; }
    uint8_t nak_syndrome() const { return nak_; }

    void start(Psn expected) {
        expected_ = expected;
        acknowledged_ = expected;
    }
    /// Records that the packet with the expected PSN has arrived. Cancels a pending NAK for this PSN.
    void arrived() {
        assert(!fatal_);
        nak_due_ = missing_ = false;
    }
    /// Records that the request at the expected PSN was executed. A READ uses the PSNs of its responses.
    void executed(uint32_t psns = 1) { expected_ = expected_ + psns; }
    void end_message() { ++msn_; }
    void owe_ack() { ack_due_ = true; }
    /// Schedules a NAK for the expected PSN. If `fatal` is true, the QP enters ERR when the NAK is sent.
    void owe_nak(uint8_t syndrome, bool fatal) {
        nak_ = syndrome;
        nak_due_ = missing_ = true;
        fatal_ = fatal;
    }
    /// Schedules a NAK for a READ whose response at `psn` cannot be sent. Sets the expected PSN back to `psn`, because a NAK
    /// carries the expected PSN.
    void take_back(Psn psn, uint8_t syndrome) {
        expected_ = psn;
        owe_nak(syndrome, true);
    }
    /// For UC: sets the expected PSN to `next` and so skips a gap (IBA 9.8.2.2.2).
    void pass_over(Psn next) { expected_ = acknowledged_ = next; }
    /// Records that the pending reply was sent: a NAK, or an ACK of every PSN before the expected PSN. Returns true if the
    /// reply was a fatal NAK, so that the QP must enter ERR.
    bool replied() {
        ack_due_ = nak_due_ = false;
        acknowledged_ = expected_;
        return fatal_;
    }
    /// Cancels the pending ACK or NAK.
    void fall_silent() { ack_due_ = nak_due_ = fatal_ = false; }

    /// Returns a description of a violated invariant, or nullptr.
    const char* check() const;

private:
    Psn expected_;      ///< expected PSN (ePSN)
    Psn acknowledged_;  ///< all earlier PSNs have been acknowledged to the peer
    Msn msn_;
    bool missing_ : 1 = false;
    bool ack_due_ : 1 = false;
    bool nak_due_ : 1 = false;
    bool fatal_ : 1 = false;
    uint8_t nak_ = 0;
};
static_assert(sizeof(ReceiveSequence) == 16);

}  // namespace roci::qp
