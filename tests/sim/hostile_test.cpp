// Tests with hostile clients and hostile peers. Whatever they write or send, other clients and other QPs must work.
#include "fixture.hpp"
#include "wire/loss_report.hpp"

namespace roci::sim {
namespace {

/// A hostile client and an honest client on the same host. The messages of the honest client must arrive.
struct HostileClient : ::testing::Test {
    World world;
    Side bad{world, world.host(0)};
    Side good{world, world.host(0)};
    Side peer{world, world.host(1)};
    Qp& bad_qp = bad.qp();
    Qp& good_qp = good.qp();
    Qp& bad_peer = peer.qp();
    Qp& good_peer = peer.qp();
    uint64_t tag = 0;

    void SetUp() override {
        connect(bad.client, bad_qp, peer.client, bad_peer);
        connect(good.client, good_qp, peer.client, good_peer);
    }
    /// Sends one message from the honest client to its peer. The message must arrive.
    void honest_traffic() {
        ++tag;
        fill(good.mr.data(), 3000, tag);
        ASSERT_TRUE(peer.client.post_recv(good_peer, tag, {peer.sge(0, 4096)}));
        ASSERT_TRUE(good.client.post_send(good_qp, good.send(tag, 0, 3000)));
        const auto done = good.wait(1, 1'000'000'000);
        ASSERT_EQ(done.size(), 1u);
        EXPECT_EQ(done[0].status, WcStatus::success);
        EXPECT_EQ(first_wrong(peer.mr.data(), 3000, tag), -1);
        peer.poll_all();
    }
    void TearDown() override {
        honest_traffic();
        EXPECT_TRUE(bad.client.guards_intact() && good.client.guards_intact() && peer.client.guards_intact());
        EXPECT_EQ(world.shut_down(), "");
    }
    void renew() {
        for (auto& [c, q] : {std::pair<Side*, Qp*>{&bad, &bad_qp}, {&peer, &bad_peer}}) c->client.to_state(*q, IBV_QPS_RESET);
        bad.poll_all();
        connect(bad.client, bad_qp, peer.client, bad_peer);
    }
    void kick() { bad.client.ring(bad_qp.engine, bad_qp.slot); }
};

/// The client marks every slot as posted. The phase in the slots is 1, 2, both in turn, or the invalid value 0xff.
TEST_F(HostileClient, SlotsThatFalselyClaimToBePosted) {
    for (const uint32_t lie : {1u, 2u, 3u, 0xffu}) {
        SCOPED_TRACE(lie);
        for (int round = 0; round < 4; ++round) {
            for (uint32_t i = 0; i < bad_qp.sq.depth; ++i) bad_qp.sq.slot(i)->phase = uint8_t(lie == 3 ? 1 + (round & 1) : lie);
            kick();
            world.run_for(1'000'000);
        }
        honest_traffic();
        renew();
        bad.poll_all();
    }
}

/// The slots contain garbage, and the client destroys the QP or ends.
TEST_F(HostileClient, ADestroyedQpWhoseSlotsFalselyClaimToBePosted) {
    for (const uint32_t garbage : {0u, 0x11u, 0x77u, 0xffu}) {
        SCOPED_TRACE(garbage);
        for (const uint32_t type : {uint32_t(IBV_QPT_RC), uint32_t(IBV_QPT_XRC_SEND)}) {
            Qp& q = bad.qp({.type = type});
            Qp& other = peer.qp();
            connect(bad.client, q, peer.client, other);
            for (uint32_t i = 0; i < q.sq.depth; ++i) {
                std::memset(q.sq.slot(i), int(garbage), q.sq.stride);
                q.sq.slot(i)->phase = 1;
            }
            bad.client.destroy_qp(q);
            honest_traffic();
        }
    }
    for (uint32_t i = 0; i < bad_qp.sq.depth; ++i) bad_qp.sq.slot(i)->phase = 1;
    bad.client.close();
}

TEST_F(HostileClient, ReceiveProducerThatLies) {
    for (uint32_t lie : {1u, 64u, 65u, 1000u, 0x80000000u, 0xffffffffu}) {
        SCOPED_TRACE(lie);
        std::atomic_ref(bad_qp.rq.shared->producer).store(lie);
        peer.client.post_send(bad_peer, peer.send(1, 0, 100));
        world.run_for(1'000'000);
        honest_traffic();
        bad.client.to_state(bad_qp, IBV_QPS_ERR);  // to flush the queues, the engine reads the same invalid indices
        world.run_for(1'000'000);
        honest_traffic();
        renew();
        peer.poll_all();
    }
}

/// A client may post a receive while its QP enters the error state, and ring no doorbell. The engine must flush this
/// receive.
TEST_F(HostileClient, AReceivePostedWhileTheQpFailsIsFlushed) {
    bad.client.to_state(bad_qp, IBV_QPS_ERR);
    world.run_for(10'000);
    bad.poll_all();
    abi::RecvWqe* w = bad_qp.rq.slot(bad_qp.rq.head++);
    *w = {77, 0, 0};
    (void)bad_qp.rq.publish();
    const auto done = bad.wait(1, 10'000'000);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].wr_id, 77u);
    EXPECT_EQ(done[0].status, WcStatus::wr_flush_err);
    renew();
}

TEST_F(HostileClient, GarbageWqes) {
    Rng rng(99);
    for (int round = 0; round < 300; ++round) {
        const uint32_t count = uint32_t(rng.between(1, 8));
        for (uint32_t i = 0; i < count; ++i) {
            auto* bytes = reinterpret_cast<uint8_t*>(bad_qp.sq.slot(bad_qp.sq.head));
            for (uint32_t k = 0; k < bad_qp.sq.stride; ++k) bytes[k] = uint8_t(rng.next());
            auto* w = bad_qp.sq.slot(bad_qp.sq.head);
            w->opcode = WrOpcode(rng.below(rng.chance(0.8) ? 16 : 256));
            if (rng.chance(0.7)) w->num_sge = uint8_t(rng.below(5));
            if (rng.chance(0.5)) w->send_flags &= uint8_t(~abi::kSendInline);
            if (rng.chance(0.5))  // makes half of the keys valid, so that the engine also checks the lengths
                for (uint32_t s = 0; s < 4; ++s)
                    abi::sges(w)[s] = {bad.mr.address() + rng.below(2000), uint32_t(rng.below(3000)), bad.mr.lkey};
            ++bad_qp.sq.head;
        }
        (void)bad_qp.sq.publish();
        kick();
        auto* r = reinterpret_cast<uint8_t*>(bad_qp.rq.slot(bad_qp.rq.head));
        for (uint32_t k = 0; k < bad_qp.rq.stride; ++k) r[k] = uint8_t(rng.next());
        if (rng.chance(0.5)) reinterpret_cast<abi::RecvWqe*>(r)->num_sge = uint32_t(rng.below(6));
        ++bad_qp.rq.head;
        (void)bad_qp.rq.publish();
        peer.client.post_send(bad_peer, peer.send(1, 0, 100));
        world.run_for(100'000);
        if (round % 25 == 0) honest_traffic();
        renew();
        peer.poll_all();
    }
}

TEST_F(HostileClient, WellFormedWqesWithBadFields) {
    struct Case {
        const char* what;
        std::function<void(abi::SendWqe&)> spoil;
        WcStatus status;
    };
    const Case cases[] = {
        {"more SGEs than the QP has", [](auto& w) { w.num_sge = 255; }, WcStatus::loc_qp_op_err},
        {"inline longer than the slot",
         [](auto& w) {
             w.send_flags |= abi::kSendInline;
             w.num_sge = 0;
             w.inline_length = 100000;
         },
         WcStatus::loc_qp_op_err},
        {"inline with SGEs",
         [](auto& w) {
             w.send_flags |= abi::kSendInline;
             w.inline_length = 4;
         },
         WcStatus::loc_qp_op_err},
        {"unknown opcode", [](auto& w) { w.opcode = WrOpcode(200); }, WcStatus::loc_qp_op_err},
        {"opcode that RC has not", [](auto& w) { w.opcode = WrOpcode::tso; }, WcStatus::loc_qp_op_err},
        {"longer than 2^31",
         [](auto& w) {
             abi::sges(&w)[0].length = abi::sges(&w)[1].length = 0xffffffff;
             w.num_sge = 2;
         },
         WcStatus::loc_len_err},
        {"key 0", [](auto& w) { abi::sges(&w)[0].lkey = 0; }, WcStatus::loc_prot_err},
        {"atomic of 100 bytes", [](auto& w) { w.opcode = WrOpcode::atomic_fetch_add; }, WcStatus::loc_len_err},
        {"inline READ",
         [](auto& w) {
             w.opcode = WrOpcode::rdma_read;
             w.send_flags |= abi::kSendInline;
             w.num_sge = 0;
             w.inline_length = 4;
         },
         WcStatus::loc_qp_op_err},
    };
    for (const Case& c : cases) {
        SCOPED_TRACE(c.what);
        abi::SendWqe& w = *bad_qp.sq.slot(bad_qp.sq.head);
        std::memset(static_cast<void*>(&w), 0, bad_qp.sq.stride);
        w.wr_id = 77;
        w.opcode = WrOpcode::send;
        w.send_flags = 0;  // an unsignalled request completes only if it fails
        w.num_sge = 1;
        abi::sges(&w)[0] = {bad.mr.address(), 100, bad.mr.lkey};
        c.spoil(w);
        ++bad_qp.sq.head;
        if (bad_qp.sq.publish()) kick();
        const auto done = bad.wait(1, 1'000'000'000);
        ASSERT_EQ(done.size(), 1u);
        EXPECT_EQ(done[0].wr_id, 77u);
        EXPECT_EQ(done[0].status, c.status);
        honest_traffic();
        renew();
    }
}

TEST_F(HostileClient, DoorbellsForEverything) {
    auto* page = bad.client.doorbells(bad_qp.engine);
    for (int i = 0; i < 20; ++i) {
        std::memset(static_cast<void*>(page), 0xff, sizeof *page);
        world.run_for(50'000);
        honest_traffic();
    }
    EXPECT_GT(world.host(0).counter(engine::Counter::stray_doorbells), 0u);
    EXPECT_TRUE(peer.client.post_recv(bad_peer, 1, {peer.sge(0, 100)}));
    bad.client.post_send(bad_qp, bad.send(1, 0, 10));
    EXPECT_EQ(bad.wait_status(), WcStatus::success) << "even its own work goes on";
}

TEST_F(HostileClient, RingIndicesAndFlagsScribbledOver) {
    Rng rng(5);
    for (int i = 0; i < 200; ++i) {
        std::atomic_ref(bad_qp.sq.shared->idle).store(uint32_t(rng.next()));
        std::atomic_ref(bad_qp.rq.shared->ring).store(uint32_t(rng.next()));
        std::atomic_ref(bad.cq.ring.shared->arm).store(uint32_t(rng.next()));
        std::atomic_ref(bad.cq.ring.lane(0)->consumer).store(uint32_t(rng.next()));
        if (rng.chance(0.2)) std::memset(bad.cq.ring.entry(0, uint32_t(rng.below(64))), 0xff, 64);
        peer.client.post_recv(bad_peer, 1, {peer.sge(0, 100)});
        bad.client.post_send(bad_qp, bad.send(1, 0, 10));
        kick();
        world.run_for(20'000);
        peer.poll_all();
    }
    honest_traffic();
}

TEST_F(HostileClient, DeregisteringUnderTraffic) {
    Mr& mr = bad.client.reg_mr(bad.pd, 1 << 16);
    SendWr w = bad.send(1, 0, 1);
    w.sges = {{mr.address(), 1 << 16, mr.lkey}};
    peer.client.post_recv(bad_peer, 1, {peer.sge(0, 1 << 16)});
    bad.client.post_send(bad_qp, w);
    world.run_for(2'000);
    bad.client.dereg_mr(mr);
    std::memset(mr.data(), 0xdd, mr.length);
    const auto done = bad.wait(1);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_TRUE(done[0].status == WcStatus::loc_prot_err || done[0].status == WcStatus::success);
}

TEST_F(HostileClient, DyingInTheMiddleLeavesNothing) {
    for (uint64_t i = 0; i < 20; ++i) peer.client.post_recv(bad_peer, i, {peer.sge(0, 1 << 16)});
    for (uint64_t i = 0; i < 20; ++i) bad.client.post_send(bad_qp, bad.send(i, 0, 60'000));
    world.run_for(10'000);
    bad.client.close();
    honest_traffic();
    world.run_for(10'000'000);
    const auto t = world.host(0).conductor().totals();
    EXPECT_EQ(t.sessions, 1u);
    EXPECT_EQ(t.qps, 1u);
    EXPECT_EQ(t.pds, 1u);
}

// ---- peers ----------------------------------------------------------------------------------------------------------

/// Returns the payload of an inquiry or of a loss report. Its PSNs are near `psn`.
std::vector<uint8_t> random_report(Rng& rng, Psn psn) {
    wire::LossReport r;
    r.kind = rng.chance(0.3) ? wire::ReportKind::inquiry : wire::ReportKind::report;
    r.serial = uint16_t(rng.next());
    r.length = uint16_t(rng.below(8));
    r.places = uint16_t(rng.below(5));
    r.base = psn;
    r.newest = psn + uint32_t(rng.below(12));
    for (uint32_t i = 1; i < r.length; ++i)
        if (rng.chance(0.5)) r.set(i);
    std::vector<uint8_t> bytes(wire::LossReport::kBytes);
    wire::write_loss_report(bytes.data(), r);
    return bytes;
}

struct HostilePeer : PuppetTest {};

/// The peer sends random frames with a valid ICRC and with PSNs near the expected PSN. A QP of an honest client must
/// keep working.
TEST_F(HostilePeer, RandomPacketsNeverHurtAnotherQp) {
    Rng rng(31337);
    World& w = world;
    Side honest(w, w.host(0));
    Qp& victim2 = honest.qp();
    Puppet friendly(w);
    connect(honest.client, victim2, friendly);
    uint32_t friendly_psn = 0x100;
    for (int round = 0; round < 400; ++round) {
        Qp& q = a.qp();
        path.psn = uint32_t(rng.next() & kMask24);
        path.peer_psn = uint32_t(rng.next() & kMask24);
        connect(a.client, q, puppet, path);
        for (int i = 0; i < 3; ++i) a.client.post_recv(q, 1, {a.sge(rng.below(1000), uint32_t(rng.below(5000)))});
        for (int i = 0; i < 3; ++i)
            a.client.post_send(
                q, a.rdma(rng.pick(WrOpcode::send, WrOpcode::rdma_write, WrOpcode::rdma_read, WrOpcode::atomic_fetch_add), 1, 0,
                          8, 0, 0));
        w.run_for(5'000);
        for (int i = 0; i < 30; ++i) {
            wire::TransportHeaders h;
            const uint32_t base = rng.chance(0.5) ? path.psn : path.peer_psn;
            h.psn = Psn(base + uint32_t(rng.below(8)) - 3);
            h.ack_request = rng.chance(0.5);
            h.mig_req = rng.chance(0.5);
            h.va = rng.chance(0.7) ? a.mr.address() + rng.below(a.mr.length) : rng.next();
            h.rkey = Key{rng.chance(0.7) ? a.mr.rkey : uint32_t(rng.next())};
            h.dma_length = uint32_t(rng.chance(0.8) ? rng.below(8000) : rng.next());
            h.syndrome = uint8_t(rng.next());
            h.msn = Msn{uint32_t(rng.next() & kMask24)};
            h.invalidate = Key{rng.chance(0.5) ? a.mr.rkey : uint32_t(rng.next())};
            h.swap_add = rng.next();
            const auto payload = bytes_of(rng.pick<uint64_t>(0, 1, 8, kMtu, kMtu, rng.below(4000)), 1);
            const uint8_t opcode = uint8_t(rng.chance(0.9) ? rng.below(0x20) : rng.next());
            const bool carries = wire::opcode_info(opcode).has(wire::kPayload);
            puppet.send_raw(puppet.build(opcode, h, carries ? payload : std::vector<uint8_t>{}));
            if (rng.chance(0.2)) puppet.send_raw(puppet.build(wire::kLossReportOpcode, h, random_report(rng, h.psn)));
        }
        w.run_for(50'000);
        puppet.listen(1);
        a.poll_all();
        a.client.destroy_qp(q);
        if (round % 20 == 0) {
            honest.client.post_recv(victim2, 1, {honest.sge(0, 100)});
            wire::TransportHeaders h;
            h.psn = Psn(friendly_psn++);
            h.ack_request = true;
            friendly.send(Operation::send_only, h, bytes_of(50, uint64_t(round)));
            const auto done = honest.wait(1, 1'000'000'000);
            ASSERT_EQ(done.size(), 1u);
            EXPECT_EQ(done[0].status, WcStatus::success);
            EXPECT_EQ(first_wrong(honest.mr.data(), 50, uint64_t(round)), -1);
        }
    }
    EXPECT_TRUE(honest.client.guards_intact());
    honest.client.close();
}

/// The peer sends random bytes, truncated frames, and frames with flipped bits. The engine must drop all of them.
TEST_F(HostilePeer, RandomBytesAreDropped) {
    join();
    Rng rng(8);
    const auto real = puppet.build(wire::make_opcode(wire::Service::rc, Operation::send_only), {}, bytes_of(100, 1));
    const uint32_t to = world.host(0).endpoint(0);
    for (int i = 0; i < 20'000; ++i) {
        std::vector<uint8_t> f;
        if (rng.chance(0.3)) {
            f.resize(rng.below(200));
            for (auto& b : f) b = uint8_t(rng.next());
        } else {
            f = real;
            if (rng.chance(0.5)) f.resize(rng.below(f.size() + 1));
            for (uint64_t n = rng.between(1, 4); n > 0 && !f.empty(); --n) f[rng.below(f.size())] ^= uint8_t(1u << rng.below(8));
        }
        world.net().inject(to, f);
        if (i % 64 == 0) world.run_for(10'000);
    }
    world.run_for(100'000);
    EXPECT_TRUE(a.poll_all().empty());
    EXPECT_EQ(state(), uint32_t(IBV_QPS_RTS));
}

}  // namespace
}  // namespace roci::sim
