#pragma once
/// Puts huge pages into parts of a memfd.

#include <cstdint>

#include "sys.hpp"

namespace roci::memory {

/// Turns holes of one file into huge pages. The first call reserves the addresses that it needs.
class Collapser {
public:
    explicit Collapser(int fd) : fd_(fd) {}
    ~Collapser();
    Collapser(const Collapser&) = delete;
    Collapser& operator=(const Collapser&) = delete;

    /// The hole [offset, +length) will be mapped at `address`. Returns true if the hole is one huge page of zeros now. Returns
    /// false if it is not a whole huge page, if offset and address are aligned differently, or if the kernel has no huge page or
    /// cannot make one (before Linux 6.1).
    bool make_huge(uint64_t address, uint64_t length, uint64_t offset);

private:
    bool reserve();

    int fd_;
    bool refused_ = false;
    uint64_t reserved_ = 0;  ///< address range of two huge pages, in which one aligned huge page fits
};

}  // namespace roci::memory
