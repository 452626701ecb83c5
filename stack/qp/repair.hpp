// The measurements that repair.cpp uses to repair losses early and with few packets. The measured values are round-trip times.
// RepeatMode shows whether the peer keeps packets that arrive behind a lost packet.
#pragma once

#include <algorithm>

#include "base/types.hpp"

namespace roci::qp {

/// How lost packets are sent again. The two ends do not negotiate the mode. The acknowledgement of the repaired packet shows
/// whether the peer keeps packets behind a lost one.
enum class RepeatMode : uint8_t {
    unknown,    ///< the next loss will determine the mode
    selective,  ///< only the missing packet is sent again, because the peer keeps the packets behind the missing one
    go_back_n,  ///< all packets from the missing packet on are sent again
};

/// Measures the round trip of one packet at a time, in nanoseconds. If a round-trip time is known, a packet that was sent twice
/// is not measured (Karn's algorithm).
class RoundTrip {
public:
    bool known() const { return smoothed_ != 0; }
    uint32_t smoothed() const { return smoothed_; }
    uint32_t shortest() const { return shortest_; }
    bool timing() const { return timing_; }
    /// `in_flight` is the number of packets that were outstanding when the measured packet was sent.
    void begin(Psn psn, Nanos now, uint32_t in_flight) {
        psn_ = psn;
        started_ = uint32_t(now);
        started_high_ = uint16_t(now >> 32);
        timing_ = true;
        alone_ = in_flight <= kFew;
    }
    /// Cancels the measurement. Called when a packet is sent again, because the acknowledgement could belong to either
    /// transmission.
    void abort() { timing_ = false; }
    /// Returns true if the packet with this PSN is measured.
    bool times(Psn psn) const { return timing_ && psn_ == psn; }
    /// Called when all PSNs before `acked` are acknowledged.
    void end(Psn acked, Nanos now) {
        if (!timing_ || acked.distance_from(psn_) <= 0) return;
        timing_ = false;
        const Nanos sample = (now - (Nanos{started_high_} << 32 | started_)) & kTimeMask;
        if (sample <= kLongest) take(std::max(uint32_t(sample), 1u));
    }
    /// Called with the round trip of a packet that was sent again. The first transmission of the packet must have been lost, not
    /// late.
    void take_repair(uint32_t sample) { shortest_ = std::min(shortest_, std::max(sample, 1u)); }
    /// Returns the time after which an ACK is unlikely to arrive any more: a few round trips plus the granularity of the timer.
    Nanos patience() const { return Nanos{2} * smoothed_ + std::max<Nanos>(Nanos{4} * deviation_, kLeast); }
    /// Like patience(), for a QP that has just begun to send. The round trips of such a QP may become many times longer,
    /// because other QPs may begin at the same time.
    Nanos first_patience() const { return 2 * patience() + kFirst; }
    /// Like patience(), for a packet behind at most `ahead` of `in_flight` packets in the network's queues. `loaded` is the
    /// round-trip time with `in_flight` packets in these queues, or 0 if not known.
    Nanos patience(uint32_t ahead, uint32_t in_flight, uint32_t loaded) const {
        const Nanos queued = std::max(Nanos{2} * smoothed_, Nanos{loaded});
        if (ahead >= in_flight) return std::max(patience(), queued);
        return Nanos{2} * shortest_ + kLeast + queued * ahead / in_flight;
    }
    /// Returns a time in ns. If no response arrives for this time, repeated requests are unlikely to be answered any more.
    Nanos pause() const { return Nanos{2} * shortest_ + kLeast + smoothed_ / 4; }

private:
    static constexpr Nanos kLeast = 16'384;  // four ticks of the timer
    static constexpr Nanos kFirst = 100'000;
    void take(uint32_t sample) {
        if (!known()) {
            smoothed_ = shortest_ = sample;
            deviation_ = sample / 2;
            return;
        }
        const uint32_t error = sample > smoothed_ ? sample - smoothed_ : smoothed_ - sample;
        deviation_ += error / 4 - deviation_ / 4;
        smoothed_ = std::max(smoothed_ - smoothed_ / 8 + sample / 8, 1u);
        if (sample <= shortest_) {
            shortest_ = sample;
        } else if (alone_) {
            shortest_ += (sample - shortest_) >> kGrowthShift;
        }
    }
    static constexpr Nanos kLongest = 1u << 30;  // about one second
    /// The path may become longer, for example after a link has failed. Then shortest_ must grow again. Only packets that were
    /// sent with at most kFew packets outstanding cause growth, because many packets of the QP may form a queue that delays the
    /// measured packet. The growth is slow, because other QPs may fill the queue: 1/2^kGrowthShift of the difference per sample.
    static constexpr uint32_t kFew = 4, kGrowthShift = 12;
    static constexpr Nanos kTimeMask = (Nanos{1} << 48) - 1;

    uint32_t smoothed_ = 0, deviation_ = 0, shortest_ = 0;
    uint32_t started_ = 0;  // low bits of the time
    Psn psn_;
    uint16_t started_high_ = 0;
    bool timing_ : 1 = false;
    bool alone_ : 1 = false;  // at most kFew packets were outstanding when the measured packet was sent
};

/// Measures the time from the retransmission of a lost packet to its acknowledgement, in nanoseconds. A QP that loses a packet
/// of each window has no other measurement of the round trip. If a packet was repaired more than once, the measured time is too
/// long.
class RepairTime {
public:
    /// Returns the time for a packet behind a whole window of packets in the network's queues, or 0 if not known.
    uint32_t loaded() const { return loaded_; }
    void begin(Nanos now) { began_ = uint32_t(now); }
    /// Records that packets from `begin` to before `end` are sent again. Returns true if the packet `begin` was not sent again
    /// before. May return false for a packet that was not, if it follows a packet which was, or if the last repair was more than
    /// 2^23 PSNs ago.
    bool record_repeated(Psn begin, Psn end) {
        const bool first = !repaired_ || begin.distance_from(newest_end_) >= 0;
        if (first || end.distance_from(newest_end_) > 0) newest_end_ = end;
        repaired_ = true;
        return first;
    }
    /// Called when a report shows that a repeated packet has arrived. `sample` is the time since that packet was sent again,
    /// ns. The packet was behind about a whole window of packets in the network's queues.
    void take(uint32_t sample) {
        if (sample <= kLongest) loaded_ = loaded_ == 0 ? sample : loaded_ - loaded_ / 8 + sample / 8;
    }
    /// Called when the repaired packet is acknowledged. The repaired packet was behind `ahead` of `in_flight` packets in the
    /// network's queues.
    void end(uint32_t ahead, uint32_t in_flight, Nanos now) {
        if (ahead == 0 || ahead * 4 < in_flight) return;  // too few packets to extrapolate to a whole window
        const uint64_t sample = uint64_t{uint32_t(now) - began_} * in_flight / ahead;
        if (sample > kLongest) return;
        loaded_ = loaded_ == 0 ? uint32_t(sample) : loaded_ - loaded_ / 8 + uint32_t(sample) / 8;
    }

private:
    static constexpr uint64_t kLongest = 1u << 30;
    uint32_t began_ = 0, loaded_ = 0;
    Psn newest_end_;  ///< the highest `end` of record_repeated()
    bool repaired_ = false;
};

/// The state of the repair in progress, and the results of earlier repairs.
struct Repair {
    enum class Cause : uint8_t {
        none,
        nak,       ///< a NAK reported the loss; the next acknowledgement will show whether the peer keeps packets
        probe,     ///< the peer does not respond; the packet or its ACK may be lost
        response,  ///< a response was lost; the repair shows nothing about the peer
        reported,  ///< the peer's loss report shows which packets the peer has not received
    };
    Psn begin, end;  ///< range of the PSNs that were sent again
    Psn highest;     ///< one past the newest PSN that was outstanding when the repair began
    uint32_t sent_at = 0;
    uint16_t ahead = 0;  ///< number of packets that may precede the repaired packet in the network's queues
    Cause cause = Cause::none;
    RepeatMode mode = RepeatMode::unknown;
    bool by_response : 1 = false;  ///< only a response can acknowledge the PSN before `end`
    bool after_probe : 1 = false;  ///< the last acknowledgement answered a probe
    bool is_first : 1 = false;     ///< the packet at `begin` was not sent again before
    uint8_t creeps : 5 = 0;        ///< number of consecutive repairs after which the next packet was missing too
    uint8_t probes = 0;            ///< number of consecutive probes without progress
    uint8_t go_backs = 0;          ///< number of losses to repair by go-back-N until selective repeat is tried again
    uint8_t trial = 0;             ///< number of failed trials of selective repeat, at most kMostTrials
};

}  // namespace roci::qp
