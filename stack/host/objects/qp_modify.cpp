// modify_qp checks the attribute rules (qp/attributes.hpp) and the attributes' values, resolves the path, then commands the
// engine.
#include "host/objects/handlers.hpp"
#include "host/paths/resolve.hpp"
#include "qp/attributes.hpp"
#include "wire/describe.hpp"

namespace roci::host::objects {
namespace {

constexpr uint32_t kMigrated = 0;  // enum ibv_mig_state

/// The value of one attribute as a number, and its range.
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
    // A controlled Q_Key (IBA 10.2.5) is what QP 1 trusts. Linux wants CAP_NET_RAW for it.
    constexpr uint32_t kControlled = 0x80000000;
    if ((mask & qp::kAttrQkey) != 0 && (a.qkey & kControlled) != 0 && !c.state.privileged(c.session.who))
        return fail(EPERM, "Q_Key {:#x} is a controlled one; user {} may set those below {:#x}", a.qkey, c.session.who.uid,
                    kControlled);
    if ((mask & qp::kAttrAltPath) != 0) return fail(EINVAL, "alternate paths do not exist on RoCE; leave IBV_QP_ALT_PATH out");
    return done();
}

/// Determines the new state of the QP and checks the current one.
Outcome find_step(const Qp& qp, const abi::ModifyQpRequest& in, qp::State current, qp::State& next) {
    next = current;
    if ((in.mask & qp::kAttrState) != 0) {
        if (in.attr.qp_state > uint32_t(qp::State::err))
            return fail(EINVAL, "qp_state {} is not a valid state", in.attr.qp_state);
        next = qp::State(in.attr.qp_state);
    }
    std::string why;
    if (const int error = qp::check_modify(qp.spec.type, current, next, in.mask, why); error != 0) return {error, std::move(why)};
    if ((in.mask & qp::kAttrCurState) != 0 && in.attr.cur_qp_state != uint32_t(current)) {
        return fail(EINVAL, "cur_qp_state is {}, but the QP is in {}", in.attr.cur_qp_state, qp::state_name(current));
    }
    return done();
}

Outcome set_path(Call& c, const Qp& qp, qp::Change& change) {
    const uint32_t remote = (change.mask & qp::kAttrDestQpn) != 0 ? change.attr.dest_qp_num : qp.attr.dest_qp_num;
    paths::ResolvedPath path;
    if (Outcome o = paths::resolve_path(c.state, qp.spec.port, change.attr.ah, {qp.spec.qpn.value, remote}, path); o.failed())
        return o;
    if (path.multicast)
        return fail(EINVAL, "a connected QP cannot go to multicast address {}", wire::to_text(path.spec.dest_gid));
    change.path_spec = path.spec;
    change.path = wire::make_path(path.spec);
    change.hairpin = path.hairpin;
    return done();
}

/// Claims the peer QP for this user. If QPs of two users had the same peer QP, each could send into the other's connection.
Outcome claim_peer(Call& c, const Qp& qp, const qp::Change& change, PeerClaim& claim) {
    PeerKey key{qp.spec.port, change.path_spec.dest_gid,
                (change.mask & qp::kAttrDestQpn) != 0 ? change.attr.dest_qp_num : qp.attr.dest_qp_num};
    claim = PeerClaim(c.state.peers, key, c.session.who.uid);
    if (!claim.holds()) return fail(EADDRINUSE, "another user's QP is connected to QP {} at {}", key.qpn, wire::to_text(key.gid));
    return done();
}

/// Stores the attributes for query_qp: one line per attribute.
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
    set(qp::kAttrRqPsn, to.rq_psn, from.rq_psn);  // where they started; query_qp shows where they are
    set(qp::kAttrSqPsn, to.sq_psn, from.sq_psn);
}

/// Commands the engine. ESTALE: the QP is not in the state `from` any more.
Outcome apply(State& state, Qp& qp, qp::State from, const qp::Change& change) {
    qp::Snapshot seen;
    seen.state = from;
    engine::Command command;
    command.kind = engine::Command::Kind::modify_qp;
    command.session = qp.spec.session;
    command.qp = qp.engine_side.get();
    command.change = &change;
    command.snapshot = &seen;
    if (const int error = state.execute(qp.spec.engine, command); error != 0) {
        if (error == EAGAIN) return wait_for_memory();
        return fail(error, "the engine refused to take the QP to {}", qp::state_name(change.next));
    }
    if (change.next == qp::State::reset) {
        const abi::QpCap cap = qp.attr.cap;
        qp.attr = {};
        qp.attr.cap = cap;
    }
    remember(qp.attr, change.attr, change.mask);
    qp.attr.qp_state = uint32_t(change.next);
    return done();
}

Outcome modify_from(Call& c, const abi::ModifyQpRequest& in, Qp& qp, qp::State from) {
    qp::Change change;
    if (Outcome o = find_step(qp, in, from, change.next); o.failed()) return o;
    if (Outcome o = check_values(c, in.attr, in.mask); o.failed()) return o;
    change.mask = in.mask;
    change.attr = in.attr;
    change.attr.rq_psn &= kMask24;  // ibv_modify_qp(3) leaves more bits undefined; drivers drop them
    change.attr.sq_psn &= kMask24;
    PeerClaim peer;
    if ((in.mask & qp::kAttrAv) != 0) {
        if (Outcome o = set_path(c, qp, change); o.failed()) return o;
        if (Outcome o = claim_peer(c, qp, change, peer); o.failed()) return o;
    }
    if (Outcome o = apply(c.state, qp, from, change); o.failed()) return o;
    if (peer.holds() || change.next == qp::State::reset) qp.peer = std::move(peer);
    c.answer(abi::ModifyQpReply{uint32_t(change.next), 0});
    return done();
}

/// The rules of a step depend on the QP's state, which the engine owns and may change at any time (ERR, SQE). The conductor
/// validates against the last state that it knows and names that state in the command; the engine, whose answer decides, refuses
/// with ESTALE if it is another one. Only then, or if the step is not legal from there, the state is queried: so an ordinary step
/// is one command.
Outcome modify_once(Call& c, abi::ModifyQpRequest in, Qp& qp) {
    in.mask &= ~qp::ignored_attributes(qp.spec.type);
    if (Outcome o = modify_from(c, in, qp, qp::State(qp.attr.qp_state)); !o.failed() || o.waits_for || o.waits_for_memory)
        return o;
    qp::Snapshot now;
    if (const int error = snapshot(c.state, qp, now); error != 0) return fail(error, "the engine does not answer");
    return modify_from(c, in, qp, now.state);
}

/// A refusal is kept for `roci why`.
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
