// Buffers that the library allocates (ibv_alloc_buf(3)), and registration by attributes (ibv_reg_mr_ex).
#include <sys/mman.h>
#include <unistd.h>

#include "context.hpp"
#include "newer.hpp"

namespace roci::client {

/// A buffer of whole pages. No other data of the program is on these pages, so a registration of the buffer moves no other data.
struct Buf {
    ibv_pd* pd;
    void* addr;
    size_t size;
    size_t mapped;
};

namespace {

constexpr uint64_t kFromFd = kRegFd | kRegFdOffset;

bool within(const Buf& buf, const void* addr, size_t length) {
    const auto start = reinterpret_cast<uintptr_t>(buf.addr), first = reinterpret_cast<uintptr_t>(addr);
    return first >= start && first - start <= buf.size && length <= buf.size - (first - start);
}

/// Checks the attributes of a registration. Returns 0 or an errno.
int check(const ibv_pd* pd, const MrInitAttr& a) {
    if ((a.comp_mask & kRegBuf) != 0) {
        if ((a.comp_mask & kRegAddr) == 0 || (a.comp_mask & kFromFd) != 0 || a.buf == nullptr || a.buf->pd != pd) return EINVAL;
        if (!within(*a.buf, a.addr, a.length)) return EINVAL;
    }
    if ((a.comp_mask & ~uint64_t(kRegIova | kRegAddr | kFromFd | kRegBuf)) != 0) return EOPNOTSUPP;
    if ((a.comp_mask & kRegFd) != 0) {
        const uint64_t wanted = kFromFd | kRegIova;
        return (a.comp_mask & (wanted | kRegAddr)) == wanted ? 0 : EINVAL;
    }
    return (a.comp_mask & (kRegAddr | kRegFdOffset)) == kRegAddr ? 0 : EINVAL;
}

}  // namespace

ibv_mr* reg_mr_ex(ibv_pd* pd, const MrInitAttr* attr) {
    const MrInitAttr& a = *attr;
    if (const int err = check(pd, a); err != 0) return fail<ibv_mr>(err);
    if ((a.comp_mask & kRegFd) != 0) return ibv_reg_dmabuf_mr(pd, a.fd_offset, a.length, a.iova, a.fd, a.access);
    const uint64_t iova = (a.comp_mask & kRegIova) != 0 ? a.iova : uint64_t(reinterpret_cast<uintptr_t>(a.addr));
    return ibv_reg_mr_iova2(pd, a.addr, a.length, iova, unsigned(a.access));
}

void* alloc_buf(ibv_pd* pd, size_t size, Buf** out) {
    const auto page = size_t(sysconf(_SC_PAGESIZE));
    if (size > SIZE_MAX - page) return fail(ENOMEM);
    const size_t mapped = size == 0 ? page : (size + page - 1) / page * page;
    auto buf = std::unique_ptr<Buf>(new (std::nothrow) Buf{pd, nullptr, size, mapped});
    if (!buf) return fail(ENOMEM);
    buf->addr = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buf->addr == MAP_FAILED) return nullptr;
    *out = buf.release();
    return (*out)->addr;
}

void free_buf(Buf* buf) {
    munmap(buf->addr, buf->mapped);
    delete buf;
}

ibv_mr* reg_buf_mr(ibv_pd* pd, Buf* buf, void* addr, size_t length, int access) {
    MrInitAttr attr{};
    attr.length = length;
    attr.access = access;
    attr.comp_mask = kRegAddr | kRegBuf;
    attr.addr = addr;
    attr.buf = buf;
    return reg_mr_ex(pd, &attr);
}

// No buffer is a dma-buf.
int export_buf_dmabuf_fd(Buf*) {
    errno = ENODATA;
    return -1;
}

}  // namespace roci::client
