#include "sim/tcp.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace roci::sim {
namespace {

constexpr double kCubicC = 0.4, kCubicBeta = 0.7;                        // RFC 9438 4.1, 4.6
constexpr double kCubicAlpha = 3 * (1 - kCubicBeta) / (1 + kCubicBeta);  // 4.3
constexpr uint64_t kReordering = 3;                                      // RFC 5681 3.2

}  // namespace

// ---- the window -----------------------------------------------------------------------------------------------------

/// Returns the target of the window one round trip after `now` (RFC 9438 4.2 to 4.5).
double TcpWindow::cubic_target(Nanos now, Nanos round_trip) {
    if (epoch_ == 0) {
        epoch_ = now;
        k_ = window_ < w_max_ ? std::cbrt((w_max_ - window_) / kCubicC) : 0;
        origin_ = std::max(w_max_, window_);
        reno_estimate_ = window_;
    }
    const double t = double(now + round_trip - epoch_) / 1e9 - k_;
    return std::clamp(origin_ + kCubicC * t * t * t, window_, 1.5 * window_);
}

void TcpWindow::on_ack(Nanos now, Nanos round_trip) {
    if (window_ < threshold_) {
        window_ += 1;
        return;
    }
    if (kind_ == TcpKind::reno) {
        window_ += 1 / window_;
        return;
    }
    const double target = cubic_target(now, round_trip);
    reno_estimate_ += (reno_estimate_ < w_max_ ? kCubicAlpha : 1) / window_;
    window_ = std::max(window_ + (target - window_) / window_, reno_estimate_);
}

void TcpWindow::on_loss() {
    const double keep = kind_ == TcpKind::reno ? 0.5 : kCubicBeta;
    w_max_ = window_ < w_max_ ? window_ * (1 + kCubicBeta) / 2 : window_;  // fast convergence, 4.7
    threshold_ = window_ = std::max(window_ * keep, 2.0);
    epoch_ = 0;
}

void TcpWindow::on_timeout() {
    on_loss();
    window_ = 1;
}

// ---- the flow -------------------------------------------------------------------------------------------------------

TcpFlow::TcpFlow(Switches& net, TcpKind kind, uint32_t from, uint32_t from_switch, uint32_t to, uint32_t to_switch,
                 const Output& link, uint32_t segment)
    : net_(net), from_(from), to_(to), link_(link), segment_(segment), window_(kind) {
    net.attach(from, from_switch, link);
    net.attach(to, to_switch, link);
    net.add_neighbour(*this, {from, to});
}

void TcpFlow::start(Nanos now) {
    timer_ = now + kLeastTimeout;
    send_more(now);
}

std::vector<uint8_t> TcpFlow::frame_of(const Header& h, uint32_t payload) {
    std::vector<uint8_t> frame(kHeaders + std::max<size_t>(payload, sizeof h));
    std::memcpy(frame.data() + kHeaders, &h, sizeof h);
    return frame;
}

void TcpFlow::transmit(Nanos now, uint64_t sequence) {
    Segment& s = segments_[sequence - first_];
    s.transmission = ++transmissions_;
    s.lost = false;
    ++in_flight_;
    link_free_ = std::max(link_free_, now) + (kHeaders + segment_ + 24) * Nanos{8'000'000'000} / link_.bits_per_second;
    auto frame = std::make_shared<std::vector<uint8_t>>(frame_of({sequence, s.transmission, now}, segment_));
    net_.enter(from_, to_, link_free_ + link_.propagation, std::move(frame));
}

void TcpFlow::send_more(Nanos now) {
    for (size_t i = 0; i < segments_.size() && in_flight_ < window_.segments(); ++i)
        if (segments_[i].lost) transmit(now, first_ + i);
    while (in_flight_ < window_.segments()) {
        segments_.emplace_back();
        transmit(now, first_ + segments_.size() - 1);
    }
}

void TcpFlow::arrived(uint32_t endpoint, Nanos at, const std::vector<uint8_t>& frame) {
    Header h;
    std::memcpy(&h, frame.data() + kHeaders, sizeof h);
    if (endpoint == from_) return acknowledged(at, h);
    net_.enter(to_, from_, at + link_.propagation, std::make_shared<std::vector<uint8_t>>(frame_of(h, 0)));
}

/// Marks lost segments. A segment counts as lost if the third transmission after it, or a later transmission, was
/// acknowledged. This rule is right only if the switches do not reorder the segments of the flow.
void TcpFlow::find_losses(uint64_t highest_transmission) {
    bool again = false;
    for (size_t i = 0; i < segments_.size(); ++i) {
        Segment& s = segments_[i];
        if (s.acked || s.lost || s.transmission + kReordering > highest_transmission) continue;
        s.lost = true;
        --in_flight_;
        ++lost_;
        again |= first_ + i >= recovery_until_;
    }
    if (!again) return;
    recovery_until_ = first_ + segments_.size();
    window_.on_loss();
}

void TcpFlow::acknowledged(Nanos at, const Header& h) {
    timer_ = at + std::max(kLeastTimeout, 2 * round_trip_);
    round_trip_ = round_trip_ == 0 ? at - h.sent_at : round_trip_ - round_trip_ / 8 + (at - h.sent_at) / 8;
    highest_acked_ = std::max(highest_acked_, h.transmission);
    if (h.sequence >= first_ && !segments_[h.sequence - first_].acked) {
        Segment& s = segments_[h.sequence - first_];
        s.acked = true;
        if (!s.lost) --in_flight_;
        delivered_ += segment_;
        if (first_ >= recovery_until_) window_.on_ack(at, round_trip_);
    }
    for (; !segments_.empty() && segments_.front().acked; ++first_) segments_.pop_front();
    find_losses(highest_acked_);
    send_more(at);
}

void TcpFlow::expired(Nanos now) {
    for (Segment& s : segments_) s.lost = !s.acked;
    in_flight_ = 0;
    recovery_until_ = first_ + segments_.size();
    window_.on_timeout();
    timer_ = now + kLeastTimeout;
    send_more(now);
}

}  // namespace roci::sim
