// READs over a path with a long round trip. The requester divides a long READ into several requests, so that the peer does not
// send all responses at once. Each test looks at the requests on the wire.
#include "fixture.hpp"

namespace roci::sim {
namespace {

constexpr uint32_t kMiB = 1 << 20;

/// A READ request on the wire. [first, end) are the PSNs of its responses.
struct ReadRequest {
    Psn first, end;
    uint32_t length = 0;
};

struct FarReads : PairTest {
    FarReads() : PairTest(options(), {.max_send_wr = 64, .max_recv_wr = 64}) {
        set_latency(2'000'000);
        world.net().set_watch([this](const Sent& s) {
            if (s.from == 0 && s.parsed && s.packet.info->has(wire::kRead)) note(s.packet);
        });
        fill(b.mr.data(), kMiB, 5);
    }
    static WorldOptions options() {
        WorldOptions o{.congestion = cc::Policy::adaptive};
        o.engine.loss_reports = true;
        return o;
    }
    void set_latency(Nanos latency) {
        for (uint32_t h = 0; h < 2; ++h) world.net().link(world.host(h).endpoint(0)).latency = latency;
    }
    static PathOptions path(uint8_t reads) {
        PathOptions p;
        p.mtu = 3;  // 1024 bytes
        p.timeout = 16;
        p.max_rd_atomic = p.max_dest_rd_atomic = reads;
        return p;
    }
    void join_far(uint8_t reads) {
        join(path(reads));
        // The path counts as far when its round trip is known.
        for (uint64_t i = 0; i < 12; ++i) {
            read(i, 64);
            ASSERT_EQ(a.wait_status(), WcStatus::success);
        }
        fresh.clear();
        repeated = crossing = 0;
    }
    void read(uint64_t id, uint32_t bytes) {
        ASSERT_TRUE(a.client.post_send(qa, a.rdma(WrOpcode::rdma_read, id, 0, bytes, b.mr.address(), b.mr.rkey)));
    }
    /// Notes a request that is sent for the first time. Counts repeated requests, and those that do not lie within one noted
    /// request.
    void note(const wire::Packet& p) {
        const uint32_t psns = std::max((p.dma_length + 1023) / 1024, 1u);
        const ReadRequest r{p.psn, p.psn + psns, p.dma_length};
        if (fresh.empty() || r.first.distance_from(fresh.back().end) >= 0) return fresh.push_back(r);
        ++repeated;
        const auto within = [&](const ReadRequest& f) {
            return r.first.distance_from(f.first) >= 0 && r.end.distance_from(f.end) <= 0;
        };
        crossing += std::ranges::none_of(fresh, within);
    }

    std::vector<ReadRequest> fresh;  ///< requests that were sent for the first time
    uint32_t repeated = 0, crossing = 0;
};

TEST_F(FarReads, ALongReadIsDivided) {
    join_far(16);
    read(100, kMiB);
    const auto got = a.wait(1);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].status, WcStatus::success);
    EXPECT_EQ(got[0].wr_id, 100u);
    EXPECT_EQ(got[0].byte_len, kMiB);
    EXPECT_EQ(first_wrong(a.mr.data(), kMiB, 5), -1);
    EXPECT_GT(fresh.size(), 43u);
    uint64_t bytes = 0;
    for (const ReadRequest& r : fresh) {
        bytes += r.length;
        EXPECT_LE(r.length, 24u << 10) << "16 packets are a sixteenth of the largest window";
    }
    EXPECT_EQ(bytes, kMiB);
    EXPECT_EQ(repeated, 0u);
}

TEST_F(FarReads, WithOneOutstandingReadARequestFillsTheWindow) {
    join_far(1);
    read(100, kMiB);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(first_wrong(a.mr.data(), kMiB, 5), -1);
    EXPECT_GT(fresh.size(), 4u);
    uint32_t longest = 0;
    for (const ReadRequest& r : fresh) longest = std::max(longest, r.length);
    EXPECT_GT(longest, 64u << 10) << "a single request fills the window, which has grown";
    EXPECT_LE(longest, 384u << 10);
}

TEST_F(FarReads, RepeatedRequestsDoNotCrossTheBoundaries) {
    for (const uint8_t reads : {uint8_t{2}, uint8_t{16}}) {
        if (reads == 16) {
            a.client.to_state(qa, IBV_QPS_RESET);
            b.client.to_state(qb, IBV_QPS_RESET);
        }
        join_far(reads);
        world.net().set_faults({.drop = 0.03, .duplicate = 0.01, .delay = 0.01, .max_delay = 400'000});
        for (uint64_t i = 0; i < 6; ++i) {
            std::fill_n(a.mr.data(), kMiB, uint8_t{0});
            read(i, kMiB - 500);
            ASSERT_EQ(a.wait_status(), WcStatus::success);
            ASSERT_EQ(first_wrong(a.mr.data(), kMiB - 500, 5), -1);
        }
        world.net().set_faults({});
        EXPECT_GT(repeated, 20u);
        EXPECT_EQ(crossing, 0u);
    }
}

/// Part of a divided READ is outstanding when the path becomes near. The requester no longer divides READs then, but repeated
/// requests must still not cross the boundaries of the requests that were sent before.
TEST_F(FarReads, TheBoundariesStayIfThePathBecomesNear) {
    uint32_t repeated_when_near = 0;
    for (uint64_t i = 0; i < 8; ++i) {
        set_latency(2'000'000);
        join_far(16);
        world.net().set_faults({.drop = 0.03});
        std::fill_n(a.mr.data(), kMiB, uint8_t{0});
        read(i, kMiB - 500);
        world.run_for(5'000'000 + i * 300'000);
        ASSERT_TRUE(a.poll_all().empty());
        EXPECT_GT(fresh.size(), 1u) << "the READ is divided";
        const uint32_t before = repeated;
        set_latency(10'000);
        ASSERT_EQ(a.wait_status(), WcStatus::success);
        ASSERT_EQ(first_wrong(a.mr.data(), kMiB - 500, 5), -1);
        EXPECT_EQ(crossing, 0u);
        repeated_when_near += repeated - before;
        world.net().set_faults({});
        a.client.to_state(qa, IBV_QPS_RESET);
        b.client.to_state(qb, IBV_QPS_RESET);
    }
    EXPECT_GT(repeated_when_near, 20u);
}

/// Both ends have memory that only a worker may access. So responses and their completion wait for the workers.
TEST_F(FarReads, SlowMemoryAtBothEnds) {
    Mr& to = a.client.reg_mr(a.pd, kMiB, {.segments = 3, .slow = true});
    Mr& from = b.client.reg_mr(b.pd, kMiB, {.segments = 3, .slow = true});
    fill(from.data(), kMiB, 9);
    join_far(16);
    world.net().set_faults({.drop = 0.01, .duplicate = 0.01, .delay = 0.01, .max_delay = 400'000});
    for (uint64_t i = 0; i < 3; ++i) {
        fresh.clear();
        std::fill_n(to.data(), kMiB, uint8_t{0});
        ASSERT_TRUE(a.client.post_send(qa, {.id = i,
                                            .opcode = WrOpcode::rdma_read,
                                            .sges = {{to.address(), kMiB - 500, to.lkey}},
                                            .remote_addr = from.address(),
                                            .rkey = from.rkey}));
        ASSERT_EQ(a.wait_status(), WcStatus::success);
        ASSERT_EQ(first_wrong(to.data(), kMiB - 500, 9), -1);
        EXPECT_GT(fresh.size(), 10u);
    }
    world.net().set_faults({});
    EXPECT_GT(repeated, 0u);
    EXPECT_EQ(crossing, 0u);
}

TEST_F(FarReads, XrcReadsAreDivided) {
    const uint32_t xrcd = b.client.open_xrcd();
    const uint32_t srqn = b.client.create_xrc_srq(b.pd, xrcd, b.cq, 16).srqn;
    Qp& initiator = a.qp({.type = IBV_QPT_XRC_SEND, .max_send_wr = 64});
    connect(a.client, initiator, b.client, b.qp({.type = IBV_QPT_XRC_RECV, .xrcd = xrcd}), path(16));
    const auto xrc_read = [&](uint64_t id, uint32_t bytes) {
        SendWr wr = a.rdma(WrOpcode::rdma_read, id, 0, bytes, b.mr.address(), b.mr.rkey);
        wr.srqn = srqn;
        ASSERT_TRUE(a.client.post_send(initiator, wr));
    };
    world.net().set_faults({.drop = 0.01});
    for (uint64_t i = 0; i < 4; ++i) {
        fresh.clear();
        std::fill_n(a.mr.data(), kMiB, uint8_t{0});
        xrc_read(i, kMiB - 500);
        ASSERT_EQ(a.wait_status(), WcStatus::success);
        ASSERT_EQ(first_wrong(a.mr.data(), kMiB - 500, 5), -1);
        EXPECT_GT(fresh.size(), 10u);
    }
    world.net().set_faults({});
    EXPECT_GT(repeated, 0u);
    EXPECT_EQ(crossing, 0u);
}

/// The peer's MSN counts each READ request. The requester computes its end-to-end credits from this MSN. A requester that counted
/// a divided READ as one request would send more SENDs than the peer has receives. Without credits, a requester may
/// send one SEND (IBA 9.7.7.2.5), so a few RNR NAKs come also after a short READ.
TEST_F(FarReads, TheRequestsOfADividedReadCountForTheCredits) {
    join_far(16);
    uint32_t rnr_naks = 0;
    world.net().set_watch([&](const Sent& s) {
        if (s.parsed && s.packet.info->has(wire::kAck)) rnr_naks += s.packet.syndrome >> 5 == 1;
    });
    constexpr uint32_t kReceives = 2, kSends = 24;
    for (uint32_t i = 0; i < kReceives; ++i) b.client.post_recv(qb, i, {b.sge(0, 4096)});
    std::map<uint32_t, uint32_t> after;  // number of RNR NAKs, by bytes of the READ
    for (const uint32_t bytes : {64u, kMiB / 2}) {
        rnr_naks = 0;
        read(100, bytes);
        for (uint32_t i = 0; i < kSends; ++i) ASSERT_TRUE(a.client.post_send(qa, a.send(i, 0, 100)));
        for (uint32_t received = 0; received < kSends;) {
            const auto got = b.wait(1);
            ASSERT_FALSE(got.empty());
            received += uint32_t(got.size());
            for (size_t i = 0; i < got.size(); ++i) b.client.post_recv(qb, 2, {b.sge(0, 4096)});
        }
        EXPECT_EQ(a.wait(1 + kSends).size(), 1 + kSends);
        after[bytes] = rnr_naks;
    }
    EXPECT_LE(after[kMiB / 2], after[64]);
}

TEST_F(FarReads, AFenceWaitsForAllRequestsOfARead) {
    join_far(16);
    read(100, kMiB / 4);
    SendWr fenced = a.rdma(WrOpcode::rdma_write, 101, 0, 64, b.mr.address(), b.mr.rkey);
    fenced.flags |= abi::kSendFence;
    bool early = false;
    uint32_t requests = 0;
    world.net().set_watch([&](const Sent& s) {
        requests += s.from == 0 && s.parsed && s.packet.info->has(wire::kRead);
        if (s.from == 0 && s.parsed && s.packet.info->has(wire::kWrite)) early |= first_wrong(a.mr.data(), kMiB / 4, 5) != -1;
    });
    ASSERT_TRUE(a.client.post_send(qa, fenced));
    EXPECT_EQ(a.wait(2).size(), 2u);
    EXPECT_FALSE(early);
    EXPECT_GT(requests, 2u);
}

TEST_F(FarReads, TheRequestsOfAFencedReadDoNotWaitForEachOther) {
    join_far(16);
    read(99, kMiB);  // the window grows
    ASSERT_EQ(a.wait_status(), WcStatus::success);
    fresh.clear();
    SendWr fenced = a.rdma(WrOpcode::rdma_read, 100, 0, kMiB / 4, b.mr.address(), b.mr.rkey);
    fenced.flags |= abi::kSendFence;
    ASSERT_TRUE(a.client.post_send(qa, fenced));
    world.run_for(3'500'000);  // less than a round trip
    EXPECT_GT(fresh.size(), 1u);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

/// In SQD, the requester finishes a READ that it has started. SQ_DRAINED comes after the last response.
TEST_F(FarReads, TheSendQueueIsDrainedAfterTheWholeRead) {
    join_far(16);
    read(100, kMiB);
    world.run_for(6'000'000);
    ASSERT_GT(fresh.size(), 0u);
    abi::QpAttr attr{};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    ASSERT_EQ(a.client.try_modify(qa, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY, attr), 0) << a.client.reason();
    const auto& asyncs = a.client.host().platform().asyncs[a.client.session()];
    EXPECT_TRUE(asyncs.empty()) << "most responses are outstanding";
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    world.run_for(1'000'000);
    ASSERT_EQ(asyncs.size(), 1u);
    EXPECT_EQ(asyncs[0].event_type, uint32_t(IBV_EVENT_SQ_DRAINED));
    EXPECT_EQ(first_wrong(a.mr.data(), kMiB, 5), -1);
}

/// The first READ of a QP is divided, too, because the QP has not measured a round trip.
TEST_F(FarReads, TheFirstReadOfAQpIsDivided) {
    join(path(16));
    read(1, kMiB);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(first_wrong(a.mr.data(), kMiB, 5), -1);
    ASSERT_FALSE(fresh.empty());
    EXPECT_LE(fresh[0].length, 16u << 10);
    EXPECT_EQ(repeated, 0u);
}

}  // namespace
}  // namespace roci::sim
