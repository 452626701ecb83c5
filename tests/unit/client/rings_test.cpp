// Posting and polling, seen from rocid's side of the rings.
#include <atomic>
#include <set>
#include <thread>

#include "fixture.hpp"

namespace roci::test {
namespace {

class Rings : public Client {
protected:
    ibv_cq* cq = nullptr;
    ibv_qp* qp = nullptr;
    ibv_send_wr* bad = nullptr;
    ibv_recv_wr* bad_recv = nullptr;
    char data[128] = "some payload that is longer than one would think";
    ibv_sge sge[4] = {{uint64_t(uintptr_t(data)), 10, 0x11},
                      {uint64_t(uintptr_t(data + 20)), 0, 0x22},
                      {uint64_t(uintptr_t(data + 30)), 7, 0x33},
                      {}};

    void SetUp() override {
        Client::SetUp();
        cq = make_cq();
        qp = make_qp(cq);
        ASSERT_NE(qp, nullptr);
    }
    void TearDown() override {
        if (qp != nullptr) {
            EXPECT_EQ(ibv_destroy_qp(qp), 0);
        }
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
        Client::TearDown();
    }
    FakeRocid::Qp& seen() { return rocid.qp(qp->handle); }
    const abi::SendWqe& wqe(uint32_t i) { return rocid.send_wqe(qp->handle, i); }
    int post(ibv_send_wr wr) { return ibv_post_send(qp, &wr, &bad); }
    void replace_qp(ibv_qp_type type) {
        ASSERT_EQ(ibv_destroy_qp(qp), 0);
        qp = make_qp(cq, type);
        ASSERT_NE(qp, nullptr);
    }
    ibv_wc poll_one() {
        ibv_wc wc{};
        EXPECT_EQ(ibv_poll_cq(cq, 1, &wc), 1);
        return wc;
    }
};

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
    sge[0].length = 65;  // granted: 64
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
    wr.opcode = IBV_WR_RDMA_WRITE;  // not on a datagram QP
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
    EXPECT_EQ(ibv_post_send(qp, list, &bad), EINVAL);  // five SGEs; four were granted
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
    rocid.complete(cq->handle, 1, entry(qp, abi::kCqeSend, 1, 1));  // covers an unsignaled index 0 as well
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

TEST_F(Rings, SrqSlotsComeBackByHandle) {
    ibv_srq_init_attr attr{nullptr, {2, 1, 0}};
    ibv_srq* srq = ibv_create_srq(pd, &attr);
    ASSERT_NE(srq, nullptr);
    EXPECT_EQ(attr.attr.max_sge, 2u);
    uint32_t number = 0;
    EXPECT_EQ(ibv_get_srq_num(srq, &number), 0);
    EXPECT_EQ(number, 0x50u);
    ibv_qp* user = make_qp(cq, IBV_QPT_RC, IBV_QPS_RTS, srq);
    ibv_recv_wr recv{};
    recv.wr_id = 9;
    EXPECT_EQ(ibv_post_recv(user, &recv, &bad_recv), EINVAL) << "it has no receive queue of its own";
    EXPECT_EQ(ibv_post_srq_recv(srq, &recv, &bad_recv), 0);
    EXPECT_EQ(ibv_post_srq_recv(srq, &recv, &bad_recv), 0);
    EXPECT_EQ(ibv_post_srq_recv(srq, &recv, &bad_recv), ENOMEM);
    EXPECT_EQ(rocid.srq(srq->handle).rq->producer, 2u);
    abi::Cqe e = entry(user, abi::kCqeSrq, 9);
    e.srq_handle = srq->handle;
    rocid.complete(cq->handle, 0, e);
    EXPECT_EQ(poll_one().qp_num, user->qp_num);
    EXPECT_EQ(ibv_post_srq_recv(srq, &recv, &bad_recv), 0);
    // Destroying the QP takes its entry off the CQ and gives the SRQ its slot back.
    rocid.complete(cq->handle, 0, e);
    EXPECT_EQ(ibv_destroy_qp(user), 0);
    ibv_wc wc{};
    EXPECT_EQ(ibv_poll_cq(cq, 1, &wc), 0);
    EXPECT_EQ(ibv_post_srq_recv(srq, &recv, &bad_recv), 0);
    EXPECT_EQ(ibv_post_srq_recv(srq, &recv, &bad_recv), ENOMEM);
    ibv_srq_attr now{};
    EXPECT_EQ(ibv_query_srq(srq, &now), 0);
    EXPECT_EQ(now.srq_limit, 3u);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(Rings, EveryLaneIsPolledInItsOrder) {
    for (uint64_t i = 0; i < 3; ++i) rocid.complete(cq->handle, 0, entry(qp, abi::kCqeRecv, 10 + i));
    for (uint64_t i = 0; i < 2; ++i) rocid.complete(cq->handle, 1, entry(qp, abi::kCqeRecv, 20 + i));
    ibv_wc wc[8];
    ASSERT_EQ(ibv_poll_cq(cq, 8, wc), 5);
    std::vector<uint64_t> lane[2];
    for (int i = 0; i < 5; ++i) lane[wc[i].wr_id / 20].push_back(wc[i].wr_id);
    EXPECT_EQ(lane[0], (std::vector<uint64_t>{10, 11, 12}));
    EXPECT_EQ(lane[1], (std::vector<uint64_t>{20, 21}));
    EXPECT_EQ(ibv_poll_cq(cq, 8, wc), 0);
    // Round the ring more than once: old entries must not look new.
    for (uint64_t i = 0; i < 50; ++i) {
        rocid.complete(cq->handle, i % 2, entry(qp, abi::kCqeRecv, i));
        ASSERT_EQ(ibv_poll_cq(cq, 8, wc), 1);
        ASSERT_EQ(wc[0].wr_id, i);
    }
}

TEST_F(Rings, ACompletionShowsAllItsFields) {
    abi::Cqe e = entry(qp, abi::kCqeRecv, 7);
    e.status = abi::WcStatus::loc_prot_err;
    e.opcode = abi::WcOpcode::recv_rdma_with_imm;
    e.vendor_err = 3;
    e.byte_len = 1000;
    e.imm_or_inv = 0x04030201;
    e.src_qp = 0x99;
    e.wc_flags = abi::kWcWithImm | abi::kWcGrh;
    e.pkey_index = 2;
    e.sl = 5;
    rocid.complete(cq->handle, 0, e);
    const ibv_wc wc = poll_one();
    EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(wc.vendor_err, 3u);
    EXPECT_EQ(wc.byte_len, 1000u);
    EXPECT_EQ(wc.imm_data, 0x04030201u);
    EXPECT_EQ(wc.qp_num, qp->qp_num);
    EXPECT_EQ(wc.src_qp, 0x99u);
    EXPECT_EQ(wc.wc_flags, unsigned(IBV_WC_WITH_IMM | IBV_WC_GRH));
    EXPECT_EQ(wc.pkey_index, 2);
    EXPECT_EQ(wc.sl, 5);
}

TEST_F(Rings, DestroyingAQpTakesItsCompletionsAndNoOthers) {
    ibv_qp* other = make_qp(cq);
    for (uint64_t i = 0; i < 3; ++i) {
        rocid.complete(cq->handle, uint32_t(i % 2), entry(qp, abi::kCqeSend, 10 + i, uint32_t(i)));
        rocid.complete(cq->handle, uint32_t(i % 2), entry(other, abi::kCqeSend, 20 + i, uint32_t(i)));
    }
    ASSERT_EQ(ibv_destroy_qp(qp), 0);
    qp = nullptr;
    ibv_wc wc[8];
    ASSERT_EQ(ibv_poll_cq(cq, 8, wc), 3);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(wc[i].qp_num, other->qp_num);
    EXPECT_EQ(ibv_poll_cq(cq, 8, wc), 0);
    EXPECT_EQ(ibv_destroy_qp(other), 0);
}

TEST_F(Rings, ResetEmptiesTheQueuesAndTheCq) {
    ibv_recv_wr recv{};
    for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(post(send_wr(i)), 0);
    ASSERT_EQ(ibv_post_recv(qp, &recv, &bad_recv), 0);
    rocid.complete(cq->handle, 0, entry(qp, abi::kCqeSend, 0, 0));
    set_state(qp, IBV_QPS_RESET);
    ibv_wc wc{};
    EXPECT_EQ(ibv_poll_cq(cq, 1, &wc), 0);
    EXPECT_EQ(seen().posted_sends(), 0u);
    EXPECT_EQ(seen().sq->idle, 1u);
    EXPECT_EQ(seen().rq->producer, 0u);
    set_state(qp, IBV_QPS_RTS);
    for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(post(send_wr(50 + i)), 0);
    EXPECT_EQ(post(send_wr(54)), ENOMEM);
    EXPECT_EQ(wqe(0).wr_id, 50u);
}

TEST_F(Rings, ResizeKeepsWhatWasNotPolled) {
    rocid.complete(cq->handle, 0, entry(qp, abi::kCqeRecv, 1));
    rocid.complete(cq->handle, 0, entry(qp, abi::kCqeRecv, 2));
    rocid.complete(cq->handle, 1, entry(qp, abi::kCqeRecv, 3));
    EXPECT_EQ(poll_one().wr_id, 1u);
    ibv_req_notify_cq(cq, 1);
    ASSERT_EQ(ibv_resize_cq(cq, 20), 0);
    EXPECT_EQ(cq->cqe, 32);
    EXPECT_EQ(rocid.last_as<abi::ResizeCqRequest>(abi::Op::resize_cq).consumer[0], 1u);
    EXPECT_EQ(rocid.cq(cq->handle).shared->arm, 3u) << "armed before, armed after";
    ibv_wc wc[4];
    ASSERT_EQ(ibv_poll_cq(cq, 4, wc), 2);
    EXPECT_EQ(wc[0].wr_id + wc[1].wr_id, 5u);
    rocid.complete(cq->handle, 0, entry(qp, abi::kCqeRecv, 9));
    EXPECT_EQ(poll_one().wr_id, 9u);
    rocid.refuse(abi::Op::resize_cq, EINVAL);
    EXPECT_EQ(ibv_resize_cq(cq, 1), EINVAL);
    EXPECT_EQ(cq->cqe, 32);
}

TEST_F(Rings, TheExtendedCqIterates) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 8;
    attr.wc_flags = IBV_CREATE_CQ_SUP_WC_FLAGS;
    ibv_cq_ex* ex = ibv_create_cq_ex(context, &attr);
    ASSERT_NE(ex, nullptr);
    ibv_qp* user = make_qp(ibv_cq_ex_to_cq(ex));
    ibv_poll_cq_attr poll_attr{};
    EXPECT_EQ(ibv_start_poll(ex, &poll_attr), ENOENT);
    EXPECT_EQ(ibv_start_poll(ex, &poll_attr), ENOENT) << "the lock was given back";
    for (uint64_t i = 0; i < 2; ++i) {
        abi::Cqe e = entry(user, abi::kCqeRecv, 70 + i);
        e.byte_len = uint32_t(100 + i);
        e.imm_or_inv = 5;
        e.src_qp = 6;
        e.sl = 3;
        e.tag = 0xabc;
        e.timestamp = 12345;
        e.wc_flags = abi::kWcWithImm;
        rocid.complete(ex->handle, 0, e);
    }
    ASSERT_EQ(ibv_start_poll(ex, &poll_attr), 0);
    EXPECT_EQ(ex->wr_id, 70u);
    EXPECT_EQ(ex->status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_wc_read_opcode(ex), IBV_WC_RECV);
    EXPECT_EQ(ibv_wc_read_byte_len(ex), 100u);
    EXPECT_EQ(ibv_wc_read_imm_data(ex), 5u);
    EXPECT_EQ(ibv_wc_read_qp_num(ex), user->qp_num);
    EXPECT_EQ(ibv_wc_read_src_qp(ex), 6u);
    EXPECT_EQ(ibv_wc_read_wc_flags(ex), unsigned(IBV_WC_WITH_IMM));
    EXPECT_EQ(ibv_wc_read_sl(ex), 3);
    EXPECT_EQ(ibv_wc_read_slid(ex), 0u);
    EXPECT_EQ(ibv_wc_read_completion_ts(ex), 12345u);
    EXPECT_GT(ibv_wc_read_completion_wallclock_ns(ex), 12345u);
    ibv_wc_tm_info tm{};
    ibv_wc_read_tm_info(ex, &tm);
    EXPECT_EQ(tm.tag, 0xabcu);
    ASSERT_EQ(ibv_next_poll(ex), 0);
    EXPECT_EQ(ex->wr_id, 71u);
    EXPECT_EQ(ibv_wc_read_byte_len(ex), 101u);
    EXPECT_EQ(ibv_next_poll(ex), ENOENT);
    EXPECT_EQ(ibv_req_notify_cq(ibv_cq_ex_to_cq(ex), 0), 0) << "arming in the middle of a poll";
    ibv_end_poll(ex);
    EXPECT_EQ(ibv_destroy_qp(user), 0);
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);

    attr.wc_flags = uint64_t{1} << 40;
    EXPECT_EQ(ibv_create_cq_ex(context, &attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    attr.wc_flags = IBV_WC_EX_WITH_QP_NUM;
    ex = ibv_create_cq_ex(context, &attr);
    ASSERT_NE(ex, nullptr);
    EXPECT_NE(ex->read_qp_num, nullptr);
    EXPECT_EQ(ex->read_byte_len, nullptr) << "only what was asked for";
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);
}

TEST_F(Rings, TheExtendedQpPostsAllOrNothing) {
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {4, 4, 3, 2, 32};
    attr.qp_type = IBV_QPT_RC;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = pd;
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_WRITE;
    ibv_qp* base = ibv_create_qp_ex(context, &attr);
    ASSERT_NE(base, nullptr);
    set_state(base, IBV_QPS_RTS);
    ibv_qp_ex* ex = ibv_qp_to_qp_ex(base);
    ASSERT_NE(ex, nullptr);
    const FakeRocid::Qp& shared = rocid.qp(base->handle);

    ibv_wr_start(ex);
    ex->wr_id = 1;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(ex, 0x77, 0x8000);
    ibv_wr_set_sge(ex, 0x11, sge[0].addr, 10);
    ex->wr_id = 2;
    ex->wr_flags = 0;
    ibv_wr_send(ex);
    ibv_wr_set_inline_data(ex, data, 5);
    EXPECT_EQ(shared.posted_sends(), 0u) << "published only at the end";
    ASSERT_EQ(ibv_wr_complete(ex), 0);
    EXPECT_EQ(shared.posted_sends(), 2u);
    const abi::SendWqe& first = rocid.send_wqe(base->handle, 0);
    EXPECT_EQ(first.opcode, abi::WrOpcode::rdma_write);
    EXPECT_EQ(first.remote_addr, 0x8000u);
    EXPECT_EQ(first.rkey, 0x77u);
    EXPECT_EQ(first.num_sge, 1);
    EXPECT_EQ(first.send_flags, abi::kSendSignaled);
    const abi::SendWqe& second = rocid.send_wqe(base->handle, 1);
    EXPECT_EQ(second.wr_id, 2u);
    EXPECT_EQ(second.send_flags, abi::kSendInline);
    EXPECT_EQ(second.inline_length, 5u);

    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_abort(ex);
    EXPECT_EQ(shared.posted_sends(), 2u);
    ibv_wr_start(ex);
    for (int i = 0; i < 3; ++i) ibv_wr_send(ex);  // two are free
    EXPECT_EQ(ibv_wr_complete(ex), ENOMEM);
    EXPECT_EQ(shared.posted_sends(), 2u);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    char large[65] = {};
    ibv_wr_set_inline_data(ex, large, sizeof large);
    EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
    const uint64_t value = 42;
    ibv_wr_start(ex);
    ibv_wr_atomic_write(ex, 1, 0x9000, &value);
    ASSERT_EQ(ibv_wr_complete(ex), 0);
    EXPECT_EQ(rocid.send_wqe(base->handle, 2).compare_add, 42u);
    set_state(base, IBV_QPS_RESET);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
    EXPECT_EQ(ibv_destroy_qp(base), 0);

    attr.qp_type = IBV_QPT_UD;  // no RDMA on datagrams
    EXPECT_EQ(ibv_create_qp_ex(context, &attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
}

// Two posters and a poller against an engine that completes whatever it finds: every request completes exactly once.
TEST_F(Rings, ThreadsPostAndPollAtOnce) {
    constexpr uint64_t kEach = 20000;
    FakeRocid::Qp& queue = seen();
    std::atomic<bool> stop{false};
    std::thread engine([&] {
        uint32_t consumed = 0;
        while (!stop) {
            for (; queue.posted(consumed); ++consumed)
                rocid.complete(cq->handle, 1, entry(qp, abi::kCqeSend, wqe(consumed).wr_id, consumed));
            std::this_thread::yield();
        }
    });
    const auto poster = [&](uint64_t base) {
        for (uint64_t i = 0; i < kEach;) {
            ibv_send_wr wr = send_wr(base + i);
            ibv_send_wr* first_bad = nullptr;
            const int err = ibv_post_send(qp, &wr, &first_bad);
            if (err == 0)
                ++i;
            else if (err == ENOMEM)
                std::this_thread::yield();
            else
                FAIL() << err;
        }
    };
    std::thread a(poster, 0), b(poster, kEach);
    std::vector<int> completed(2 * kEach);
    uint64_t total = 0, last[2] = {0, 0};
    bool in_order = true;
    while (total < 2 * kEach) {
        ibv_wc wc[4];
        const int n = ibv_poll_cq(cq, 4, wc);
        for (int i = 0; i < n; ++i) {
            ++completed[wc[i].wr_id];
            uint64_t& previous = last[wc[i].wr_id / kEach];
            in_order = in_order && wc[i].wr_id >= previous;
            previous = wc[i].wr_id;
        }
        total += uint64_t(n);
        if (n == 0) std::this_thread::yield();
    }
    a.join();
    b.join();
    stop = true;
    engine.join();
    EXPECT_TRUE(in_order);
    EXPECT_EQ(std::set<int>(completed.begin(), completed.end()), std::set<int>{1});
}

}  // namespace
}  // namespace roci::test
