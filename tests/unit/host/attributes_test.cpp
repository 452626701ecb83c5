// Tests of the rules for attributes in ibv_modify_qp(3).
#include "qp/attributes.hpp"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <bit>
#include <cerrno>

namespace roci::qp {
namespace {

constexpr bool same(uint32_t ours, uint32_t theirs) { return ours == theirs; }
static_assert(same(kAttrState, IBV_QP_STATE) && same(kAttrCurState, IBV_QP_CUR_STATE) &&
              same(kAttrAccessFlags, IBV_QP_ACCESS_FLAGS));
static_assert(same(kAttrPkeyIndex, IBV_QP_PKEY_INDEX) && same(kAttrPort, IBV_QP_PORT) && same(kAttrQkey, IBV_QP_QKEY) &&
              same(kAttrAv, IBV_QP_AV));
static_assert(same(kAttrPathMtu, IBV_QP_PATH_MTU) && same(kAttrTimeout, IBV_QP_TIMEOUT) &&
              same(kAttrRetryCount, IBV_QP_RETRY_CNT));
static_assert(same(kAttrRnrRetry, IBV_QP_RNR_RETRY) && same(kAttrRqPsn, IBV_QP_RQ_PSN) &&
              same(kAttrMaxRdAtomic, IBV_QP_MAX_QP_RD_ATOMIC));
static_assert(same(kAttrAltPath, IBV_QP_ALT_PATH) && same(kAttrMinRnrTimer, IBV_QP_MIN_RNR_TIMER) &&
              same(kAttrSqPsn, IBV_QP_SQ_PSN));
static_assert(same(kAttrMaxDestRdAtomic, IBV_QP_MAX_DEST_RD_ATOMIC) && same(kAttrPathMigState, IBV_QP_PATH_MIG_STATE) &&
              same(kAttrCap, IBV_QP_CAP));
static_assert(same(kAttrDestQpn, IBV_QP_DEST_QPN) && same(kAttrRateLimit, IBV_QP_RATE_LIMIT) &&
              same(kAttrEnSqdAsyncNotify, IBV_QP_EN_SQD_ASYNC_NOTIFY));

constexpr Type kTypes[] = {Type::rc, Type::uc, Type::ud, Type::xrc_send, Type::xrc_recv};
constexpr State kStates[] = {State::reset, State::init, State::rtr, State::rts, State::sqd, State::sqe, State::err};

struct Required {
    Type type;
    State from, to;
    uint32_t mask;  // without IBV_QP_STATE
};
// The required attributes. They come from the tables of ibv_modify_qp(3), and for XRC from the tables of the kernel.
constexpr uint32_t kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr uint32_t kConnect = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
/// Checks a transition. Returns 0 or EINVAL. Sets `why` to the text of the refusal.
int check_modify(Type type, State from, State to, uint32_t mask, std::string& why) {
    Change change;
    change.mask = mask;
    change.attr.qp_state = uint32_t(to);
    change.attr.cur_qp_state = uint32_t(from);
    const Decision step = check_step(type, from, change);
    why = explain(type, step);
    return step.refusal == Refusal::none ? 0 : EINVAL;
}

constexpr uint32_t kRcRts = IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT;
constexpr Required kManual[] = {
    {Type::ud, State::reset, State::init, kInit | IBV_QP_QKEY},
    {Type::ud, State::init, State::rtr, 0},
    {Type::ud, State::rtr, State::rts, IBV_QP_SQ_PSN},
    {Type::uc, State::reset, State::init, kInit | IBV_QP_ACCESS_FLAGS},
    {Type::uc, State::init, State::rtr, kConnect},
    {Type::uc, State::rtr, State::rts, IBV_QP_SQ_PSN},
    {Type::rc, State::reset, State::init, kInit | IBV_QP_ACCESS_FLAGS},
    {Type::rc, State::init, State::rtr, kConnect | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER},
    {Type::rc, State::rtr, State::rts, kRcRts},
    {Type::xrc_send, State::init, State::rtr, kConnect},
    {Type::xrc_send, State::rtr, State::rts, kRcRts},
    {Type::xrc_recv, State::init, State::rtr, kConnect | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER},
    {Type::xrc_recv, State::rtr, State::rts, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT},
};

TEST(Attributes, WhatTheManualAsksForIsEnoughAndEachBitOfItIsNeeded) {
    for (const Required& r : kManual) {
        std::string why;
        EXPECT_EQ(check_modify(r.type, r.from, r.to, r.mask | IBV_QP_STATE, why), 0) << why;
        for (uint32_t rest = r.mask; rest != 0; rest &= rest - 1) {
            const uint32_t bit = rest & -rest;
            EXPECT_EQ(check_modify(r.type, r.from, r.to, (r.mask & ~bit) | IBV_QP_STATE, why), EINVAL);
            EXPECT_NE(why.find(std::string("missing ") + attribute_name(bit)), std::string::npos) << why;
        }
    }
}

TEST(Attributes, AForbiddenOneIsNamed) {
    std::string why;
    EXPECT_EQ(check_modify(Type::ud, State::reset, State::init, kInit | IBV_QP_QKEY | IBV_QP_ACCESS_FLAGS | IBV_QP_STATE, why),
              EINVAL);
    EXPECT_NE(why.find("must not carry IBV_QP_ACCESS_FLAGS"), std::string::npos) << why;
    EXPECT_EQ(check_modify(Type::rc, State::rts, State::rts, IBV_QP_CAP, why), EINVAL);
    EXPECT_NE(why.find("IBV_QP_CAP"), std::string::npos) << why;
    EXPECT_EQ(check_modify(Type::rc, State::rts, State::rts, 1u << 31, why), EINVAL);
    EXPECT_NE(why.find("unknown attribute"), std::string::npos) << why;
    EXPECT_EQ(check_modify(Type::rc, State::rts, State::rts, IBV_QP_RATE_LIMIT, why), EINVAL);
    EXPECT_NE(why.find("IBV_QP_RATE_LIMIT"), std::string::npos) << why;
}

TEST(Attributes, ResetAndErrAreReachedFromAnywhereWithTheStateAlone) {
    for (const Type type : kTypes) {
        for (const State from : kStates) {
            for (const State to : {State::reset, State::err}) {
                std::string why;
                EXPECT_EQ(check_modify(type, from, to, IBV_QP_STATE, why), 0) << why;
                EXPECT_EQ(check_modify(type, from, to, IBV_QP_STATE | IBV_QP_QKEY, why), EINVAL);
            }
        }
    }
}

TEST(Attributes, OnlyTheStateDiagramsArrowsAreLegal) {
    const auto legal = [](Type t, State a, State b) {
        if (b == State::reset || b == State::err) return true;
        if (a == State::sqe && b == State::rts) return t == Type::uc || t == Type::ud;  // an RC QP has no SQE state
        static constexpr std::pair<State, State> arrows[] = {
            {State::reset, State::init}, {State::init, State::init}, {State::init, State::rtr}, {State::rtr, State::rts},
            {State::rts, State::rts},    {State::rts, State::sqd},   {State::sqd, State::rts},  {State::sqd, State::sqd}};
        for (const auto& arrow : arrows)
            if (arrow.first == a && arrow.second == b) return true;
        return false;
    };
    constexpr uint32_t everything = (1u << 26) - 1;
    for (const Type type : kTypes) {
        for (const State a : kStates) {
            for (const State b : kStates) {
                std::string why;
                check_modify(type, a, b, everything, why);
                const bool refused = why.find("not a legal transition") != std::string::npos;
                EXPECT_EQ(refused, !legal(type, a, b))
                    << type_name(type) << " " << state_name(a) << " " << state_name(b) << ": " << why;
            }
        }
    }
}

TEST(Attributes, CurrentStateMayBeNamedOnlyWhereItCanHaveChanged) {
    for (const Type type : kTypes) {
        std::string why;
        EXPECT_EQ(check_modify(type, State::rts, State::rts, IBV_QP_CUR_STATE | IBV_QP_STATE, why), 0) << why;
        EXPECT_EQ(check_modify(type, State::sqd, State::rts, IBV_QP_CUR_STATE | IBV_QP_STATE, why), 0) << why;
        EXPECT_EQ(check_modify(type, State::init, State::init, IBV_QP_CUR_STATE, why), EINVAL);
        EXPECT_EQ(check_modify(type, State::rts, State::sqd, IBV_QP_CUR_STATE | IBV_QP_STATE, why), EINVAL);
    }
}

TEST(Attributes, SqdLetsTheRequestersSettingsChange) {
    std::string why;
    constexpr uint32_t requester = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    EXPECT_EQ(check_modify(Type::rc, State::sqd, State::sqd, requester | IBV_QP_AV, why), 0) << why;
    EXPECT_EQ(check_modify(Type::xrc_send, State::sqd, State::sqd, requester, why), 0) << why;
    EXPECT_EQ(check_modify(Type::xrc_recv, State::sqd, State::sqd, requester, why), EINVAL);
    EXPECT_EQ(check_modify(Type::uc, State::sqd, State::sqd, requester, why), EINVAL);
    EXPECT_EQ(check_modify(Type::rc, State::rts, State::rts, requester, why), EINVAL);
    EXPECT_EQ(check_modify(Type::rc, State::rts, State::sqd, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY, why), 0) << why;
}

TEST(Attributes, ATypeWithoutATableIsRefused) {
    std::string why;
    EXPECT_EQ(check_modify(Type::raw_packet, State::reset, State::init, IBV_QP_STATE, why), EINVAL);
    EXPECT_NE(why.find("RAW_PACKET"), std::string::npos);
}

}  // namespace
}  // namespace roci::qp
