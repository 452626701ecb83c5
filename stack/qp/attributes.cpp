#include "qp/attributes.hpp"

#include <bit>
#include <cerrno>

namespace roci::qp {
namespace {

/// Attributes of one transition for one service. The state itself is always allowed.
struct Rule {
    State current, next;
    uint32_t required, optional;
};

// Groups that recur in the columns of the table.
constexpr uint32_t kToInit = kAttrPkeyIndex | kAttrPort;
constexpr uint32_t kConnect = kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn;
constexpr uint32_t kResponder = kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
constexpr uint32_t kRequester = kAttrTimeout | kAttrRetryCount | kAttrRnrRetry | kAttrMaxRdAtomic;
constexpr uint32_t kRights = kAttrAltPath | kAttrAccessFlags;
constexpr uint32_t kLive = kAttrCurState | kRights | kAttrPathMigState;  // while it can send: connected services
constexpr uint32_t kDrained = kAttrAv | kRights | kAttrPkeyIndex | kAttrPathMigState;

using enum State;

constexpr Rule kRc[] = {
    {reset, init, kToInit | kAttrAccessFlags, 0},
    {init, init, 0, kToInit | kAttrAccessFlags},
    {init, rtr, kConnect | kResponder, kRights | kAttrPkeyIndex},
    {rtr, rts, kAttrSqPsn | kRequester, kLive | kAttrMinRnrTimer},
    {rts, rts, 0, kLive | kAttrMinRnrTimer},
    {rts, sqd, 0, kAttrEnSqdAsyncNotify},
    {sqd, rts, 0, kLive | kAttrMinRnrTimer},
    {sqd, sqd, 0, kDrained | kAttrPort | kRequester | kResponder},
};
constexpr Rule kUc[] = {
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
constexpr Rule kUd[] = {
    {reset, init, kToInit | kAttrQkey, 0},      {init, init, 0, kToInit | kAttrQkey},
    {init, rtr, 0, kAttrPkeyIndex | kAttrQkey}, {rtr, rts, kAttrSqPsn, kAttrCurState | kAttrQkey},
    {rts, rts, 0, kAttrCurState | kAttrQkey},   {rts, sqd, 0, kAttrEnSqdAsyncNotify},
    {sqd, rts, 0, kAttrCurState | kAttrQkey},   {sqd, sqd, 0, kAttrPkeyIndex | kAttrQkey},
    {sqe, rts, 0, kAttrCurState | kAttrQkey},
};
// XRC splits RC: the initiator has no responder attributes, the target no retry counters (annex A14).
constexpr Rule kXrcSend[] = {
    {reset, init, kToInit | kAttrAccessFlags, 0},
    {init, init, 0, kToInit | kAttrAccessFlags},
    {init, rtr, kConnect, kRights | kAttrPkeyIndex},
    {rtr, rts, kAttrSqPsn | kRequester, kLive},
    {rts, rts, 0, kLive},
    {rts, sqd, 0, kAttrEnSqdAsyncNotify},
    {sqd, rts, 0, kLive},
    {sqd, sqd, 0, kDrained | kAttrPort | kRequester},
};
constexpr Rule kXrcRecv[] = {
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
    const Rule* begin;
    const Rule* end;
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

const Rule* rule(const Service& s, State current, State next) {
    // Any state may go to RESET or ERR, carrying nothing else (IBA 10.3.1).
    static constexpr Rule kAlways{};
    if (next == reset || next == err) return &kAlways;
    for (const Rule* r = s.begin; r != s.end; ++r) {
        if (r->current == current && r->next == next) return r;
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

int check_modify(Type type, State current, State next, uint32_t mask, std::string& why) {
    const Service* s = service(type);
    if (s == nullptr) {
        why = std::string("QP type ") + type_name(type) + " has no state table";
        return EINVAL;
    }
    const std::string step = std::string(s->name) + " QP, " + state_name(current) + " to " + state_name(next);
    const Rule* r = rule(*s, current, next);
    if (r == nullptr) {
        why = step + ": not a legal transition; QPs go RESET, INIT, RTR, RTS, and from anywhere to RESET or ERR";
        return EINVAL;
    }
    if (const uint32_t missing = r->required & ~mask; missing != 0) {
        why = step + ": missing " + names(missing);
        return EINVAL;
    }
    if (const uint32_t forbidden = mask & ~(r->required | r->optional | kAttrState); forbidden != 0) {
        why = step + ": must not carry " + names(forbidden);
        return EINVAL;
    }
    return 0;
}

}  // namespace roci::qp
