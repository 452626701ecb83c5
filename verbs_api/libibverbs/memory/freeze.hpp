#pragma once
/// Blocks writers while pages are moved, so that no update is lost. There are two methods:
///  - userfaultfd write-protection: a writer sleeps in the kernel until it is woken.
///  - If userfaultfd is refused (Docker's seccomp profile): mprotect, and a SIGSEGV handler in which the writer waits. The
///    handler passes other faults to the previous handler.
///
/// Between freeze() and thaw() the caller may write only to its stack, because the frozen pages may belong to the heap.

#include <cstdint>
#include <memory>

#include "kept.hpp"

namespace roci::memory {

enum class Way { automatic, uffd, mprotect, never };

/// The method of the environment variable ROCI_ADOPT (uffd | mprotect | never; other values: automatic), read once per process.
Way way_wanted();
/// Makes the next call read the environment again (in a fork's child).
void forget_way();

class Freezer {
public:
    virtual ~Freezer() = default;
    /// Prepares [address, +length). Called once, before any part of it is frozen. `shared`: it is a shared file mapping. False:
    /// this method does not work there.
    virtual bool cover(uint64_t address, uint64_t length, bool shared) = 0;
    /// True: freeze() also holds writers to pages that were never touched.
    virtual bool holds_untouched() const = 0;
    /// Makes writers to [address, +length) wait. If it fails, nothing is frozen.
    virtual bool freeze(uint64_t address, uint64_t length, int protection) = 0;
    /// Lets the writers continue. `replaced`: a new mapping is in place; else the old mapping gets its protection back.
    virtual void thaw(uint64_t address, uint64_t length, int protection, bool replaced) = 0;
};

/// The next method after `tried` that this process may use, or null. Start with Way::automatic.
/// @param kept  a descriptor to keep for the next freezer; drop it if a range was covered but not replaced
std::unique_ptr<Freezer> make_freezer(Way& tried, KeptFd& kept);

/// In a fork's child: resets the state of other threads in the fault handler.
void reset_fault_handler();

std::unique_ptr<Freezer> make_uffd_freezer(KeptFd& kept);
std::unique_ptr<Freezer> make_mprotect_freezer();

}  // namespace roci::memory
