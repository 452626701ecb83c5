#include "sim/switch.hpp"

#include <algorithm>

namespace roci::sim {
namespace {

constexpr uint32_t kBuckets = 64;
constexpr uint32_t kGapAndPreamble = 24;  ///< bytes per frame on the wire in addition to the frame: gap, preamble and FCS

uint32_t flow_hash(const std::vector<uint8_t>& f) {
    wire::Packet p;
    if (wire::parse(f.data(), uint32_t(f.size()), p, false) != wire::Verdict::ok) return 0;
    return (p.udp_source * 0x9e3779b1u) >> 16;
}

}  // namespace

double OutputCounters::p99() const {
    uint64_t all = 0, seen = 0;
    for (const uint32_t n : waiting) all += n;
    for (size_t i = 0; i < waiting.size(); ++i) {
        seen += waiting[i];
        if (seen * 100 >= all * 99) return double(i + 1) / kBuckets;
    }
    return 0;
}

uint32_t Switches::add_switch() {
    of_switch_.emplace_back();
    return uint32_t(of_switch_.size() - 1);
}

uint32_t Switches::add_output(uint32_t at_switch, const Output& o) {
    Port& p = outputs_.emplace_back(Port{.spec = o});
    p.counters.waiting.resize(kBuckets + 1);
    of_switch_[at_switch].push_back(uint32_t(outputs_.size() - 1));
    return uint32_t(outputs_.size() - 1);
}

void Switches::attach(uint32_t endpoint, uint32_t at_switch, const Output& towards) {
    const uint32_t out = add_output(at_switch, towards);
    outputs_[out].endpoint = endpoint;
    last_hop_[endpoint] = out;
    home_[endpoint] = at_switch;
}

void Switches::join(uint32_t a, uint32_t b, const Output& each_way) {
    outputs_[add_output(a, each_way)].next_switch = b;
    outputs_[add_output(b, each_way)].next_switch = a;
    ways_.clear();
}

void Switches::add_neighbour(Neighbour& n, const std::vector<uint32_t>& endpoints) {
    neighbours_.push_back(&n);
    for (const uint32_t e : endpoints) neighbour_at_[e] = &n;
}

Nanos Switches::next_event() const {
    Nanos next = hops_.empty() ? kNever : hops_.top().at;
    for (const Neighbour* n : neighbours_) next = std::min(next, n->deadline());
    return next;
}

uint64_t Switches::dropped() const {
    uint64_t n = 0;
    for (const Port& p : outputs_) n += p.counters.dropped;
    return n;
}

/// Returns the number of links on a shortest path between two switches.
uint32_t Switches::distance(uint32_t from, uint32_t to) const {
    std::vector<uint32_t> reached(of_switch_.size(), kNone);
    std::queue<uint32_t> next;
    next.push(from);
    reached[from] = 0;
    for (; !next.empty() && reached[to] == kNone; next.pop()) {
        for (const uint32_t out : of_switch_[next.front()]) {
            const uint32_t s = outputs_[out].next_switch;
            if (s == kNone || reached[s] != kNone) continue;
            reached[s] = reached[next.front()] + 1;
            next.push(s);
        }
    }
    return reached[to];
}

/// Returns the outputs of a switch that are on a shortest path to another switch.
const std::vector<uint32_t>& Switches::ways(uint32_t from, uint32_t to) {
    const auto [it, added] = ways_.try_emplace({from, to});
    if (!added) return it->second;
    const uint32_t length = distance(from, to);
    for (const uint32_t out : of_switch_[from]) {
        const uint32_t s = outputs_[out].next_switch;
        if (s != kNone && distance(s, to) + 1 == length) it->second.push_back(out);
    }
    return it->second;
}

/// Selects one of the outputs that are on a shortest path to endpoint `to`.
uint32_t Switches::choose(uint32_t at_switch, uint32_t to, const std::vector<uint8_t>& frame) {
    const uint32_t home = home_.at(to);
    if (home == at_switch) return last_hop_.at(to);
    const std::vector<uint32_t>& equal = ways(at_switch, home);
    if (by_packet_) return equal[rng_.below(equal.size())];
    return equal.size() == 1 ? equal[0] : equal[flow_hash(frame) % equal.size()];
}

void Switches::enter(uint32_t from, uint32_t to, Nanos at, Frame frame) {
    hops_.push({at, order_++, home_.at(from), to, std::move(frame)});
}

void Switches::forward(Hop hop, const Deliver& deliver) {
    Port& p = outputs_[choose(hop.at_switch, hop.to, *hop.frame)];
    OutputCounters& c = p.counters;
    while (!p.queue.empty() && p.queue.front().at <= hop.at) {
        p.waiting -= p.queue.front().bytes;
        p.queue.pop_front();
    }
    const auto bytes = uint32_t(hop.frame->size());
    ++c.frames;
    ++c.waiting[std::min<uint64_t>(kBuckets, uint64_t{p.waiting} * kBuckets / p.spec.buffer)];
    if (p.waiting + bytes > p.spec.buffer) {
        ++c.dropped;
        return;
    }
    if (p.spec.mark != 0 && p.waiting >= p.spec.mark && mark(*hop.frame)) ++c.marked;
    p.waiting += bytes;
    c.peak = std::max(c.peak, p.waiting);
    c.bytes += bytes;
    p.busy_until = std::max(p.busy_until, hop.at) + (bytes + kGapAndPreamble) * Nanos{8'000'000'000} / p.spec.bits_per_second;
    p.queue.push_back({p.busy_until, bytes});
    const Nanos there = p.busy_until + p.spec.propagation;
    if (const auto n = neighbour_at_.find(p.endpoint); n != neighbour_at_.end())
        return n->second->arrived(p.endpoint, there, *hop.frame);
    if (p.endpoint != kNone) return deliver(p.endpoint, there, std::move(hop.frame));
    hops_.push({there, order_++, p.next_switch, hop.to, std::move(hop.frame)});
}

void Switches::run(Nanos now, const Deliver& deliver) {
    while (!hops_.empty() && hops_.top().at <= now) {
        Hop hop = hops_.top();
        hops_.pop();
        forward(std::move(hop), deliver);
    }
    for (Neighbour* n : neighbours_)
        if (n->deadline() <= now) n->expired(now);
}

}  // namespace roci::sim
