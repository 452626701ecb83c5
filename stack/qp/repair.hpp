// A requester's knowledge of round trips and of its peer, by which it repairs a loss soon and with few packets. Plain data;
// repair.cpp has the rules.
#pragma once

#include <algorithm>

#include "base/types.hpp"

namespace roci::qp {

/// How lost packets are sent again. There is no negotiation: the acknowledgement of the repaired packet shows whether the peer
/// keeps packets behind a lost one.
enum class RepeatMode : uint8_t {
    unknown,    ///< the next loss will show
    selective,  ///< only the missing packet: the peer keeps the packets behind it
    go_back_n,  ///< all packets from the missing one on
};

/// Round-trip times, in nanoseconds. One packet at a time is measured, but none that was sent twice (Karn's algorithm).
class RoundTrip {
public:
    bool known() const { return smoothed_ != 0; }
    uint32_t smoothed() const { return smoothed_; }
    uint32_t shortest() const { return shortest_; }
    bool timing() const { return timing_; }
    void begin(Psn psn, Nanos now) {
        psn_ = psn;
        started_ = uint32_t(now);
        timing_ = true;
    }
    /// Called when a packet is sent again: the acknowledgement could belong to either transmission.
    void abort() { timing_ = false; }
    /// Everything before `acked` is acknowledged.
    void end(Psn acked, Nanos now) {
        if (!timing_ || acked.distance_from(psn_) <= 0) return;
        timing_ = false;
        take(std::max(uint32_t(now) - started_, 1u));
    }
    /// Time after which an ACK is unlikely to arrive: a few round trips, plus the timer's granularity.
    Nanos patience() const { return Nanos{2} * smoothed_ + std::max<Nanos>(Nanos{4} * deviation_, kLeast); }
    /// The same for a packet that has at most `ahead` of `in_flight` packets before it in the network's queues.
    Nanos patience(uint32_t ahead, uint32_t in_flight) const {
        if (ahead >= in_flight) return patience();
        return Nanos{2} * shortest_ + kLeast + Nanos{2} * smoothed_ * ahead / in_flight;
    }

private:
    static constexpr Nanos kLeast = 16'384;  // four ticks of the timer
    void take(uint32_t sample) {
        if (sample > kLongest) return;
        if (!known()) {
            smoothed_ = shortest_ = sample;
            deviation_ = sample / 2;
            return;
        }
        const uint32_t error = sample > smoothed_ ? sample - smoothed_ : smoothed_ - sample;
        deviation_ += error / 4 - deviation_ / 4;
        smoothed_ = std::max(smoothed_ - smoothed_ / 8 + sample / 8, 1u);
        shortest_ = std::min(shortest_, sample);
    }
    static constexpr uint32_t kLongest = 1u << 30;  // a second: what is timed wraps after four

    uint32_t smoothed_ = 0, deviation_ = 0, shortest_ = 0;
    uint32_t started_ = 0;
    Psn psn_;
    bool timing_ = false;
};

/// The repair under observation.
struct Repair {
    enum class Cause : uint8_t {
        none,
        nak,       ///< the peer reported the loss: its acknowledgement will show whether it keeps packets
        probe,     ///< the peer is silent: the packet or its ACK may be lost
        response,  ///< a response was lost: shows nothing about the peer
    };
    Psn begin, end;  ///< sent again
    Psn highest;     ///< one past the newest outstanding PSN at that time
    uint32_t sent_at = 0;
    uint16_t ahead = 0;  ///< packets that may be before it in the queues of the network
    Cause cause = Cause::none;
    RepeatMode mode = RepeatMode::unknown;
    uint8_t creeps = 0;    ///< consecutive repairs after which the very next packet was missing
    uint8_t probes = 0;    ///< consecutive probes without progress
    uint8_t go_backs = 0;  ///< losses until selective repeat is tried again
    uint8_t trial = 0;     ///< number of failed trials
};

}  // namespace roci::qp
