#include "adopt.hpp"

#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "advice.hpp"
#include "foreign.hpp"
#include "fork.hpp"
#include "maps.hpp"
#include "move.hpp"
#include "page_view.hpp"
#include "room.hpp"

namespace roci::memory {

pthread_mutex_t room_mutex = PTHREAD_MUTEX_INITIALIZER;
Room* room = nullptr;
uint64_t last_token = 0;

namespace {

struct Range {
    uint64_t start, end;
};
bool overlap(const Range& a, const Range& b) { return a.start < b.end && b.start < a.end; }

/// Returns the range of this thread's stack and TLS. The library does not adopt (adopt.hpp) the stack and TLS of the calling
/// thread: the thread would block itself on a frozen page, and fork() writes to the stack in the child. For the main thread the
/// function returns a dummy range in the first page of the address space.
Range own_stack() {
    static thread_local Range cached{0, 0};
    if (cached.end != 0) return cached;
    pthread_attr_t attributes;
    void* base = nullptr;
    size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {0, 0};
    pthread_attr_getstack(&attributes, &base, &size);
    pthread_attr_destroy(&attributes);
    const auto start = reinterpret_cast<uint64_t>(base);
    // The main thread's stack is identified by its name [stack] and not by its range. If the size limit of this stack is
    // infinite, the range also contains other mappings.
    const uint64_t on_first_stack = getauxval(AT_RANDOM);
    if (on_first_stack >= start && on_first_stack - start < size) return cached = {1, 1};
    return cached = {page_floor(start), page_ceil(start + size)};
}

/// Returns true if the range contains pages to which this code writes while pages are frozen (freeze.hpp): the stack, the pages
/// around the stack frame (a coroutine has its own stack), the page of errno, or the pages of the thread control block.
bool is_in_use_by_this_thread(const Range& range) {
    constexpr uint64_t kBelow = 64 << 10, kAbove = 16 << 10, kControlBlock = 2304;
    const auto frame = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
    const auto self = static_cast<uint64_t>(pthread_self()), error = reinterpret_cast<uint64_t>(&errno);
    // If the frame is on the thread's own stack, the bounds of the stack are known. Pages outside these bounds belong to another
    // mapping, even if they are near the frame.
    const Range stack = own_stack();
    const bool known = frame >= stack.start && frame < stack.end;
    const Range around = known ? stack : Range{frame - kBelow, frame + kAbove};
    const Range taken[] = {stack, around, {self, self + kControlBlock}, {error, error + sizeof errno}};
    return std::any_of(std::begin(taken), std::end(taken), [&](const Range& r) {
        return overlap(range, {page_floor(r.start), page_ceil(r.end)});
    });
}

/// Returns true if the page may contain the control data of a malloc arena. glibc aligns the heaps of an arena to
/// kArenaAlignment, and the first word of an arena's first heap points into the page. Such a page is not adopted: in a fork's
/// child, glibc resets the arena's lock before any handler runs. In shared memory, glibc would reset a lock that a thread of the
/// parent holds.
constexpr uint64_t kArenaAlignment = 64ull << 20;
__attribute__((no_sanitize("address"))) bool is_arena_head(uint64_t page) {
    if (page % kArenaAlignment != 0) return false;
    const uint64_t first_word = *pointer<const volatile uint64_t>(page);
    return first_word > page && first_word < page + page_size();
}

/// Returns false if process_vm_readv cannot access the page, for example in device memory. Returns true if the call itself is
/// forbidden.
bool is_reachable(uint64_t address) {
    char byte;
    iovec local{&byte, 1}, remote{pointer(address), 1};
    return ::process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1 || errno != EFAULT;
}

/// Makes mremap(), for example in realloc(), refuse to grow an adopted mapping (adopt.hpp). A grown mapping would extend into the
/// file space of other mappings. mremap() refuses a range of several VMAs. So this function makes the first page a separate VMA
/// by MADV_RANDOM. If the range begins with a huge page and is longer, the whole huge page becomes the separate VMA, because the
/// kernel maps a huge page in parts if a VMA ends within it. Does nothing for a mapping of less than 16 pages, unless it is an
/// allocation of malloc() by mmap().
void forbid_growth(const Placement& to, uint64_t first_byte) {
    constexpr uint64_t kMallocHeader = 16, kMmapped = 2, kFlags = 7;
    const auto* header = pointer<const uint64_t>(to.address);
    const bool malloc_mapping =
        first_byte == to.address + kMallocHeader && (header[1] & kMmapped) && ((header[1] & ~kFlags) % page_size()) == 0;
    if (to.length < kSlotPages * page_size() && !malloc_mapping) return;
    const bool huge = to.address % kHugePage == 0 && to.offset % kHugePage == 0 && to.length > kHugePage;
    ::madvise(pointer(to.address), huge ? kHugePage : page_size(), MADV_RANDOM);
}

/// One call of acquire(): reads the mappings of the range, adopts private memory, and appends the pieces of the range to `out`.
class Acquisition {
public:
    Acquisition(uint64_t start, uint64_t end, bool need_write, std::vector<Piece>& out)
        : bytes_{start, end}, pages_{page_floor(start), page_ceil(end)}, need_write_(need_write), out_(out) {}

    ~Acquisition() {
        for (const Use& use : uses_) room->files.unpin(use);
    }
    Acquisition(const Acquisition&) = delete;
    Acquisition& operator=(const Acquisition&) = delete;

    int run() {
        if (const int error = look()) return error;
        for (const Vma& vma : vmas_) {
            if (const int error = take(vma)) return error;
        }
        trim();
        return 0;
    }
    /// Returns the ranges of files that acquire() has pinned so far. The caller must unpin them.
    std::vector<Use> take_uses() { return std::exchange(uses_, {}); }

private:
    /// Reads and checks all mappings of the range, before acquire() changes any of them.
    int look() {
        char buffer[4096];
        VmaFinder finder(buffer, &room->maps);
        if (!finder.opened()) return errno ? errno : EIO;
        for (uint64_t at = pages_.start; at < pages_.end;) {
            Vma vma;
            if (!finder.find(at, vma)) return EFAULT;
            if (!vma.protection() || (need_write_ && !vma.write)) return EFAULT;
            vmas_.push_back(vma);
            at = vma.end;
        }
        return 0;
    }

    int take(const Vma& whole) {
        const Range range{std::max(whole.start, pages_.start), std::min(whole.end, pages_.end)};
        const bool file = whole.inode != 0 || whole.name[0] == '/';  // the inode of a SysV segment is its id, which may be 0
        if (whole.shared && file) return take_shared(whole, range);
        const std::string_view name = whole.name;
        const bool anonymous = !file && !whole.shared && (name.empty() || name == "[heap]" || name.starts_with("[anon:"));
        if (!anonymous || is_in_use_by_this_thread(range)) return add_unshared(range, whole.write);
        return take_anonymous(whole, range);
    }

    int take_shared(const Vma& vma, const Range& range) {
        const uint64_t offset = vma.offset + (range.start - vma.start);
        File* file = room->files.find(vma.device, vma.inode, vma.write);
        if (file && !room->files.check(file)) file = nullptr;
        if (!file && std::string_view(vma.name) == kMapsName)
            return is_in_use_by_this_thread(range) ? add_unshared(range, vma.write) : adopt(vma, range, 0);
        if (!file) file = open_foreign(vma);
        const bool whole = file && offset + (range.end - range.start) <= page_ceil(file->length);
        if (!whole || (need_write_ && !file->writable)) {
            if (file) room->files.remove_unused(file);
            return add_unshared(range, vma.write);
        }
        room->files.note_mapped(*file, offset, range.end - range.start);
        add({file, offset, range.start, range.end - range.start});
        return 0;
    }

    static File* open_foreign(const Vma& vma) {
        bool writable = vma.write;
        uint64_t length = 0;
        Fd fd = open_mapped_file(vma, writable, length);
        return fd ? room->files.add_foreign(std::move(fd), vma.device, vma.inode, length, writable) : nullptr;
    }

    /// Adopts anonymous memory, except for the heads of malloc arenas.
    int take_anonymous(const Vma& vma, const Range& range) {
        const PageView view(range.end - range.start > kArenaAlignment);
        // malloc has written to an arena's head, so an untouched page is no head. has_head() does not read an untouched page,
        // because a read would map the zero page.
        const auto has_head = [&](uint64_t page) {
            if (!vma.read || page % kArenaAlignment != 0) return false;
            return view.look(page, page_size()) != PageView::State::untouched && is_arena_head(page);
        };
        for (uint64_t at = range.start; at < range.end;) {
            if (has_head(at)) {
                if (const int error = add_unshared({at, at + page_size()}, vma.write)) return error;
                at += page_size();
                continue;
            }
            uint64_t stop = (at / kArenaAlignment + 1) * kArenaAlignment;
            while (stop < range.end && !has_head(stop)) stop += kArenaAlignment;
            stop = std::min(stop, range.end);
            if (const int error = adopt(vma, {at, stop}, bytes_.start)) return error;
            at = stop;
        }
        return 0;
    }

    /// Moves a range into files. If only a part of the range can be moved, the rest becomes a piece that is accessed by address.
    /// @param first_byte  first byte of the program's range; 0 if the range was adopted before
    int adopt(const Vma& vma, const Range& range, uint64_t first_byte) {
        Files& files = room->files;
        std::vector<Placement> placements;
        if (way_wanted() != Way::never && vma.read) {
            if (files.collect_due()) files.collect();
            if (files.vmas_left()) files.place(range.start, range.end - range.start, placements);
        }
        uint64_t at = range.start;
        for (size_t i = 0; i < placements.size(); i++) {
            Placement done = placements[i];
            done.length = at == done.address ? move(vma, done) : 0;
            if (done.length > 0) {
                add(done);
                forbid_growth(done, first_byte);
                at += done.length;
            }
            if (done.length < placements[i].length) give_back(placements[i], done.length);
        }
        return at < range.end ? add_unshared({at, range.end}, vma.write) : 0;
    }

    static void give_back(Placement placement, uint64_t used) {
        if (placement.file->kind == File::Kind::own && used > 0) return;  // the unused part of the file stays a hole
        placement.offset += used;
        placement.address += used;
        placement.length -= used;
        room->files.unplace(placement);
    }

    static uint64_t move(const Vma& vma, const Placement& to) {
        for (Way way = Way::automatic;;) {
            const auto freezer = make_freezer(way, room->uffd);
            if (!freezer) return 0;
            const uint64_t moved =
                move_pages({to.address, to.length, vma.protection(), vma.shared, to.file->fd.get(), to.offset}, *freezer);
            if (moved < to.length) room->uffd.drop();  // closing the descriptor unfreezes the remaining pages
            // If no page was moved, the loop tries the next method for a shared mapping, but not for private memory. If
            // userfaultfd refuses private memory, the program may have registered this memory with its own userfaultfd.
            if (moved > 0 || !vma.shared) return moved;
        }
    }

    void add(const Placement& p) {
        uses_.push_back({p.file, p.offset, p.length});
        room->files.pin(uses_.back());
        append({p.file->fd.get(), p.offset, p.file->length, p.file->id, p.file->writable, p.address, p.length});
    }

    int add_unshared(const Range& range, bool writable) {
        if (!is_reachable(range.start)) return EFAULT;
        append({-1, 0, 0, 0, writable, range.start, range.end - range.start});
        return 0;
    }

    void append(const Piece& piece) {
        if (!out_.empty()) {
            Piece& last = out_.back();
            const bool follows = piece.fd < 0 || last.fd_offset + last.length == piece.fd_offset;
            if (last.id == piece.id && last.writable == piece.writable && follows) {
                last.length += piece.length;
                return;
            }
        }
        out_.push_back(piece);
    }

    /// Reduces the first and the last piece from whole pages to the exact byte range.
    void trim() {
        Piece& first = out_.front();
        const uint64_t before = bytes_.start - first.address;
        first.address += before;
        first.length -= before;
        if (first.fd >= 0) first.fd_offset += before;
        Piece& last = out_.back();
        last.length -= last.address + last.length - bytes_.end;
    }

    const Range bytes_, pages_;
    const bool need_write_;
    std::vector<Vma> vmas_;
    std::vector<Piece>& out_;
    std::vector<Use> uses_;
};

int acquire_locked(uint64_t start, uint64_t end, bool need_write, std::vector<Piece>& out, uint64_t& token) {
    if (!room) room = new Room;
    Acquisition acquisition(start, end, need_write, out);
    const int error = acquisition.run();
    if (error != 0) return error;
    auto& uses = room->tokens[last_token + 1];
    uses = acquisition.take_uses();
    token = ++last_token;
    return 0;
}

}  // namespace

int acquire(void* addr, size_t length, bool need_write, std::vector<Piece>& out, uint64_t& token) {
    note_adoption();
    out.clear();
    token = 0;
    const auto start = reinterpret_cast<uint64_t>(addr);
    const uint64_t end = start + length;
    if (length == 0 || end < start || page_ceil(end) < end) return EINVAL;
    watch_forks();
    const Undisturbed undisturbed;
    const Locked locked;
    int error;
    try {
        error = acquire_locked(start, end, need_write, out, token);
    } catch (const std::bad_alloc&) {
        error = ENOMEM;
    }
    if (error != 0) out.clear();
    return error;
}

void release(uint64_t token) {
    const Undisturbed undisturbed;
    const Locked locked;
    if (!room) return;
    const auto it = room->tokens.find(token);
    if (it == room->tokens.end()) return;
    for (const Use& use : it->second) room->files.unpin(use);
    room->tokens.erase(it);
    room->files.give_up_idle(kIdleBytes);
}

Usage usage() {
    const Undisturbed undisturbed;
    const Locked locked;
    if (!room) return {};
    return {room->files.count(), room->files.adopted_bytes(), room->tokens.size()};
}

}  // namespace roci::memory
