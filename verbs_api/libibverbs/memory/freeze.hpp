#pragma once
/// Blocks threads that write to pages while the pages are moved, so that no write is lost. There are two methods:
///  - write protection by userfaultfd: a writer sleeps in the kernel until thaw().
///  - mprotect and a SIGSEGV handler in which the writer waits. The library uses this method if the system refuses
///    userfaultfd, for example by Docker's seccomp profile. The handler passes other faults to the previous handler.
///
/// Between freeze() and thaw() the caller may write only to its stack, because the frozen pages may belong to the heap.

#include <cstdint>
#include <memory>

#include "kept.hpp"

namespace roci::memory {

enum class Way { automatic, uffd, mprotect, never };

/// Returns the method that the environment variable ROCI_ADOPT requests: uffd, mprotect or never. Any other value means
/// automatic. The function reads the variable once per process.
Way way_wanted();
/// Makes the next way_wanted() read the variable again. A fork's child calls this function.
void forget_way();

class Freezer {
public:
    virtual ~Freezer() = default;
    /// Prepares [address, +length). Called once, before any part of the range is frozen. `shared` is true for a shared file
    /// mapping. Returns false if this method does not work on the range.
    virtual bool cover(uint64_t address, uint64_t length, bool shared) = 0;
    /// Returns true if freeze() also blocks writers to pages that were never touched.
    virtual bool holds_untouched() const = 0;
    /// Blocks threads that write to [address, +length), until thaw(). On failure, returns false and freezes nothing.
    virtual bool freeze(uint64_t address, uint64_t length, int protection) = 0;
    /// Lets the writers continue. `replaced` is true if a new mapping is in place. Otherwise the old mapping becomes writable
    /// again.
    virtual void thaw(uint64_t address, uint64_t length, int protection, bool replaced) = 0;
    /// Blocks each thread that reads or writes a page of [address, +length) that has no page table entry. The thread waits until
    /// let_in(), or until thaw() with `replaced`. The cost does not depend on the length. Returns false if the method does not
    /// support this operation.
    virtual bool keep_out(uint64_t address, uint64_t length) {
        (void)address, (void)length;
        return false;
    }
    /// Undoes keep_out() if no new mapping is in place.
    virtual void let_in(uint64_t address, uint64_t length) { (void)address, (void)length; }
};

/// Returns a freezer that uses the next method after `tried`, or null if no further method is available. Sets `tried` to the
/// method of the freezer. In the first call `tried` is Way::automatic.
/// @param kept  the userfaultfd that is kept for later freezers. The caller drops `kept` if cover() was called for a range and
/// the range was not replaced.
std::unique_ptr<Freezer> make_freezer(Way& tried, KeptFd& kept);

/// Clears the record of the fault handler's current call. A fork's child calls this function, because the recorded call may
/// belong to another thread of the parent.
void reset_fault_handler();

std::unique_ptr<Freezer> make_uffd_freezer(KeptFd& kept);
std::unique_ptr<Freezer> make_mprotect_freezer();

}  // namespace roci::memory
