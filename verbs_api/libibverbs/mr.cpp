// Memory regions.
#include <algorithm>

#include "context.hpp"
#include "log.hpp"

namespace roci::client {
namespace {

constexpr unsigned kRemoteWriting = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned kMandatory = IBV_ACCESS_LOCAL_WRITE | kRemoteWriting | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB;

/// Drops what is only a hint; 0 or errno. IBA 11.2.7.1: remote write and atomic need local write.
int check_access(unsigned& access) {
    access &= ~unsigned(IBV_ACCESS_OPTIONAL_RANGE);
    if ((access & ~kMandatory) != 0) return EINVAL;
    if ((access & kRemoteWriting) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return EINVAL;
    if ((access & IBV_ACCESS_ON_DEMAND) != 0) return EOPNOTSUPP;
    access &= ~unsigned(IBV_ACCESS_HUGETLB);
    return 0;
}

bool needs_write(unsigned access) { return (access & (IBV_ACCESS_LOCAL_WRITE | kRemoteWriting)) != 0; }

bool wraps(const void* addr, size_t length) { return reinterpret_cast<uintptr_t>(addr) + length < length; }

abi::RegMrRequest describe(const RegisteredMemory& memory, uint32_t pd, unsigned access, uint64_t iova, size_t length) {
    return {pd, access, iova, length, uint32_t(memory.segments.size()), 0};
}

int register_with_rocid(Context& c, Mr& mr, uint32_t pd, size_t length) {
    const abi::RegMrRequest request = describe(mr.memory, pd, mr.access, mr.iova, length);
    abi::RegMrReply reply{};
    if (c.inherited) return EIO;
    const int err = c.link.request({abi::Op::reg_mr, std::as_bytes(std::span(&request, 1)), std::as_bytes(std::span(mr.memory.segments))},
                                   std::as_writable_bytes(std::span(&reply, 1)));
    mr.mr.handle = reply.handle;
    mr.mr.lkey = reply.lkey;
    mr.mr.rkey = reply.rkey;
    return err;
}

ibv_mr* register_memory(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned access) {
    if (const int err = check_access(access); err != 0) return fail<ibv_mr>(err);
    if (wraps(addr, length)) return fail<ibv_mr>(EINVAL);
    Context& c = *Context::from(pd->context);
    auto mr = std::unique_ptr<Mr>(new (std::nothrow) Mr{});
    if (!mr) return fail<ibv_mr>(ENOMEM);
    mr->access = access;
    mr->iova = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
    int err = c.regions.acquire(c, addr, length, needs_write(access), mr->memory);
    if (err != 0) {
        log("cannot reach the %zu bytes at %p that are to be registered: %s", length, addr, std::strerror(err));
        return fail<ibv_mr>(err);
    }
    err = register_with_rocid(c, *mr, pd->handle, length);
    if (err != 0) {
        c.regions.release(c, mr->memory);
        return fail<ibv_mr>(err);
    }
    mr->mr.context = pd->context;
    mr->mr.pd = pd;
    mr->mr.addr = addr;
    mr->mr.length = length;
    return &mr.release()->mr;
}

int bad_input(int err) {
    errno = err;
    return IBV_REREG_MR_ERR_INPUT;
}

/// What an MR is to become.
struct NewMr {
    ibv_pd* pd;
    void* addr;
    size_t length;
    unsigned access;
};

int change(Mr& mr, int flags, const NewMr& to, RegisteredMemory& memory) {
    Context& c = *Context::from(mr.mr.context);
    if (c.inherited) return EIO;
    const bool moved = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
    const uint64_t iova = !moved ? mr.iova : (to.access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : uint64_t(reinterpret_cast<uintptr_t>(to.addr));
    const abi::ReregMrRequest request{mr.mr.handle, uint32_t(flags), describe(memory, to.pd->handle, to.access, iova, to.length)};
    abi::RegMrReply reply{};
    const int err = c.link.request({abi::Op::rereg_mr, std::as_bytes(std::span(&request, 1)), std::as_bytes(std::span(memory.segments))},
                                   std::as_writable_bytes(std::span(&reply, 1)));
    if (err != 0) return err;
    mr.mr.handle = reply.handle;
    mr.mr.lkey = reply.lkey;
    mr.mr.rkey = reply.rkey;
    mr.mr.pd = to.pd;
    mr.mr.addr = to.addr;
    mr.mr.length = to.length;
    mr.access = to.access;
    mr.iova = iova;
    return 0;
}

}  // namespace
}  // namespace roci::client

using namespace roci::client;

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
    return register_memory(pd, addr, length, uint64_t(reinterpret_cast<uintptr_t>(addr)), unsigned(access));
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access) {
    return register_memory(pd, addr, length, iova, unsigned(access));
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned int access) {
    return register_memory(pd, addr, length, iova, access);
}

int ibv_rereg_mr(ibv_mr* p, int flags, ibv_pd* pd, void* addr, size_t length, int access) {
    Mr& mr = *Mr::from(p);
    const bool moved = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
    const bool new_access = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
    const bool new_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
    if (flags == 0 || (flags & ~int(IBV_REREG_MR_FLAGS_SUPPORTED)) != 0) return bad_input(EINVAL);
    if (moved && (addr == nullptr || length == 0 || wraps(addr, length))) return bad_input(EINVAL);
    if ((access != 0 && !new_access) || (new_pd && pd == nullptr)) return bad_input(EINVAL);

    NewMr to{new_pd ? pd : p->pd, moved ? addr : p->addr, moved ? length : p->length, new_access ? unsigned(access) : mr.access};
    if (const int err = check_access(to.access); err != 0) return bad_input(err);
    // New rights may need other descriptors (writable ones), so the memory is described afresh then as well.
    const bool reach_again = moved || (new_access && needs_write(to.access) && !needs_write(mr.access));
    Context& c = *Context::from(p->context);
    RegisteredMemory memory;
    if (reach_again) {
        if (const int err = c.regions.acquire(c, to.addr, to.length, needs_write(to.access), memory); err != 0) return bad_input(err);
    }
    const int err = change(mr, reach_again ? flags | IBV_REREG_MR_CHANGE_TRANSLATION : flags, to, memory);
    if (err != 0) {
        c.regions.release(c, memory);
        errno = err;
        return IBV_REREG_MR_ERR_CMD;
    }
    if (reach_again) {
        std::swap(mr.memory, memory);
        c.regions.release(c, memory);
    }
    return 0;
}

int ibv_dereg_mr(ibv_mr* p) {
    Mr* mr = Mr::from(p);
    Context& c = *Context::from(p->context);
    if (const int err = c.destroy(roci::abi::Op::dereg_mr, p->handle); err != 0) return err;
    c.regions.release(c, mr->memory);
    delete mr;
    return 0;
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, uint64_t, size_t, uint64_t, int, int) { return fail<ibv_mr>(EOPNOTSUPP); }

ibv_pd* ibv_import_pd(ibv_context*, uint32_t) { return fail<ibv_pd>(EOPNOTSUPP); }
void ibv_unimport_pd(ibv_pd*) {}
ibv_mr* ibv_import_mr(ibv_pd*, uint32_t) { return fail<ibv_mr>(EOPNOTSUPP); }
void ibv_unimport_mr(ibv_mr*) {}
ibv_dm* ibv_import_dm(ibv_context*, uint32_t) { return fail<ibv_dm>(EOPNOTSUPP); }
void ibv_unimport_dm(ibv_dm*) {}
ibv_context* ibv_import_device(int) { return fail<ibv_context>(EOPNOTSUPP); }
