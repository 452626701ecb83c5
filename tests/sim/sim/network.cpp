#include "sim/network.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "wire/describe.hpp"

namespace roci::sim {
namespace {

constexpr uint32_t kGuard = 64;
constexpr uint8_t kGuardByte = 0xcd;
constexpr size_t kKeptFrames = 200000;

/// Returns the result of a header check by a NIC that checks only IPv4 headers.
wire::HeaderChecksum looked_at(const std::vector<uint8_t>& frame) {
    wire::Packet p;
    const wire::Verdict v = wire::parse(frame.data(), uint32_t(frame.size()), p, false);
    if (v == wire::Verdict::bad_ip_checksum) return wire::HeaderChecksum::wrong;
    return v == wire::Verdict::ok ? wire::HeaderChecksum::right : wire::HeaderChecksum::unknown;
}

}  // namespace

const char* fate_name(Fate f) {
    static constexpr const char* names[] = {"", "LOST", "DUPLICATED", "CORRUPTED", "DELAYED", "UNROUTABLE"};
    return names[size_t(f)];
}

bool mark(std::vector<uint8_t>& f) {
    const bool tagged = load_be<uint16_t>(f.data() + 12) == wire::kEtherVlan;
    uint8_t* ip = f.data() + wire::kEthLength + (tagged ? wire::kVlanLength : 0);
    if (ip[0] >> 4 == 6) {
        if ((ip[1] & 0x30) == 0) return false;
        ip[1] |= 0x30;
        return true;
    }
    if ((ip[1] & 3) == 0) return false;
    ip[1] |= 3;
    ip[10] = ip[11] = 0;
    wire::fill_header_checksum(ip);
    return true;
}

std::string Sent::text() const {
    std::string s = std::to_string(when) + " ns #" + std::to_string(from) + " ";
    s += parsed ? wire::describe(packet) : std::to_string(bytes.size()) + " bytes that do not parse";
    return s + " " + fate_name(fate);
}

// ---- ports ----------------------------------------------------------------------------------------------------------

struct SimPort::Buffer {
    uint8_t bytes[wire::kMaxFrame + kGuard];
};
struct SimPort::Arrived {
    // The vector's memory is exactly as long as the frame, so that the address sanitizer reports reads beyond the frame.
    Fabric::Frame frame;
};

SimPort::SimPort(Network& net, uint32_t endpoint, uint32_t pool, uint32_t best_burst)
    : net_(net), endpoint_(endpoint), pool_(pool), best_burst_(best_burst) {}
SimPort::~SimPort() = default;

unsigned SimPort::rx_burst(io::RxFrame* frames, unsigned max) {
    unsigned n = 0;
    for (; n < max && !rx_.empty(); ++n) {
        auto* a = new Arrived{std::move(rx_.front())};
        rx_.pop_front();
        frames[n] = {a->frame->data(), uint32_t(a->frame->size()), a};
        if (net_.sums_) frames[n].ip_checksum = looked_at(*a->frame);
        if (net_.trusted_) frames[n].icrc = wire::HeaderChecksum::right;
    }
    rx_held_ += n;
    return n;
}

void SimPort::rx_free(io::RxFrame* frames, unsigned count) {
    for (unsigned i = 0; i < count; ++i) delete static_cast<Arrived*>(frames[i].cookie);
    rx_held_ -= count;
}

unsigned SimPort::tx_alloc(io::TxFrame* frames, unsigned count) {
    if (net_.on_alloc_) net_.on_alloc_(endpoint_);
    if (net_.rng_.chance(net_.ends_[endpoint_].faults.starve)) count = unsigned(net_.rng_.below(count + 1));
    unsigned n = 0;
    for (; n < count && tx_held_ < pool_; ++n) {
        std::unique_ptr<Buffer> b;
        if (free_.empty()) {
            b = std::make_unique<Buffer>();
        } else {
            b = std::move(free_.back());
            free_.pop_back();
        }
        std::memset(b->bytes + wire::kMaxFrame, kGuardByte, kGuard);
        frames[n] = {b->bytes, wire::kMaxFrame, 0, b.get()};
        b.release();
        ++tx_held_;
    }
    return n;
}

unsigned SimPort::tx_burst(io::TxFrame* frames, unsigned count) {
    if (net_.rng_.chance(net_.ends_[endpoint_].faults.starve)) count = unsigned(net_.rng_.below(count + 1));
    for (unsigned i = 0; i < count; ++i) complete(frames[i]);
    for (unsigned i = 0; i < count; ++i) net_.transmit(endpoint_, frames[i].data, frames[i].length);
    tx_free(frames, count);
    return count;
}

void SimPort::tx_free(io::TxFrame* frames, unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
        std::unique_ptr<Buffer> b(static_cast<Buffer*>(frames[i].cookie));
        const uint8_t* guard = b->bytes + wire::kMaxFrame;
        if (frames[i].length > wire::kMaxFrame || std::any_of(guard, guard + kGuard, [](uint8_t x) { return x != kGuardByte; }))
            ++net_.overflows_;
        free_.push_back(std::move(b));
    }
    tx_held_ -= count;
}

// ---- the path of a frame --------------------------------------------------------------------------------------------

uint32_t Network::add_endpoint(const MacAddress& mac, uint32_t queues, uint32_t tx_pool, uint32_t best_burst) {
    const auto number = uint32_t(ends_.size());
    End& e = ends_.emplace_back();
    e.mac = mac;
    for (uint32_t q = 0; q < queues; ++q) e.ports.push_back(std::make_unique<SimPort>(*this, number, tx_pool, best_burst));
    return number;
}

void Network::set_faults(const Faults& f) {
    for (End& e : ends_) e.faults = f;
}

namespace {

bool is_lost(Fate f) { return f == Fate::dropped || f == Fate::corrupted; }

/// Returns a key that is equal for all packets to a QP with the same PSN. All acknowledgements to a QP have the same
/// key.
uint64_t retry_key(const Sent& s) {
    const uint32_t psn = s.packet.info->has(wire::kAck) ? kMask24 + 1 : s.packet.psn.value();
    return uint64_t{s.from} << 56 | uint64_t{s.packet.dest_qp.value} << 28 | psn;
}

}  // namespace

/// Limits the number of consecutive losses. A QP with seven retries fails after eight losses, but only a dead network
/// should cause this. So a request and its response are each lost at most three times in a row.
Fate Network::decide(End& end, const Sent& s, Nanos& extra) {
    constexpr uint8_t kMostInARow = 3;
    const Fate fate = draw(end, s, extra);
    if (!s.parsed || script_ || clock_ < end.dark_until) return fate;
    if (!is_lost(fate)) {
        lost_in_a_row_.erase(retry_key(s));
        return fate;
    }
    uint8_t& losses = lost_in_a_row_[retry_key(s)];
    if (losses < kMostInARow) {
        ++losses;
        return fate;
    }
    lost_in_a_row_.erase(retry_key(s));
    return Fate::delivered;
}

Fate Network::draw(End& end, const Sent& s, Nanos& extra) {
    if (script_) {
        const Verdict v = script_(s);
        switch (v.kind) {
            case Verdict::pass:
                break;
            case Verdict::drop:
                return Fate::dropped;
            case Verdict::duplicate:
                return Fate::duplicated;
            case Verdict::corrupt:
                return Fate::corrupted;
            case Verdict::delay:
                extra = v.delay_by;
                return Fate::delayed;
        }
    }
    if (clock_ < end.dark_until) return Fate::dropped;
    if (end.burst_left > 0 && clock_ < end.burst_until) {
        --end.burst_left;
        return Fate::dropped;
    }
    const Faults& f = end.faults;
    if (rng_.chance(f.burst)) {
        end.burst_left = uint32_t(rng_.below(f.burst_length));
        end.burst_until =
            // Without this limit, bursts of busy QPs would destroy all retransmissions of a quiet QP (seed 11714).
            clock_ + 10'000;
        return Fate::dropped;
    }
    if (rng_.chance(f.drop)) return Fate::dropped;
    if (rng_.chance(f.corrupt)) return Fate::corrupted;
    if (rng_.chance(f.duplicate)) return Fate::duplicated;
    if (rng_.chance(f.delay)) {
        extra = rng_.below(f.max_delay + 1);
        return Fate::delayed;
    }
    return Fate::delivered;
}

void Network::flip_random_bit(std::vector<uint8_t>& bytes) {
    // Does not flip bits of the source MAC address. Hosts store this address. In a real network only the FCS protects this
    // address, because the ICRC does not cover the Ethernet header.
    constexpr uint64_t kSource = 6, kSourceEnd = 12;
    uint64_t bit = rng_.below(bytes.size() * 8);
    if (bit / 8 >= kSource && bit / 8 < kSourceEnd) bit += (kSourceEnd - kSource) * 8;
    bytes[bit / 8] ^= uint8_t(1u << (bit % 8));
}

std::vector<uint32_t> Network::route(uint32_t from, const std::vector<uint8_t>& bytes) const {
    std::vector<uint32_t> to;
    if (bytes.size() < 14) return to;
    const bool group = (bytes[0] & 1) != 0;
    for (uint32_t e = 0; e < ends_.size(); ++e) {
        if (group ? e != from : std::memcmp(bytes.data(), ends_[e].mac.bytes.data(), 6) == 0) to.push_back(e);
    }
    return to;
}

uint32_t Network::queue_of(const End& end, const std::vector<uint8_t>& bytes) {
    const size_t queues = end.ports.size();
    if (queues == 1) return 0;
    if (spread_by_chance_) return uint32_t(rng_.below(queues));
    wire::Packet p;
    if (wire::parse(bytes.data(), uint32_t(bytes.size()), p, false) != wire::Verdict::ok) return 0;
    return p.udp_source % uint32_t(queues);
}

void Network::fly(uint32_t from, uint32_t to, Nanos at, std::vector<uint8_t> bytes) {
    auto frame = std::make_shared<std::vector<uint8_t>>(std::move(bytes));
    fabric_ != nullptr ? fabric_->enter(from, to, at, std::move(frame)) : land(to, at, std::move(frame));
}

void Network::fly_to(const std::vector<uint32_t>& to, Nanos at, Sent& s) {
    const bool last_use = !keep_ && to.size() == 1 && s.fate != Fate::duplicated;
    for (uint32_t t : to) last_use ? fly(s.from, t, at, std::move(s.bytes)) : fly(s.from, t, at, s.bytes);
}

void Network::land(uint32_t to, Nanos at, Fabric::Frame frame) {
    End& end = ends_[to];
    if (end.intake.per_frame != 0) {
        const Nanos free_at = std::max(end.intake_busy_until, at);
        if (free_at - at >= end.intake.per_frame * end.intake.room) {
            ++lost_;
            return;
        }
        at = end.intake_busy_until = free_at + end.intake.per_frame;
    }
    if (end.intake.jitter != 0) at = end.taken_at = std::max(end.taken_at, at + rng_.below(end.intake.jitter + 1));
    flying_.push({at, order_++, to, std::move(frame)});
}

void Network::transmit(uint32_t from, const uint8_t* data, uint32_t length) {
    End& end = ends_[from];
    Sent s;
    s.when = clock_;
    s.from = from;
    s.bytes.assign(data, data + length);
    s.parsed = wire::parse(s.bytes.data(), length, s.packet, !trusted_) == wire::Verdict::ok;
    ++frames_;
    // The frame leaves when the link is free. Frames arrive in order, except delayed frames and duplicates.
    end.busy_until = std::max(end.busy_until, clock_) + (length + 24) * 8 * Nanos{1'000'000'000} / end.link.bits_per_second;
    const Nanos arrival = std::max(end.busy_until + end.link.latency, end.last_arrival);
    end.last_arrival = arrival;
    Nanos extra = 0;
    s.fate = decide(end, s, extra);
    if (end.faults.mark != 0 && s.parsed && rng_.chance(end.faults.mark)) mark(s.bytes);
    const auto to = route(from, s.bytes);
    if (to.empty() && s.fate != Fate::dropped) s.fate = Fate::unroutable;
    if (s.fate == Fate::dropped || s.fate == Fate::unroutable) ++lost_;
    if (s.fate == Fate::corrupted) {
        std::vector<uint8_t> broken = s.bytes;
        flip_random_bit(broken);
        for (uint32_t t : route(from, broken)) fly(from, t, arrival, broken);
    } else if (s.fate != Fate::dropped) {
        fly_to(to, arrival + extra, s);
        if (s.fate == Fate::duplicated)
            for (uint32_t t : to) fly(from, t, arrival + rng_.below(end.faults.max_delay + 1), s.bytes);
    }
    if (watch_) watch_(s);
    if (!keep_) return;
    if (capture_.size() >= kKeptFrames) capture_.pop_front();
    capture_.push_back(std::move(s));
}

void Network::inject(uint32_t to, std::vector<uint8_t> bytes) {
    land(to, clock_, std::make_shared<std::vector<uint8_t>>(std::move(bytes)));
}

bool Network::deliver() {
    bool any = false;
    if (fabric_ != nullptr) fabric_->run(clock_, [this](uint32_t to, Nanos at, Fabric::Frame f) { land(to, at, std::move(f)); });
    while (!flying_.empty() && flying_.top().at <= clock_) {
        const Flying f = flying_.top();
        flying_.pop();
        End& end = ends_[f.to];
        end.ports[queue_of(end, *f.bytes)]->rx_.push_back(f.bytes);
        any = true;
    }
    return any;
}

}  // namespace roci::sim
