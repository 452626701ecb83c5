// A TCP connection that always has data to send. It shares the queues of switches with RDMA flows. Its sender and its
// receiver are endpoints of the switches, but not of the Network. The receiver acknowledges each segment. A segment
// counts as lost if the third transmission after it is acknowledged (compare RFC 5681 and RFC 6675). The congestion
// window follows RFC 5681 (Reno) or RFC 9438 (CUBIC).
#pragma once

#include <deque>

#include "sim/switch.hpp"

namespace roci::sim {

enum class TcpKind : uint8_t { reno, cubic };

/// The congestion window, in segments.
class TcpWindow {
public:
    explicit TcpWindow(TcpKind kind) : kind_(kind) {}
    double segments() const { return window_; }
    void on_ack(Nanos now, Nanos round_trip);
    void on_loss();
    void on_timeout();

private:
    double cubic_target(Nanos now, Nanos round_trip);
    const TcpKind kind_;
    double window_ = 10;  ///< initial window of RFC 6928
    double threshold_ = 1e9;
    double w_max_ = 0, origin_ = 0, k_ = 0, reno_estimate_ = 0;  ///< only for CUBIC
    Nanos epoch_ = 0;  ///< only for CUBIC: time at which the growth after the last loss began
};

class TcpFlow final : public Neighbour {
public:
    /// The endpoints `from` and `to` must not be in use. The constructor attaches them to the switches.
    TcpFlow(Switches& net, TcpKind kind, uint32_t from, uint32_t from_switch, uint32_t to, uint32_t to_switch, const Output& link,
            uint32_t segment);
    void start(Nanos now);
    uint64_t delivered() const { return delivered_; }  ///< in bytes
    uint64_t lost() const { return lost_; }            ///< in segments

    void arrived(uint32_t endpoint, Nanos at, const std::vector<uint8_t>& frame) override;
    Nanos deadline() const override { return timer_; }
    void expired(Nanos now) override;

private:
    static constexpr uint32_t kHeaders = 14 + 20 + 32;  ///< Ethernet, IPv4, TCP with timestamps
    static constexpr Nanos kLeastTimeout = 10'000'000;  ///< a usual value in data centers; RFC 6298 has 1 s
    /// The content of a frame after the kHeaders bytes of headers.
    struct Header {
        uint64_t sequence, transmission;
        Nanos sent_at;
    };
    struct Segment {
        uint64_t transmission = 0;  ///< number of the last transmission of the segment
        bool acked = false, lost = false;
    };
    void acknowledged(Nanos at, const Header& h);
    void find_losses(uint64_t highest_transmission);
    void send_more(Nanos now);
    void transmit(Nanos now, uint64_t sequence);
    static std::vector<uint8_t> frame_of(const Header& h, uint32_t payload);

    Switches& net_;
    const uint32_t from_, to_;
    const Output link_;
    const uint32_t segment_;  ///< bytes per segment
    TcpWindow window_;
    std::deque<Segment> segments_;  ///< sent segments, from the oldest unacknowledged segment on
    uint64_t first_ = 0;            ///< sequence number of segments_.front()
    uint64_t transmissions_ = 0, highest_acked_ = 0, recovery_until_ = 0;
    uint32_t in_flight_ = 0;
    uint64_t delivered_ = 0, lost_ = 0;
    Nanos link_free_ = 0, timer_ = kNever, round_trip_ = 0;
};

}  // namespace roci::sim
