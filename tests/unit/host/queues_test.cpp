// Tests of channels, CQs, SRQs and QPs: granted capabilities, refused requests, and objects in use.
#include "fixture.hpp"
#include "host/arena.hpp"

namespace roci::host::test {
namespace {

using abi::Op;

class QueuesTest : public ConductorTest {
protected:
    Result make_cq(uint32_t cqe, uint32_t channel = abi::kNoHandle, uint32_t vector = 0, uint32_t flags = 0) {
        return call(Op::create_cq, abi::CreateCqRequest{cqe, channel, vector, flags});
    }
    Result make_srq(uint32_t p, uint32_t wr, uint32_t sge, uint32_t type = 0) {
        return call(Op::create_srq, abi::CreateSrqRequest{p, type, wr, sge, 5, abi::kNoHandle, abi::kNoHandle, 0, 0});
    }
};

TEST_F(QueuesTest, Channels) {
    const Result r = call(Op::create_channel);
    ASSERT_EQ(r.error, 0);
    EXPECT_EQ(r.fds.size(), 1u);
    const uint32_t channel = r.as<abi::HandleReply>().handle;
    EXPECT_TRUE(platform.pipes.contains({session, channel}));
    const uint32_t q = cq(4, channel);
    EXPECT_EQ(on(Op::destroy_channel, channel).error, EBUSY);
    EXPECT_EQ(on(Op::destroy_cq, q).error, 0);
    EXPECT_EQ(on(Op::destroy_channel, channel).error, 0);
    EXPECT_FALSE(platform.pipes.contains({session, channel}));
    EXPECT_EQ(on(Op::destroy_channel, channel).error, ENOENT);
    platform.refuse_fds = true;
    EXPECT_EQ(call(Op::create_channel).error, EMFILE);
    EXPECT_EQ(conductor.totals().channels, 0u);
}

TEST_F(QueuesTest, ACqHasALaneAnEngineAndAPowerOfTwo) {
    for (const auto& [asked, depth] : {std::pair{1u, 1u}, {2u, 2u}, {3u, 4u}, {100u, 128u}, {4096u, 4096u}}) {
        const Result r = make_cq(asked);
        ASSERT_EQ(r.error, 0) << r.reason;
        const auto c = r.as<abi::CreateCqReply>();
        EXPECT_EQ(c.depth, depth);
        EXPECT_EQ(c.lanes, 2u);
        EXPECT_GE(c.where.length, 64 + 2 * (64 + 64 * uint64_t{depth}));
        EXPECT_EQ(c.where.offset % 64, 0u);
    }
}

TEST_F(QueuesTest, CqsThatAreRefused) {
    EXPECT_EQ(make_cq(0).error, EINVAL);
    EXPECT_EQ(make_cq(4097).error, EINVAL);
    EXPECT_EQ(make_cq(0xffffffff).error, EINVAL);
    EXPECT_EQ(make_cq(4, 9).error, ENOENT);
    EXPECT_EQ(make_cq(4, abi::kNoHandle, 4).error, EINVAL) << "four vectors: 0 to 3";
    EXPECT_EQ(make_cq(4, abi::kNoHandle, 0, 2).error, EOPNOTSUPP);
    EXPECT_EQ(make_cq(4, abi::kNoHandle, 1, 1).error, 0);
    EXPECT_EQ(conductor.totals().cqs, 1u);
}

TEST_F(QueuesTest, TheClientMakesTheChunksThatRequestsNeed) {
    EXPECT_EQ(conductor.totals().arena_bytes, 0u);
    const Result asks =
        send_once(conductor, session, packet(Op::create_cq, bytes_of(abi::CreateCqRequest{4, abi::kNoHandle, 0, 0})));
    EXPECT_EQ(asks.error, ENOMEM);
    EXPECT_EQ(asks.wanted_chunk, Arena::kFirstChunk);
    EXPECT_EQ(conductor.totals().cqs, 0u);
    const Result first = make_cq(4);
    EXPECT_EQ(first.chunks.size(), 1u);
    EXPECT_EQ(first.last_chunk, 0u);
    EXPECT_TRUE(first.fds.empty());
    EXPECT_EQ(make_cq(4).chunks.size(), 0u);
    const Result big = make_cq(4096);  // the two lanes (one per engine) of 256 KiB each need another chunk
    EXPECT_EQ(big.chunks.size(), 1u);
    EXPECT_EQ(big.last_chunk, 1u);
    EXPECT_EQ(big.as<abi::CreateCqReply>().where.chunk, 1u);
}

TEST_F(QueuesTest, ChunksThatAreRefused) {
    const auto add = [&](uint64_t length, uint64_t real) {
        std::string why;
        const SharedMemory m = platform.make_memory(real, why);
        const Result r = call(Op::add_chunk, abi::AddChunkRequest{length}, {m.fd});
        if (r.error != 0) platform.free_memory(m);
        return r;
    };
    EXPECT_EQ(add(0, 4096).error, EINVAL);
    EXPECT_EQ(add(4097, 8192).error, EINVAL);
    EXPECT_EQ(add(8192, 4096).error, EINVAL);
    EXPECT_EQ(add(uint64_t{17} << 20, 4096).error, ENOMEM) << "the session's limit";
    EXPECT_EQ(add(~uint64_t{0xfff}, 4096).error, ENOMEM);
    EXPECT_EQ(call(Op::add_chunk, abi::AddChunkRequest{4096}).error, EBADF);
    EXPECT_EQ(conductor.totals().arena_bytes, 0u);
    EXPECT_EQ(add(4096, 4096).error, 0);
    EXPECT_EQ(conductor.totals().arena_bytes, 4096u);
}

TEST_F(QueuesTest, NothingIsMadeWhileRocidIsShortOfMemory) {
    const uint32_t p = pd(), q = cq();
    platform.short_of_memory = true;
    for (const Result& r : {call(Op::create_qp, qp_request(p, q)), make_cq(4), call(Op::alloc_pd)}) {
        EXPECT_EQ(r.error, ENOMEM);
        EXPECT_TRUE(r.says("memory.max")) << r.reason;
    }
    EXPECT_EQ(conductor.open_session({.pid = 42, .uid = 1001, .gid = 1001}), abi::kNoHandle);
    EXPECT_EQ(on(Op::destroy_cq, q).error, 0) << "what frees memory goes on";
    platform.short_of_memory = false;
    EXPECT_EQ(make_cq(4).error, 0);
}

TEST_F(QueuesTest, AFailedRequestKeepsTheChunkForTheNext) {
    const uint32_t p = pd(), q = cq();
    auto want = qp_request(p, q);
    want.cap.max_send_wr = 1024;
    want.cap.max_send_sge = 30;  // the send queue of half a MiB needs another chunk
    const auto before = conductor.totals().arena_bytes;
    port.refuse = kind_of<engine::AddQp>;
    for (const uint32_t e : {0u, 1u}) {
        port.refuse_engine = e;
        if (call(Op::create_qp, want).error == 0) continue;
        const auto after = conductor.totals().arena_bytes;
        EXPECT_GT(after, before);
        port.refuse_engine = ~0u;
        EXPECT_TRUE(call(Op::create_qp, want).chunks.empty());
        EXPECT_EQ(conductor.totals().arena_bytes, after);
        return;
    }
    FAIL() << "one of two engines in turn must have refused";
}

TEST_F(QueuesTest, TheArenasLimitIsTheSessions) {
    Result r;
    int made = 0;
    while ((r = make_cq(4096)).error == 0) ++made;
    EXPECT_EQ(r.error, ENOMEM);
    EXPECT_TRUE(r.says("limit")) << r.reason;
    EXPECT_GE(made, 25) << "16 MiB hold about thirty of 512 KiB";
    EXPECT_LE(conductor.totals().arena_bytes, uint64_t{16} << 20);
    EXPECT_EQ(call_as(open(), Op::create_cq, abi::CreateCqRequest{4096, abi::kNoHandle, 0, 0}).error, 0) << "nobody else is hurt";
}

TEST_F(QueuesTest, AClientOutOfMemory) {
    platform.refuse_memory = true;
    const Result r = make_cq(4);
    EXPECT_EQ(r.error, ENOMEM);
    EXPECT_TRUE(r.says("bytes of shared memory from the client")) << r.reason;
    EXPECT_EQ(conductor.totals().arena_bytes, 0u);
}

TEST_F(QueuesTest, ModifyCq) {
    const uint32_t q = cq();
    EXPECT_EQ(call(Op::modify_cq, abi::ModifyCqRequest{q, 16, 100, 0}).error, 0);
    EXPECT_EQ(call(Op::modify_cq, abi::ModifyCqRequest{q, 70000, 0, 0}).error, EINVAL);
    EXPECT_EQ(call(Op::modify_cq, abi::ModifyCqRequest{q + 1, 1, 1, 0}).error, ENOENT);
}

TEST_F(QueuesTest, ResizeMovesEveryLane) {
    const uint32_t q = cq(16);
    abi::ResizeCqRequest in{};
    in.handle = q;
    in.cqe = 100;
    in.consumer[0] = 3;
    in.consumer[1] = 4;
    const auto before = conductor.totals().arena_bytes;
    const Result r = call(Op::resize_cq, in);
    ASSERT_EQ(r.error, 0) << r.reason;
    EXPECT_EQ(r.as<abi::CreateCqReply>().depth, 128u);
    EXPECT_EQ(r.as<abi::CreateCqReply>().handle, q);
    EXPECT_EQ(port.consumers, (std::vector<uint32_t>{3, 4}));
    EXPECT_EQ(conductor.totals().arena_bytes, before);
    in.cqe = 0;
    EXPECT_EQ(call(Op::resize_cq, in).error, EINVAL);
    in.cqe = 5000;
    EXPECT_EQ(call(Op::resize_cq, in).error, EINVAL);
    in.handle = 77;
    EXPECT_EQ(call(Op::resize_cq, in).error, ENOENT);
}

TEST_F(QueuesTest, ALaneThatRefusesToMove) {
    const uint32_t q = cq(16);
    abi::ResizeCqRequest in{};
    in.handle = q;
    in.cqe = 4;
    port.refuse = kind_of<engine::ResizeCq>;
    port.refuse_engine = 0;
    EXPECT_EQ(call(Op::resize_cq, in).error, EINVAL) << "the first lane: nothing has moved";
    EXPECT_EQ(call(Op::resize_cq, in).error, EINVAL) << "and the CQ is as it was";
    port.refuse_engine = 1;
    const Result dead = call(Op::resize_cq, in);
    EXPECT_EQ(dead.error, EINVAL) << "engine 1 refuses the roomy ring as well: the client lied";
    EXPECT_TRUE(dead.says("dead"));
    port.refuse_engine = ~0u;
    EXPECT_EQ(call(Op::resize_cq, in).error, EINVAL) << "stays dead";
    EXPECT_EQ(on(Op::destroy_cq, q).error, 0);
}

TEST_F(QueuesTest, ALaneThatFilledUpMeanwhileGetsItsOldRoom) {
    const uint32_t q = cq(64);
    abi::ResizeCqRequest in{};
    in.handle = q;
    in.cqe = 4;
    in.consumer[0] = 10;
    in.consumer[1] = 20;
    port.refuse = kind_of<engine::ResizeCq>;
    port.refuse_engine = 1;
    port.refuse_times = 1;
    const Result r = call(Op::resize_cq, in);
    ASSERT_EQ(r.error, 0) << r.reason;
    EXPECT_EQ(r.as<abi::CreateCqReply>().depth, 64u) << "more than asked for";
    EXPECT_EQ(port.consumers, (std::vector<uint32_t>{10, 0, 20})) << "lane 0 moved twice, the second time from index 0";
    EXPECT_EQ(on(Op::destroy_cq, q).error, 0);
}

// ---- SRQs -----------------------------------------------------------------------------------------------------------

TEST_F(QueuesTest, SrqLife) {
    const uint32_t p = pd();
    const Result r = make_srq(p, 100, 3);
    ASSERT_EQ(r.error, 0) << r.reason;
    const auto s = r.as<abi::CreateSrqReply>();
    EXPECT_EQ(s.depth, 128u);
    EXPECT_EQ(s.max_wr, 128u);
    EXPECT_GE(s.max_sge, 3u);
    EXPECT_EQ(s.stride % 32, 0u);
    EXPECT_GE(s.stride, 16 + 16 * s.max_sge);
    EXPECT_NE(s.srqn, 0u);
    EXPECT_EQ(port.count(kind_of<engine::AddSrq>), 1u);
    EXPECT_EQ(call(Op::modify_srq, abi::ModifySrqRequest{s.handle, IBV_SRQ_LIMIT, 0, 10}).error, 0);
    EXPECT_EQ(port.limit, 10u);
    EXPECT_EQ(on(Op::query_srq, s.handle).as<abi::QuerySrqReply>().limit, 10u);
    EXPECT_EQ(on(Op::query_srq, s.handle).as<abi::QuerySrqReply>().max_wr, 128u);
    EXPECT_EQ(call(Op::modify_srq, abi::ModifySrqRequest{s.handle, IBV_SRQ_LIMIT, 0, 129}).error, EINVAL);
    EXPECT_EQ(call(Op::modify_srq, abi::ModifySrqRequest{s.handle, 4, 0, 0}).error, EINVAL);
    EXPECT_EQ(on(Op::dealloc_pd, p).error, EBUSY);
    EXPECT_EQ(on(Op::destroy_srq, s.handle).error, 0);
    EXPECT_EQ(on(Op::destroy_srq, s.handle).error, ENOENT);
    EXPECT_EQ(on(Op::dealloc_pd, p).error, 0);
}

TEST_F(QueuesTest, ASrqIsResizedWholeOrNotAtAll) {
    const auto s = make_srq(pd(), 16, 1).as<abi::CreateSrqReply>();
    const auto modify = [&](uint32_t mask, uint32_t max_wr, uint32_t limit) {
        return call(Op::modify_srq, abi::ModifySrqRequest{s.handle, mask, max_wr, limit});
    };
    const auto entries = [&] { return on(Op::query_srq, s.handle).as<abi::QuerySrqReply>().max_wr; };
    const Result r = modify(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT, 200, 150);
    ASSERT_EQ(r.error, 0) << r.reason;
    EXPECT_EQ(r.as<abi::ModifySrqReply>().depth, 256u);
    EXPECT_EQ(entries(), 256u);
    EXPECT_EQ(port.limit, 150u);
    EXPECT_EQ(modify(IBV_SRQ_MAX_WR, 250, 0).as<abi::ModifySrqReply>().depth, 0u) << "the ring that it has does";
    EXPECT_EQ(modify(IBV_SRQ_MAX_WR, 100, 0).error, EINVAL) << "fewer than the limit that is armed";
    EXPECT_EQ(modify(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT, 100, 129).error, EINVAL);
    EXPECT_EQ(modify(IBV_SRQ_MAX_WR, 0, 0).error, EINVAL);
    EXPECT_EQ(modify(IBV_SRQ_MAX_WR, 0x80000000, 0).error, EINVAL);
    port.refuse = kind_of<engine::ResizeSrq>;
    for (const auto& record : port.log)
        if (record.kind == kind_of<engine::AddSrq>) port.refuse_engine = record.engine;
    port.refuse_error = EINVAL;
    EXPECT_EQ(modify(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT, 1000, 3).error, EINVAL);
    EXPECT_EQ(port.limit, 150u) << "none of it happened";
    EXPECT_EQ(entries(), 256u);
}

TEST_F(QueuesTest, SrqsThatAreRefused) {
    const uint32_t p = pd();
    EXPECT_EQ(make_srq(p + 1, 4, 1).error, ENOENT);
    EXPECT_EQ(make_srq(p, 0, 1).error, EINVAL);
    EXPECT_EQ(make_srq(p, 0x80000000, 1).error, EINVAL);
    EXPECT_EQ(make_srq(p, 4, 1000).error, EINVAL);
    EXPECT_EQ(make_srq(p, 4, 1, IBV_SRQT_XRC).error, ENOENT) << "no domain";
    EXPECT_EQ(make_srq(p, 4, 1, IBV_SRQT_TM).error, EINVAL) << "neither tags nor a CQ";
    port.refuse = kind_of<engine::AddSrq>;
    port.refuse_engine = 0;
    port.refuse_error = ENOSPC;
    const int one = make_srq(p, 4, 1).error, two = make_srq(p, 4, 1).error;
    EXPECT_EQ(std::min(one, two), 0);
    EXPECT_EQ(std::max(one, two), ENOSPC);
    EXPECT_EQ(conductor.totals().srqs, 1u);
}

// ---- QPs ------------------------------------------------------------------------------------------------------------

TEST_F(QueuesTest, WhatAQpIsGranted) {
    const auto q = qp();
    EXPECT_GE(q.qpn, 0x11u);
    EXPECT_EQ(q.sq_depth, 16u);
    EXPECT_EQ(q.rq_depth, 32u);
    EXPECT_EQ(q.cap.max_send_wr, 16u);
    EXPECT_EQ(q.cap.max_recv_wr, 32u);
    EXPECT_EQ(q.sq_stride % 64, 0u);
    EXPECT_GE(q.sq_stride, 48u + 100);
    EXPECT_EQ(q.cap.max_send_sge, 2u) << "as asked, whatever fits the slot";
    EXPECT_EQ(q.cap.max_recv_sge, 2u);
    EXPECT_GE(q.cap.max_inline_data, 100u);
    EXPECT_LE(48 + q.cap.max_inline_data, q.sq_stride);
    EXPECT_LE(48 + 16 * q.cap.max_send_sge, q.sq_stride);
    EXPECT_EQ(q.rq_stride % 32, 0u);
    EXPECT_LE(16 + 16 * q.cap.max_recv_sge, q.rq_stride);
    EXPECT_GE(q.sq.length, sizeof(abi::SqShared) + uint64_t{q.sq_depth} * q.sq_stride);
    EXPECT_GE(q.rq.length, sizeof(abi::RqShared) + uint64_t{q.rq_depth} * q.rq_stride);
    EXPECT_NE(shared.qps.find(q.qpn), nullptr);
}

TEST_F(QueuesTest, AQueueOfNothingGetsASlot) {
    auto want = qp_request(pd(), cq());
    want.cap = {};
    const auto q = call(Op::create_qp, want).as<abi::CreateQpReply>();
    EXPECT_EQ(q.sq_depth, 1u);
    EXPECT_EQ(q.rq_depth, 1u);
    EXPECT_EQ(q.sq_stride, 64u);
    EXPECT_EQ(q.cap.max_send_sge, 1u);
    EXPECT_EQ(q.cap.max_inline_data, 16u);
}

TEST_F(QueuesTest, QpsThatAreRefused) {
    const uint32_t p = pd(), c = cq();
    const auto with = [&](auto&& change) {
        auto want = qp_request(p, c);
        change(want);
        return call(Op::create_qp, want);
    };
    using Q = abi::CreateQpRequest;
    EXPECT_EQ(with([](Q& q) { q.pd = 99; }).error, ENOENT);
    EXPECT_EQ(with([](Q& q) { q.send_cq = 99; }).error, ENOENT);
    EXPECT_EQ(with([](Q& q) { q.recv_cq = 99; }).error, ENOENT);
    EXPECT_EQ(with([](Q& q) { q.srq = 99; }).error, ENOENT);
    EXPECT_EQ(with([](Q& q) { q.type = IBV_QPT_RAW_PACKET; }).error, EOPNOTSUPP);
    EXPECT_EQ(with([](Q& q) { q.type = 0x102; }).error, EOPNOTSUPP) << "not RC in a narrower type";
    EXPECT_EQ(with([](Q& q) { q.type = IBV_QPT_DRIVER; }).error, EOPNOTSUPP);
    EXPECT_EQ(with([](Q& q) { q.create_flags = 1; }).error, EOPNOTSUPP);
    EXPECT_EQ(with([](Q& q) { q.cap.max_send_wr = 1025; }).error, EINVAL);
    EXPECT_EQ(with([](Q& q) { q.cap.max_recv_wr = 0xffffffff; }).error, EINVAL);
    EXPECT_EQ(with([](Q& q) { q.cap.max_send_sge = 31; }).error, EINVAL);
    EXPECT_EQ(with([](Q& q) { q.cap.max_recv_sge = 0x10000001; }).error, EINVAL);
    const Result inl = with([](Q& q) { q.cap.max_inline_data = 957; });
    EXPECT_EQ(inl.error, EINVAL) << "libfabric probes for this";
    EXPECT_TRUE(inl.says("max_inline_data 957")) << inl.reason;
    EXPECT_EQ(with([](Q& q) { q.cap.max_inline_data = 956; }).error, 0);
    EXPECT_EQ(conductor.totals().qps, 1u);
    EXPECT_EQ(port.count(kind_of<engine::AddQp>), 1u);
}

TEST_F(QueuesTest, XrcSendHasNoReceiveSide) {
    auto want = qp_request(pd(), cq(), IBV_QPT_XRC_SEND);
    want.recv_cq = abi::kNoHandle;
    const Result r = call(Op::create_qp, want);
    ASSERT_EQ(r.error, 0) << r.reason;
    EXPECT_EQ(r.as<abi::CreateQpReply>().rq_depth, 0u);
    EXPECT_EQ(r.as<abi::CreateQpReply>().cap.max_recv_wr, 0u);
}

TEST_F(QueuesTest, QpsAreSpreadOverEnginesAndThoseOfAnSrqStayTogether) {
    const uint32_t p = pd(), c = cq();
    uint32_t each[2] = {};
    for (int i = 0; i < 10; ++i) ++each[call(Op::create_qp, qp_request(p, c)).as<abi::CreateQpReply>().engine];
    EXPECT_EQ(each[0], 5u);
    EXPECT_EQ(each[1], 5u);
    port.log.clear();
    auto want = qp_request(p, c);
    want.srq = make_srq(p, 8, 1).as<abi::CreateSrqReply>().handle;
    const uint32_t home = port.log.front().engine;
    for (int i = 0; i < 5; ++i) {
        const auto q = call(Op::create_qp, want).as<abi::CreateQpReply>();
        EXPECT_EQ(q.engine, home);
        EXPECT_EQ(q.rq_depth, 0u);
        EXPECT_EQ(q.rq.length, 0u);
    }
    for (int i = 0; i < 6; ++i) {
        const auto q = call(Op::create_qp, qp_request(p, c)).as<abi::CreateQpReply>();
        EXPECT_NE(q.engine, home) << "the other engine has fewer";
    }
}

TEST_F(QueuesTest, ABusyThingIsNotDestroyed) {
    const uint32_t p = pd(), send_cq = cq(), recv_cq = cq();
    const uint32_t srq = make_srq(p, 8, 1).as<abi::CreateSrqReply>().handle;
    auto want = qp_request(p, send_cq);
    want.recv_cq = recv_cq;
    want.srq = srq;
    const auto q = call(Op::create_qp, want).as<abi::CreateQpReply>();
    EXPECT_EQ(on(Op::dealloc_pd, p).error, EBUSY);
    EXPECT_EQ(on(Op::destroy_cq, send_cq).error, EBUSY);
    EXPECT_EQ(on(Op::destroy_cq, recv_cq).error, EBUSY);
    EXPECT_EQ(on(Op::destroy_srq, srq).error, EBUSY);
    port.log.clear();
    EXPECT_EQ(on(Op::destroy_qp, q.handle).error, 0);
    ASSERT_EQ(port.log.size(), 2u);
    EXPECT_EQ(port.log[0].kind, kind_of<engine::RemoveQp>);
    EXPECT_EQ(port.log[0].engine, q.engine);
    EXPECT_EQ(port.log[1].kind, Kind::fence);
    EXPECT_EQ(shared.qps.find(q.qpn), nullptr);
    EXPECT_EQ(on(Op::destroy_qp, q.handle).error, ENOENT);
    EXPECT_EQ(on(Op::destroy_srq, srq).error, 0);
    EXPECT_EQ(on(Op::destroy_cq, send_cq).error, 0);
    EXPECT_EQ(on(Op::destroy_cq, recv_cq).error, 0);
    EXPECT_EQ(on(Op::dealloc_pd, p).error, 0);
}

TEST_F(QueuesTest, AQpNumberRestsAndHandlesAreNotReusedAtOnce) {
    const uint32_t p = pd(), c = cq();
    uint32_t last_qpn = 0, last_handle = ~0u;
    for (int i = 0; i < 600; ++i) {
        const auto q = call(Op::create_qp, qp_request(p, c)).as<abi::CreateQpReply>();
        EXPECT_NE(q.qpn, last_qpn);
        EXPECT_NE(q.handle, last_handle);
        EXPECT_GE(q.qpn, 0x11u);
        EXPECT_LT(q.qpn, 256u);
        EXPECT_EQ(q.slot, q.handle);
        last_qpn = q.qpn;
        last_handle = q.handle;
        ASSERT_EQ(on(Op::destroy_qp, q.handle).error, 0);
        EXPECT_EQ(on(Op::query_qp, q.handle).error, ENOENT) << "stale";
    }
}

TEST_F(QueuesTest, QpNumbersRunOut) {
    const uint32_t p = pd(), c = cq();
    auto want = qp_request(p, c);
    want.cap = {};
    uint32_t made = 0;
    Result r;
    while ((r = call(Op::create_qp, want)).error == 0) ++made;
    EXPECT_EQ(r.error, ENOMEM);
    EXPECT_EQ(made, 256u - 0x11);
}

TEST_F(QueuesTest, AHundredThousandCreationsDoNotGrowAnything) {
    const uint32_t p = pd(), c = cq();
    const auto q = call(Op::create_qp, qp_request(p, c)).as<abi::CreateQpReply>();
    ASSERT_EQ(on(Op::destroy_qp, q.handle).error, 0);
    const auto arena = conductor.totals().arena_bytes;
    const auto memory = platform.memory.size();
    constexpr Nanos kSecond = 1'000'000'000;
    for (int i = 0; i < 100'000; ++i) {
        // Keeps the rate below the limit of control operations per second.
        if (i % 10'000 == 0) conductor.service(Nanos(i + 1) * kSecond);
        port.log.clear();
        auto want = qp_request(p, c);
        want.cap.max_send_wr = 1 + uint32_t(i) % 64;
        const Result r = call(Op::create_qp, want);
        ASSERT_EQ(r.error, 0) << r.reason;
        ASSERT_EQ(on(Op::destroy_qp, r.as<abi::CreateQpReply>().handle).error, 0);
    }
    EXPECT_EQ(conductor.totals().arena_bytes, arena);
    EXPECT_EQ(platform.memory.size(), memory);
    EXPECT_LT(call(Op::create_qp, qp_request(p, c)).as<abi::CreateQpReply>().handle, 128u);
}

TEST_F(QueuesTest, ARefusedQpLeavesNothing) {
    const uint32_t p = pd(), c = cq();
    port.refuse = kind_of<engine::AddQp>;
    port.refuse_error = ENOSPC;
    for (const uint32_t e : {0u, 1u}) {
        port.refuse_engine = e;
        int errors[2];
        for (int& error : errors) error = call(Op::create_qp, qp_request(p, c)).error;
        EXPECT_EQ(std::max(errors[0], errors[1]), ENOSPC);
    }
    const auto t = conductor.totals();
    EXPECT_EQ(t.qps, port.count(kind_of<engine::AddQp>) - 2);
    uint32_t published = 0;
    for (uint32_t n = 0; n < shared.qps.size(); ++n) published += shared.qps.find(n) != nullptr;
    EXPECT_EQ(published, t.qps);
}

}  // namespace
}  // namespace roci::host::test
