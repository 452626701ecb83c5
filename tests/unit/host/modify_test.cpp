// Tests of modify_qp and query_qp: the rules, the values, the paths, and the stored attributes.
#include <array>

#include "fixture.hpp"

namespace roci::host::test {
namespace {

using abi::Op;

class ModifyTest : public ConductorTest {};

TEST_F(ModifyTest, ResetToRtsAndWhatQueryShows) {
    const auto q = qp();
    for (const Step& s : {to_init(), to_rtr(), to_rts()}) {
        const Result r = modify(q.handle, s.mask, s.attr);
        ASSERT_EQ(r.error, 0) << r.reason;
        EXPECT_EQ(r.as<abi::ModifyQpReply>().qp_state, s.attr.qp_state);
    }
    const auto shown = on(Op::query_qp, q.handle).as<abi::QueryQpReply>();
    EXPECT_EQ(shown.attr.qp_state, uint32_t(IBV_QPS_RTS));
    EXPECT_EQ(shown.attr.cur_qp_state, uint32_t(IBV_QPS_RTS));
    EXPECT_EQ(shown.attr.path_mtu, uint32_t(IBV_MTU_1024));
    EXPECT_EQ(shown.attr.dest_qp_num, 0x55u);
    EXPECT_EQ(shown.attr.qp_access_flags, uint32_t(IBV_ACCESS_REMOTE_WRITE));
    EXPECT_EQ(shown.attr.timeout, 14);
    EXPECT_EQ(shown.attr.retry_cnt, 7);
    EXPECT_EQ(shown.attr.min_rnr_timer, 12);
    EXPECT_EQ(shown.attr.max_rd_atomic, 4);
    EXPECT_EQ(shown.attr.ah.is_global, 1);
    EXPECT_EQ(shown.attr.cap.max_send_wr, 16u);
    EXPECT_EQ(shown.attr.sq_psn, 11u) << "the engine's";
    EXPECT_EQ(shown.attr.rq_psn, 22u);

    ASSERT_EQ(modify(q.handle, IBV_QP_STATE, {.qp_state = IBV_QPS_RESET}).error, 0);
    const auto reset = on(Op::query_qp, q.handle).as<abi::QueryQpReply>();
    EXPECT_EQ(reset.attr.qp_state, uint32_t(IBV_QPS_RESET));
    EXPECT_EQ(reset.attr.dest_qp_num, 0u);
    EXPECT_EQ(reset.attr.cap.max_send_wr, 16u);
}

TEST_F(ModifyTest, TheEngineGetsThePath) {
    const auto q = qp();
    ASSERT_EQ(modify(q.handle, to_init().mask, to_init().attr).error, 0);
    ASSERT_EQ(modify(q.handle, to_rtr().mask, to_rtr().attr).error, 0);
    const qp::Change& c = port.last_change;
    EXPECT_EQ(c.attr.qp_state, uint32_t(IBV_QPS_RTR));
    EXPECT_EQ(c.attr.rq_psn, 7u) << "24 bits";
    const uint64_t product = uint64_t{q.qpn} * 0x55;  // the product must be below 2^14, so that it is not folded
    ASSERT_LT(product, 1u << 14);
    const wire::PathTemplate expected = wire::make_path({.source_mac = {{2, 0, 0, 0, 0, 1}},
                                                         .dest_mac = {{2, 0, 0, 0, 0, 2}},
                                                         .source_gid = kGid4,
                                                         .dest_gid = kOtherGid4,
                                                         .hop_limit = 64,
                                                         .udp_source = uint16_t(0xc000 | product)});
    ASSERT_EQ(c.path.length, expected.length);
    EXPECT_EQ(std::memcmp(c.path.bytes, expected.bytes, expected.length), 0);
}

TEST_F(ModifyTest, ToOneself) {
    const auto q = qp();
    ASSERT_EQ(modify(q.handle, to_init().mask, to_init().attr).error, 0);
    Step rtr = to_rtr();
    rtr.attr.ah = good_av(kGid6);
    ASSERT_EQ(modify(q.handle, rtr.mask, rtr.attr).error, 0);
    const uint8_t own_mac[6] = {2, 0, 0, 0, 0, 1};
    EXPECT_EQ(std::memcmp(port.last_change.path.bytes, own_mac, 6), 0);
}

TEST_F(ModifyTest, AttributeRulesAndValuesAreChecked) {
    const auto q = qp();
    const auto fails = [&](const Step& good, auto&& change, int error, const char* word) {
        Step s = good;
        change(s);
        const size_t before = port.changes;
        const Result r = modify(q.handle, s.mask, s.attr);
        EXPECT_EQ(r.error, error) << word << ": " << r.reason;
        EXPECT_TRUE(r.says(word)) << r.reason;
        EXPECT_EQ(port.changes, before) << "the engine changed nothing";
    };
    fails(
        to_rts(), [](Step&) {}, EINVAL, "not a legal transition");
    fails(
        to_init(), [](Step& s) { s.mask &= ~uint32_t(IBV_QP_PORT); }, EINVAL, "missing IBV_QP_PORT");
    fails(
        to_init(), [](Step& s) { s.attr.port_num = 2; }, EINVAL, "port_num");
    fails(
        to_init(), [](Step& s) { s.attr.port_num = 0; }, EINVAL, "port_num");
    fails(
        to_init(), [](Step& s) { s.attr.pkey_index = 1; }, EINVAL, "pkey_index");
    fails(
        to_init(), [](Step& s) { s.attr.qp_state = 7; }, EINVAL, "not a valid state");
    ASSERT_EQ(modify(q.handle, to_init().mask, to_init().attr).error, 0);
    fails(
        to_rtr(), [](Step& s) { s.attr.path_mtu = 0; }, EINVAL, "path_mtu");
    fails(
        to_rtr(), [](Step& s) { s.attr.path_mtu = 6; }, EINVAL, "path_mtu");
    fails(
        to_rtr(), [](Step& s) { s.attr.dest_qp_num = 0x1000000; }, EINVAL, "dest_qp_num");
    fails(
        to_rtr(), [](Step& s) { s.attr.min_rnr_timer = 32; }, EINVAL, "min_rnr_timer");
    fails(
        to_rtr(), [](Step& s) { s.attr.max_dest_rd_atomic = 17; }, EINVAL, "max_dest_rd_atomic");
    fails(
        to_rtr(), [](Step& s) { s.attr.ah.is_global = 0; }, EINVAL, "GRH");
    fails(
        to_rtr(), [](Step& s) { s.attr.ah.sgid_index = 9; }, ENODATA, "sgid_index");
    fails(
        to_rtr(), [](Step& s) { s.attr.ah.dgid.raw[12] = 224; }, EINVAL, "multicast");
    fails(
        to_rtr(), [](Step& s) { s.attr.ah.dgid.raw[12] = 11; }, EHOSTUNREACH, "11.0.0.2");
    fails(
        to_rtr(), [](Step& s) { s.mask |= IBV_QP_ALT_PATH; }, EINVAL, "alternate");
    ASSERT_EQ(modify(q.handle, to_rtr().mask, to_rtr().attr).error, 0);
    fails(
        to_rts(), [](Step& s) { s.attr.timeout = 32; }, EINVAL, "timeout");
    fails(
        to_rts(), [](Step& s) { s.attr.retry_cnt = 8; }, EINVAL, "retry_cnt");
    fails(
        to_rts(), [](Step& s) { s.attr.rnr_retry = 8; }, EINVAL, "rnr_retry");
    fails(
        to_rts(), [](Step& s) { s.attr.max_rd_atomic = 200; }, EINVAL, "max_rd_atomic");
    fails(
        to_rts(), [](Step& s) { s.mask |= IBV_QP_CUR_STATE, s.attr.cur_qp_state = IBV_QPS_SQD; }, EINVAL, "RTR");
    fails(
        to_rts(), [](Step& s) { s.mask |= IBV_QP_PATH_MIG_STATE, s.attr.path_mig_state = IBV_MIG_ARMED; }, EINVAL,
        "path_mig_state");
    Step rts = to_rts();
    rts.mask |= IBV_QP_CUR_STATE;
    rts.attr.cur_qp_state = IBV_QPS_RTR;
    EXPECT_EQ(modify(q.handle, rts.mask, rts.attr).error, 0);
    EXPECT_EQ(modify(99, rts.mask, rts.attr).error, ENOENT);
}

TEST_F(ModifyTest, TheEnginesOwnChangesOfStateCount) {
    const auto q = qp();
    ASSERT_EQ(modify(q.handle, to_init().mask, to_init().attr).error, 0);
    for (auto& [which, state] : port.state) state = qp::State::err;  // as after a fatal error of a packet
    EXPECT_EQ(modify(q.handle, to_rtr().mask, to_rtr().attr).error, EINVAL);
    EXPECT_EQ(on(Op::query_qp, q.handle).as<abi::QueryQpReply>().attr.qp_state, uint32_t(IBV_QPS_ERR));
    EXPECT_EQ(modify(q.handle, IBV_QP_STATE, {.qp_state = IBV_QPS_RESET}).error, 0);
}

TEST_F(ModifyTest, AnOrdinaryStepIsOneCommand) {
    const auto q = qp();
    for (const Step& s : {to_init(), to_rtr(), to_rts()}) {
        const size_t before = port.log.size();
        ASSERT_EQ(modify(q.handle, s.mask, s.attr).error, 0);
        EXPECT_EQ(port.log.size(), before + 1);
    }
}

TEST_F(ModifyTest, AnIllegalStepIsRefusedAsSuchWhateverItsValues) {
    const auto q = qp();
    Step rtr = to_rtr();
    rtr.attr.ah.dgid.raw[12] = 11;  // no route to this address
    EXPECT_TRUE(modify(q.handle, rtr.mask, rtr.attr).says("not a legal transition"));
    rtr.attr.path_mtu = 9;
    EXPECT_TRUE(modify(q.handle, rtr.mask, rtr.attr).says("not a legal transition"));
    ASSERT_EQ(modify(q.handle, to_init().mask, to_init().attr).error, 0);
    EXPECT_TRUE(modify(q.handle, rtr.mask, rtr.attr).says("path_mtu"));
}

TEST_F(ModifyTest, SeveralStepsInOneRequestEndAtTheFirstThatFails) {
    const auto q = qp();
    const auto step = [&](const Step& s) { return abi::ModifyQpRequest{q.handle, uint32_t(s.mask), s.attr}; };
    Step wrong = to_rts();
    wrong.attr.retry_cnt = 8;
    const std::array broken{step(to_init()), step(to_rtr()), step(wrong)};
    EXPECT_EQ(call(Op::modify_qp, broken).error, EINVAL);
    EXPECT_EQ(on(Op::query_qp, q.handle).as<abi::QueryQpReply>().attr.qp_state, uint32_t(IBV_QPS_RTR));
    const auto other = qp();
    const auto again = [&](const Step& s) { return abi::ModifyQpRequest{other.handle, uint32_t(s.mask), s.attr}; };
    const std::array whole{again(to_init()), again(to_rtr()), again(to_rts())};
    EXPECT_EQ(call(Op::modify_qp, whole).error, 0);
    EXPECT_EQ(on(Op::query_qp, other.handle).as<abi::QueryQpReply>().attr.qp_state, uint32_t(IBV_QPS_RTS));
    EXPECT_EQ(call(Op::modify_qp, std::array{whole[0], whole[0], whole[0], whole[0], whole[0]}).error, EINVAL);
}

TEST_F(ModifyTest, WhatTheEngineRefusesIsNotRemembered) {
    const auto q = qp();
    port.refuse = kind_of<engine::ModifyQp>;
    port.refuse_engine = q.engine;
    port.refuse_error = ENOMEM;
    EXPECT_EQ(modify(q.handle, to_init().mask, to_init().attr).error, ENOMEM);
    EXPECT_EQ(on(Op::query_qp, q.handle).as<abi::QueryQpReply>().attr.port_num, 0);
}

TEST_F(ModifyTest, UdNeedsNoAddress) {
    const auto q = qp(IBV_QPT_UD);
    constexpr uint32_t init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    ASSERT_EQ(modify(q.handle, init, {.qp_state = IBV_QPS_INIT, .qkey = 0x1234, .port_num = 1}).error, 0);
    ASSERT_EQ(modify(q.handle, IBV_QP_STATE, {.qp_state = IBV_QPS_RTR}).error, 0);
    ASSERT_EQ(modify(q.handle, IBV_QP_STATE | IBV_QP_SQ_PSN, {.qp_state = IBV_QPS_RTS}).error, 0);
    EXPECT_EQ(on(Op::query_qp, q.handle).as<abi::QueryQpReply>().attr.qkey, 0x1234u);
}

}  // namespace
}  // namespace roci::host::test
