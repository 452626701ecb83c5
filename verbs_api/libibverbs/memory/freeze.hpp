#pragma once
/// Holding back writers while pages are moved, so that no update is lost. Two ways:
///  - userfaultfd write-protection: a writer sleeps in the kernel until woken.
///  - where that is refused (Docker's seccomp profile): mprotect, and a SIGSEGV handler in which the writer waits. Faults that
///  are not
///    of this room's making go on to the handler that was there before.
///
/// Between freeze() and thaw() the caller must write nowhere but to its stack: the frozen pages may be those of the heap.

#include <cstdint>
#include <memory>

#include "kept.hpp"

namespace roci::memory {

enum class Way { automatic, uffd, mprotect, never };

/// From the environment variable ROCI_ADOPT (uffd | mprotect | never; anything else: automatic), read once in a process.
Way way_wanted();
/// The environment is read again next time (a fork's child).
void forget_way();

class Freezer {
public:
    virtual ~Freezer() = default;
    /// Called once for [address, +length), before any of it is frozen. `shared`: it is a shared file mapping. False: this way
    /// cannot be used there.
    virtual bool cover(uint64_t address, uint64_t length, bool shared) = 0;
    /// True: freeze() also holds writers to pages that were never touched.
    virtual bool holds_untouched() const = 0;
    /// Writers to [address, +length) wait from here on. Nothing is frozen when it fails.
    virtual bool freeze(uint64_t address, uint64_t length, int protection) = 0;
    /// Lets them go. `replaced`: another mapping has taken the place; else the old one gets its protection back.
    virtual void thaw(uint64_t address, uint64_t length, int protection, bool replaced) = 0;
};

/// The next way to try after `tried` that is open to this process, or null. Start with Way::automatic.
/// @param kept  what is worth keeping for the next freezer; to be dropped when a range was covered but not replaced
std::unique_ptr<Freezer> make_freezer(Way& tried, KeptFd& kept);

/// In a fork's child: what other threads were doing in the fault handler is not its business.
void reset_fault_handler();

std::unique_ptr<Freezer> make_uffd_freezer(KeptFd& kept);
std::unique_ptr<Freezer> make_mprotect_freezer();

}  // namespace roci::memory
