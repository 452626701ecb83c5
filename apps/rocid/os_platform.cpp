#include "os_platform.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include <spdlog/spdlog.h>

#include "errno_text.hpp"
#include "remote_process.hpp"
#include "sigbus_guard.hpp"

// Constants of Linux 5.1 and 5.14. The C library's headers may be older.
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace roci::rocid {
namespace {

constexpr uint64_t kHugepage = 2 << 20;
constexpr unsigned kHuge2M = 21u << 26;
constexpr long kTmpfs = 0x01021994, kHugetlbfs = 0x958458f6;

/// Creates a memfd and allocates all its pages, so that no later access fails. On failure, returns -1 and sets errno.
int make_memfd(uint64_t length, unsigned huge_flags) {
    const int fd = memfd_create("rocid-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING | huge_flags);
    if (fd < 0) return -1;
    constexpr int kSize = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    if (ftruncate(fd, off_t(length)) == 0 && fallocate(fd, 0, 0, off_t(length)) == 0 && fcntl(fd, F_ADD_SEALS, kSize) == 0)
        return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/// Returns the bytes that are available without swapping (MemAvailable), or 0 if the number is unknown.
uint64_t available_memory() {
    std::ifstream in("/proc/meminfo");
    std::string name, unit;
    for (uint64_t kilobytes = 0; in >> name >> kilobytes; std::getline(in, unit))
        if (name == "MemAvailable:") return kilobytes << 10;
    return 0;
}

/// Returns `length`, rounded up to the page size of the file. Returns 0 and sets `why` if rocid must not map the file.
uint64_t mappable_length(int fd, uint64_t length, std::string& why) {
    struct stat s {};
    struct statfs f {};
    // F_GET_SEALS comes first, because it never blocks. It fails for all files except shared memory. For other files, fstat() may
    // wait for a file server.
    if (fcntl(fd, F_GET_SEALS) < 0) return why = "not shared memory (memfd, tmpfs or hugetlbfs)", 0;
    if (length == 0 || fstat(fd, &s) != 0 || fstatfs(fd, &f) != 0 || !S_ISREG(s.st_mode))
        return why = "not a file with bytes in it", 0;
    // If the file were on another file system (FUSE, network), an engine could wait for a file server at every page.
    if (f.f_type != kTmpfs && f.f_type != kHugetlbfs) return why = "not shared memory (memfd, tmpfs or hugetlbfs)", 0;
    if (s.st_size < 0 || uint64_t(s.st_size) < length)
        return why = "the file has " + std::to_string(s.st_size) + " bytes, fewer than the " + std::to_string(length) +
                     " to be mapped",
               0;
    const uint64_t page = uint64_t(f.f_bsize) > 4096 ? uint64_t(f.f_bsize) : 4096;
    if (length > UINT64_MAX - page) return why = "too long", 0;
    return (length + page - 1) / page * page;
}

bool is_tmpfs(int fd) {
    struct statfs f {};
    return fstatfs(fd, &f) == 0 && f.f_type == kTmpfs;
}

/// Returns true if the file has `length` bytes and enough blocks for these bytes. Blocks beyond the end of the file count too, so
/// a client can still pass a file with holes. SEEK_HOLE and mincore() cannot exclude holes, because tmpfs reports allocated pages
/// that were never written as holes. Holes in a chunk cost rocid no more than holes in registered memory: HoleFiller fills
/// missing pages from the user's credit, and beyond the credit the session ends.
bool has_all_pages(int fd, uint64_t length) {
    constexpr uint64_t kBlock = 512;
    struct stat s {};
    return fstat(fd, &s) == 0 && uint64_t(s.st_size) == length && uint64_t(s.st_blocks) * kBlock >= length;
}

/// Fills the page table of a mapping of up to 256 MiB, so that engines cause no page faults later. Skips holes of the file,
/// because the kernel would charge the pages of filled holes to rocid. Searches for holes through a separate descriptor, because
/// the search changes the position of the descriptor. If `searches_holes` is false and the file has enough blocks, assumes that
/// the file has no holes.
void prefault(int fd, std::byte* base, uint64_t mapped, bool writable, bool searches_holes) {
    constexpr uint64_t kMost = 256 << 20, kBlock = 512;
    constexpr int kMostStretches = 16;
    const int advice = writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    struct stat s {};
    if (mapped > kMost || fstat(fd, &s) != 0) return;
    if (!searches_holes && uint64_t(s.st_blocks) * kBlock >= mapped) {
        madvise(base, mapped, advice);
        return;
    }
    const int own = open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_CLOEXEC);
    off_t at = 0;
    for (int i = 0; own >= 0 && i < kMostStretches && uint64_t(at) < mapped; ++i) {
        const off_t data = lseek(own, at, SEEK_DATA), hole = data < 0 ? data : lseek(own, data, SEEK_HOLE);
        at = std::min(off_t(mapped), hole);
        if (data < 0 || hole <= data || at <= data || madvise(base + data, size_t(at - data), advice) != 0) break;
    }
    if (own >= 0) close(own);
}

/// Maps the file at an address that is a multiple of 2 MiB, if the file has at least 2 MiB. The kernel can then map huge pages of
/// the file as huge pages.
void* map_aligned(int fd, uint64_t mapped, int protection) {
    constexpr uint64_t kHuge = 2 << 20;
    if (mapped >= kHuge) {
        void* reserved = mmap(nullptr, mapped + kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reserved != MAP_FAILED) {
            const auto start = reinterpret_cast<uintptr_t>(reserved), aligned = (start + kHuge - 1) / kHuge * kHuge;
            void* p = mmap(reinterpret_cast<void*>(aligned), mapped, protection, MAP_SHARED | MAP_FIXED, fd, 0);
            const uint64_t before = p != MAP_FAILED ? aligned - start : mapped + kHuge;
            if (before != 0) munmap(reserved, before);
            if (p != MAP_FAILED) {
                if (before != kHuge) munmap(static_cast<std::byte*>(p) + mapped, kHuge - before);
                return p;
            }
        }
    }
    return mmap(nullptr, mapped, protection, MAP_SHARED, fd, 0);
}

}  // namespace

EnginePageMemory::EnginePageMemory() {
    constexpr int kReadOnly = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    fd_ = memfd_create("rocid-engines", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void* p = MAP_FAILED;
    if (fd_ >= 0 && ftruncate(fd_, 4096) == 0) p = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (p == MAP_FAILED || fcntl(fd_, F_ADD_SEALS, kReadOnly) != 0)
        throw pmd::StartError("no shared memory for the engine page: " + errno_text() + " (Linux 5.1 or later is needed)");
    static_assert(sizeof(abi::EnginePage) <= 4096);
    page_ = static_cast<abi::EnginePage*>(p);
}

EnginePageMemory::~EnginePageMemory() {
    munmap(page_, 4096);
    close(fd_);
}

OsPlatform::~OsPlatform() {
    SigbusGuard::instance().set_filler(nullptr);
    for (auto& [session, list] : wake_fds_)
        for (const WakeFd& w : list) close(w.fd);
}

bool leaves_enough(uint64_t length, uint64_t available) { return available == 0 || length <= available / 2; }

uint64_t OsPlatform::random() {
    uint64_t value = 0;
    while (getrandom(&value, sizeof value, 0) != sizeof value) {
    }
    return value;
}

host::SharedMemory OsPlatform::make_memory(uint64_t length, std::string& why) {
    // make_memfd() allocates all pages at once. If too little memory is available, the allocation does not fail, but the kernel
    // starts the out-of-memory killer. So the available memory is checked first.
    if (!budget_.allows(length, why)) return {};
    if (!leaves_enough(length, available_memory())) {
        why = "no shared memory of " + std::to_string(length) + " bytes: it is more than half of what the machine has available";
        return {};
    }
    int fd = -1;
    if (hugepages_ != pmd::Hugepages::never && length >= kHugepage && length % kHugepage == 0)
        fd = make_memfd(length, MFD_HUGETLB | kHuge2M);
    if (fd < 0) fd = make_memfd(length, 0);
    if (fd < 0) {
        why = "no shared memory of " + std::to_string(length) + " bytes: " + errno_text();
        return {};
    }
    void* p = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        why = "cannot map " + std::to_string(length) + " bytes: " + errno_text();
        close(fd);
        return {};
    }
    auto owned = std::make_unique<mem::MappedRegion>();
    owned->base = static_cast<std::byte*>(p);
    owned->length = length;
    if (!SigbusGuard::instance().add(*owned, length)) {
        munmap(p, length);
        close(fd);
        why = "too many mappings";
        return {};
    }
    made_[owned->base] = std::move(owned);
    return {static_cast<std::byte*>(p), length, fd};
}

/// Maps a file whose pages the client has allocated, so the kernel charges the pages to the client's control group. Seals the
/// file, so that nobody can remove a page. An access to a missing page would charge the page to rocid, or raise SIGBUS if the
/// file has huge pages.
host::SharedMemory OsPlatform::map_chunk(int fd, uint64_t length, std::string& why) {
    constexpr int kKeepsPages = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
    why.clear();
    auto region = map_shared(fd, length, true, why);
    if (region == nullptr) {
        close_fd(fd);
        return {};
    }
    if (fcntl(fd, F_ADD_SEALS, kKeepsPages) != 0)
        why = "the file cannot be sealed: " + errno_text();
    else if (!has_all_pages(fd, length))
        why = "the file has holes, or another length: allocate its pages first (fallocate)";
    close(fd);  // fast: close() frees no memory, because the file is still mapped
    if (!why.empty()) {
        unmap_region(*region);
        return {};
    }
    const host::SharedMemory chunk{region->base, length, -1};
    mapped_lengths_.erase(region->base);
    made_[chunk.base] = std::move(region);
    return chunk;
}

/// Reads the memory limits again. When rocid has a limit for the first time, starts to handle missing pages by HoleFiller.
void OsPlatform::watch_budget() {
    budget_.refresh();
    if (!budget_.limited()) return;
    if (std::exchange(fills_holes_, true)) return;
    if (holes_.open())
        SigbusGuard::instance().set_filler(&holes_);
    else
        spdlog::warn(
            "rocid's control group has a memory limit, but userfaultfd is not permitted ({}): a client that removes pages of "
            "registered memory again can make rocid pay for them",
            errno_text());
    renew_hole_credit();
}

/// Sets the pool and the share of HoleFiller. The pool is the memory that rocid may allocate until a quarter of its limit is
/// left. The share is an eighth of the memory that is left. The reserve of MemoryBudget::allows() is smaller than the quarter, so
/// requests still succeed when the pool is used up. If rocid has no limit any more, pool and share have no limit either.
void OsPlatform::renew_hole_credit() {
    constexpr uint64_t kShare = 8, kUnlimited = HoleFiller::kUnlimited;
    budget_.refresh();
    holes_.renew(budget_.available_above_quarter().value_or(kUnlimited), budget_.available().value_or(kUnlimited) / kShare);
}

bool OsPlatform::has_memory(uint64_t bytes, std::string& why) {
    if (const auto most = budget_.available_above_quarter()) holes_.lower_pool(*most);
    return budget_.allows(bytes, why);
}

uint32_t OsPlatform::client_flags() {
    watch_budget();
    return (hugepages_ != pmd::Hugepages::never ? abi::kHugeChunks : 0u) | (budget_.limited() ? abi::kPopulate : 0u);
}

bool OsPlatform::is_lost(const host::SharedMemory& m) const {
    const auto it = made_.find(m.base);
    return it != made_.end() && it->second->poisoned.load(std::memory_order_relaxed);
}

/// Calls statx() with AT_STATX_DONT_SYNC, so the call does not wait for the file's server (FUSE, NFS).
bool OsPlatform::identify_file(int fd, host::FileIdentity& out) {
    struct statx s {};
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &s) != 0) return false;
    out = {uint64_t(s.stx_dev_major) << 32 | s.stx_dev_minor, s.stx_ino};
    return true;
}

void OsPlatform::free_memory(const host::SharedMemory& m) {
    const auto it = made_.find(m.base);
    if (it != made_.end()) {
        holes_.release(SigbusGuard::instance().remove(*it->second));
        made_.erase(it);
    }
    reaper_.unmap(current_.uid, m.base, m.length);
    if (m.fd >= 0) close(m.fd);
}

std::unique_ptr<mem::MappedRegion> OsPlatform::map_region(int fd, uint64_t length, bool writable, std::string& why) {
    auto region = map_shared(fd, length, writable, why);
    if (region != nullptr)
        close(fd);  // fast: close() frees no memory, because the file is still mapped
    else
        close_fd(fd);
    return region;
}

std::unique_ptr<mem::MappedRegion> OsPlatform::map_shared(int fd, uint64_t length, bool writable, std::string& why) {
    const uint64_t mapped = mappable_length(fd, length, why);
    if (mapped == 0) return nullptr;
    void* p = map_aligned(fd, mapped, PROT_READ | (writable ? PROT_WRITE : 0));
    if (p == MAP_FAILED) {
        why = "cannot map the file: " + errno_text() + (errno == EACCES ? " (is it open for reading and writing?)" : "");
        return nullptr;
    }
    auto region = std::make_unique<mem::MappedRegion>();
    region->base = static_cast<std::byte*>(p);
    region->length = length;
    region->writable = writable;
    HoleFiller::Credit* credit = fills_holes_ ? holes_.credit_of(current_.uid) : nullptr;
    if (!SigbusGuard::instance().add(*region, mapped, credit)) {
        holes_.release(credit);
        munmap(p, mapped);
        why = "too many mapped regions";
        return nullptr;
    }
    // Calls watch() before the first access, because an access without watch() would allocate missing pages. Files with huge
    // pages (hugetlbfs) are not watched, because huge pages have a separate limit.
    const bool watches = fills_holes_ && holes_.is_open() && is_tmpfs(fd);
    if (watches && !holes_.watch(region->base, mapped)) {
        holes_.release(SigbusGuard::instance().remove(*region));
        munmap(p, mapped);
        why = "rocid has a memory limit and cannot watch a file that is read-only or sealed against writing";
        return nullptr;
    }
    prefault(fd, region->base, mapped, writable, fills_holes_);
    mapped_lengths_[region->base] = mapped;
    return region;
}

void OsPlatform::unmap_region(mem::MappedRegion& r) {
    const auto it = mapped_lengths_.find(r.base);
    if (it == mapped_lengths_.end()) return;
    holes_.release(SigbusGuard::instance().remove(r));
    reaper_.unmap(current_.uid, r.base, it->second);
    mapped_lengths_.erase(it);
    r.base = nullptr;
}

void OsPlatform::close_fd(int fd) { reaper_.close(current_.uid, fd); }

std::unique_ptr<mem::RemoteProcess> OsPlatform::remote_process(int pid) {
    if (pid <= 0 || pid != current_.pid) return nullptr;
    auto worker = slow_threads_ != nullptr ? slow_threads_->of(current_.uid) : nullptr;
    return worker != nullptr ? ProcMemory::open(pid, current_.uid, std::move(worker)) : nullptr;
}

std::unique_ptr<mem::RemoteProcess> OsPlatform::process_memory(int fd) {
    auto worker = slow_threads_ != nullptr ? slow_threads_->of(current_.uid) : nullptr;
    if (worker != nullptr)
        return ProcMemory::of_client(fd, std::move(worker), [this, uid = current_.uid](int own) { reaper_.close(uid, own); });
    close_fd(fd);
    return nullptr;
}

int OsPlatform::make_wake_fd(uint32_t session, uint32_t engine) {
    if (engine >= sleepers_.size()) return -1;
    const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0) return -1;
    if (!sleepers_[engine]->watch(fd)) {
        close(fd);
        return -1;
    }
    // The descriptor must remain open until close_wake_fds() removes the eventfd from the lcore's epoll set. So the conductor
    // (rocid's control thread) sends the descriptor with `keep` (Call::give).
    wake_fds_[session].push_back({engine, fd});
    return fd;
}

void OsPlatform::close_wake_fds(uint32_t session) {
    const auto it = wake_fds_.find(session);
    if (it == wake_fds_.end()) return;
    for (const WakeFd& w : it->second) {
        sleepers_[w.engine]->forget(w.fd);
        close(w.fd);
    }
    wake_fds_.erase(it);
}

int OsPlatform::make_text_fd(const std::string& text) {
    const int fd = memfd_create("rocid-text", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return -1;
    for (size_t at = 0; at < text.size();) {
        const ssize_t n = pwrite(fd, text.data() + at, text.size() - at, off_t(at));
        if (n <= 0) {
            close(fd);
            return -1;
        }
        at += size_t(n);
    }
    fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    return fd;
}

}  // namespace roci::rocid
