// modify_qp checks the values of the attributes, resolves the path and sends a command to the engine. The engine holds the QP's
// state, so the engine checks whether the transition is legal (qp/attributes.hpp).
#include "host/objects/handlers.hpp"
#include "host/paths/resolve.hpp"
#include "qp/attributes.hpp"
#include "wire/describe.hpp"

namespace roci::host::objects {
namespace {

constexpr uint32_t kMigrated = 0;  // value of enum ibv_mig_state

/// The permitted range of one attribute. `value` returns the attribute's value as a number.
struct ValueRule {
    uint32_t bit;
    const char* name;
    uint32_t (*value)(const abi::QpAttr&);
    uint32_t least;
    uint32_t most;
};

Outcome check_values(const Call& c, const abi::QpAttr& a, uint32_t mask) {
    const uint32_t atomic_limit = c.state.caps.max_rd_atomic;
    const ValueRule rules[] = {
        {qp::kAttrPathMtu, "path_mtu (enum ibv_mtu)", [](const abi::QpAttr& x) { return x.path_mtu; }, 1, active_mtu(c.device())},
        {qp::kAttrPort, "port_num", [](const abi::QpAttr& x) { return uint32_t(x.port_num); }, 1, 1},
        {qp::kAttrPkeyIndex, "pkey_index", [](const abi::QpAttr& x) { return uint32_t(x.pkey_index); }, 0,
         c.state.caps.pkeys - 1},
        {qp::kAttrTimeout, "timeout", [](const abi::QpAttr& x) { return uint32_t(x.timeout); }, 0, 31},
        {qp::kAttrRetryCount, "retry_cnt", [](const abi::QpAttr& x) { return uint32_t(x.retry_cnt); }, 0, 7},
        {qp::kAttrRnrRetry, "rnr_retry", [](const abi::QpAttr& x) { return uint32_t(x.rnr_retry); }, 0, 7},
        {qp::kAttrMinRnrTimer, "min_rnr_timer", [](const abi::QpAttr& x) { return uint32_t(x.min_rnr_timer); }, 0, 31},
        {qp::kAttrMaxRdAtomic, "max_rd_atomic", [](const abi::QpAttr& x) { return uint32_t(x.max_rd_atomic); }, 0, atomic_limit},
        {qp::kAttrMaxDestRdAtomic, "max_dest_rd_atomic", [](const abi::QpAttr& x) { return uint32_t(x.max_dest_rd_atomic); }, 0,
         atomic_limit},
        {qp::kAttrDestQpn, "dest_qp_num", [](const abi::QpAttr& x) { return x.dest_qp_num; }, 0, kMask24},
        {qp::kAttrPathMigState, "path_mig_state", [](const abi::QpAttr& x) { return x.path_mig_state; }, kMigrated, kMigrated},
    };
    for (const ValueRule& r : rules) {
        if ((mask & r.bit) == 0) continue;
        const uint32_t v = r.value(a);
        if (v < r.least || v > r.most) return fail(EINVAL, "{} is {}, must be {} to {} here", r.name, v, r.least, r.most);
    }
    // Only privileged programs may set controlled Q_Keys (IBA 10.2.5). Linux requires CAP_NET_RAW for controlled Q_Keys.
    constexpr uint32_t kControlled = 0x80000000;
    if ((mask & qp::kAttrQkey) != 0 && (a.qkey & kControlled) != 0 && !c.state.privileged(c.session.who))
        return fail(EPERM, "Q_Key {:#x} is a controlled one; user {} may set those below {:#x}", a.qkey, c.session.who.uid,
                    kControlled);
    if ((mask & qp::kAttrAltPath) != 0) return fail(EINVAL, "alternate paths do not exist on RoCE; leave IBV_QP_ALT_PATH out");
    return done();
}

/// Resolves the path, and claims the peer QP for this user. If QPs of two users had the same peer QP, each user could send
/// packets into the connection of the other user.
Outcome set_path(Call& c, const Qp& qp, qp::Change& change, PeerClaim& claim) {
    const uint32_t remote = (change.mask & qp::kAttrDestQpn) != 0 ? change.attr.dest_qp_num : qp.attr.dest_qp_num;
    paths::ResolvedPath path;
    if (Outcome o = paths::resolve_path(c.state, qp.spec().port, change.attr.ah, {qp.spec().qpn.value, remote}, path); o.failed())
        return o;
    if (path.multicast)
        return fail(EINVAL, "a connected QP cannot go to multicast address {}", wire::to_text(path.spec.dest_gid));
    change.path = wire::make_path(path.spec);
    const PeerKey key{qp.spec().port, path.spec.dest_gid, remote};
    claim = PeerClaim(c.state.peers, key, c.session.who.uid);
    if (!claim.holds()) return fail(EADDRINUSE, "another user's QP is connected to QP {} at {}", key.qpn, wire::to_text(key.gid));
    return done();
}

/// Stores the attributes that `mask` selects, for query_qp.
void remember(abi::QpAttr& to, const abi::QpAttr& from, uint32_t mask) {
    const auto set = [mask](uint32_t bit, auto& target, const auto& value) {
        if ((mask & bit) != 0) target = value;
    };
    set(qp::kAttrEnSqdAsyncNotify, to.en_sqd_async_notify, from.en_sqd_async_notify);
    set(qp::kAttrAccessFlags, to.qp_access_flags, from.qp_access_flags);
    set(qp::kAttrPkeyIndex, to.pkey_index, from.pkey_index);
    set(qp::kAttrPort, to.port_num, from.port_num);
    set(qp::kAttrQkey, to.qkey, from.qkey);
    set(qp::kAttrAv, to.ah, from.ah);
    set(qp::kAttrPathMtu, to.path_mtu, from.path_mtu);
    set(qp::kAttrTimeout, to.timeout, from.timeout);
    set(qp::kAttrRetryCount, to.retry_cnt, from.retry_cnt);
    set(qp::kAttrRnrRetry, to.rnr_retry, from.rnr_retry);
    set(qp::kAttrMaxRdAtomic, to.max_rd_atomic, from.max_rd_atomic);
    set(qp::kAttrMinRnrTimer, to.min_rnr_timer, from.min_rnr_timer);
    set(qp::kAttrMaxDestRdAtomic, to.max_dest_rd_atomic, from.max_dest_rd_atomic);
    set(qp::kAttrPathMigState, to.path_mig_state, from.path_mig_state);
    set(qp::kAttrDestQpn, to.dest_qp_num, from.dest_qp_num);
    set(qp::kAttrRqPsn, to.rq_psn, from.rq_psn);  // the initial PSNs, for `roci why`; query_qp returns the current PSNs
    set(qp::kAttrSqPsn, to.sq_psn, from.sq_psn);
}

/// Sends the change to the engine. The engine checks whether the transition is legal. It executes a legal transition unless
/// `change.trial` is set.
Outcome command(State& state, const Qp& qp, const qp::Change& change, qp::Decision& step) {
    engine::ModifyQp command{.qp = qp.engine_side.get(), .change = &change, .step = &step};
    const int error = state.execute(qp.spec().engine, command);
    if (error == 0) return done();
    if (error == EAGAIN) return wait_for_memory();
    if (step.refusal != qp::Refusal::none) return {error, qp::explain(qp.spec().type, step)};
    return fail(error, "the engine refused to take the QP to {}", qp::state_name(step.to));
}

/// Translates the request to a change. Checks the attributes' values and resolves the path, because the engine does neither.
Outcome translate(Call& c, const abi::ModifyQpRequest& in, const Qp& qp, qp::Change& change, PeerClaim& peer) {
    change.mask = in.mask & ~qp::ignored_attributes(qp.spec().type);
    change.attr = in.attr;
    change.attr.rq_psn &= kMask24;  // ibv_modify_qp(3) leaves the upper bits undefined, and drivers ignore them
    change.attr.sq_psn &= kMask24;
    if (Outcome o = check_values(c, change.attr, change.mask); o.failed()) return o;
    return (change.mask & qp::kAttrAv) != 0 ? set_path(c, qp, change, peer) : done();
}

/// Executes a transition by one command. If translate() fails or has to wait, the command only checks whether the transition is
/// legal. So an illegal transition is refused at once, even if the neighbour's MAC address is not known yet.
Outcome modify_once(Call& c, const abi::ModifyQpRequest& in, Qp& qp) {
    qp::Change change;
    PeerClaim peer;
    const Outcome translated = translate(c, in, qp, change, peer);
    change.trial = translated.failed();
    qp::Decision step;
    if (Outcome o = command(c.state, qp, change, step); o.failed()) return o;
    if (translated.failed()) return translated;
    const bool steps = (change.mask & qp::kAttrState) != 0;
    if (steps && step.to == qp::State::reset) {
        const abi::QpCap cap = qp.attr.cap;
        qp.attr = {};
        qp.attr.cap = cap;
    }
    // A QP in RESET or ERR sends nothing, and a QP in ERR can change only to RESET. So another user's QP may connect to the same
    // peer QP.
    if (steps && (step.to == qp::State::reset || step.to == qp::State::err)) qp.peer = {};
    if (steps) qp.steps.add(step.at, step.to);
    remember(qp.attr, change.attr, change.mask);
    if (peer.holds()) qp.peer = std::move(peer);
    c.answer(abi::ModifyQpReply{uint32_t(step.to), 0});
    return done();
}

/// Calls modify_once(). If it refuses the request, stores the error text for `roci why`.
Outcome modify_told(Call& c, const abi::ModifyQpRequest& in, Qp& qp) {
    Outcome o = modify_once(c, in, qp);
    if (o.waits_for || o.waits_for_memory) return o;
    qp.refused.clear();
    if (!o.failed()) return o;
    const bool moves = (in.mask & qp::kAttrState) != 0 && in.attr.qp_state <= uint32_t(qp::State::err);
    qp.refused = fmt::format("ibv_modify_qp{} was refused: {}",
                             moves ? fmt::format(" to {}", qp::state_name(qp::State(in.attr.qp_state))) : "", o.reason);
    return o;
}

}  // namespace

Outcome modify_qp(Call& c) {
    auto in = c.in<abi::ModifyQpRequest>();
    Qp* qp;
    if (Outcome o = look_up(c.session.qps, in.handle, "QP", qp); o.failed()) return o;
    const auto more = c.after(sizeof in);
    if (more.size() % sizeof in != 0 || more.size() / sizeof in > abi::kMostModifySteps)
        return fail(EINVAL, "{} bytes after the first step: must be whole steps, at most {}", more.size(), abi::kMostModifySteps);
    if (Outcome o = modify_told(c, in, *qp); o.failed()) return o;
    for (size_t at = 0; at < more.size(); at += sizeof in) {
        std::memcpy(&in, &more[at], sizeof in);
        if (Outcome o = modify_told(c, in, *qp); o.failed()) return o;
    }
    return done();
}

}  // namespace roci::host::objects
