// Memory windows.
#include "context.hpp"

namespace roci::client {

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
    auto mw = std::unique_ptr<Mw>(new (std::nothrow) Mw{});
    if (!mw) return fail<ibv_mw>(ENOMEM);
    abi::AllocMwReply reply{};
    const int err = Context::from(pd->context)->call(abi::Op::alloc_mw, abi::AllocMwRequest{pd->handle, uint32_t(type)}, reply);
    if (err != 0) return fail<ibv_mw>(err);
    mw->mw = {pd->context, pd, reply.rkey, reply.handle, type};
    mw->index = reply.rkey & ~kConsumerKey;
    return &mw.release()->mw;
}

int dealloc_mw(ibv_mw* p) {
    if (const int err = Context::from(p->context)->destroy(abi::Op::dealloc_mw, p->handle); err != 0) return err;
    delete Mw::from(p);
    return 0;
}

/// Binds a memory window of type 1 by a work request. The library chooses the new rkey (IBA 10.6.7.2.1). Only a window of type 2
/// can be zero based (IBA o10-36.2.2); a window of type 1 uses the addresses of its memory region.
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
    if ((bind->bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0) return EINVAL;
    ibv_send_wr wr{};
    wr.wr_id = bind->wr_id;
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = bind->send_flags;
    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
    wr.bind_mw.bind_info = bind->bind_info;
    ibv_send_wr* bad = nullptr;
    return post_send(qp, &wr, &bad);
}

}  // namespace roci::client
