#pragma once
/// Allocates huge pages in a memfd.

#include <cstdint>

#include "sys.hpp"

namespace roci::memory {

/// Turns holes of one file into huge pages.
class Collapser {
public:
    explicit Collapser(int fd) : fd_(fd) {}
    ~Collapser();
    Collapser(const Collapser&) = delete;
    Collapser& operator=(const Collapser&) = delete;

    /// Turns the hole [offset, +length), which will be mapped at `address`, into one huge page of zeros. Returns false if the
    /// hole does not have the size of a huge page, or if `offset` or `address` is not aligned to a huge page. Also returns false
    /// if the kernel has no free huge page or has no MADV_COLLAPSE (before Linux 6.1).
    bool make_huge(uint64_t address, uint64_t length, uint64_t offset);

private:
    bool reserve();

    int fd_;
    bool refused_ = false;
    uint64_t reserved_ = 0;  ///< address range of two huge pages, in which one aligned huge page fits
};

}  // namespace roci::memory
