// Tests of memory that only a worker thread may access. They test every operation with such memory, and accesses that
// do not end.
#include "fixture.hpp"

namespace roci::sim {
namespace {

constexpr uint64_t kBytes = 1 << 20;

Mr& slow_mr(Side& s) { return s.client.reg_mr(s.pd, kBytes, {.segments = 3, .slow = true}); }
SimWorker& worker(World& w, uint32_t host, const Side& s) { return *w.host(host).platform().worker(s.client.pid()); }

struct SlowMemory : PairTest {
    Mr &sa, &sb;
    explicit SlowMemory(const QpOptions& q = {}) : PairTest({}, q), sa(slow_mr(a)), sb(slow_mr(b)) {}
    SimWorker& of_a() { return worker(world, 0, a); }
    SimWorker& of_b() { return worker(world, 1, b); }
    static Sge in(const Mr& mr, uint64_t offset, uint32_t length) { return {mr.address() + offset, length, mr.lkey}; }
    SendWr from(const Mr& mr, WrOpcode op, uint64_t id, uint32_t length, const Mr& to) {
        return {.id = id, .opcode = op, .sges = {in(mr, 0, length)}, .remote_addr = to.address(), .rkey = to.rkey};
    }
    /// Posts a WRITE. The access to its data by the responder's worker does not end.
    void write_and_stick() {
        join();
        of_b().stuck = true;
        a.client.post_send(qa, from(a.mr, WrOpcode::rdma_write, 1, 5000, sb));
        world.run_for(100'000);
        ASSERT_EQ(of_b().waiting(), 1u);
    }
};

TEST_F(SlowMemory, EveryOperationAtEverySize) {
    join();
    uint64_t tag = 1;
    for (uint32_t size : {1u, 3u, 1024u, 1025u, 5000u, 65536u, 500'000u}) {
        for (WrOpcode op :
             {WrOpcode::send, WrOpcode::send_imm, WrOpcode::rdma_write, WrOpcode::rdma_write_imm, WrOpcode::rdma_read}) {
            SCOPED_TRACE(testing::Message() << "opcode " << int(op) << " size " << size);
            ++tag;
            const bool read = op == WrOpcode::rdma_read, recv = op != WrOpcode::rdma_write && !read;
            fill(sa.data(), size, read ? 0 : tag);
            fill(sb.data(), size, read ? tag : 0);
            // The first part of the receive buffer is mapped. The worker accesses the second part.
            if (recv) b.client.post_recv(qb, tag, {b.sge(0, size / 2), in(sb, size / 2, size - size / 2)});
            a.client.post_send(qa, from(sa, op, tag, size, sb));
            const auto done = a.wait(1);
            ASSERT_EQ(done.size(), 1u);
            EXPECT_EQ(done[0].status, WcStatus::success);
            if (recv && op != WrOpcode::rdma_write_imm) std::memcpy(sb.data(), b.mr.data(), size / 2);
            EXPECT_EQ(first_wrong(sa.data(), size, tag), -1);
            EXPECT_EQ(first_wrong(sb.data(), size, tag), -1);
            EXPECT_EQ(b.poll_all().size(), recv ? 1u : 0u);
        }
    }
}

TEST_F(SlowMemory, ManyAtATimeStayInOrder) {
    join();
    constexpr uint32_t kMessages = 60, kSize = 3000;
    for (uint32_t i = 0; i < kMessages; ++i) {
        fill(sa.data() + i * kSize, kSize, i + 1);
        b.client.post_recv(qb, i, {in(sb, i * kSize, kSize)});
    }
    for (uint32_t i = 0; i < kMessages; ++i)
        a.client.post_send(qa, {.id = i, .opcode = WrOpcode::send, .sges = {in(sa, i * kSize, kSize)}});
    ASSERT_EQ(a.wait(kMessages).size(), kMessages);
    const auto got = b.wait(kMessages);
    ASSERT_EQ(got.size(), kMessages);
    for (uint32_t i = 0; i < kMessages; ++i) {
        EXPECT_EQ(got[i].wr_id, i);
        EXPECT_EQ(first_wrong(sb.data() + i * kSize, kSize, i + 1), -1);
    }
}

TEST_F(SlowMemory, Atomics) {
    join();
    auto* word = reinterpret_cast<uint64_t*>(sb.data());
    *word = 40;
    SendWr add = from(sa, WrOpcode::atomic_fetch_add, 1, 8, sb);
    add.compare_add = 2;
    a.client.post_send(qa, add);
    ASSERT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(*word, 42u);
    EXPECT_EQ(*reinterpret_cast<uint64_t*>(sa.data()), 40u);
    SendWr swap = from(sa, WrOpcode::atomic_cmp_swp, 2, 8, sb);
    swap.compare_add = 42;
    swap.swap = 7;
    a.client.post_send(qa, swap);
    ASSERT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(*word, 7u);
    a.client.post_send(qa, swap);
    ASSERT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(*word, 7u) << "compared unequal";
    EXPECT_EQ(*reinterpret_cast<uint64_t*>(sa.data()), 7u);
}

/// Returns the time that 200 WRITEs of another QP on the same two engines take.
Nanos neighbour_takes(World& world, Side& c, Side& d, Qp& qc) {
    const Nanos begin = world.now();
    for (uint32_t i = 0; i < 200; ++i) {
        c.client.post_send(qc, c.rdma(WrOpcode::rdma_write, i, 0, 4096, d.mr.address(), d.mr.rkey));
        EXPECT_EQ(c.wait_status(), WcStatus::success);
    }
    return world.now() - begin;
}

// A FLUSH must not be answered before the data of an earlier WRITE is in memory.
TEST_F(SlowMemory, AFlushWaitsForEarlierWrites) {
    write_and_stick();
    a.client.post_send(qa, {.id = 2, .opcode = WrOpcode::flush, .rkey = sb.rkey, .flush = abi::kFlushGlobal | abi::kFlushRegion});
    world.run_for(100'000);
    EXPECT_TRUE(a.poll_all().empty());
    of_b().stuck = false;
    const auto done = a.wait(2);
    ASSERT_EQ(done.size(), 2u);
    EXPECT_EQ(done[1].opcode, abi::WcOpcode::flush);
    EXPECT_EQ(done[1].status, WcStatus::success);
}

TEST_F(SlowMemory, ANeighbourDoesNotWait) {
    Side c(world, world.host(0)), d(world, world.host(1));
    Qp &qc = c.qp(), &qd = d.qp();
    connect(c.client, qc, d.client, qd);
    const Nanos alone = neighbour_takes(world, c, d, qc);
    write_and_stick();
    of_a().stuck = true;
    b.client.post_send(qb, {.id = 1, .opcode = WrOpcode::send, .sges = {in(sb, 0, 100'000)}});
    EXPECT_LE(neighbour_takes(world, c, d, qc), 2 * alone);
    EXPECT_TRUE(a.poll_all().empty());
    of_a().stuck = of_b().stuck = false;
}

TEST_F(SlowMemory, AnEngineThatWaitsIsIdle) {
    PathOptions o;
    o.timeout = 0;  // a timeout of 0 means no ACK timeout
    join(o);
    of_b().stuck = true;
    a.client.post_send(qa, from(a.mr, WrOpcode::rdma_write, 1, 5000, sb));
    b.client.post_send(qb, {.id = 1, .opcode = WrOpcode::send, .sges = {in(sb, 0, 100'000)}});
    EXPECT_TRUE(world.run_idle()) << "nobody polls for what does not come";
    of_b().stuck = false;
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

TEST_F(SlowMemory, TheProcessThatEndsLeavesNothing) {
    write_and_stick();
    b.client.close();
    world.run_for(1'000'000);
    of_b().stuck = false;
    world.run_for(1'000'000);
    EXPECT_EQ(of_b().waiting(), 0u);
}

TEST_F(SlowMemory, DeregistrationWaitsForTheWorker) {
    write_and_stick();
    fill(a.mr.data(), 5000, 9);
    std::vector<std::byte> packet(sizeof(abi::RequestHeader) + sizeof(abi::HandleRequest));
    const abi::RequestHeader head{abi::Op::dereg_mr, 0, 0x5eed};
    const abi::HandleRequest body{sb.handle, 0};
    std::memcpy(packet.data(), &head, sizeof head);
    std::memcpy(packet.data() + sizeof head, &body, sizeof body);
    bool close = false;
    host::Conductor& conductor = world.host(1).conductor();
    EXPECT_TRUE(conductor.handle(b.client.session(), packet, {}, close).deferred);
    world.run_for(5'000'000);
    uint32_t session = 0;
    host::Reply reply;
    EXPECT_FALSE(conductor.next_reply(session, reply, close));
    Side other(world, world.host(1));  // rocid's control thread must still serve this other client
    of_b().stuck = false;
    reply = world.host(1).await_reply(b.client.session());
    abi::ReplyHeader h;
    std::memcpy(&h, reply.bytes.data(), sizeof h);
    EXPECT_EQ(h.error, 0);
}

TEST_F(SlowMemory, ABufferIsFlushedWhenNobodyWritesItAnyMore) {
    join();
    of_b().stuck = true;
    b.client.post_recv(qb, 7, {in(sb, 0, 100)});
    a.client.post_send(qa, a.send(1, 0, 100));
    world.run_for(100'000);
    b.client.to_state(qb, IBV_QPS_ERR);
    world.run_for(100'000);
    EXPECT_TRUE(b.poll_all().empty());
    of_b().stuck = false;
    const auto got = b.wait(1);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].wr_id, 7u);
    EXPECT_EQ(got[0].status, WcStatus::wr_flush_err);
}

TEST_F(SlowMemory, MemoryThatIsGoneIsAFault) {
    join();
    b.client.post_recv(qb, 7, {in(sb, 0, 100)});
    world.host(1).platform().end_process(b.client.pid());
    a.client.post_send(qa, a.send(1, 0, 100));
    EXPECT_EQ(a.wait_status(), WcStatus::rem_op_err);
    EXPECT_EQ(b.wait_status(), WcStatus::loc_prot_err);
}

TEST_F(SlowMemory, OwnMemoryThatIsGoneIsAProtectionError) {
    join();
    world.host(0).platform().end_process(a.client.pid());
    a.client.post_send(qa, from(sa, WrOpcode::rdma_write, 1, 5000, sb));
    EXPECT_EQ(a.wait_status(), WcStatus::loc_prot_err);
}

// If a memory access of the responder does not end, the retries of the requester must run out, as with any silent
// responder. While a response waits for the requester's own memory, the ACK timeout must not run.
TEST_F(SlowMemory, OnlyThePeerThatDoesNotAnswerTimesOut) {
    PathOptions o;
    o.timeout = 8;
    o.retry_cnt = 2;
    join(o);
    of_a().stuck = true;
    fill(b.mr.data(), 5000, 4);
    a.client.post_send(qa, from(sa, WrOpcode::rdma_read, 1, 5000, b.mr));
    world.run_for(100'000'000);
    EXPECT_TRUE(a.poll_all().empty());
    of_a().stuck = false;
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(first_wrong(sa.data(), 5000, 4), -1);
    of_b().stuck = true;
    a.client.post_send(qa, from(a.mr, WrOpcode::rdma_write, 2, 100, sb));
    EXPECT_EQ(a.wait_status(), WcStatus::retry_exc_err);
    of_b().stuck = false;
}

}  // namespace
}  // namespace roci::sim
