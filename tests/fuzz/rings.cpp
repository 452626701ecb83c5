// The shared memory of a hostile client: arbitrary bytes in its send, receive, shared receive and completion queues, in its tag
// operations and doorbells, while an engine runs. After the input, the message of a bystander must arrive within a limited number
// of rounds, and nothing may be left of the hostile client.
#include <infiniband/verbs.h>

#include <array>
#include <memory>

#include "records.hpp"
#include "rig.hpp"
#include "targets.hpp"

namespace roci::fuzz::rings {
namespace {

using abi::WcStatus;
using abi::WrOpcode;

enum : size_t { kSuccess, kFlushed, kLocalError, kRemoteError, kTagged, kStray, kInError };

/// The QPs of the hostile client: RC, RC with an SRQ, RC with a tag matching SRQ, UC and UD.
enum Pair : size_t { kRc, kRcSrq, kRcTags, kUc, kUd, kPairs };

class Attacker {
public:
    explicit Attacker(Rig& rig)
        : rig_(rig),
          bad_(rig.host(), 0, kHostile),
          peer_(rig.host(), 1, kHostile),
          srq_(bad_.client.create_srq(bad_.pd, 32)),
          tags_(bad_.client.create_tag_srq(bad_.pd, bad_.cq, 32, 16, 16)),
          window_(bad_.client.alloc_mw(bad_.pd, IBV_MW_TYPE_2)) {
        const std::array<sim::QpOptions, kPairs> kinds = {
            sim::QpOptions{}, {.srq = &srq_}, {.srq = &tags_}, {.type = IBV_QPT_UC}, {.type = IBV_QPT_UD}};
        for (size_t i = 0; i < kPairs; ++i) {
            qps_[i] = &bad_.qp(kinds[i]);
            peers_[i] = &peer_.qp({.type = kinds[i].type});
            sim::connect(bad_.client, *qps_[i], peer_.client, *peers_[i]);
        }
        ah_ = bad_.client.create_ah(bad_.pd, peer_.client.self(*peers_[kUd]));
        peer_ah_ = peer_.client.create_ah(peer_.pd, bad_.client.self(*qps_[kUd]));
        list_places();
    }

    void apply(const Record& r, Reach& reach) {
        using Step = void (Attacker::*)(Fields);
        static constexpr Step kSteps[] = {
            &Attacker::write,    &Attacker::post_send, &Attacker::post_recv,  &Attacker::post_srq,      &Attacker::post_tag,
            &Attacker::doorbell, &Attacker::run,       &Attacker::peer_sends, &Attacker::peer_receives, &Attacker::renew};
        (this->*kSteps[r.kind % std::size(kSteps)])(Fields(r.body));
        poll(reach);
    }
    void end(Reach& reach) {
        rig_.world().run_for(20'000);
        poll(reach);
        for (Qp* q : qps_) reach(kInError, bad_.client.query(*q).attr.qp_state == IBV_QPS_ERR);
        reach(kStray, rig_.host().counter(engine::Counter::stray_doorbells));
        rig_.exchange();
        require(bad_.client.guards_intact() && peer_.client.guards_intact(), "nobody wrote beside registered memory");
    }

    const Party& bad() const { return bad_; }
    const Party& peer() const { return peer_; }
    const sim::Window& window() const { return window_; }
    uint32_t ah() const { return ah_; }
    uint32_t peer_ud() const { return peers_[kUd]->qpn; }

private:
    struct Place {
        std::byte* at;
        size_t bytes;
    };
    template <class T>
    void add_place(T* at, size_t bytes) {
        places_.push_back({reinterpret_cast<std::byte*>(at), bytes});
    }
    void add_queue(const abi::RqProducer& q) { add_place(q.shared, sizeof(abi::RqShared) + size_t(q.depth) * q.stride); }
    void list_places() {
        for (Qp* q : qps_) {
            if (q->sq.depth != 0) add_place(q->sq.shared, sizeof(abi::SqShared) + size_t(q->sq.depth) * q->sq.stride);
            if (q->rq.depth != 0) add_queue(q->rq);
        }
        for (Srq* s : {&srq_, &tags_}) add_queue(s->ring);
        add_place(bad_.cq.ring.shared,
                  sizeof(abi::CqShared) + bad_.cq.ring.lanes * abi::CqConsumer::lane_bytes(bad_.cq.ring.depth));
        const abi::TagQueue& shape = tags_.tags.shape();
        add_place(tags_.tag_ring, abi::tag_queue_bytes(shape.depth, shape.handles));
        add_place(bad_.client.doorbells(0), sizeof(abi::DoorbellPage));
    }

    // ---- the steps of an input, in the order of their kinds ----

    void write(Fields f) {
        const Place& p = places_[f.u8() % places_.size()];
        const size_t offset = f.u16() % p.bytes;
        std::memcpy(p.at + offset, f.rest().data(), std::min(f.rest().size(), p.bytes - offset));
    }
    void post_send(Fields f) {
        Qp& q = *qps_[f.u8() % kPairs];
        if (q.sq.depth == 0) return;  // rocid itself sends on a QP with a tag matching SRQ
        std::memcpy(reinterpret_cast<std::byte*>(q.sq.slot(q.sq.head++)), f.rest().data(),
                    std::min<size_t>(f.rest().size(), q.sq.stride));
        if (q.sq.publish()) bad_.client.ring(q.engine, q.slot);
    }
    void fill(abi::RqProducer& q, Input wqe) {
        std::memcpy(reinterpret_cast<std::byte*>(q.slot(q.head++)), wqe.data(), std::min<size_t>(wqe.size(), q.stride));
        (void)q.publish();
    }
    void post_recv(Fields f) {
        Qp& q = *qps_[f.u8() % kPairs];
        if (q.rq.depth == 0) return;
        fill(q.rq, f.rest());
        bad_.client.ring(q.engine, q.slot);
    }
    void post_srq(Fields f) { fill((f.u8() % 2 == 0 ? srq_ : tags_).ring, f.rest()); }
    void post_tag(Fields f) {
        auto op = f.take<abi::TagOp>();
        (void)bad_.client.post_tag(tags_, op);
    }
    void doorbell(Fields f) { bad_.client.ring(0, f.u16()); }
    void run(Fields f) { rig_.world().run_for(200 * (1 + f.u8())); }
    void peer_sends(Fields f) {
        static constexpr WrOpcode kOpcodes[] = {WrOpcode::send,      WrOpcode::send_imm,         WrOpcode::rdma_write_imm,
                                                WrOpcode::rdma_read, WrOpcode::atomic_fetch_add, WrOpcode::send_inv};
        const size_t pair = f.u8() % kPairs;
        sim::SendWr w = peer_.send(1, 0, 0);
        w.opcode = kOpcodes[f.u8() % std::size(kOpcodes)];
        w.sges[0].length = f.u16() % 8192;
        w.remote_addr = Party::kAddress;
        w.rkey = bad_.mr.rkey;
        if (pair == kUd) w.ah = peer_ah_, w.remote_qpn = qps_[kUd]->qpn, w.remote_qkey = 0xf;
        const size_t n = std::min<size_t>(f.rest().size(), 64);
        std::memcpy(peer_.mr.data(), f.rest().data(), n);
        (void)peer_.client.post_send(*peers_[pair], w);
    }
    void peer_receives(Fields f) {
        const size_t pair = f.u8() % kPairs;
        (void)peer_.client.post_recv(*peers_[pair], 1, {peer_.sge(0, 1 + f.u16() % 8192)});
    }
    void renew(Fields f) {
        const size_t pair = f.u8() % kPairs;
        bad_.client.to_state(*qps_[pair], IBV_QPS_RESET);
        peer_.client.to_state(*peers_[pair], IBV_QPS_RESET);
        sim::connect(bad_.client, *qps_[pair], peer_.client, *peers_[pair]);
    }

    /// Polls at most as many entries as the CQ can hold. The hostile client may have written entries itself, so polling
    /// might never end.
    void poll(Reach& reach) {
        peer_.poll();
        for (uint32_t n = 0; n < bad_.cq.ring.depth; ++n) {
            const auto e = bad_.client.poll(bad_.cq);
            if (!e) return;
            reach(e->status == WcStatus::success          ? kSuccess
                  : e->status == WcStatus::wr_flush_err   ? kFlushed
                  : e->status < WcStatus::rem_inv_req_err ? kLocalError
                                                          : kRemoteError);
            reach(kTagged, e->queue == abi::kCqeTag);
        }
    }

    Rig& rig_;
    Party bad_, peer_;
    Srq &srq_, &tags_;
    sim::Window window_;
    uint32_t ah_ = 0, peer_ah_ = 0;
    std::array<Qp*, kPairs> qps_{}, peers_{};
    std::vector<Place> places_;
};

// ---- seeds ----------------------------------------------------------------------------------------------------------

/// Kinds of records, in the order of Attacker::apply.
enum Kind : uint8_t { kWrite, kSend, kRecv, kSrqRecv, kTagOp, kDoorbell, kRun, kPeerSends, kPeerReceives, kRenew };

/// Writes records with work requests that use the keys of an attacker.
class Writer {
public:
    explicit Writer(const Attacker& a) : attacker_(a) {}
    Writer& add(uint8_t kind, Input body) {
        append(bytes_, kind, body);
        return *this;
    }
    Writer& run(uint8_t rounds = 60) { return add(kRun, Body().put(rounds)); }
    Writer& send(uint8_t pair, WrOpcode opcode, uint32_t length, uint8_t flags = abi::kSendSignaled) {
        abi::SendWqe w{};
        w.wr_id = 7;
        w.opcode = opcode;
        w.send_flags = flags;
        w.num_sge = 1;
        w.remote_addr = Party::kAddress + 64;
        w.rkey = attacker_.peer().mr.rkey;
        if (pair == kUd) w.ud = {attacker_.ah(), attacker_.peer_ud()}, w.remote_qkey = 0xf;
        return add(kSend, Body().put(pair).put(w).put(sge(length)));
    }
    Writer& inlined(uint8_t pair) {
        abi::SendWqe w{};
        w.opcode = WrOpcode::send;
        w.send_flags = abi::kSendSignaled | abi::kSendInline;
        w.inline_length = 20;
        return add(kSend, Body().put(pair).put(w).put(std::array<uint8_t, 20>{}));
    }
    Writer& bind() {
        abi::SendWqe w{};
        w.opcode = WrOpcode::bind_mw;
        w.send_flags = abi::kSendSignaled;
        w.remote_addr = Party::kAddress;
        w.rkey = attacker_.window().rkey + 1;
        w.bind_mr_lkey = attacker_.bad().mr.lkey;
        w.bind_length = 4096;
        w.bind_access = IBV_ACCESS_REMOTE_WRITE;
        return add(kSend, Body().put(uint8_t(kRc)).put(w));
    }
    Writer& receive(uint8_t kind, uint8_t which, uint32_t length) {
        return add(kind, Body().put(which).put(abi::RecvWqe{9, 1, 0}).put(sge(length)));
    }
    Writer& tag(abi::TagOpcode opcode, uint64_t tag) {
        abi::TagOp op{};
        op.opcode = opcode;
        op.flags = abi::kTagSignaled;
        op.tag = tag;
        op.mask = ~uint64_t{0};
        op.num_sge = opcode == abi::TagOpcode::add ? 1 : 0;
        op.sges[0] = sge(4096);
        return add(kTagOp, Body().put(op));
    }
    Writer& peer_sends(uint8_t pair, uint8_t opcode, uint16_t length) {
        const std::array<uint8_t, 16> header = {3, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5};  // an eager message with tag 5
        return add(kPeerSends, Body().put(pair).put(opcode).put(length).put(header));
    }
    Writer& peer_receives(uint8_t pair, uint16_t length) { return add(kPeerReceives, Body().put(pair).put(length)); }
    Bytes take() { return std::exchange(bytes_, {}); }

private:
    abi::Sge sge(uint32_t length) const { return {Party::kAddress + 128, length, attacker_.bad().mr.lkey}; }

    const Attacker& attacker_;
    Bytes bytes_;
};

void add_requests(Writer& w, std::vector<Bytes>& all) {
    constexpr std::pair<WrOpcode, uint32_t> kRequests[] = {{WrOpcode::send, 3000},          {WrOpcode::rdma_write, 3000},
                                                           {WrOpcode::rdma_write_imm, 100}, {WrOpcode::rdma_read, 5000},
                                                           {WrOpcode::atomic_cmp_swp, 8},   {WrOpcode::atomic_fetch_add, 8},
                                                           {WrOpcode::atomic_write, 8},     {WrOpcode::flush, 0},
                                                           {WrOpcode::atomic_fetch_add, 9}, {WrOpcode::send_inv, 10}};
    for (const auto& [opcode, length] : kRequests)
        all.push_back(w.peer_receives(kRc, 4096).send(kRc, opcode, length).run().take());
    for (const uint8_t pair : {uint8_t(kUc), uint8_t(kUd)})
        all.push_back(w.peer_receives(pair, 4096).send(pair, WrOpcode::send, 800).run().take());
    all.push_back(w.peer_receives(kRc, 100).inlined(kRc).run().take());
    all.push_back(w.bind().send(kRc, WrOpcode::local_inv, 0).run().take());
    for (int i = 0; i < 4; ++i) w.peer_receives(kRc, 8000).send(kRc, WrOpcode::send, 8000, 0);
    all.push_back(w.send(kRc, WrOpcode::rdma_read, 100, abi::kSendSignaled | abi::kSendFence).run(255).take());
}

}  // namespace

void run(Input in, Reach& reach) {
    Rig rig(1, 2);
    {
        Attacker attacker(rig);
        RecordReader reader(in);
        for (Record r; reader.next(r);) attacker.apply(r, reach);
        attacker.end(reach);
    }
    rig.require_only_bystander();
    rig.exchange();
    rig.end();
}

std::vector<Bytes> seeds() {
    Rig rig(1, 2);
    const Attacker attacker(rig);
    Writer w(attacker);
    std::vector<Bytes> all;
    add_requests(w, all);
    for (uint8_t opcode = 0; opcode < 6; ++opcode)
        all.push_back(w.receive(kRecv, kRc, 4096).peer_sends(kRc, opcode, 3000).run().take());
    all.push_back(w.receive(kSrqRecv, 0, 4096).peer_sends(kRcSrq, 0, 3000).run().take());
    all.push_back(w.receive(kSrqRecv, 1, 4096).tag(abi::TagOpcode::add, 5).run().peer_sends(kRcTags, 0, 300).run().take());
    all.push_back(w.receive(kSrqRecv, 1, 4096).tag(abi::TagOpcode::sync, 0).tag(abi::TagOpcode::del, 5).run().take());
    all.push_back(w.receive(kRecv, kUd, 4096).peer_sends(kUd, 0, 300).run().take());
    all.push_back(w.receive(kRecv, kRc, 10).peer_sends(kRc, 0, 3000).run().add(kRenew, Body().put(uint8_t(kRc))).run().take());
    all.push_back(w.add(kDoorbell, Body().put(uint16_t(0x123))).run().take());
    for (uint8_t place = 0; place < 12; ++place)
        all.push_back(
            w.add(kWrite, Body().put(place).put(uint16_t(0)).put(~uint64_t{0})).send(kRc, WrOpcode::send, 3000).run().take());
    return all;
}

std::vector<Outcome> outcomes() {
    return numbered({"completion: success", "completion: flushed", "completion: local error", "completion: error of the peer",
                     "completion of a tag list", "doorbell of no queue pair", "queue pair in error"});
}

}  // namespace roci::fuzz::rings
