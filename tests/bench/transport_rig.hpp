// Two devices joined by memory or by DPDK's ring driver as in rocid, one engine, one thread, both ends of every QP driven by this
// process: what transport_bench measures, with its stages counted or not.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "abi/client_rings.hpp"
#include "pmd_glue/dpdk_port.hpp"
#include "pmd_glue/eal.hpp"
#include "pmd_glue/huge_chunks.hpp"
#include "pmd_glue/net_ring.hpp"
#include "sim/client.hpp"
#include "sim/world.hpp"

namespace roci::bench {

inline bool over_net_ring = false;

/// Frames of one pool, handed to the other end by pointer.
class MemoryPort final : public engine::Port {
public:
    static constexpr uint32_t kFrames = 4096, kRoom = 4352 + 64;

    MemoryPort() : bytes_(std::make_unique<uint8_t[]>(size_t{kFrames} * kRoom)) {
        for (uint32_t i = 0; i < kFrames; ++i) free_.push_back(bytes_.get() + size_t{i} * kRoom);
        wire_.reserve(kFrames);
    }
    void join(MemoryPort& peer) { peer_ = &peer, peer.peer_ = this; }

    unsigned rx_burst(engine::RxFrame* frames, unsigned max) override {
        const unsigned n = std::min<unsigned>(max, unsigned(wire_.size() - next_));
        for (unsigned i = 0; i < n; ++i) frames[i] = wire_[next_ + i];
        next_ += n;
        if (next_ == wire_.size()) wire_.clear(), next_ = 0;
        return n;
    }
    void rx_free(engine::RxFrame* frames, unsigned n) override {
        for (unsigned i = 0; i < n; ++i) peer_->free_.push_back(static_cast<uint8_t*>(frames[i].cookie));
    }
    unsigned tx_alloc(engine::TxFrame* frames, unsigned n) override {
        n = std::min<unsigned>(n, unsigned(free_.size()));
        for (unsigned i = 0; i < n; ++i) {
            frames[i] = {free_.back(), kRoom, 0, free_.back()};
            free_.pop_back();
        }
        return n;
    }
    unsigned tx_burst(engine::TxFrame* frames, unsigned n) override {
        for (unsigned i = 0; i < n; ++i) peer_->wire_.push_back({frames[i].data, frames[i].length, frames[i].cookie});
        return n;
    }
    void tx_free(engine::TxFrame* frames, unsigned n) override {
        for (unsigned i = 0; i < n; ++i) free_.push_back(static_cast<uint8_t*>(frames[i].cookie));
    }

private:
    std::unique_ptr<uint8_t[]> bytes_;
    std::vector<uint8_t*> free_;
    std::vector<engine::RxFrame> wire_;
    size_t next_ = 0;
    MemoryPort* peer_ = nullptr;
};

/// Two ports joined by memory.
struct MemoryWire {
    std::array<MemoryPort, 2> ports;
    MemoryWire() { ports[0].join(ports[1]); }
    engine::Port* port(uint32_t i) { return &ports[i]; }
};

/// rocid's own: DPDK's ring driver, mbufs, and the port over them.
class RingWire {
public:
    RingWire()
        : eal_(options()),
          pool_("bench", kMbufs, 0),
          pair_("roci0", "roci1", 1),
          a_(pair_.port_a(), 0, pool_),
          b_(pair_.port_b(), 0, pool_) {
        pmd::MbufPool* pools[] = {&pool_};
        pmd::start_port(pair_.port_a(), pools, {1});
        pmd::start_port(pair_.port_b(), pools, {1});
    }
    engine::Port* port(uint32_t i) { return i == 0 ? &a_ : &b_; }

private:
    static constexpr uint32_t kMbufs = 8192;
    static pmd::EalOptions options() {
        pmd::EalOptions o;
        o.hugepages = pmd::Hugepages::never;
        o.memory_bytes = pmd::MbufPool::bytes(kMbufs) + (16 << 20);
        return o;
    }
    pmd::Eal eal_;
    pmd::MbufPool pool_;
    pmd::RingPair pair_;
    pmd::DpdkPort a_, b_;
};

/// Chosen on the command line; there is one EAL a process.
inline engine::Port* wire_port(uint32_t i, bool new_rig) {
    static std::unique_ptr<RingWire> rings;
    static std::unique_ptr<MemoryWire> memory;
    if (over_net_ring) {
        if (!rings) rings = std::make_unique<RingWire>();
        return rings->port(i);
    }
    if (new_rig) memory = std::make_unique<MemoryWire>();
    return memory->port(i);
}

/// One host with two devices back to back, and `qps` connected pairs.
struct Rig {
    struct Pair {
        sim::Qp *a, *b;
        sim::Mr *source, *target;
    };
    sim::World world;
    sim::Client left, right;
    sim::Cq *left_cq, *right_cq;
    std::vector<Pair> pairs;
    Nanos now = 1'000'000;

    static sim::WorldOptions options() {
        sim::WorldOptions o;
        o.hosts = 1;
        o.devices = 2;
        o.limits = {.max_sessions = 8, .max_qps = 65536, .max_keys = 65536, .max_ahs = 16};
        static pmd::HugeChunks chunks;  // as rocid
        o.chunks = &chunks;
        wire_port(0, true);
        o.port = [](uint32_t endpoint, uint32_t) { return wire_port(endpoint, false); };
        return o;
    }
    Rig(uint32_t qps, uint32_t bytes, uint32_t depth) : world(options()), left(world.host(0), 0), right(world.host(0), 1) {
        const uint32_t lpd = left.alloc_pd(), rpd = right.alloc_pd();
        left_cq = &left.create_cq(std::min(qps * depth, 1u << 20));
        right_cq = &right.create_cq(std::min(qps * depth, 1u << 20));
        for (uint32_t i = 0; i < qps; ++i) {
            const sim::QpOptions o{
                .max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1, .max_inline = 0};
            sim::Qp& a = left.create_qp(lpd, *left_cq, *left_cq, o);
            sim::Qp& b = right.create_qp(rpd, *right_cq, *right_cq, o);
            sim::connect(left, a, right, b, {.mtu = 5, .timeout = 14});
            pairs.push_back({&a, &b, &left.reg_mr(lpd, bytes + kLine), &right.reg_mr(rpd, bytes + kLine)});
        }
    }
    /// Programs' buffers begin pages as a rule.
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

/// A batch of messages on every QP, the last of each signalled, and polls until all are complete. False: something failed.
inline bool one_round(Rig& rig, abi::WrOpcode opcode, uint32_t bytes, uint32_t batch) {
    const bool send = opcode == abi::WrOpcode::send;
    bool good = true;
    for (Rig::Pair& p : rig.pairs) {
        for (uint32_t i = 0; send && i < batch; ++i) rig.post_recv(p, bytes);
        if (send && p.b->rq.publish()) good = false;
        for (uint32_t i = 0; i < batch; ++i) rig.post(p, opcode, bytes, i + 1 == batch);
        rig.publish(p);
    }
    for (uint32_t done = 0, idle = 0; done < rig.pairs.size(); ++idle) {
        if (idle == 100'000) return false;
        rig.poll();
        while (const abi::Cqe* e = rig.left_cq->ring.peek()) {
            good = good && e->status == abi::WcStatus::success;
            rig.pairs[0].a->sq.free_send(e->wqe_index);
            rig.left_cq->ring.pop();
            ++done, idle = 0;
        }
        while (rig.right_cq->ring.peek() != nullptr) rig.right_cq->ring.pop();
    }
    return good;
}

}  // namespace roci::bench
