#pragma once
/// The kernel's state of pages of private anonymous memory (/proc/self/pagemap), read without touching the pages.

#include <cstdint>

#include "sys.hpp"

namespace roci::memory {

class PageView {
public:
    enum class State : uint8_t {
        unknown,    ///< some are touched, or the kernel does not say
        untouched,  ///< none was ever touched
        touched     ///< each is in memory, and this process's alone
    };

    /// @param wanted  false: every answer is "unknown"
    explicit PageView(bool wanted);

    /// At most kMoveStep bytes, whole pages.
    State look(uint64_t address, uint64_t length) const;
    /// After look() has said "untouched" and a freezer has put its marks in: true if nothing else is there.
    bool holds_nothing(uint64_t address, uint64_t length) const;

private:
    /// False: the kernel does not say.
    bool read(uint64_t address, uint64_t length, uint64_t* entries) const;

    Fd fd_;
};

}  // namespace roci::memory
