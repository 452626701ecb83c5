#include "move.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "huge.hpp"
#include "page_view.hpp"
#include "sys.hpp"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif

namespace roci::memory {
namespace {

/// Returns true if all bytes are zero. The function reads whole pages, so it also reads bytes next to the program's buffer. The
/// address sanitizer would report these reads.
__attribute__((no_sanitize("address"))) bool all_zero(const uint64_t* page, uint64_t bytes) {
    constexpr uint64_t kBlock = 8;
    for (uint64_t i = 0; i < bytes / sizeof(uint64_t); i += kBlock) {
        uint64_t any = 0;
        for (uint64_t k = 0; k < kBlock; k++) any |= page[i + k];
        if (any) return false;
    }
    return true;
}

/// Maps untouched pages to the zero page. A page without a page table entry cannot be write-protected, and a first write to such
/// a page during the freeze would be lost.
bool populate_for_reading(uint64_t address, uint64_t length) {
    if (::madvise(pointer(address), length, MADV_POPULATE_READ) == 0) return true;
    if (errno != EINVAL) return false;  // a part of the range is unmapped or has a hardware error
    for (uint64_t at = address; at < address + length; at += page_size()) *static_cast<const volatile char*>(pointer(at));
    return true;
}

/// Copies [address, +length) to the file by pwrite(2). If memory runs out, pwrite(2) returns an error, but a store into a mapping
/// would raise SIGBUS.
bool copy_out(int fd, uint64_t address, uint64_t length, uint64_t offset) {
    while (length > 0) {
        const long n = ::syscall(SYS_pwrite64, fd, address, length, offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        address += static_cast<uint64_t>(n);
        offset += static_cast<uint64_t>(n);
        length -= static_cast<uint64_t>(n);
    }
    return true;
}

/// Copies the pages that are not all zero. Adds the number of copied bytes to `copied`.
bool copy_content(const Move& step, uint64_t& copied) {
    const uint64_t page = page_size(), end = step.address + step.length;
    for (uint64_t at = step.address; at < end;) {
        uint64_t run = at;
        while (run < end && !all_zero(pointer<const uint64_t>(run), page)) run += page;
        if (run > at && !copy_out(step.fd, at, run - at, step.offset + (at - step.address))) return false;
        copied += run - at;
        at = run + page;
    }
    return true;
}

bool replace(const Move& step) {
    return ::mmap(pointer(step.address), step.length, step.protection, MAP_SHARED | MAP_FIXED, step.fd,
                  static_cast<off_t>(step.offset)) != MAP_FAILED;
}

/// Adds the pages with data to the page table, so that the program's next accesses to these pages cause no page faults.
void populate(const Move& step, uint64_t copied) {
    const int advice = step.protection & PROT_WRITE ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    if (copied == step.length) {  // all pages have data
        ::madvise(pointer(step.address), step.length, advice);
        return;
    }
    const uint64_t end = step.offset + step.length;
    for (uint64_t at = step.offset; at < end;) {
        const off_t data = ::lseek(step.fd, static_cast<off_t>(at), SEEK_DATA);
        if (data < 0 || static_cast<uint64_t>(data) >= end) return;
        const off_t hole = ::lseek(step.fd, data, SEEK_HOLE);
        at = hole < 0 ? end : std::min(end, static_cast<uint64_t>(hole));
        const uint64_t from = static_cast<uint64_t>(data);
        if (::madvise(pointer(step.address + (from - step.offset)), at - from, advice) != 0) return;  // only an optimisation
    }
}

/// Returns true if the mapping is locked (mlock). msync() refuses to invalidate a locked mapping and has no other effect on
/// anonymous memory.
bool is_locked(const Move& step) {
    return ::msync(pointer(step.address), step.length, MS_ASYNC | MS_INVALIDATE) != 0 && errno == EBUSY;
}

void lock_again(const Move& step) { ::syscall(SYS_mlock2, step.address, step.length, MLOCK_ONFAULT); }

void discard(const Move& step) {
    ::fallocate(step.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(step.offset),
                static_cast<off_t>(step.length));
}

/// The state of one call of move_pages().
class Mover {
public:
    Mover(const Move& move, Freezer& freezer)
        : freezer_(freezer), view_(!move.shared && move.length >= kLeastToLookAt), collapser_(move.fd) {}

    /// Moves the untouched pages at the start of `rest` all at once, because their number may be huge. Returns the number of
    /// bytes moved. Returns 0 if there are too few untouched pages or the accesses to them cannot be blocked; the caller then
    /// calls move().
    uint64_t move_untouched(const Move& rest) {
        if (rest.length < kLeastUntouched) return 0;
        Move run = rest;
        run.length = view_.untouched_bytes(rest.address, rest.length);
        if (run.length != rest.length) run.length -= std::min(run.length, (run.address + run.length) % kMoveStep);
        if (run.length < kLeastUntouched) return 0;
        const bool locked = is_locked(run);
        if (!freezer_.keep_out(run.address, run.length)) return 0;
        // The second call of untouched_bytes() detects pages that a thread has touched between the first call and keep_out().
        if (view_.untouched_bytes(run.address, run.length) != run.length || !replace(run)) {
            freezer_.let_in(run.address, run.length);
            return 0;
        }
        freezer_.thaw(run.address, run.length, run.protection, true);
        if (locked) lock_again(run);
        return run.length;
    }

    /// See PageView::bytes_at_once(). Returns `length` if the freezer cannot block untouched pages.
    uint64_t bytes_at_once(uint64_t address, uint64_t length) const {
        return freezer_.holds_untouched() ? view_.bytes_at_once(address, length) : length;
    }

    /// Moves at most kMoveStep bytes. Returns false if the pages cannot be frozen, copied or replaced.
    bool move(const Move& step) {
        const PageView::State before = view_.look(step.address, step.length);
        // If all pages are touched, the huge page is created while the range of the file is still a hole. A later collapse would
        // copy the pages a second time.
        const bool huge = before == PageView::State::touched && collapser_.make_huge(step.address, step.length, step.offset);
        const bool locked = is_locked(step);
        if (!freeze(step, before)) {
            if (huge) discard(step);
            return false;
        }
        uint64_t copied = 0;
        // holds_nothing() detects writes between look() and the freeze.
        const bool untouched = before == PageView::State::untouched && view_.holds_nothing(step.address, step.length);
        const bool moved = (untouched || copy(step, huge, copied)) && replace(step);
        freezer_.thaw(step.address, step.length, step.protection, moved);
        if (!moved) {
            discard(step);
            return false;
        }
        if (locked) lock_again(step);
        if (copied != 0) populate(step, copied);
        return true;
    }

private:
    static constexpr uint64_t kLeastToLookAt = 256 << 10;  ///< for a smaller range, reading the pagemap costs more than it saves
    static constexpr uint64_t kLeastUntouched = 8 * kMoveStep;

    bool freeze(const Move& step, PageView::State before) {
        const bool as_it_is = before != PageView::State::unknown && freezer_.holds_untouched();
        if (!as_it_is && !populate_for_reading(step.address, step.length)) return false;
        return freezer_.freeze(step.address, step.length, step.protection);
    }

    static bool copy(const Move& step, bool huge, uint64_t& copied) {
        if (!huge) return copy_content(step, copied);
        copied = step.length;
        return copy_out(step.fd, step.address, step.length, step.offset);
    }

    Freezer& freezer_;
    PageView view_;
    Collapser collapser_;
};

}  // namespace

uint64_t move_pages(const Move& move, Freezer& freezer) {
    if (!freezer.cover(move.address, move.length, move.shared)) return 0;
    Mover mover(move, freezer);
    uint64_t done = 0;
    while (done < move.length) {
        Move step = move;
        step.address += done;
        step.offset += done;
        step.length = move.length - done;
        if (const uint64_t untouched = mover.move_untouched(step); untouched != 0) {
            done += untouched;
            continue;
        }
        step.length = mover.bytes_at_once(step.address, std::min(step.length, kMoveStep - step.address % kMoveStep));
        if (!mover.move(step)) break;
        done += step.length;
    }
    return done;
}

}  // namespace roci::memory
