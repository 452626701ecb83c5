// Tests of SRQs with tag matching over the simulated network. `b` receives through such an SRQ. `a` sends messages
// with tag matching headers, as a program would write them.
#include "base/bytes.hpp"
#include "fixture.hpp"
#include "qp/state.hpp"

namespace roci::sim {
namespace {

constexpr uint8_t kNoTag = 0, kRndv = 1, kFin = 2, kEager = 3;
constexpr uint8_t kMatch = abi::kWcTmMatch, kValid = abi::kWcTmDataValid, kSyncReq = abi::kWcTmSyncReq;
constexpr uint32_t kTags = 64, kOps = 16;
constexpr uint64_t kBuffer = 8192;                 ///< size of each tagged or ordinary buffer
constexpr uint64_t kOrdinary = uint64_t{1} << 19;  ///< offset of the first ordinary buffer

using abi::TagOpcode;
using abi::WcOpcode;

struct TagMatching : ::testing::Test {
    World world{WorldOptions{}};
    Side a{world, world.host(0)}, b{world, world.host(1)};
    Srq& srq = b.client.create_tag_srq(b.pd, b.cq, 32, kTags, kOps);
    Qp& qa = a.qp();
    Qp& qb = b.qp({.srq = &srq});
    uint64_t next_ordinary = 0;

    void SetUp() override { connect(a.client, qa, b.client, qb, {}); }
    void TearDown() override {
        EXPECT_TRUE(a.client.guards_intact());
        EXPECT_TRUE(b.client.guards_intact());
        EXPECT_EQ(world.shut_down(), "");
    }

    abi::TagOp op(TagOpcode code, uint64_t id, uint8_t flags = abi::kTagSignaled, uint32_t count = 0) {
        abi::TagOp o{};
        o.wr_id = id;
        o.opcode = code;
        o.flags = flags;
        o.unexpected_count = count;
        return o;
    }
    abi::TagOp entry(uint64_t id, uint64_t tag, uint64_t mask = ~uint64_t{0}, uint32_t length = kBuffer) {
        abi::TagOp o = op(TagOpcode::add, 1000 + id);
        o.recv_wr_id = id;
        o.tag = tag;
        o.mask = mask;
        o.num_sge = 1;
        o.sges[0] = {b.mr.address() + id * kBuffer, length, b.mr.lkey};
        return o;
    }
    /// Posts an add operation, waits for its completion, and returns the handle of the new entry.
    uint32_t add(abi::TagOp o, uint8_t flags = 0) {
        EXPECT_EQ(b.client.post_tag(srq, o), 0);
        const auto c = b.wait(1);
        EXPECT_EQ(c.size(), 1u);
        if (c.size() == 1) expect(c[0], WcOpcode::tm_add, o.wr_id, flags);
        return o.handle;
    }
    static void expect(const abi::Cqe& c, WcOpcode opcode, uint64_t id, uint8_t flags, WcStatus status = WcStatus::success) {
        EXPECT_EQ(c.status, status);
        EXPECT_EQ(c.opcode, opcode);
        EXPECT_EQ(c.wr_id, id);
        EXPECT_EQ(int(c.wc_flags), int(flags));
    }
    void ordinary(uint64_t id) {
        ASSERT_TRUE(b.client.post_srq_recv(srq, id, {b.sge(kOrdinary + next_ordinary++ * kBuffer, kBuffer)}));
    }
    /// Sends a message with a tag matching header from offset 0 of a's memory. `tag` is also the payload pattern.
    void tagged(uint8_t opcode, uint64_t tag, uint32_t payload, uint32_t app_ctx = 77) {
        uint8_t* p = a.mr.data();
        std::memset(p, 0, 16);
        p[0] = opcode;
        store_be<uint32_t>(p + 4, app_ctx);
        store_be<uint64_t>(p + 8, tag);
        fill(p + 16, payload, tag);
        ASSERT_TRUE(a.client.post_send(qa, a.send(tag, 0, 16 + payload)));
        ASSERT_EQ(a.wait_status(), WcStatus::success);
    }
    /// Sends a rendezvous request from offset `at` of a's memory. The request describes `length` bytes at offset
    /// `from`. The function does not wait for the completion.
    void rendezvous(uint64_t tag, uint64_t at, uint64_t from, uint32_t length, uint32_t rkey, uint32_t request = 40) {
        uint8_t* p = a.mr.data() + at;
        std::memset(p, 0, request);
        p[0] = kRndv;
        store_be<uint32_t>(p + 4, 5);
        store_be<uint64_t>(p + 8, tag);
        store_be<uint64_t>(p + 16, a.mr.address() + from);
        store_be<uint32_t>(p + 24, rkey);
        store_be<uint32_t>(p + 28, length);
        ASSERT_TRUE(a.client.post_send(qa, a.send(tag, at, request)));
    }
    const uint8_t* buffer(uint64_t id) const { return b.mr.data() + id * kBuffer; }
};

TEST_F(TagMatching, EagerGoesToTheMatchedBufferWithoutItsHeader) {
    add(entry(1, 0x1111));
    add(entry(2, 0x2222));
    tagged(kEager, 0x2222, 500);
    const auto c = b.wait(1);
    ASSERT_EQ(c.size(), 1u);
    expect(c[0], WcOpcode::tm_recv, 2, kMatch | kValid);
    EXPECT_EQ(c[0].byte_len, 500u);
    EXPECT_EQ(c[0].tag, 0x2222u);
    EXPECT_EQ(c[0].src_qp, 77u) << "app_ctx";
    EXPECT_EQ(c[0].qpn, qb.qpn);
    EXPECT_EQ(first_wrong(buffer(2), 500, 0x2222), -1);
}

TEST_F(TagMatching, TheOldestEntryThatMatchesIsTakenOnce) {
    add(entry(1, 0x10, 0xf0));
    add(entry(2, 0x12));
    add(entry(3, 0, 0));
    for (uint64_t expected : {1, 2, 3}) {
        tagged(kEager, 0x12, 10);
        const auto c = b.wait(1);
        ASSERT_EQ(c.size(), 1u);
        expect(c[0], WcOpcode::tm_recv, expected, kMatch | kValid);
    }
}

TEST_F(TagMatching, LongEagerTellsTheMatchFirstAndTheDataLater) {
    add(entry(1, 9));
    tagged(kEager, 9, 5000);
    const auto c = b.wait(2);
    ASSERT_EQ(c.size(), 2u);
    expect(c[0], WcOpcode::tm_recv, 1, kMatch);
    expect(c[1], WcOpcode::tm_recv, 1, kValid);
    EXPECT_EQ(c[1].byte_len, 5000u);
    EXPECT_EQ(first_wrong(buffer(1), 5000, 9), -1);
}

TEST_F(TagMatching, EagerLongerThanItsBufferIsAnError) {
    add(entry(1, 9, ~uint64_t{0}, 64));
    a.mr.data()[0] = kEager;
    store_be<uint64_t>(a.mr.data() + 8, 9);
    a.client.post_send(qa, a.send(1, 0, 16 + 65));
    EXPECT_EQ(a.wait_status(), WcStatus::rem_inv_req_err);
    const auto c = b.wait(1);
    ASSERT_EQ(c.size(), 1u);
    expect(c[0], WcOpcode::tm_recv, 1, kMatch, WcStatus::loc_len_err);
}

TEST_F(TagMatching, UnexpectedAndUntaggedMessagesTakeOrdinaryBuffersHeaderAndAll) {
    add(entry(1, 9));
    ordinary(50);
    ordinary(51);
    ordinary(52);
    tagged(kEager, 8, 100);
    tagged(kNoTag, 9, 100);
    tagged(kFin, 9, 16);
    const auto c = b.wait(3);
    ASSERT_EQ(c.size(), 3u);
    expect(c[0], WcOpcode::tm_recv, 50, 0);
    expect(c[1], WcOpcode::tm_no_tag, 51, 0);
    expect(c[2], WcOpcode::tm_no_tag, 52, 0);
    EXPECT_EQ(c[0].byte_len, 116u);
    EXPECT_EQ(b.mr.data()[kOrdinary], kEager);
    EXPECT_EQ(first_wrong(b.mr.data() + kOrdinary + 16, 100, 8), -1);
    // Only the first of the three messages counts as unexpected. So the counts of rocid and the program agree.
    auto sync = op(TagOpcode::sync, 60, abi::kTagSignaled | abi::kTagSync, 1);
    ASSERT_EQ(b.client.post_tag(srq, sync), 0);
    const auto s = b.wait(1);
    ASSERT_EQ(s.size(), 1u);
    expect(s[0], WcOpcode::tm_sync, 60, 0);
}

// An entry is added out of phase if the program has not handled all unexpected messages yet. If such an entry
// matched, its message could overtake an unexpected message.
TEST_F(TagMatching, EntriesAddedOutOfPhaseDoNotMatchUntilTheCountsAgree) {
    for (uint64_t id = 50; id < 53; ++id) ordinary(id);
    tagged(kEager, 8, 10);
    ASSERT_EQ(b.wait(1).size(), 1u);
    add(entry(1, 8), kSyncReq);
    tagged(kEager, 8, 10);
    const auto second = b.wait(1);
    ASSERT_EQ(second.size(), 1u);
    expect(second[0], WcOpcode::tm_recv, 51, 0);
    auto wrong = op(TagOpcode::sync, 60, abi::kTagSignaled | abi::kTagSync, 1);
    ASSERT_EQ(b.client.post_tag(srq, wrong), 0);
    const auto w = b.wait(1);
    ASSERT_EQ(w.size(), 1u);
    expect(w[0], WcOpcode::tm_sync, 60, kSyncReq);
    auto right = op(TagOpcode::sync, 61, abi::kTagSignaled | abi::kTagSync, 2);
    ASSERT_EQ(b.client.post_tag(srq, right), 0);
    const auto r = b.wait(1);
    ASSERT_EQ(r.size(), 1u);
    expect(r[0], WcOpcode::tm_sync, 61, 0);
    tagged(kEager, 8, 10);
    const auto third = b.wait(1);
    ASSERT_EQ(third.size(), 1u);
    expect(third[0], WcOpcode::tm_recv, 1, kMatch | kValid);
}

TEST_F(TagMatching, EntriesAddedBeforeAnUnexpectedMessageStillMatch) {
    add(entry(1, 9));
    ordinary(50);
    tagged(kEager, 8, 10);
    tagged(kEager, 9, 10);
    const auto c = b.wait(2);
    ASSERT_EQ(c.size(), 2u);
    expect(c[0], WcOpcode::tm_recv, 50, 0);
    expect(c[1], WcOpcode::tm_recv, 1, kMatch | kValid);
}

TEST_F(TagMatching, RendezvousIsReadAndFinishedByTheResponder) {
    add(entry(1, 9));
    fill(a.mr.data() + 4096, 6000, 3);
    a.client.post_recv(qa, 70, {a.sge(100'000, 256)});
    rendezvous(9, 0, 4096, 6000, a.mr.rkey);
    const auto c = b.wait(2);
    ASSERT_EQ(c.size(), 2u);
    expect(c[0], WcOpcode::tm_recv, 1, kMatch);
    EXPECT_EQ(c[0].tag, 9u);
    EXPECT_EQ(c[0].src_qp, 5u);
    expect(c[1], WcOpcode::tm_recv, 1, kValid);
    EXPECT_EQ(c[1].byte_len, 6000u);
    EXPECT_EQ(first_wrong(buffer(1), 6000, 3), -1);
    const auto sender = a.wait(2);
    ASSERT_EQ(sender.size(), 2u);
    EXPECT_EQ(sender[0].wr_id, 9u);
    EXPECT_EQ(sender[1].wr_id, 70u);
    EXPECT_EQ(sender[1].byte_len, 32u);
    uint8_t fin[32];
    std::memcpy(fin, a.mr.data(), sizeof fin);
    fin[0] = kFin;
    EXPECT_EQ(std::memcmp(a.mr.data() + 100'000, fin, sizeof fin), 0);
}

TEST_F(TagMatching, ManyRendezvousOverALossyNetworkComeWhole) {
    world.net().set_faults({.drop = 0.05});
    constexpr uint64_t kCount = 50;  // with so many SENDs, some get an RNR NAK
    std::map<uint64_t, uint8_t> told;
    uint64_t added = 0, sent = 0, finished = 0, acknowledged = 0;
    for (uint64_t i = 0; i < kCount; ++i) a.client.post_recv(qa, 500 + i, {a.sge(900'000 + i * 32, 32)});
    fill(a.mr.data() + 65536, 7000, 4);
    const bool done = world.run_until([&] {
        for (; added < kCount; ++added) {
            auto o = entry(added % 60, added);
            o.recv_wr_id = added;
            o.flags = 0;
            if (b.client.post_tag(srq, o) != 0) break;
        }
        for (; sent < added && sent < kCount; ++sent) rendezvous(sent, sent * 64, 65536, 7000, a.mr.rkey);
        for (const auto& c : b.poll_all()) {
            EXPECT_EQ(c.status, WcStatus::success);
            told[c.wr_id] = uint8_t(told[c.wr_id] + c.wc_flags);
        }
        for (const auto& c : a.poll_all()) {
            EXPECT_EQ(c.status, WcStatus::success);
            ++(c.opcode == WcOpcode::recv ? finished : acknowledged);
        }
        return finished == kCount && acknowledged == kCount && told.size() == kCount;
    });
    EXPECT_TRUE(done) << added << " added, " << sent << " sent, " << finished << " finished";
    for (uint64_t i = 0; i < kCount; ++i) {
        EXPECT_EQ(int(told[i]), kMatch | kValid) << i;
        EXPECT_EQ(first_wrong(buffer(i % 60), 7000, 4), -1) << i;
    }
    EXPECT_GT(world.net().lost(), 0u);
    EXPECT_GT(world.host(1).shared().qps.find(qb.qpn)->counters.events.rnr_nak_sent, 0u);
}

TEST_F(TagMatching, RendezvousThatDoesNotFitIsLeftToTheProgram) {
    add(entry(1, 9, ~uint64_t{0}, 100));
    rendezvous(9, 0, 4096, 101, a.mr.rkey);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    const auto c = b.wait(1);
    ASSERT_EQ(c.size(), 1u);
    expect(c[0], WcOpcode::tm_recv, 1, kMatch, WcStatus::tm_rndv_incomplete);
    EXPECT_EQ(std::memcmp(buffer(1), a.mr.data(), 32), 0) << "headers are in the matched buffer";
    EXPECT_EQ(b.client.query(qb).attr.qp_state, uint32_t(IBV_QPS_RTS));
}

TEST_F(TagMatching, RendezvousWithAWrongKeyFailsTheMatchedBuffer) {
    add(entry(1, 9));
    rendezvous(9, 0, 4096, 64, a.mr.rkey + 0x100);
    const auto c = b.wait(2);
    ASSERT_EQ(c.size(), 2u);
    expect(c[0], WcOpcode::tm_recv, 1, kMatch);
    expect(c[1], WcOpcode::tm_recv, 1, 0, WcStatus::rem_access_err);
}

TEST_F(TagMatching, MalformedHeadersAreRefusedAndTakeNothing) {
    struct {
        uint8_t opcode;
        uint32_t length;
    } const bad[] = {{kEager, 15}, {kRndv, 31}, {kRndv, 257}, {kRndv, 3000}, {kNoTag, 0}};
    add(entry(1, 0, 0));
    for (const auto& m : bad) {
        SCOPED_TRACE(m.length);
        Qp& x = a.qp();
        Qp& y = b.qp({.srq = &srq});
        connect(a.client, x, b.client, y, {});
        std::memset(a.mr.data(), 0, 64);
        a.mr.data()[0] = m.opcode;
        a.client.post_send(x, a.send(1, 0, m.length));
        EXPECT_EQ(a.wait_status(), WcStatus::rem_inv_req_err);
    }
    EXPECT_TRUE(b.poll_all().empty());
    tagged(kEager, 3, 10);
    const auto c = b.wait(1);
    ASSERT_EQ(c.size(), 1u);
    expect(c[0], WcOpcode::tm_recv, 1, kMatch | kValid);
}

TEST_F(TagMatching, DeletingWorksUntilAMessageHasTakenTheEntry) {
    const uint32_t first = add(entry(1, 9)), second = add(entry(2, 9));
    auto del = op(TagOpcode::del, 80);
    del.handle = first;
    ASSERT_EQ(b.client.post_tag(srq, del), 0);
    auto c = b.wait(1);
    ASSERT_EQ(c.size(), 1u);
    expect(c[0], WcOpcode::tm_del, 80, 0);
    tagged(kEager, 9, 10);
    c = b.wait(1);
    ASSERT_EQ(c.size(), 1u);
    expect(c[0], WcOpcode::tm_recv, 2, kMatch | kValid);
    for (uint32_t gone : {first, second}) {
        del.handle = gone;
        ASSERT_EQ(b.client.post_tag(srq, del), 0);
        c = b.wait(1);
        ASSERT_EQ(c.size(), 1u);
        expect(c[0], WcOpcode::tm_del, 80, 0, WcStatus::tm_err);
    }
}

TEST_F(TagMatching, AnOldHandleNeverNamesANewEntry) {
    auto o = entry(1, 9);
    const uint32_t old = add(o);
    tagged(kEager, 9, 10);
    ASSERT_EQ(b.wait(1).size(), 1u);
    for (uint64_t i = 0; i < kTags; ++i) add(entry(i, 100 + i));  // the adds use every index again
    auto del = op(TagOpcode::del, 80);
    del.handle = old;
    ASSERT_EQ(b.client.post_tag(srq, del), 0);
    const auto c = b.wait(1);
    ASSERT_EQ(c.size(), 1u);
    expect(c[0], WcOpcode::tm_del, 80, 0, WcStatus::tm_err);
    tagged(kEager, 100, 10);
    EXPECT_EQ(b.wait(1).size(), 1u) << "all entries are still there";
}

TEST_F(TagMatching, LimitsAreKeptAtPost) {
    std::vector<uint32_t> handles;
    for (uint64_t i = 0; i < kTags; ++i) handles.push_back(add(entry(i, i)));
    auto more = entry(9, 9);
    EXPECT_EQ(b.client.post_tag(srq, more), ENOMEM);
    auto bad = op(TagOpcode::del, 1);
    bad.handle = kTags;
    EXPECT_EQ(b.client.post_tag(srq, bad), EINVAL);
    auto del = op(TagOpcode::del, 80, 0);
    del.handle = handles[3];
    EXPECT_EQ(b.client.post_tag(srq, del), 0);
    world.run_idle();
    EXPECT_TRUE(b.poll_all().empty()) << "not signalled";
    add(entry(9, 9));
    for (uint32_t i = 0; i < kOps; ++i) {
        auto sync = op(TagOpcode::sync, i, 0);
        EXPECT_EQ(srq.tags.post(sync), 0);
    }
    auto sync = op(TagOpcode::sync, 99, 0);
    EXPECT_EQ(srq.tags.post(sync), ENOMEM);
}

TEST_F(TagMatching, ALyingRingIsNotReadAnyMoreAndHurtsNobodyElse) {
    add(entry(1, 9));
    std::atomic_ref(srq.tag_ring->producer).store(5000);
    b.client.ring(srq.tags.shape().engine, srq.tags.shape().slot);
    world.run_idle();
    EXPECT_TRUE(b.poll_all().empty());
    tagged(kEager, 9, 10);
    const auto c = b.wait(1);
    ASSERT_EQ(c.size(), 1u);
    expect(c[0], WcOpcode::tm_recv, 1, kMatch | kValid);
}

TEST_F(TagMatching, NonsenseInTheRingIsCompletedWithAnError) {
    auto* ops = reinterpret_cast<abi::TagOp*>(srq.tag_ring + 1);
    const auto nonsense = [&](uint32_t at, auto change) {
        ops[at] = entry(1, 9);
        ops[at].handle = 1 << 16;
        change(ops[at]);
    };
    nonsense(0, [](abi::TagOp& o) { o.num_sge = 60000; });
    nonsense(1, [](abi::TagOp& o) { o.handle = 0xffff; });
    nonsense(2, [](abi::TagOp& o) { o.opcode = TagOpcode(200); });
    nonsense(3, [](abi::TagOp&) {});
    nonsense(4, [](abi::TagOp&) {});  // this handle belongs to an entry in the list
    std::atomic_ref(srq.tag_ring->producer).store(5);
    b.client.ring(srq.tags.shape().engine, srq.tags.shape().slot);
    const auto c = b.wait(5);
    ASSERT_EQ(c.size(), 5u);
    for (size_t i : {0, 1, 2, 4}) EXPECT_EQ(c[i].status, WcStatus::loc_qp_op_err) << i;
    EXPECT_EQ(c[3].status, WcStatus::success);
}

TEST_F(TagMatching, TheSendQueueIsTheSrqs) {
    EXPECT_EQ(qb.sq.depth, 0u);
    EXPECT_FALSE(b.client.post_send(qb, b.send(1, 0, 10)));
}

TEST_F(TagMatching, WrongCreationsAreRefused) {
    abi::CreateSrqRequest q{};
    q.pd = b.pd;
    q.type = IBV_SRQT_TM;
    q.max_wr = 8;
    q.xrcd = abi::kNoHandle;
    q.cq = b.cq.handle;
    q.tm_max_tags = 4;
    q.tm_max_ops = 4;
    auto wrong = q;
    wrong.cq = abi::kNoHandle;
    EXPECT_EQ(b.client.try_call(abi::Op::create_srq, wrong), ENOENT);
    wrong = q;
    wrong.tm_max_tags = 1u << 20;
    EXPECT_EQ(b.client.try_call(abi::Op::create_srq, wrong), EINVAL);
    wrong = q;
    wrong.tm_max_ops = 0;
    EXPECT_EQ(b.client.try_call(abi::Op::create_srq, wrong), EINVAL);
    EXPECT_EQ(b.client.try_call(abi::Op::destroy_cq, abi::HandleRequest{b.cq.handle, 0}), EBUSY);
    EXPECT_THROW(b.qp({.type = IBV_QPT_UC, .srq = &srq}), std::runtime_error);
    const uint32_t other = b.client.alloc_pd();
    EXPECT_THROW(b.client.create_qp(other, b.cq, b.cq, {.srq = &srq}), std::runtime_error);
}

}  // namespace
}  // namespace roci::sim
