// Device memory: a part of the session's arena, which the client and rocid both map.
#include "context.hpp"

namespace roci::client {
namespace {

/// The offset and length of a copy must be multiples of 4 bytes, as on hardware with device memory.
constexpr uint64_t kUnit = 4;

int check_copy(const Dm& dm, uint64_t offset, size_t length) {
    if (offset % kUnit != 0 || length % kUnit != 0) return EINVAL;
    return offset > dm.length || length > dm.length - offset ? EFAULT : 0;
}

int copy_to(ibv_dm* p, uint64_t offset, const void* from, size_t length) {
    Dm& dm = *Dm::from(p);
    if (const int err = check_copy(dm, offset, length); err != 0) return errno = err;
    std::memcpy(dm.base + offset, from, length);
    std::atomic_thread_fence(std::memory_order_release);
    return 0;
}

int copy_from(void* to, ibv_dm* p, uint64_t offset, size_t length) {
    Dm& dm = *Dm::from(p);
    if (const int err = check_copy(dm, offset, length); err != 0) return errno = err;
    std::atomic_thread_fence(std::memory_order_acquire);
    std::memcpy(to, dm.base + offset, length);
    return 0;
}

}  // namespace

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr) {
    if (attr->comp_mask != 0) return fail<ibv_dm>(EOPNOTSUPP);
    Context* c = serving(*Context::from(context));
    if (c == nullptr) return fail<ibv_dm>(EIO);
    auto dm = std::unique_ptr<Dm>(new (std::nothrow) Dm{});
    if (!dm) return fail<ibv_dm>(ENOMEM);
    abi::AllocDmReply reply{};
    if (const int err = c->call(abi::Op::alloc_dm, abi::AllocDmRequest{attr->length, attr->log_align_req, 0}, reply); err != 0)
        return fail<ibv_dm>(err);
    dm->base = c->arena.locate(reply.where, attr->length);
    if (dm->base == nullptr) {
        c->destroy(abi::Op::free_dm, reply.handle);
        return fail<ibv_dm>(EPROTO);
    }
    dm->owner = c;
    dm->length = attr->length;
    dm->dm = {context, copy_to, copy_from, 0, reply.handle};
    c->dms.insert(reply.handle, dm.get());
    return &dm.release()->dm;
}

int free_dm(ibv_dm* p) {
    Dm* dm = Dm::from(p);
    if (const int err = dm->owner->destroy(abi::Op::free_dm, p->handle); err != 0) return err;
    dm->owner->dms.erase(p->handle, dm);
    delete dm;
    return 0;
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* p, uint64_t offset, size_t length, unsigned int access) {
    Dm* dm = Dm::from(p);
    Context& c = *Context::from(pd->context);
    if (dm->owner != &c) return fail<ibv_mr>(EINVAL);
    auto mr = std::unique_ptr<Mr>(new (std::nothrow) Mr{});
    if (!mr) return fail<ibv_mr>(ENOMEM);
    abi::RegMrReply reply{};
    const abi::RegDmMrRequest request{pd->handle, p->handle, access, 0, offset, length};
    if (const int err = c.call(abi::Op::reg_dm_mr, request, reply); err != 0) return fail<ibv_mr>(err);
    mr->access = access & ~unsigned(IBV_ACCESS_OPTIONAL_RANGE);
    mr->mr.handle = reply.handle;
    mr->mr.lkey = reply.lkey;
    mr->mr.rkey = reply.rkey;
    publish(*mr, pd, nullptr, length);
    return &mr.release()->mr;
}

}  // namespace roci::client
