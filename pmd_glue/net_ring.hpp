// Two ethdevs of this process that are connected by rings: each ethdev receives the frames that the other ethdev sends. Queue e
// of one ethdev is connected to queue e of the other ethdev, so the same engine serves both ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

struct rte_ring;

namespace roci::pmd {

class RingPair {
public:
    /// Creates ethdevs `a` and `b` with `queues` queue pairs each. If a == b, creates one ethdev that is connected to itself.
    /// Throws StartError.
    RingPair(const std::string& a, const std::string& b, uint16_t queues);
    ~RingPair();
    RingPair(const RingPair&) = delete;

    uint16_t port_a() const { return port_a_; }
    uint16_t port_b() const { return port_b_; }
    /// Largest number of frames in a ring. If a ring is full, the ethdev refuses further frames. DpdkPort keeps refused frames
    /// for some time and tries again.
    static constexpr unsigned kDepth = 2048;

private:
    std::vector<rte_ring*> make_rings(const std::string& name, uint16_t queues);
    uint16_t make_port(const std::string& name, const std::vector<rte_ring*>& rx, const std::vector<rte_ring*>& tx);

    std::vector<rte_ring*> rings_;
    uint16_t port_a_ = 0, port_b_ = 0;
};

}  // namespace roci::pmd
