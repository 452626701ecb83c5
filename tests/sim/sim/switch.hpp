// Switches between the endpoints of a Network. Each output has a link with a rate and a propagation delay, and a
// queue with a size in bytes. If a frame does not fit into the queue, it is dropped (tail drop). If the queue is
// longer than a threshold, an ECN-capable frame is marked Congestion Experienced. Paths of equal length share the
// traffic by flow or by packet. Sharing by packet reorders frames.
#pragma once

#include <deque>
#include <map>
#include <queue>
#include <vector>

#include "sim/network.hpp"

namespace roci::sim {

struct Output {
    uint64_t bits_per_second = 25'000'000'000;
    Nanos propagation = 1000;
    uint32_t buffer = 512 << 10;  ///< capacity of the queue in bytes
    uint32_t mark = 0;            ///< if at least this number of bytes wait, frames are marked; 0: never
};

struct OutputCounters {
    uint64_t frames = 0, bytes = 0, dropped = 0, marked = 0;
    uint32_t peak = 0;  ///< highest number of waiting bytes
    /// A histogram of the fill level of the queue, measured at the arrival of each frame. Element i is the number of
    /// frames that met i/64 to (i + 1)/64 of the buffer filled.
    std::vector<uint32_t> waiting;
    /// Returns the 99th percentile of the fill level in `waiting`, as a share of the buffer.
    double p99() const;
};

/// A source and sink of traffic that is not RoCE. Its endpoints are at the switches, but not in the Network.
class Neighbour {
public:
    virtual ~Neighbour() = default;
    virtual void arrived(uint32_t endpoint, Nanos at, const std::vector<uint8_t>& frame) = 0;
    virtual Nanos deadline() const = 0;
    virtual void expired(Nanos now) = 0;
};

class Switches final : public Fabric {
public:
    explicit Switches(Rng rng) : rng_(rng) {}
    uint32_t add_switch();
    /// `towards` is the link from the switch to the endpoint. The link of the endpoint itself is the other direction.
    void attach(uint32_t endpoint, uint32_t at_switch, const Output& towards);
    /// The switches keep a reference to `n`, so `n` must exist as long as the switches are used.
    void add_neighbour(Neighbour& n, const std::vector<uint32_t>& endpoints);
    void join(uint32_t a, uint32_t b, const Output& each_way);
    void spread_by_packet(bool on) { by_packet_ = on; }
    const OutputCounters& towards(uint32_t endpoint) const { return outputs_[last_hop_.at(endpoint)].counters; }
    uint64_t dropped() const;

    void enter(uint32_t from, uint32_t to, Nanos at, Frame frame) override;
    void run(Nanos now, const Deliver& deliver) override;
    Nanos next_event() const override;

private:
    static constexpr uint32_t kNone = ~0u;
    struct Leaving {
        Nanos at;
        uint32_t bytes;
    };
    struct Port {
        Output spec;
        uint32_t next_switch = kNone, endpoint = kNone;
        Nanos busy_until = 0;
        uint32_t waiting = 0;
        std::deque<Leaving> queue{};
        OutputCounters counters{};
    };
    struct Hop {
        Nanos at;
        uint64_t order;
        uint32_t at_switch, to;
        Frame frame;
        bool operator<(const Hop& o) const { return at != o.at ? at > o.at : order > o.order; }
    };
    uint32_t choose(uint32_t at_switch, uint32_t to, const std::vector<uint8_t>& frame);
    uint32_t distance(uint32_t from, uint32_t to) const;
    const std::vector<uint32_t>& ways(uint32_t from, uint32_t to);
    void forward(Hop hop, const Deliver& deliver);
    uint32_t add_output(uint32_t at_switch, const Output& o);

    Rng rng_;
    bool by_packet_ = false;
    std::vector<Port> outputs_;
    std::vector<std::vector<uint32_t>> of_switch_;  ///< outputs per switch
    /// Per endpoint: the output to the endpoint, and the switch of the endpoint.
    std::unordered_map<uint32_t, uint32_t> last_hop_, home_;
    std::map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>> ways_;  ///< results of ways()
    std::vector<Neighbour*> neighbours_;
    std::unordered_map<uint32_t, Neighbour*> neighbour_at_;  ///< by endpoint
    std::priority_queue<Hop> hops_;
    uint64_t order_ = 0;
};

}  // namespace roci::sim
