// Tests of posting: the content of the rings, the requests that ring the doorbell, and the requests that the library
// refuses.
#include "rings_fixture.hpp"

namespace roci::test {
namespace {

TEST_F(Rings, AWriteIsWrittenAsTheAbiSays) {
    ibv_send_wr wr = send_wr(0x1122334455667788, sge, 3);
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
    wr.imm_data = 0xa1b2c3d4;
    wr.wr.rdma = {0xdeadbeef00, 0x7777};
    ASSERT_EQ(post(wr), 0);
    EXPECT_EQ(seen().posted_sends(), 1u);
    const abi::SendWqe& w = wqe(0);
    EXPECT_EQ(w.wr_id, 0x1122334455667788u);
    EXPECT_EQ(w.opcode, abi::WrOpcode::rdma_write_imm);
    EXPECT_EQ(w.send_flags, abi::kSendSignaled | abi::kSendFence);
    EXPECT_EQ(w.num_sge, 3);
    EXPECT_EQ(w.imm_or_inv, 0xa1b2c3d4u);
    EXPECT_EQ(w.remote_addr, 0xdeadbeef00u);
    EXPECT_EQ(w.rkey, 0x7777u);
    EXPECT_EQ(w.inline_length, 0u);
    const abi::Sge* s = abi::sges(const_cast<abi::SendWqe*>(&w));
    EXPECT_EQ(s[0].addr, sge[0].addr);
    EXPECT_EQ(s[0].length, 10u);
    EXPECT_EQ(s[0].lkey, 0x11u);
    EXPECT_EQ(s[1].length, 0u);
    EXPECT_EQ(s[2].lkey, 0x33u);
}

TEST_F(Rings, InlineDataIsCopiedWhenPosted) {
    ibv_send_wr wr = send_wr(1, sge, 3);
    wr.send_flags |= IBV_SEND_INLINE;
    ASSERT_EQ(post(wr), 0);
    data[0] = 'X';  // the program may reuse its buffer at once
    const abi::SendWqe& w = wqe(0);
    EXPECT_EQ(w.send_flags, abi::kSendSignaled | abi::kSendInline);
    EXPECT_EQ(w.num_sge, 0);
    EXPECT_EQ(w.inline_length, 17u);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(&w) + abi::kSendWqeHead, 17),
              std::string("some paylo", 10) + std::string(data + 30, 7));
    sge[0].length = 65;  // the QP has a max_inline_data of 64
    EXPECT_EQ(post(wr), EINVAL);
    EXPECT_EQ(seen().posted_sends(), 1u);
    wr = send_wr(2);
    wr.send_flags = IBV_SEND_INLINE;
    ASSERT_EQ(post(wr), 0);
    EXPECT_EQ(wqe(1).send_flags, 0) << "nothing to carry inline";
}

TEST_F(Rings, AtomicsCarryTheirOperands) {
    ibv_send_wr wr = send_wr(1, sge, 1);
    wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    wr.wr.atomic = {0x8000, 111, 222, 0x55};
    ASSERT_EQ(post(wr), 0);
    EXPECT_EQ(wqe(0).remote_addr, 0x8000u);
    EXPECT_EQ(wqe(0).rkey, 0x55u);
    EXPECT_EQ(wqe(0).compare_add, 111u);
    EXPECT_EQ(wqe(0).swap, 222u);
    EXPECT_EQ(wqe(0).num_sge, 1);
    uint64_t value = 0x0102030405060708;
    ibv_sge eight{uint64_t(uintptr_t(&value)), 8, 0};
    wr = send_wr(2, &eight, 1);
    wr.opcode = IBV_WR_ATOMIC_WRITE;
    wr.wr.rdma = {0x9000, 0x66};
    ASSERT_EQ(post(wr), 0);
    EXPECT_EQ(wqe(1).compare_add, value);
    EXPECT_EQ(wqe(1).remote_addr, 0x9000u);
    eight.length = 4;
    EXPECT_EQ(post(wr), EINVAL);
}

TEST_F(Rings, DatagramsCarryTheirAddressHandle) {
    replace_qp(IBV_QPT_UD);
    ibv_ah_attr attr{};
    ibv_ah* ah = ibv_create_ah(pd, &attr);
    ASSERT_NE(ah, nullptr);
    ibv_send_wr wr = send_wr(1, sge, 1);
    wr.wr.ud = {ah, 0x1234, 0x11111111};
    ASSERT_EQ(post(wr), 0);
    EXPECT_EQ(wqe(0).ud.ah, ah->handle);
    EXPECT_EQ(wqe(0).ud.remote_qpn, 0x1234u);
    EXPECT_EQ(wqe(0).remote_qkey, 0x11111111u);
    wr.wr.ud.ah = nullptr;
    EXPECT_EQ(post(wr), EINVAL);
    wr = send_wr(1, sge, 1);
    wr.opcode = IBV_WR_RDMA_WRITE;  // a UD QP has no RDMA WRITE
    EXPECT_EQ(post(wr), EINVAL);
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(Rings, XrcSendsNameTheirSrqAndMayBeInline) {
    replace_qp(IBV_QPT_XRC_SEND);
    ibv_send_wr wr = send_wr(1, sge, 1);
    wr.send_flags |= IBV_SEND_INLINE;
    wr.qp_type.xrc.remote_srqn = 0x4321;
    ASSERT_EQ(post(wr), 0);
    EXPECT_EQ(wqe(0).remote_srqn, 0x4321u);
    EXPECT_EQ(wqe(0).inline_length, 10u);
    wr = send_wr(2, sge, 1);
    wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    wr.qp_type.xrc.remote_srqn = 0x4321;
    wr.wr.atomic = {0x8000, 1, 2, 3};
    ASSERT_EQ(post(wr), 0);
    EXPECT_EQ(wqe(1).swap, 2u);
}

TEST_F(Rings, BindTakesTheNextKeyOfTheWindow) {
    ibv_mw* mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    ASSERT_NE(mw, nullptr);
    ibv_mr* mr = ibv_reg_mr(pd, data, sizeof data, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    const uint32_t old = mw->rkey;
    ibv_mw_bind bind{};
    bind.wr_id = 5;
    bind.bind_info = {mr, 0x4000, 64, IBV_ACCESS_REMOTE_READ};
    ASSERT_EQ(ibv_bind_mw(qp, mw, &bind), 0);
    EXPECT_EQ(mw->rkey, ibv_inc_rkey(old));
    EXPECT_EQ(wqe(0).opcode, abi::WrOpcode::bind_mw);
    EXPECT_EQ(wqe(0).rkey, mw->rkey);
    EXPECT_EQ(wqe(0).remote_addr, 0x4000u);
    EXPECT_EQ(wqe(0).bind_mr_lkey, mr->lkey);
    EXPECT_EQ(wqe(0).bind_length, 64u);
    EXPECT_EQ(wqe(0).bind_access, uint64_t(IBV_ACCESS_REMOTE_READ));
    set_state(qp, IBV_QPS_RESET);
    EXPECT_EQ(ibv_bind_mw(qp, mw, &bind), EINVAL);
    EXPECT_EQ(mw->rkey, ibv_inc_rkey(old)) << "a bind that was not posted changes nothing";
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Rings, ABindTakesTheIndexOfItsWindowAndTheProgramsLowByte) {
    ibv_mw* mine = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    ibv_mw* other = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    ASSERT_NE(mine, nullptr);
    ASSERT_NE(other, nullptr);
    const uint32_t index = mine->rkey & ~0xffu, untouched = other->rkey;
    ibv_send_wr wr = send_wr(1);
    wr.opcode = IBV_WR_BIND_MW;
    wr.bind_mw.mw = mine;
    wr.bind_mw.rkey = (other->rkey & ~0xffu) | 0x5a;
    ASSERT_EQ(post(wr), 0);
    EXPECT_EQ(wqe(0).rkey, index | 0x5a);
    EXPECT_EQ(mine->rkey, index | 0x5a) << "new once the post is accepted";
    EXPECT_EQ(other->rkey, untouched);
    mine->rkey = 0;  // the program may change the field, so the library must not read the index from it
    wr.bind_mw.rkey = 7;
    ASSERT_EQ(post(wr), 0);
    EXPECT_EQ(mine->rkey, index | 7);
    wr.bind_mw.mw = nullptr;
    EXPECT_EQ(post(wr), EINVAL);
    EXPECT_EQ(ibv_dealloc_mw(mine), 0);
    EXPECT_EQ(ibv_dealloc_mw(other), 0);
}

TEST_F(Rings, TheDoorbellRingsOnlyForAnIdleQp) {
    const uint32_t slot = seen().reply.slot, engine = seen().reply.engine;
    ASSERT_FALSE(rocid.doorbell_set(engine, slot));
    ASSERT_EQ(post(send_wr(1)), 0);
    EXPECT_TRUE(rocid.doorbell_set(engine, slot));
    EXPECT_FALSE(rocid.doorbell_set(1 - engine, slot));
    EXPECT_EQ(rocid.doorbells(engine).summary[slot / 64 / 64], uint64_t{1} << (slot / 64 % 64));
    EXPECT_EQ(seen().sq->idle, 0u);
    EXPECT_EQ(rocid.wakes(engine), 0u) << "the engine was awake";
    rocid.doorbells(engine).words[slot / 64] = 0;
    ASSERT_EQ(post(send_wr(2)), 0);
    EXPECT_FALSE(rocid.doorbell_set(engine, slot)) << "rocid watches the queue already";
    seen().sq->idle = 1;
    rocid.engine_page().engine[engine].sleeping = 1;
    ASSERT_EQ(post(send_wr(3)), 0);
    EXPECT_TRUE(rocid.doorbell_set(engine, slot));
    EXPECT_EQ(rocid.wakes(engine), 1u);
    EXPECT_EQ(rocid.wakes(1 - engine), 0u);
}

TEST_F(Rings, TheFirstBadRequestIsNamedAndThoseBeforeItArePosted) {
    ibv_send_wr list[4] = {send_wr(0, sge, 1), send_wr(1, sge, 1), send_wr(2, sge, 5), send_wr(3, sge, 1)};
    for (int i = 0; i < 3; ++i) list[i].next = &list[i + 1];
    EXPECT_EQ(ibv_post_send(qp, list, &bad), EINVAL);  // the third request has five SGEs, but the QP has a max_send_sge of four
    EXPECT_EQ(bad, &list[2]);
    EXPECT_EQ(seen().posted_sends(), 2u);
    EXPECT_EQ(wqe(1).wr_id, 1u);
    list[2] = send_wr(2, sge, 1);
    list[2].opcode = IBV_WR_TSO;
    EXPECT_EQ(ibv_post_send(qp, &list[2], &bad), EINVAL);
    EXPECT_EQ(bad, &list[2]);
    const int nonsense = 200;
    std::memcpy(&list[2].opcode, &nonsense, sizeof nonsense);
    EXPECT_EQ(ibv_post_send(qp, &list[2], &bad), EINVAL);
    EXPECT_EQ(seen().posted_sends(), 2u);
}

TEST_F(Rings, AFullQueueIsEnomemAndPollingFreesIt) {
    ibv_send_wr list[5];
    for (int i = 0; i < 5; ++i) {
        list[i] = send_wr(uint64_t(i));
        list[i].next = i < 4 ? &list[i + 1] : nullptr;
    }
    EXPECT_EQ(ibv_post_send(qp, list, &bad), ENOMEM);
    EXPECT_EQ(bad, &list[4]);
    EXPECT_EQ(seen().posted_sends(), 4u);
    // Completes the requests at index 0 and 1, which frees their slots.
    rocid.complete(cq->handle, 1, entry(qp, abi::kCqeSend, 1, 1));
    EXPECT_EQ(post(send_wr(5)), ENOMEM) << "not polled yet";
    EXPECT_EQ(poll_one().wr_id, 1u);
    EXPECT_EQ(post(send_wr(5)), 0);
    EXPECT_EQ(post(send_wr(6)), 0);
    EXPECT_EQ(post(send_wr(7)), ENOMEM);
    EXPECT_EQ(wqe(5).wr_id, 6u);
}

TEST_F(Rings, StatesThatTakeSendsAndReceives) {
    const struct {
        ibv_qp_state state;
        int send, receive;
    } expected[] = {{IBV_QPS_RESET, EINVAL, EINVAL},
                    {IBV_QPS_INIT, EINVAL, 0},
                    {IBV_QPS_RTR, EINVAL, 0},
                    {IBV_QPS_RTS, 0, 0},
                    {IBV_QPS_SQD, 0, 0},
                    {IBV_QPS_ERR, 0, 0}};
    for (const auto& e : expected) {
        set_state(qp, IBV_QPS_RESET);
        set_state(qp, e.state);
        ibv_send_wr wr = send_wr(1);
        ibv_recv_wr recv{};
        EXPECT_EQ(ibv_post_send(qp, &wr, &bad), e.send) << e.state;
        if (e.send != 0) {
            EXPECT_EQ(bad, &wr);
        }
        EXPECT_EQ(ibv_post_recv(qp, &recv, &bad_recv), e.receive) << e.state;
        if (e.receive != 0) {
            EXPECT_EQ(bad_recv, &recv);
        }
    }
}

TEST_F(Rings, AReceivePostedInErrorRingsTheBell) {
    set_state(qp, IBV_QPS_ERR);
    ibv_recv_wr recv{};
    ASSERT_EQ(ibv_post_recv(qp, &recv, &bad_recv), 0);
    EXPECT_FALSE(rocid.doorbell_set(seen().reply.engine, seen().reply.slot)) << "rocid did not ask for it";
    seen().rq->ring = 1;
    ASSERT_EQ(ibv_post_recv(qp, &recv, &bad_recv), 0);
    EXPECT_TRUE(rocid.doorbell_set(seen().reply.engine, seen().reply.slot));
}

TEST_F(Rings, ReceivesAreWrittenAndFreed) {
    ibv_recv_wr list[5]{};
    for (int i = 0; i < 5; ++i) {
        list[i].wr_id = uint64_t(100 + i);
        list[i].sg_list = sge;
        list[i].num_sge = i % 3;
        list[i].next = i < 4 ? &list[i + 1] : nullptr;
    }
    EXPECT_EQ(ibv_post_recv(qp, list, &bad_recv), ENOMEM);
    EXPECT_EQ(bad_recv, &list[4]);
    EXPECT_EQ(seen().rq->producer, 4u);
    const abi::RecvWqe& w = rocid.recv_wqe(qp->handle, 2);
    EXPECT_EQ(w.wr_id, 102u);
    EXPECT_EQ(w.num_sge, 2u);
    EXPECT_EQ(abi::sges(const_cast<abi::RecvWqe*>(&w))[1].lkey, 0x22u);
    rocid.complete(cq->handle, 0, entry(qp, abi::kCqeRecv, 100));
    EXPECT_EQ(poll_one().opcode, IBV_WC_RECV);
    EXPECT_EQ(ibv_post_recv(qp, &list[4], &bad_recv), 0);
    list[4].num_sge = 3;
    EXPECT_EQ(ibv_post_recv(qp, &list[4], &bad_recv), EINVAL);
}

}  // namespace
}  // namespace roci::test
