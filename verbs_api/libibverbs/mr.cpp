// Memory regions.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "context.hpp"
#include "log.hpp"

namespace roci::client {
namespace {

constexpr unsigned kRemoteWriting = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned kMandatory = IBV_ACCESS_LOCAL_WRITE | kRemoteWriting | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND |
                                IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | kAccessFlushGlobal;

/// Checks the access flags and removes the flags that are only hints. Returns 0 or EINVAL. Remote write and remote atomic access
/// require local write access (IBA 11.2.7.1).
int check_access(unsigned& access) {
    access &= ~unsigned(IBV_ACCESS_OPTIONAL_RANGE);
    if ((access & ~kMandatory) != 0) return EINVAL;
    if ((access & kRemoteWriting) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return EINVAL;
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
    const int err =
        c.link.request({abi::Op::reg_mr, std::as_bytes(std::span(&request, 1)), std::as_bytes(std::span(mr.memory.segments))},
                       std::as_writable_bytes(std::span(&reply, 1)));
    mr.mr.handle = reply.handle;
    mr.mr.lkey = reply.lkey;
    mr.mr.rkey = reply.rkey;
    return err;
}

/// Makes memory accessible to rocid. rocid does not map memory that is registered for on-demand paging. It accesses this memory
/// by address, because each access must reach the pages that are mapped at the time of the access.
int reach(Context& c, void* addr, size_t length, unsigned access, RegisteredMemory& out) {
    if ((access & IBV_ACCESS_ON_DEMAND) == 0 || length == 0) return c.regions.acquire(c, addr, length, needs_write(access), out);
    out = {};
    out.segments.assign(1, {abi::kNoHandle, 0, uint64_t(reinterpret_cast<uintptr_t>(addr)), length});
    return 0;
}

ibv_mr* register_memory(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned access) {
    if (const int err = check_access(access); err != 0) return fail<ibv_mr>(err);
    if (wraps(addr, length)) return fail<ibv_mr>(EINVAL);
    Context& c = *Context::from(pd->context);
    auto mr = std::unique_ptr<Mr>(new (std::nothrow) Mr{});
    if (!mr) return fail<ibv_mr>(ENOMEM);
    mr->access = access;
    mr->iova = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
    int err = reach(c, addr, length, access, mr->memory);
    if (err != 0) {
        const bool blind = ::access("/proc/self/maps", R_OK) != 0;
        log("cannot reach the %zu bytes at %p that are to be registered: %s", length, addr,
            blind ? "/proc/self/maps cannot be read; mount -t proc proc /proc" : std::strerror(err));
        return fail<ibv_mr>(err);
    }
    err = register_with_rocid(c, *mr, pd->handle, length);
    if (err != 0) {
        c.regions.release(c, mr->memory);
        return fail<ibv_mr>(err);
    }
    publish(*mr, pd, addr, length);
    return &mr.release()->mr;
}

int bad_input(int err) {
    errno = err;
    return IBV_REREG_MR_ERR_INPUT;
}

/// The attributes of an MR after ibv_rereg_mr().
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
    const uint64_t iova = !moved                                     ? mr.iova
                          : (to.access & IBV_ACCESS_ZERO_BASED) != 0 ? 0
                                                                     : uint64_t(reinterpret_cast<uintptr_t>(to.addr));
    const abi::ReregMrRequest request{mr.mr.handle, uint32_t(flags), describe(memory, to.pd->handle, to.access, iova, to.length)};
    abi::RegMrReply reply{};
    const int err =
        c.link.request({abi::Op::rereg_mr, std::as_bytes(std::span(&request, 1)), std::as_bytes(std::span(memory.segments))},
                       std::as_writable_bytes(std::span(&reply, 1)));
    if (err != 0) return err;
    c.mrs.erase(mr.mr.lkey, &mr);
    mr.mr.handle = reply.handle;
    mr.mr.lkey = reply.lkey;
    mr.mr.rkey = reply.rkey;
    mr.mr.pd = to.pd;
    c.mrs.insert(reply.lkey, &mr);
    mr.mr.addr = to.addr;
    mr.mr.length = to.length;
    mr.access = to.access;
    mr.iova = iova;
    return 0;
}

/// Checks one element of the list of ibv_advise_mr(3). Returns 0 or an errno.
int check_advice(const Mr* mr, const ibv_pd* pd, ibv_advise_mr_advice advice, const ibv_sge& s) {
    if (mr == nullptr || mr->mr.pd->handle != pd->handle || (mr->access & IBV_ACCESS_ON_DEMAND) == 0) return EINVAL;
    if (s.addr < mr->iova || s.length > mr->mr.length || s.addr - mr->iova > mr->mr.length - s.length) return EFAULT;
    if (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE && !needs_write(mr->access)) return EPERM;
    return 0;
}

/// Loads the pages of [addr, addr+length) into memory. Returns 0 or EFAULT. Kernels before 5.14 refuse the advice with EINVAL;
/// the function then also returns 0, and the first access loads the pages.
int prefetch(uint64_t addr, uint32_t length, bool write) {
    constexpr uint64_t kPage = 4096;
    constexpr int kPopulateRead = 22, kPopulateWrite = 23;  // MADV_POPULATE_*
    const uint64_t first = addr / kPage * kPage;
    const uint64_t end = (addr + length + kPage - 1) / kPage * kPage;
    if (length == 0 || madvise(reinterpret_cast<void*>(first), end - first, write ? kPopulateWrite : kPopulateRead) == 0)
        return 0;
    return errno == EINVAL ? 0 : EFAULT;
}

}  // namespace

void publish(Mr& mr, ibv_pd* pd, void* addr, size_t length) {
    Context& c = *Context::from(pd->context);
    mr.mr.context = pd->context;
    mr.mr.pd = pd;
    mr.mr.addr = addr;
    mr.mr.length = length;
    c.mrs.insert(mr.mr.lkey, &mr);
    c.mr_handles.insert(mr.mr.handle, &mr);
}

/// Checks all elements of the list before it loads any page. If IBV_ADVISE_MR_FLAG_FLUSH is not set, or the advice is
/// PREFETCH_NO_FAULT, loads no page. The first access then loads the pages.
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* list, uint32_t count) {
    if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return EOPNOTSUPP;
    if ((flags & ~uint32_t(IBV_ADVISE_MR_FLAG_FLUSH)) != 0 || count == 0) return EINVAL;
    Context& c = *Context::from(pd->context);
    uint64_t iova = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const int err = c.mrs.with(list[i].lkey, [&](const Mr* mr) { return check_advice(mr, pd, advice, list[i]); });
        if (err != 0) return err;
    }
    if ((flags & IBV_ADVISE_MR_FLAG_FLUSH) == 0 || advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return 0;
    for (uint32_t i = 0; i < count; ++i) {
        const uint64_t addr = c.mrs.with(list[i].lkey, [&](const Mr* mr) {
            iova = mr != nullptr ? mr->iova : list[i].addr;
            return mr != nullptr ? uint64_t(reinterpret_cast<uintptr_t>(mr->mr.addr)) : 0;
        });
        const int err = prefetch(addr + (list[i].addr - iova), list[i].length, advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE);
        if (err != 0) return err;
    }
    return 0;
}

/// Allocates a null MR: writes are discarded, reads return zeros, and there is no valid rkey (ibv_alloc_null_mr(3)).
ibv_mr* alloc_null_mr(ibv_pd* pd) {
    auto mr = std::unique_ptr<Mr>(new (std::nothrow) Mr{});
    if (!mr) return fail<ibv_mr>(ENOMEM);
    abi::RegMrReply reply{};
    const int err = Context::from(pd->context)->call(abi::Op::alloc_null_mr, abi::HandleRequest{pd->handle, 0}, reply);
    if (err != 0) return fail<ibv_mr>(err);
    mr->access = IBV_ACCESS_LOCAL_WRITE;
    mr->mr.handle = reply.handle;
    mr->mr.lkey = reply.lkey;
    publish(*mr, pd, nullptr, SIZE_MAX);
    return &mr.release()->mr;
}

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
    // If the MR gets write access, the library acquires the memory again, because write access may need descriptors that are open
    // for writing.
    const bool other_way = ((to.access ^ mr.access) & IBV_ACCESS_ON_DEMAND) != 0;
    const bool reach_again = moved || other_way || (new_access && needs_write(to.access) && !needs_write(mr.access));
    Context& c = *Context::from(p->context);
    RegisteredMemory memory;
    if (reach_again) {
        if (const int err = reach(c, to.addr, to.length, to.access, memory); err != 0) return bad_input(err);
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
    c.mrs.erase(p->lkey, mr);
    c.mr_handles.erase(p->handle, mr);
    c.regions.release(c, mr->memory);
    delete mr;
    return 0;
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, uint64_t, size_t, uint64_t, int, int) { return fail<ibv_mr>(EOPNOTSUPP); }
