#include "net_ring.hpp"

#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include "eal.hpp"

namespace roci::pmd {

RingPair::RingPair(const std::string& a, const std::string& b, uint16_t queues) {
    const std::vector<rte_ring*> to_a = make_rings("to_" + a, queues);
    if (a == b) {
        port_a_ = port_b_ = make_port(a, to_a, to_a);
        return;
    }
    const std::vector<rte_ring*> to_b = make_rings("to_" + b, queues);
    port_a_ = make_port(a, to_a, to_b);
    port_b_ = make_port(b, to_b, to_a);
}

RingPair::~RingPair() {
    for (rte_ring* r : rings_) {
        void* m = nullptr;
        while (rte_ring_dequeue(r, &m) == 0) rte_pktmbuf_free(static_cast<rte_mbuf*>(m));
        rte_ring_free(r);
    }
}

std::vector<rte_ring*> RingPair::make_rings(const std::string& name, uint16_t queues) {
    std::vector<rte_ring*> out;
    for (uint16_t q = 0; q < queues; ++q) {
        const std::string full = name.substr(0, 20) + "_" + std::to_string(q);
        rte_ring* r = rte_ring_create(full.c_str(), kDepth, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ);
        if (r == nullptr) throw StartError("no memory for ring '" + full + "': " + rte_strerror(rte_errno));
        rings_.push_back(r);
        out.push_back(r);
    }
    return out;
}

uint16_t RingPair::make_port(const std::string& name, const std::vector<rte_ring*>& rx, const std::vector<rte_ring*>& tx) {
    const int port = rte_eth_from_rings(name.c_str(), rx.data(), unsigned(rx.size()), tx.data(), unsigned(tx.size()), 0);
    if (port < 0) throw StartError("loopback port '" + name + "' does not start: " + rte_strerror(rte_errno));
    return uint16_t(port);
}

}  // namespace roci::pmd
