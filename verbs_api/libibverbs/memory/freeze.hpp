#pragma once
/// Blocks writers while pages are moved, so that no update is lost. There are two methods:
///  - write protection by userfaultfd: a writer sleeps in the kernel until thaw().
///  - mprotect and a SIGSEGV handler in which the writer waits. This method is used if userfaultfd is refused, for example by
///    Docker's seccomp profile. The handler passes other faults to the previous handler.
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
/// Makes the next way_wanted() read the variable again. Called in a fork's child.
void forget_way();

class Freezer {
public:
    virtual ~Freezer() = default;
    /// Prepares [address, +length). Called once, before any part of the range is frozen. `shared` is true for a shared file
    /// mapping. Returns false if this method does not work on the range.
    virtual bool cover(uint64_t address, uint64_t length, bool shared) = 0;
    /// Returns true if freeze() also blocks writers to pages that were never touched.
    virtual bool holds_untouched() const = 0;
    /// Makes writers to [address, +length) wait. On failure, returns false and freezes nothing.
    virtual bool freeze(uint64_t address, uint64_t length, int protection) = 0;
    /// Lets the writers continue. `replaced` is true if a new mapping is in place. Otherwise the old mapping becomes writable
    /// again.
    virtual void thaw(uint64_t address, uint64_t length, int protection, bool replaced) = 0;
    /// Makes threads wait that touch a page of [address, +length) for the first time, reading or writing, until thaw() with
    /// `replaced` or let_in(). The cost does not depend on the length. Returns false if the method cannot do this.
    virtual bool keep_out(uint64_t address, uint64_t length) {
        (void)address, (void)length;
        return false;
    }
    /// Undoes keep_out() if no new mapping is in place.
    virtual void let_in(uint64_t address, uint64_t length) { (void)address, (void)length; }
};

/// Returns a freezer of the next method after `tried` that this process may use, or null. Sets `tried` to this method. The first
/// call passes Way::automatic.
/// @param kept  the userfaultfd kept for later freezers; the caller drops it if a range was covered but not replaced
std::unique_ptr<Freezer> make_freezer(Way& tried, KeptFd& kept);

/// Called in a fork's child. Clears the fault handler's record of a call in another thread of the parent.
void reset_fault_handler();

std::unique_ptr<Freezer> make_uffd_freezer(KeptFd& kept);
std::unique_ptr<Freezer> make_mprotect_freezer();

}  // namespace roci::memory
