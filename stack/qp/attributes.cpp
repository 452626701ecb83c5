#include "qp/attributes.hpp"

#include <bit>

namespace roci::qp {
namespace {

/// The attributes of one transition for one QP type. IBV_QP_STATE is permitted in every transition and is not listed.
struct Transition {
    State current, next;
    uint32_t required, optional;
};

// Groups of attributes that occur in several rows of the table.
constexpr uint32_t kToInit = kAttrPkeyIndex | kAttrPort;
constexpr uint32_t kConnect = kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn;
constexpr uint32_t kResponder = kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
constexpr uint32_t kRequester = kAttrTimeout | kAttrRetryCount | kAttrRnrRetry | kAttrMaxRdAtomic;
constexpr uint32_t kRights = kAttrAltPath | kAttrAccessFlags;
constexpr uint32_t kLive = kAttrCurState | kRights | kAttrPathMigState;  // of a connected QP in a state that can send
constexpr uint32_t kDrained = kAttrAv | kRights | kAttrPkeyIndex | kAttrPathMigState;

using enum State;

constexpr Transition kRc[] = {
    {reset, init, kToInit | kAttrAccessFlags, 0},
    {init, init, 0, kToInit | kAttrAccessFlags},
    {init, rtr, kConnect | kResponder, kRights | kAttrPkeyIndex},
    {rtr, rts, kAttrSqPsn | kRequester, kLive | kAttrMinRnrTimer},
    {rts, rts, 0, kLive | kAttrMinRnrTimer},
    {rts, sqd, 0, kAttrEnSqdAsyncNotify},
    {sqd, rts, 0, kLive | kAttrMinRnrTimer},
    {sqd, sqd, 0, kDrained | kAttrPort | kRequester | kResponder},
};
constexpr Transition kUc[] = {
    {reset, init, kToInit | kAttrAccessFlags, 0},
    {init, init, 0, kToInit | kAttrAccessFlags},
    {init, rtr, kConnect, kRights | kAttrPkeyIndex},
    {rtr, rts, kAttrSqPsn, kLive},
    {rts, rts, 0, kLive},
    {rts, sqd, 0, kAttrEnSqdAsyncNotify},
    {sqd, rts, 0, kLive},
    {sqd, sqd, 0, kDrained},
    {sqe, rts, 0, kAttrCurState | kAttrAccessFlags},
};
constexpr Transition kUd[] = {
    {reset, init, kToInit | kAttrQkey, 0},      {init, init, 0, kToInit | kAttrQkey},
    {init, rtr, 0, kAttrPkeyIndex | kAttrQkey}, {rtr, rts, kAttrSqPsn, kAttrCurState | kAttrQkey},
    {rts, rts, 0, kAttrCurState | kAttrQkey},   {rts, sqd, 0, kAttrEnSqdAsyncNotify},
    {sqd, rts, 0, kAttrCurState | kAttrQkey},   {sqd, sqd, 0, kAttrPkeyIndex | kAttrQkey},
    {sqe, rts, 0, kAttrCurState | kAttrQkey},
};
// An XRC initiator has the attributes of an RC requester. An XRC target has the attributes of an RC responder and the timeout
// (annex A14).
constexpr Transition kXrcSend[] = {
    {reset, init, kToInit | kAttrAccessFlags, 0},
    {init, init, 0, kToInit | kAttrAccessFlags},
    {init, rtr, kConnect, kRights | kAttrPkeyIndex},
    {rtr, rts, kAttrSqPsn | kRequester, kLive},
    {rts, rts, 0, kLive},
    {rts, sqd, 0, kAttrEnSqdAsyncNotify},
    {sqd, rts, 0, kLive},
    {sqd, sqd, 0, kDrained | kAttrPort | kRequester},
};
constexpr Transition kXrcRecv[] = {
    {reset, init, kToInit | kAttrAccessFlags, 0},
    {init, init, 0, kToInit | kAttrAccessFlags},
    {init, rtr, kConnect | kResponder, kRights | kAttrPkeyIndex},
    {rtr, rts, kAttrSqPsn | kAttrTimeout, kLive | kAttrMinRnrTimer},
    {rts, rts, 0, kLive | kAttrMinRnrTimer},
    {rts, sqd, 0, kAttrEnSqdAsyncNotify},
    {sqd, rts, 0, kLive | kAttrMinRnrTimer},
    {sqd, sqd, 0, kDrained | kAttrPort | kAttrTimeout | kResponder},
};

struct Service {
    Type type;
    const char* name;
    const Transition* begin;
    const Transition* end;
};
constexpr Service kServices[] = {
    {Type::rc, "RC", std::begin(kRc), std::end(kRc)},
    {Type::uc, "UC", std::begin(kUc), std::end(kUc)},
    {Type::ud, "UD", std::begin(kUd), std::end(kUd)},
    {Type::xrc_send, "XRC_SEND", std::begin(kXrcSend), std::end(kXrcSend)},
    {Type::xrc_recv, "XRC_RECV", std::begin(kXrcRecv), std::end(kXrcRecv)},
};

const Service* service(Type type) {
    for (const Service& s : kServices) {
        if (s.type == type) return &s;
    }
    return nullptr;
}

const Transition* transition(const Service& s, State current, State next) {
    // Every state permits a transition to RESET or ERR without further attributes (IBA 10.3.1).
    static constexpr Transition kAlways{};
    if (next == reset || next == err) return &kAlways;
    for (const Transition* t = s.begin; t != s.end; ++t) {
        if (t->current == current && t->next == next) return t;
    }
    return nullptr;
}

std::string names(uint32_t mask) {
    std::string text;
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        if (!text.empty()) text += ", ";
        text += attribute_name(rest & -rest);
    }
    return text;
}

}  // namespace

const char* type_name(Type type) {
    if (type == Type::raw_packet) return "RAW_PACKET";
    const Service* s = service(type);
    return s != nullptr ? s->name : "?";
}

const char* state_name(State state) {
    static constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    return size_t(state) < std::size(kNames) ? kNames[size_t(state)] : "?";
}

const char* attribute_name(uint32_t bit) {
    static constexpr const char* kNames[] = {"IBV_QP_STATE",
                                             "IBV_QP_CUR_STATE",
                                             "IBV_QP_EN_SQD_ASYNC_NOTIFY",
                                             "IBV_QP_ACCESS_FLAGS",
                                             "IBV_QP_PKEY_INDEX",
                                             "IBV_QP_PORT",
                                             "IBV_QP_QKEY",
                                             "IBV_QP_AV",
                                             "IBV_QP_PATH_MTU",
                                             "IBV_QP_TIMEOUT",
                                             "IBV_QP_RETRY_CNT",
                                             "IBV_QP_RNR_RETRY",
                                             "IBV_QP_RQ_PSN",
                                             "IBV_QP_MAX_QP_RD_ATOMIC",
                                             "IBV_QP_ALT_PATH",
                                             "IBV_QP_MIN_RNR_TIMER",
                                             "IBV_QP_SQ_PSN",
                                             "IBV_QP_MAX_DEST_RD_ATOMIC",
                                             "IBV_QP_PATH_MIG_STATE",
                                             "IBV_QP_CAP",
                                             "IBV_QP_DEST_QPN"};
    if (bit == kAttrRateLimit) return "IBV_QP_RATE_LIMIT";
    const auto index = size_t(std::countr_zero(bit));
    return std::has_single_bit(bit) && index < std::size(kNames) ? kNames[index] : "an unknown attribute bit";
}

uint32_t ignored_attributes(Type type) {
    if (type == Type::xrc_send) return kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
    return type == Type::xrc_recv ? kAttrMaxRdAtomic | kAttrRetryCount | kAttrRnrRetry : 0;
}

Decision check_step(Type type, State current, const Change& change) {
    Decision step{.from = current, .to = current};
    const auto refuse = [&step](Refusal refusal, uint32_t named = 0) {
        step.refusal = refusal;
        step.named = named;
        return step;
    };
    if ((change.mask & kAttrState) != 0) {
        if (change.attr.qp_state > uint32_t(err)) return refuse(Refusal::no_such_state, change.attr.qp_state);
        step.to = State(change.attr.qp_state);
    }
    const Service* s = service(type);
    if (s == nullptr) return refuse(Refusal::no_table);
    const Transition* t = transition(*s, current, step.to);
    if (t == nullptr) return refuse(Refusal::no_transition);
    if (const uint32_t missing = t->required & ~change.mask; missing != 0) return refuse(Refusal::missing, missing);
    if (const uint32_t forbidden = change.mask & ~(t->required | t->optional | kAttrState); forbidden != 0)
        return refuse(Refusal::forbidden, forbidden);
    if ((change.mask & kAttrCurState) != 0 && change.attr.cur_qp_state != uint32_t(current))
        return refuse(Refusal::another_state, change.attr.cur_qp_state);
    return step;
}

std::string explain(Type type, const Decision& step) {
    const std::string way = std::string(type_name(type)) + " QP, " + state_name(step.from) + " to " + state_name(step.to);
    switch (step.refusal) {
        case Refusal::none:
            return way;
        case Refusal::no_table:
            return std::string("QP type ") + type_name(type) + " has no state table";
        case Refusal::no_such_state:
            return "qp_state " + std::to_string(step.named) + " is not a valid state";
        case Refusal::no_transition:
            return way + ": not a legal transition; QPs go RESET, INIT, RTR, RTS, and from anywhere to RESET or ERR";
        case Refusal::missing:
            return way + ": missing " + names(step.named);
        case Refusal::forbidden:
            return way + ": must not carry " + names(step.named);
        case Refusal::another_state:
            return "cur_qp_state is " + std::to_string(step.named) + ", but the QP is in " + state_name(step.from);
    }
    return way;
}

}  // namespace roci::qp
