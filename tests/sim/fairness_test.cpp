// Tests that one user can delay messages of another user only by a bounded number of rounds. The attacker and the
// victim use the same engine. The test TheStormWouldDelayItsOwnUser runs the same traffic in the victim's own
// session. There the traffic delays messages.
#include "engine/command.hpp"
#include "fixture.hpp"
#include "qp/shared.hpp"
#include "qp/state.hpp"

namespace roci::sim {
namespace {

constexpr uint32_t kVictim = 1000, kAttacker = 1001;
/// Users with a limited rate. The limit of kFewBytes is in bytes, the limit of kFewPackets is in packets.
constexpr uint32_t kFewBytes = 1002, kFewPackets = 1003;
constexpr uint64_t kBytesPerSecond = 200'000'000, kPacketsPerSecond = 100'000;
/// The number of rounds by which a message may take longer than on an idle engine.
constexpr uint64_t kDelay = 4;

using host::LimitRule, host::UserLimits;
const WorldOptions kOptions{
    .hosts = 2,
    .limits = {.max_sessions = 128,
               .max_qps = 8192,
               .max_keys = 4096,
               .max_ahs = 256,
               .rules = {{LimitRule::Whom::user, kFewBytes, &UserLimits::bytes_per_second, kBytesPerSecond},
                         {LimitRule::Whom::user, kFewPackets, &UserLimits::packets_per_second, kPacketsPerSecond}}}};

struct Fairness : ::testing::Test {
    World world{kOptions};
    Side a{world, world.host(0), 0, 1 << 20, kVictim}, b{world, world.host(1), 0, 1 << 20, kVictim};
    Qp &qa = a.qp(), &qb = b.qp();
    std::vector<std::unique_ptr<Side>> sides;
    std::map<std::pair<uint32_t, uint32_t>, std::vector<Qp*>> qps_of;  ///< QPs that send storms (bulk traffic), by host and user

    /// Makes the links so fast that the users compete only for the engine.
    Fairness() {
        for (uint32_t h = 0; h < 2; ++h) world.net().link(world.host(h).endpoint(0)).bits_per_second = 100'000'000'000'000;
        connect(a.client, qa, b.client, qb);
    }
    void TearDown() override { EXPECT_EQ(world.shut_down(), ""); }

    Side& side(uint32_t host, uint32_t uid) {
        sides.push_back(std::make_unique<Side>(world, world.host(host), 0, 1 << 20, uid));
        return *sides.back();
    }
    /// Sends 20 messages of 64 bytes, one after another. Returns the highest number of rounds that one message takes to complete.
    /// `meanwhile` runs before each round.
    uint64_t rounds_of_a_send(const std::function<void()>& meanwhile = [] {}) {
        uint64_t most = 0;
        for (uint64_t i = 0; i < 20; ++i) {
            b.client.post_recv(qb, i, {b.sge(0, 64)});
            world.run_until([&, n = 0]() mutable { return meanwhile(), ++n > 3; });
            const uint64_t before = world.rounds();
            a.client.post_send(qa, a.send(i, 0, 64));
            bool done = false;
            world.run_until([&] {
                meanwhile();
                for (auto e = a.client.poll(a.cq); e; e = a.client.poll(a.cq)) done = e->status == WcStatus::success;
                return done;
            });
            EXPECT_TRUE(done);
            most = std::max(most, world.rounds() - before);
            b.poll_all();
        }
        return most;
    }
    struct Rates {  ///< per second
        double bytes, packets;
    };
    /// Runs `storm` for a twentieth of `duration` as a warm-up, and then for `duration`. Returns the bytes and packets
    /// per second that the storm QPs (qps_of) of user `uid` on `host` send during `duration`.
    Rates rates_of(uint32_t host, uint32_t uid, const std::function<void()>& storm, Nanos duration = 100'000'000) {
        const auto run = [&](Nanos time) {
            const Nanos end = world.now() + time;
            world.run_until([&] { return storm(), world.now() >= end; });
        };
        const auto sent = [&] {
            Rates all{0, 0};
            for (const Qp* q : qps_of[{host, uid}]) {
                const auto& c = world.host(host).shared().qps.find(q->qpn)->counters;
                all.bytes += double(c.tx_bytes);
                all.packets += double(c.tx_packets);
            }
            return all;
        };
        run(duration / 20);
        const Rates before = sent();
        const Nanos from = world.now();
        run(duration);
        const Rates after = sent();
        const double seconds = double(world.now() - from) / 1e9;
        return {(after.bytes - before.bytes) / seconds, (after.packets - before.packets) / seconds};
    }
    /// Connects `count` QPs of user `uid`. Returns a function that fills the send queues of these QPs with RDMA
    /// operations of 64 KiB.
    std::function<void()> storm(WrOpcode op, uint32_t uid, uint32_t count) {
        Side &from = side(0, uid), &to = side(1, uid);
        auto qps = std::make_shared<std::vector<Qp*>>();
        for (uint32_t i = 0; i < count; ++i) {
            Qp &x = from.qp({.max_send_wr = 16}), &y = to.qp();
            connect(from.client, x, to.client, y);
            qps->push_back(&x);
            qps_of[{0, uid}].push_back(&x);
            qps_of[{1, uid}].push_back(&y);
        }
        return [op, &from, &to, qps] {
            for (Qp* q : *qps)
                while (from.client.post_send(*q, from.rdma(op, 1, 0, 65536, to.mr.address(), to.mr.rkey))) {
                }
            from.poll_all();
        };
    }
};

TEST_F(Fairness, AStormOfWritesDelaysNoOtherUser) {
    const uint64_t alone = rounds_of_a_send();
    EXPECT_LE(rounds_of_a_send(storm(WrOpcode::rdma_write, kAttacker, 200)), alone + kDelay);
}

TEST_F(Fairness, AStormOfReadsDelaysNoOtherUser) {
    const uint64_t alone = rounds_of_a_send();
    EXPECT_LE(rounds_of_a_send(storm(WrOpcode::rdma_read, kAttacker, 200)), alone + kDelay);
}

/// A message waits for the frames that other users send in the same round. Therefore a round must be short if several
/// users have work.
TEST_F(Fairness, ARoundNextToAnotherUserSendsFewFrames) {
    constexpr uint64_t kFrame = 1024, kHeaders = 80, kAlone = 64;
    constexpr uint64_t kShared = 48;  // frames: the limit of a round's cost permits 46, rounded up to whole turns of 8 frames
    auto mine = storm(WrOpcode::rdma_write, kAttacker, 40);
    uint64_t before = 0, most = 0;  // total bytes that the attacker has sent, and the largest number of bytes in one round
    const auto count = [&] {
        mine();
        uint64_t bytes = 0;
        for (const Qp* q : qps_of[{0, kAttacker}]) bytes += world.host(0).shared().qps.find(q->qpn)->counters.tx_bytes;
        most = std::max(most, bytes - std::exchange(before, bytes));
    };
    const auto most_alone = [&] {
        world.run_for(20'000'000);  // after this time, the last turn of the victim's QP no longer makes rounds short
        count();
        most = 0;
        rates_of(0, kAttacker, count, 200'000);
        return most;
    };
    EXPECT_GE(most_alone(), kAlone * kFrame);
    rounds_of_a_send(mine);
    count();
    most = 0;
    rounds_of_a_send(count);
    EXPECT_LE(most, kShared * (kFrame + kHeaders));
    EXPECT_GE(most_alone(), kAlone * kFrame);
}

/// The engine sends responses to READs before requests. Nevertheless these responses must not take more than the
/// share of their user.
TEST_F(Fairness, ResponsesToReadsLeaveAnothersShortMessagesTheirShare) {
    auto reads = storm(WrOpcode::rdma_read, kAttacker, 16);
    std::vector<Qp*>& mine = qps_of[{1, kVictim}];
    for (int i = 0; i < 8; ++i) {
        Qp &x = b.qp({.max_send_wr = 128}), &y = a.qp();
        connect(b.client, x, a.client, y);
        mine.push_back(&x);
    }
    const auto both = [&] {
        reads();
        for (Qp* q : mine)
            while (b.client.post_send(*q, b.rdma(WrOpcode::rdma_write, 1, 0, 64, a.mr.address(), a.mr.rkey))) {
            }
        b.poll_all();
    };
    const auto cost = [](const Rates& r) { return r.bytes + 512 * r.packets; };
    const double victim = cost(rates_of(1, kVictim, both, 500'000)), attacker = cost(rates_of(1, kAttacker, both, 500'000));
    EXPECT_GT(victim, attacker * 2 / 3);
}

/// The delivery of the copies of a multicast packet takes more time than the sending of the packet. So the copies
/// must be charged to the share of the sender.
TEST_F(Fairness, TheSenderOfAMulticastPacketPaysForItsCopies) {
    constexpr uint32_t kMembers = 64, kQkey = 77;
    Gid group;
    group.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3};
    Side& s = side(0, kAttacker);
    const auto datagram_qp = [&]() -> Qp& {
        Qp& q = s.qp({.type = IBV_QPT_UD});
        s.client.to_init(q, kQkey);
        s.client.to_state(q, IBV_QPS_RTR);
        abi::QpAttr rts{};
        rts.qp_state = IBV_QPS_RTS;
        EXPECT_EQ(s.client.try_modify(q, IBV_QP_STATE | IBV_QP_SQ_PSN, rts), 0) << s.client.reason();
        return q;
    };
    for (uint32_t i = 0; i < kMembers; ++i)
        ASSERT_EQ(s.client.try_mcast(abi::Op::attach_mcast, datagram_qp(), group), 0) << s.client.reason();
    Qp& sender = datagram_qp();
    Peer to = s.client.self(sender);
    to.gid = group;
    SendWr wr = s.send(1, 0, 64);
    wr.ah = s.client.create_ah(s.pd, to);
    wr.remote_qpn = io::kMulticastQpn;
    wr.remote_qkey = kQkey;
    qps_of[{0, kAttacker}] = {&sender};
    auto mine = storm(WrOpcode::rdma_write, kVictim, 16);
    const auto both = [&] {
        mine();
        while (s.client.post_send(sender, wr)) {
        }
        s.poll_all();
    };
    const double others = rates_of(0, kVictim, both, 500'000).packets, sent = rates_of(0, kAttacker, both, 500'000).packets;
    EXPECT_GT(sent, 0);
    EXPECT_GT(others, 5 * sent);
}

TEST_F(Fairness, TheStormWouldDelayItsOwnUser) {
    auto mine = storm(WrOpcode::rdma_write, kVictim, 200);
    const uint64_t alone = rounds_of_a_send();
    EXPECT_LE(rounds_of_a_send(mine), alone + kDelay) << "sessions share the turns of their user";
    // Connects as many QPs as before, but in the victim's own session.
    std::vector<Qp*> qps;
    for (uint32_t i = 0; i < 200; ++i) {
        Qp &x = a.qp({.max_send_wr = 16}), &y = b.qp();
        connect(a.client, x, b.client, y);
        qps.push_back(&x);
    }
    const uint64_t in_one = rounds_of_a_send([&] {
        for (Qp* q : qps)
            while (a.client.post_send(*q, {.id = 1,
                                           .opcode = WrOpcode::rdma_write,
                                           .flags = 0,
                                           .sges = {a.sge(0, 65536)},
                                           .remote_addr = b.mr.address(),
                                           .rkey = b.mr.rkey})) {
            }
    });
    EXPECT_GT(in_one, 4 * alone) << "the storm is one";
}

TEST_F(Fairness, FullDoorbellPagesDelayNoOtherUser) {
    const uint64_t alone = rounds_of_a_send();
    std::vector<abi::DoorbellPage*> pages;
    for (uint32_t i = 0; i < 30; ++i) pages.push_back(side(0, kAttacker).client.doorbells(0));
    const auto rings = [&] { return world.host(0).counter(engine::Counter::stray_doorbells); };
    uint64_t last = rings(), most = 0;
    const uint64_t delayed = rounds_of_a_send([&] {
        most = std::max(most, rings() - last);
        last = rings();
        for (abi::DoorbellPage* p : pages) std::memset(static_cast<void*>(p), 0xff, sizeof *p);
    });
    EXPECT_LE(delayed, alone + kDelay);
    EXPECT_GT(most, 0u);
    EXPECT_LE(most, 512u + 64) << "doorbells per round";
}

TEST_F(Fairness, ManyIdleSessionsDelayNoOtherUser) {
    const uint64_t alone = rounds_of_a_send();
    for (uint32_t i = 0; i < 100; ++i) side(0, kAttacker);
    EXPECT_LE(rounds_of_a_send(), alone + kDelay);
}

TEST_F(Fairness, AFlushOfManyRequestsDelaysNoOtherUser) {
    const uint64_t alone = rounds_of_a_send();
    Side& attacker = side(0, kAttacker);
    Qp& full = attacker.qp({.max_send_wr = 4096, .max_recv_wr = 4096});
    attacker.client.to_init(full);
    for (uint32_t i = 0; i < 4096; ++i) ASSERT_TRUE(attacker.client.post_recv(full, i, {}));
    attacker.client.to_state(full, IBV_QPS_ERR);
    uint64_t flushed = 0, most = 0;
    const uint64_t delayed = rounds_of_a_send([&] {
        const uint64_t now = attacker.poll_all().size();
        flushed += now;
        most = std::max(most, now);
    });
    EXPECT_LE(delayed, alone + kDelay);
    EXPECT_GT(flushed, 500u);
    EXPECT_LE(most, 64u) << "requests per round";
    EXPECT_EQ(attacker.wait(4096 - flushed).size(), 4096 - flushed) << "all of them in the end";
}

TEST_F(Fairness, OneQpGetsAsMuchAsAnothersThousand) {
    auto flood = storm(WrOpcode::rdma_write, kAttacker, 1000);
    uint64_t messages = 0;
    const auto& mine = world.host(0).shared().qps.find(qa.qpn)->counters;
    const uint64_t before = world.host(0).engine(0).device_counters(0).tx_octets, mine_before = mine.tx_bytes;
    for (int round = 0; round < 2000; ++round) {
        flood();
        while (a.client.post_send(qa, a.rdma(WrOpcode::rdma_write, 1, 0, 4096, b.mr.address(), b.mr.rkey))) ++messages;
        a.poll_all();
        world.run_until([n = 0]() mutable { return ++n > 1; });
    }
    const uint64_t own = mine.tx_bytes - mine_before;
    const uint64_t all = world.host(0).engine(0).device_counters(0).tx_octets - before;
    EXPECT_GT(messages, 100u);
    EXPECT_GE(double(own) / double(all), 0.25) << "half of it is the fair share";
}

TEST_F(Fairness, AUserSendsTheBytesPerSecondThatItsLimitPermits) {
    const auto flood = storm(WrOpcode::rdma_write, kFewBytes, 20);
    EXPECT_NEAR(rates_of(0, kFewBytes, flood).bytes / kBytesPerSecond, 1, 0.02);
    qp::Snapshot now;
    qp::Journal journal;
    engine::QueryQp query{world.host(0).shared().qps.find(qps_of[{0, kFewBytes}].front()->qpn), &now, &journal};
    world.host(0).execute(0, query);
    EXPECT_EQ(now.limit, qp::Limit::rate);
}

TEST_F(Fairness, ReadResponsesCountForTheUserWhoSendsThem) {
    const auto flood = storm(WrOpcode::rdma_read, kFewPackets, 20);
    EXPECT_NEAR(rates_of(1, kFewPackets, flood).packets / kPacketsPerSecond, 1, 0.02);
}

TEST_F(Fairness, AUserBeyondItsRateDelaysNoOtherUser) {
    const uint64_t rounds_alone = rounds_of_a_send();
    const auto flood = storm(WrOpcode::rdma_write, kFewBytes, 200);
    EXPECT_LE(rounds_of_a_send(flood), rounds_alone + kDelay);
}

TEST_F(Fairness, TheRateOfAUserIsForAllItsSessionsAndDoesNotEndWithOne) {
    const auto first = storm(WrOpcode::rdma_write, kFewBytes, 2), second = storm(WrOpcode::rdma_write, kFewBytes, 2);
    EXPECT_NEAR(rates_of(0, kFewBytes, [&] { first(), second(); }).bytes / kBytesPerSecond, 1, 0.02);
}

TEST_F(Fairness, TheWayBackFromSqeWaitsForTheFlush) {
    Side& s = side(0, kAttacker);
    Qp& uc = s.qp({.type = IBV_QPT_UC, .max_send_wr = 1024});
    Side& t = side(1, kAttacker);
    Qp& peer = t.qp({.type = IBV_QPT_UC});
    connect(s.client, uc, t.client, peer);
    for (uint32_t i = 0; i < 500; ++i) {
        SendWr wr = s.rdma(WrOpcode::rdma_write, i, 0, 64, t.mr.address(), t.mr.rkey);
        if (i == 0) wr.sges[0].lkey ^= 0xff;
        ASSERT_TRUE(s.client.post_send(uc, wr));
    }
    world.run_until([n = 0]() mutable { return ++n > 2; });
    ASSERT_EQ(s.client.query(uc).attr.qp_state, uint32_t(IBV_QPS_SQE));
    s.client.to_state(uc, IBV_QPS_RTS);
    const auto got = s.poll_all();
    ASSERT_EQ(got.size(), 500u) << "nothing of it is sent after the way back";
    EXPECT_EQ(got[0].status, WcStatus::loc_prot_err);
    for (uint32_t i = 1; i < 500; ++i) EXPECT_EQ(got[i].status, WcStatus::wr_flush_err);
    s.client.post_send(uc, s.rdma(WrOpcode::rdma_write, 7, 0, 64, t.mr.address(), t.mr.rkey));
    EXPECT_EQ(s.wait_status(), WcStatus::success);
}

}  // namespace
}  // namespace roci::sim
