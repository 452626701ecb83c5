#pragma once
/// Blocks writers while pages are moved, so that no update is lost. There are two methods:
///  - userfaultfd write-protection: a writer sleeps in the kernel until it is woken.
///  - mprotect and a SIGSEGV handler in which the writer waits. This method is used if userfaultfd is refused, as by Docker's
///    seccomp profile. The handler passes other faults to the previous handler.
///
/// Between freeze() and thaw() the caller may write only to its stack, because the frozen pages may belong to the heap.

#include <cstdint>
#include <memory>

#include "kept.hpp"

namespace roci::memory {

enum class Way { automatic, uffd, mprotect, never };

/// Returns the method that the environment variable ROCI_ADOPT requests: uffd, mprotect or never; any other value means
/// automatic. The variable is read once per process.
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
    /// Makes writers to [address, +length) wait. Returns false on failure; then nothing is frozen.
    virtual bool freeze(uint64_t address, uint64_t length, int protection) = 0;
    /// Lets the writers continue. With `replaced` a new mapping is in place; otherwise the old mapping gets its protection back.
    virtual void thaw(uint64_t address, uint64_t length, int protection, bool replaced) = 0;
};

/// Returns the next method after `tried` that this process may use, or null. The first call passes Way::automatic.
/// @param kept  a descriptor for the next freezer; the caller drops it if a range was covered but not replaced
std::unique_ptr<Freezer> make_freezer(Way& tried, KeptFd& kept);

/// Called in a fork's child. Resets the fault handler's state of other threads.
void reset_fault_handler();

std::unique_ptr<Freezer> make_uffd_freezer(KeptFd& kept);
std::unique_ptr<Freezer> make_mprotect_freezer();

}  // namespace roci::memory
