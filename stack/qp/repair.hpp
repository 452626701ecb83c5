// Measurements by which a requester repairs losses early and with few packets: round trips, and whether the peer keeps packets
// behind a lost one. Plain data; repair.cpp contains the algorithm.
#pragma once

#include <algorithm>

#include "base/types.hpp"

namespace roci::qp {

/// How lost packets are sent again. The two ends do not negotiate the mode. The acknowledgement of the repaired packet shows
/// whether the peer keeps packets behind a lost one.
enum class RepeatMode : uint8_t {
    unknown,    ///< the next loss will determine the mode
    selective,  ///< only the missing packet is sent again, because the peer keeps the packets behind it
    go_back_n,  ///< all packets from the missing one on are sent again
};

/// Measures round-trip times, in nanoseconds, one packet at a time. A packet that was sent twice is not measured (Karn's
/// algorithm).
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
    /// Called when a packet is sent again, because an acknowledgement could belong to either transmission.
    void abort() { timing_ = false; }
    /// Called when all PSNs before `acked` are acknowledged. Returns the round trip that this measured, in ns, or 0.
    uint32_t end(Psn acked, Nanos now) {
        if (!timing_ || acked.distance_from(psn_) <= 0) return 0;
        timing_ = false;
        const uint32_t sample = std::max(uint32_t(now) - started_, 1u);
        take(sample);
        return sample;
    }
    /// Returns the time after which an ACK is unlikely to arrive: a few round trips and the granularity of the timer.
    Nanos patience() const { return Nanos{2} * smoothed_ + std::max<Nanos>(Nanos{4} * deviation_, kLeast); }
    /// Like patience(), for a QP that has just begun to send. Its round trips become many times longer when other QPs begin at
    /// the same time.
    Nanos first_patience() const { return 2 * patience() + kFirst; }
    /// Like patience(), for a packet that has at most `ahead` of `in_flight` packets before it in the network's queues.
    Nanos patience(uint32_t ahead, uint32_t in_flight) const {
        if (ahead >= in_flight) return patience();
        return Nanos{2} * shortest_ + kLeast + Nanos{2} * smoothed_ * ahead / in_flight;
    }

private:
    static constexpr Nanos kLeast = 16'384;  // four ticks of the timer
    static constexpr Nanos kFirst = 100'000;
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
    static constexpr uint32_t kLongest = 1u << 30;  // about one second; timestamps wrap around after four seconds

    uint32_t smoothed_ = 0, deviation_ = 0, shortest_ = 0;
    uint32_t started_ = 0;
    Psn psn_;
    bool timing_ = false;
};

/// The repair whose result is awaited.
struct Repair {
    enum class Cause : uint8_t {
        none,
        nak,       ///< the peer reported the loss; its acknowledgement will show whether it keeps packets
        probe,     ///< the peer does not respond; the packet or its ACK may be lost
        response,  ///< a response was lost, which shows nothing about the peer
    };
    Psn begin, end;  ///< the PSNs that were sent again
    Psn highest;     ///< one past the newest PSN that was outstanding when the repair began
    uint32_t sent_at = 0;
    uint16_t ahead = 0;  ///< number of packets that may precede the repaired packet in the network's queues
    Cause cause = Cause::none;
    RepeatMode mode = RepeatMode::unknown;
    uint8_t creeps = 0;    ///< consecutive repairs after which the very next packet was missing
    uint8_t probes = 0;    ///< consecutive probes without progress
    uint8_t go_backs = 0;  ///< number of losses after which selective repeat is tried again
    uint8_t trial = 0;     ///< number of failed trials of selective repeat
};

}  // namespace roci::qp
