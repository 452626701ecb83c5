#pragma once
/// Reads the state of pages of private anonymous memory from /proc/self/pagemap, without touching the pages.

#include <cstdint>

#include "sys.hpp"

namespace roci::memory {

class PageView {
public:
    enum class State : uint8_t {
        unknown,    ///< neither of the following states, or the kernel does not report the state
        untouched,  ///< no page was ever touched
        touched     ///< each page is in memory and belongs to this process alone
    };

    /// @param wanted  if false, look() always returns State::unknown
    explicit PageView(bool wanted);

    /// Returns the state of the pages of [address, +length). The range has whole pages and at most kMoveStep bytes.
    State look(uint64_t address, uint64_t length) const;
    /// Returns the number of bytes, at most `length`, from `address` to the first page that should be moved separately. Long runs
    /// of untouched pages are moved separately, because they need no copy. The limits of the range are the same as for look().
    uint64_t bytes_at_once(uint64_t address, uint64_t length) const;
    /// Returns true if the pages are still untouched. Called after look() has returned State::untouched and a freezer has
    /// write-protected the pages.
    bool holds_nothing(uint64_t address, uint64_t length) const;
    /// Returns the number of bytes from `address` to the first page that was touched, at most `length`. The cost depends on the
    /// number of existing page tables and not on the length. Returns 0 if the kernel has no PAGEMAP_SCAN (before Linux 6.7).
    uint64_t untouched_bytes(uint64_t address, uint64_t length) const;

private:
    /// Reads the pagemap entries. Returns false if the kernel does not report them.
    bool read(uint64_t address, uint64_t length, uint64_t* entries) const;

    Fd fd_;
};

}  // namespace roci::memory
