#include "arena.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace roci::client {
namespace {
constexpr uint32_t kMaxChunks = 1u << 16;  // more than rocid accepts from one session
constexpr size_t kHugePage = 2 << 20;
constexpr unsigned kHuge2M = 21u << 26;

/// Creates a memfd and allocates all its pages, so that no later access fails and each page is charged to this process. Returns
/// the descriptor, or -1 with errno.
int make_file(size_t length, unsigned huge_flags) {
    const int fd = memfd_create("roci-queues", MFD_CLOEXEC | MFD_ALLOW_SEALING | huge_flags);
    if (fd < 0 || (ftruncate(fd, off_t(length)) == 0 && allocate_pages(fd, 0, length) == 0)) return fd;
    const int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}
}  // namespace

Mapping map_fd(int fd, bool writable) {
    struct stat st {};
    Mapping m;
    if (fstat(fd, &st) == 0 && st.st_size > 0) {
        void* p = mmap(nullptr, size_t(st.st_size), writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
        if (p != MAP_FAILED) m = {static_cast<std::byte*>(p), size_t(st.st_size)};
    } else if (st.st_size == 0) {
        errno = EPROTO;
    }
    const int saved = errno;
    close(fd);
    errno = saved;
    return m;
}

void unmap(Mapping& mapping) {
    if (mapping.base != nullptr) munmap(mapping.base, mapping.length);
    mapping = {};
}

void replace_by_private(const Mapping& mapping) {
    if (mapping.base == nullptr) return;
    // The new mapping replaces the old mapping at the same addresses. The result is ignored, because a failure has no remedy.
    (void)mmap(mapping.base, mapping.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
               0);
}

Arena::~Arena() {
    for (Mapping& m : chunks_) unmap(m);
}

int allocate_pages(int fd, uint64_t offset, uint64_t length) {
    // If a signal interrupts fallocate(), the kernel undoes the whole call. So the loop allocates in steps.
    constexpr uint64_t kStep = 16 << 20;
    for (const uint64_t end = offset + length; offset < end;) {
        const uint64_t step = std::min(kStep, end - offset);
        if (fallocate(fd, FALLOC_FL_KEEP_SIZE, off_t(offset), off_t(step)) == 0)
            offset += step;
        else if (errno != EINTR)
            return errno;
    }
    return 0;
}

Mapping Arena::make_chunk(size_t length, int& fd) const {
    fd = -1;
    if (huge_ && length % kHugePage == 0) fd = make_file(length, MFD_HUGETLB | kHuge2M);
    if (fd < 0) fd = make_file(length, 0);
    if (fd < 0) return {};
    void* p = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p != MAP_FAILED) return {static_cast<std::byte*>(p), length};
    const int saved = errno;
    close(std::exchange(fd, -1));
    errno = saved;
    return {};
}

int Arena::add_chunk(uint32_t id, const Mapping& m) {
    if (id >= kMaxChunks) return EPROTO;
    std::lock_guard guard(mutex_);
    if (chunks_.size() <= id) chunks_.resize(id + 1);
    unmap(chunks_[id]);
    chunks_[id] = m;
    return 0;
}

std::byte* Arena::locate(const abi::Location& where, uint64_t needed) const {
    std::lock_guard guard(mutex_);
    if (where.chunk >= chunks_.size() || where.length < needed) return nullptr;
    const Mapping& m = chunks_[where.chunk];
    if (m.base == nullptr || where.offset > m.length || where.length > m.length - where.offset) return nullptr;
    return m.base + where.offset;
}

void Arena::leave_to_parent() {
    for (const Mapping& m : chunks_)
        replace_by_private(m);  // without mutex_: the child has one thread, and at fork() another thread may have held mutex_
}

}  // namespace roci::client
