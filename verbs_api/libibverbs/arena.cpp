#include "arena.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace roci::client {
namespace {
constexpr uint32_t kMaxChunks = 1u << 16;  // more than rocid gives to one session
}

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
    // The new mapping replaces the old one at the same addresses. If it fails, nothing else can be done.
    (void)mmap(mapping.base, mapping.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
               0);
}

Arena::~Arena() {
    for (Mapping& m : chunks_) unmap(m);
}

int Arena::add_chunk(uint32_t id, int fd) {
    if (id >= kMaxChunks) {
        close(fd);
        return EPROTO;
    }
    const Mapping m = map_fd(fd, true);
    if (m.base == nullptr) return errno != 0 ? errno : ENOMEM;
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
        replace_by_private(m);  // takes no lock: the child has one thread, and a thread of the parent may have held the lock
}

}  // namespace roci::client
