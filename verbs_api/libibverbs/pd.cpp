// Protection domains, parent domains, thread domains and XRC domains.
#include "context.hpp"

namespace roci::client {

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) {
    if (attr->comp_mask != 0) return fail<ibv_td>(EOPNOTSUPP);
    auto* td = new (std::nothrow) Td{};
    if (td == nullptr) return fail<ibv_td>(ENOMEM);
    td->td.context = context;
    return &td->td;
}

int dealloc_td(ibv_td* p) {
    Td* td = Td::from(p);
    if (td->users != 0) return EBUSY;
    delete td;
    return 0;
}

// Ignores the allocators in the attributes. Drivers use such allocators for queues in the program's memory, but the queues of
// this library are in the session's arena.
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
    constexpr uint32_t kKnown = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    if (attr->pd == nullptr) return fail<ibv_pd>(EINVAL);
    if ((attr->comp_mask & ~kKnown) != 0) return fail<ibv_pd>(EOPNOTSUPP);
    Pd* contained = Pd::from(attr->pd);
    if (contained->contained != nullptr) return fail<ibv_pd>(EINVAL);
    auto* parent = new (std::nothrow) Pd{};
    if (parent == nullptr) return fail<ibv_pd>(ENOMEM);
    parent->pd = {context, attr->pd->handle};
    parent->contained = contained;
    ++contained->parents;
    if (attr->td != nullptr) {
        parent->thread_domain = Td::from(attr->td);
        ++parent->thread_domain->users;
    }
    return &parent->pd;
}

namespace {

int dealloc_parent_domain(Pd* parent) {
    --parent->contained->parents;
    if (parent->thread_domain != nullptr) --parent->thread_domain->users;
    delete parent;
    return 0;
}

}  // namespace

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr) {
    constexpr uint32_t kNeeded = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    if ((attr->comp_mask & kNeeded) != kNeeded) return fail<ibv_xrcd>(EINVAL);
    if ((attr->comp_mask & ~kNeeded) != 0) return fail<ibv_xrcd>(EOPNOTSUPP);
    Context& c = *Context::from(context);
    if (c.inherited) return fail<ibv_xrcd>(EIO);
    auto xrcd = std::unique_ptr<Xrcd>(new (std::nothrow) Xrcd{});
    if (!xrcd) return fail<ibv_xrcd>(ENOMEM);
    const abi::OpenXrcdRequest request{uint32_t(attr->oflags), attr->fd >= 0 ? 1u : 0u};
    abi::HandleReply reply{};
    const int err = c.link.request({abi::Op::open_xrcd, std::as_bytes(std::span(&request, 1)), {}, attr->fd},
                                   std::as_writable_bytes(std::span(&reply, 1)));
    if (err != 0) return fail<ibv_xrcd>(err);
    xrcd->xrcd.context = context;
    xrcd->handle = reply.handle;
    return &xrcd.release()->xrcd;
}

int close_xrcd(ibv_xrcd* p) {
    Xrcd* xrcd = Xrcd::from(p);
    if (const int err = Context::from(p->context)->destroy(abi::Op::close_xrcd, xrcd->handle); err != 0) return err;
    delete xrcd;
    return 0;
}

}  // namespace roci::client

using namespace roci::client;

ibv_pd* ibv_alloc_pd(ibv_context* context) {
    auto pd = std::unique_ptr<Pd>(new (std::nothrow) Pd{});
    if (!pd) return fail<ibv_pd>(ENOMEM);
    roci::abi::HandleReply reply{};
    if (const int err = Context::from(context)->call(roci::abi::Op::alloc_pd, roci::abi::Empty{}, reply); err != 0)
        return fail<ibv_pd>(err);
    pd->pd = {context, reply.handle};
    return &pd.release()->pd;
}

int ibv_dealloc_pd(ibv_pd* p) {
    Pd* pd = Pd::from(p);
    if (pd->contained != nullptr) return dealloc_parent_domain(pd);
    if (pd->parents != 0) return refuse(EBUSY);
    if (const int err = Context::from(p->context)->destroy(roci::abi::Op::dealloc_pd, p->handle); err != 0) return err;
    delete pd;
    return 0;
}
