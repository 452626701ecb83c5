#include "maps.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace roci::memory {
namespace {

/// The struct procmap_query of include/uapi/linux/fs.h (Linux 6.11). The headers of Debian 12 do not have this struct.
struct ProcmapQuery {
    uint64_t size, flags, address;
    uint64_t start, end, vma_flags, vma_page_size, offset, inode;
    uint32_t dev_major, dev_minor;
    uint32_t name_size, build_id_size;
    uint64_t name_address, build_id_address;
};
static_assert(sizeof(ProcmapQuery) == 104);
constexpr unsigned long kProcmapQuery = _IOWR('f', 17, ProcmapQuery);
enum : uint64_t { kReadable = 1, kWritable = 2, kExecutable = 4, kShared = 8 };

std::atomic<bool> query_unsupported{false};
std::atomic<bool> query_forbidden{false};

Fd open_maps() { return Fd(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)); }

}  // namespace

void forbid_procmap_query(bool forbid) { query_forbidden = forbid; }

int Vma::protection() const { return (read ? PROT_READ : 0) | (write ? PROT_WRITE : 0) | (execute ? PROT_EXEC : 0); }

MapsText::MapsText(std::span<char> buffer) : buffer_(buffer) {
    if (!buffer.empty()) fd_ = open_maps();
}

int MapsText::get() {
    if (at_ == end_) {
        ssize_t n;
        do {
            n = ::read(fd_.get(), buffer_.data(), buffer_.size());
        } while (n < 0 && errno == EINTR);
        failed_ = n < 0;
        if (n <= 0) return -1;
        at_ = 0;
        end_ = static_cast<size_t>(n);
    }
    return static_cast<unsigned char>(buffer_[at_++]);
}

uint64_t MapsText::number(unsigned base, int& terminator) {
    uint64_t value = 0;
    for (;;) {
        const int c = get();
        const bool digit = c >= '0' && c <= '9', letter = c >= 'a' && c <= 'f';
        if (!digit && !letter) {
            terminator = c;
            return value;
        }
        value = value * base + static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
    }
}

/// The format of a line is "start-end rwxp offset major:minor inode      name".
bool MapsText::next(Vma& vma) {
    int c = 0;
    vma.start = number(16, c);
    if (c != '-') return false;
    vma.end = number(16, c);
    vma.read = get() == 'r';
    vma.write = get() == 'w';
    vma.execute = get() == 'x';
    vma.shared = get() == 's';
    get();
    vma.offset = number(16, c);
    const auto major = static_cast<unsigned>(number(16, c));
    const auto minor = static_cast<unsigned>(number(16, c));
    vma.device = makedev(major, minor);
    vma.inode = number(10, c);
    while (c == ' ') c = get();
    size_t length = 0;
    for (; c != '\n' && c >= 0; c = get(), length++) {
        if (length < sizeof vma.name) vma.name[length] = static_cast<char>(c);
    }
    vma.name[length < sizeof vma.name ? length : 0] = 0;
    return true;
}

VmaFinder::VmaFinder(std::span<char> buffer, KeptFd* kept)
    : text_(query_unsupported || query_forbidden ? buffer : std::span<char>()) {
    if (text_.opened()) return;
    open_query(kept);
    if (fast_ || query_fd_ < 0) return;
    query_unsupported = true;
    own_fd_.reset();
    text_ = MapsText(buffer);
}

/// Opens the descriptor for queries and probes it by one query. A kept descriptor needs no probe, because a query with this
/// descriptor has already succeeded.
void VmaFinder::open_query(KeptFd* kept) {
    query_fd_ = kept != nullptr ? kept->get() : -1;
    fast_ = query_fd_ >= 0;
    if (fast_) return;
    own_fd_ = open_maps();
    query_fd_ = own_fd_.get();
    Vma probe;
    fast_ = query_fd_ >= 0 && query(reinterpret_cast<uint64_t>(&query_unsupported), probe, false);
    if (!fast_ || kept == nullptr) return;
    kept->keep(std::move(own_fd_));
    query_fd_ = kept->get();
    fast_ = query_fd_ >= 0;
}

bool VmaFinder::query(uint64_t address, Vma& vma, bool with_name) {
    ProcmapQuery q{};
    q.size = sizeof q;
    q.address = address;
    q.name_address = with_name ? reinterpret_cast<uint64_t>(vma.name) : 0;
    q.name_size = with_name ? sizeof vma.name : 0;
    vma.name[0] = 0;
    if (::ioctl(query_fd_, kProcmapQuery, &q) != 0) {
        if (errno == ENAMETOOLONG && with_name) return query(address, vma, false);
        return false;
    }
    if (q.name_size == 0) vma.name[0] = 0;
    vma.start = q.start;
    vma.end = q.end;
    vma.offset = q.offset;
    vma.inode = q.inode;
    vma.device = makedev(q.dev_major, q.dev_minor);
    vma.read = q.vma_flags & kReadable;
    vma.write = q.vma_flags & kWritable;
    vma.execute = q.vma_flags & kExecutable;
    vma.shared = q.vma_flags & kShared;
    return true;
}

bool VmaFinder::find(uint64_t address, Vma& vma, bool with_name) {
    if (fast_) return query(address, vma, with_name);
    while (!have_ahead_ || ahead_.end <= address) {
        have_ahead_ = text_.opened() && text_.next(ahead_);
        if (!have_ahead_) return false;
    }
    if (ahead_.start > address) return false;
    vma = ahead_;
    return true;
}

}  // namespace roci::memory
