// Two devices that are connected by memory or, as in rocid, by DPDK's ring driver. This process drives both QPs of every
// connection. All measurements of transport_bench use this rig.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "abi/client_rings.hpp"
#include "memory_port.hpp"
#include "pmd_glue/dpdk_port.hpp"
#include "pmd_glue/eal.hpp"
#include "pmd_glue/huge_chunks.hpp"
#include "pmd_glue/net_ring.hpp"
#include "sim/client.hpp"
#include "sim/world.hpp"

namespace roci::bench {

/// DPDK's ring driver, mbufs and ports as in rocid, with a queue and a pool per engine.
class RingWire {
public:
    /// `cpus` contains one CPU per engine, for the lcore of the engine. If `cpus` is empty, one engine runs in the
    /// calling thread.
    explicit RingWire(const std::vector<unsigned>& cpus)
        : engines_(std::max(1u, uint32_t(cpus.size()))), eal_(options(cpus)), pair_("roci0", "roci1", uint16_t(engines_)) {
        std::vector<pmd::MbufPool*> pools;
        for (uint32_t e = 0; e < engines_; ++e)
            pools.push_back(pools_.emplace_back(std::make_unique<pmd::MbufPool>("bench" + std::to_string(e), kMbufs, 0)).get());
        for (const uint16_t port : {pair_.port_a(), pair_.port_b()}) {
            pmd::start_port(port, pools.data(), {uint16_t(engines_)});
            for (uint32_t e = 0; e < engines_; ++e)
                ports_.push_back(std::make_unique<pmd::DpdkPort>(port, e, *pools[e], nullptr, pmd::ChecksumOffload{},
                                                                 kMbufs / 8));  // as in rocid, engines may keep frames
        }
    }
    io::Port* port(uint32_t device, uint32_t engine) { return ports_[device * engines_ + engine].get(); }
    pmd::Eal& eal() { return eal_; }

private:
    static constexpr uint32_t kMbufs = 8192;
    static pmd::EalOptions options(const std::vector<unsigned>& cpus) {
        pmd::EalOptions o;
        o.engines = std::max(1u, uint32_t(cpus.size()));
        o.cpus = cpus;
        o.hugepages = pmd::Hugepages::never;
        o.memory_bytes = o.engines * pmd::MbufPool::bytes(kMbufs) + (16 << 20);
        return o;
    }
    const uint32_t engines_;
    pmd::Eal eal_;
    std::vector<std::unique_ptr<pmd::MbufPool>> pools_;
    pmd::RingPair pair_;
    std::vector<std::unique_ptr<pmd::DpdkPort>> ports_;
};

/// ring_wire connects the devices if main() has created it. Otherwise memory_wire connects them. ring_wire is global, because a
/// process can have only one EAL.
inline std::unique_ptr<RingWire> ring_wire;
inline std::unique_ptr<MemoryWire> memory_wire;
inline io::Port* wire_port(uint32_t device, uint32_t engine) {
    return ring_wire != nullptr ? ring_wire->port(device, engine) : memory_wire->port(device);
}

/// One host with two devices that are connected to each other, and with connected pairs of QPs on each engine.
struct Rig {
    struct Pair {
        sim::Qp *a, *b;
        sim::Mr *source, *target;
    };
    /// The part of the rig that belongs to one engine. It consists of the pairs whose QP `a` is on this engine, and
    /// of their CQs. Only one thread uses a lane.
    struct Lane {
        sim::Cq *left_cq, *right_cq;
        std::vector<Pair> pairs;
    };
    /// If `crossed` is true, the QP `b` of each pair is on the next engine, so that every frame is handed over.
    struct Shape {
        uint32_t qps, bytes, depth;  ///< `qps`: QPs per engine
        uint32_t engines = 1;
        bool crossed = false;
    };
    sim::World world;
    sim::Client left, right;
    std::vector<Lane> lanes;
    Nanos now = 1'000'000;

    using PortOf = std::function<io::Port*(uint32_t device, uint32_t engine)>;
    static sim::WorldOptions options(uint32_t engines, PortOf port) {
        sim::WorldOptions o;
        o.hosts = 1;
        o.devices = 2;
        o.engines = engines;
        o.engine.loss_reports = true;  // the default of rocid
        o.limits = {.max_sessions = 8, .max_qps = 65536, .max_keys = 65536, .max_ahs = 16};
        static pmd::HugeChunks chunks;  // huge pages, as in rocid
        o.chunks = &chunks;
        if (ring_wire == nullptr) memory_wire = std::make_unique<MemoryWire>();
        o.port = std::move(port);
        return o;
    }
    /// `port` returns the ports of the engines.
    explicit Rig(const Shape& s, PortOf port = wire_port)
        : world(options(s.engines, std::move(port))), left(world.host(0), 0), right(world.host(0), 1), lanes(s.engines) {
        const uint32_t lpd = left.alloc_pd(), rpd = right.alloc_pd(), entries = std::min(s.qps * s.depth, 1u << 20);
        for (Lane& l : lanes) l.left_cq = &left.create_cq(entries), l.right_cq = &right.create_cq(entries);
        const sim::QpOptions o{
            .max_send_wr = s.depth, .max_recv_wr = s.depth, .max_send_sge = 1, .max_recv_sge = 1, .max_inline = 0};
        for (uint32_t i = 0; i < s.qps; ++i) {
            std::vector<sim::Qp*> a, b;  // the conductor (rocid's control thread) distributes new QPs over the engines in turn
            for (Lane& l : lanes) a.push_back(&left.create_qp(lpd, *l.left_cq, *l.left_cq, o));
            for (Lane& l : lanes) b.push_back(&right.create_qp(rpd, *l.right_cq, *l.right_cq, o));
            for (uint32_t e = 0; e < s.engines; ++e) {
                if (a[e]->engine != e || b[e]->engine != e) throw std::runtime_error("QPs are not where they are expected");
                sim::Qp& peer = *b[(e + s.crossed) % s.engines];
                sim::connect(left, *a[e], right, peer, {.mtu = 5, .timeout = 18});
                lanes[e].pairs.push_back({a[e], &peer, &left.reg_mr(lpd, s.bytes + kLine), &right.reg_mr(rpd, s.bytes + kLine)});
            }
        }
    }
    /// Buffers are aligned to a cache line, because the buffers of programs usually begin at a page.
    static constexpr uint64_t kLine = 64;
    static uint64_t aligned(const sim::Mr& mr) { return (mr.address() + kLine - 1) & ~(kLine - 1); }
    void post(Pair& p, abi::WrOpcode opcode, uint32_t bytes, bool signaled) {
        abi::SendWqe* w = p.a->sq.slot(p.a->sq.head++);
        *w = abi::SendWqe{};
        w->opcode = opcode;
        w->send_flags = signaled ? abi::kSendSignaled : 0;
        w->num_sge = 1;
        w->remote_addr = aligned(*p.target);
        w->rkey = p.target->rkey;
        *abi::sges(w) = {aligned(*p.source), bytes, p.source->lkey};
    }
    void post_recv(Pair& p, uint32_t bytes) {
        abi::RecvWqe* w = p.b->rq.slot(p.b->rq.head++);
        *w = {0, 1, 0};
        *abi::sges(w) = {aligned(*p.target), bytes, p.target->lkey};
    }
    void publish(Pair& p) {
        if (p.a->sq.publish()) left.ring(p.a->engine, p.a->slot);
    }
    void poll() { world.host(0).engine(0).poll(now += 1000); }
};

/// Posts one batch of messages on every pair of a lane, and polls until all batches are complete. The last message of
/// each batch is signalled. Returns false if a message has failed.
template <class Poll>
inline bool one_round(Rig& rig, Rig::Lane& lane, abi::WrOpcode opcode, uint32_t bytes, uint32_t batch, Poll&& poll) {
    const bool send = opcode == abi::WrOpcode::send;
    bool good = true;
    for (Rig::Pair& p : lane.pairs) {
        for (uint32_t i = 0; send && i < batch; ++i) rig.post_recv(p, bytes);
        if (send && p.b->rq.publish()) good = false;
        for (uint32_t i = 0; i < batch; ++i) rig.post(p, opcode, bytes, i + 1 == batch);
        rig.publish(p);
    }
    for (uint32_t done = 0; done < lane.pairs.size();) {
        poll();
        while (const abi::Cqe* e = lane.left_cq->ring.peek()) {
            good = good && e->status == abi::WcStatus::success;
            lane.pairs[0].a->sq.free_send(e->wqe_index);
            lane.left_cq->ring.pop();
            ++done;
        }
        while (lane.right_cq->ring.peek() != nullptr) lane.right_cq->ring.pop();
    }
    return good;
}
/// Executes one round on a rig with one engine, with a virtual clock.
inline bool one_round(Rig& rig, abi::WrOpcode opcode, uint32_t bytes, uint32_t batch) {
    return one_round(rig, rig.lanes[0], opcode, bytes, batch, [&rig] { rig.poll(); });
}

}  // namespace roci::bench
