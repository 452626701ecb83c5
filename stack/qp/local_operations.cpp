// Executes the local operations of a send queue: binds and invalidations of memory windows. They send no packet.
#include "qp/roles.hpp"

namespace roci::qp {
namespace {

using abi::WcStatus;

LocalResult invalidate(Context& ctx, Qp& qp, const abi::SendWqe& w, SendRecord& r) {
    const Key key{w.imm_or_inv};
    if (mem::in_use(ctx.shared->keys, key)) return LocalResult::waits;  // an access to memory still uses the window
    if (mem::invalidate_window(ctx.shared->keys, key, qp.spec.pd, qp.spec.qpn.value)) return LocalResult::done;
    r.fault = WcStatus::loc_qp_op_err;
    return LocalResult::refused;
}

LocalResult bind(Context& ctx, Qp& qp, const abi::SendWqe& w, SendRecord& r) {
    mem::BindRequest bind;
    bind.fresh = Key{w.rkey};
    bind.parent = Key{w.bind_mr_lkey};
    bind.pd = qp.spec.pd;
    bind.qpn = qp.spec.qpn.value;
    bind.access = uint32_t(w.bind_access);
    bind.iova = w.remote_addr;
    bind.length = w.bind_length;
    const mem::BindResult result = mem::bind_window(ctx.shared->keys, bind);
    if (result == mem::BindResult::in_use) return LocalResult::waits;
    if (result == mem::BindResult::done) return LocalResult::done;
    r.fault = WcStatus::mw_bind_err;
    return LocalResult::refused;
}

}  // namespace

LocalResult execute_local(Context& ctx, Qp& qp, SendRecord& r) {
    if (r.executed) return LocalResult::done;
    const abi::SendWqe& w = wqe(r);
    const LocalResult result = w.opcode == abi::WrOpcode::local_inv ? invalidate(ctx, qp, w, r) : bind(ctx, qp, w, r);
    r.executed = result == LocalResult::done;
    return result;
}

}  // namespace roci::qp
