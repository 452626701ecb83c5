#pragma once
/// Huge pages for stretches of a memfd.

#include <cstdint>

#include "sys.hpp"

namespace roci::memory {

/// Makes huge pages of holes in one file. What it needs is made at the first one.
class Collapser {
public:
    explicit Collapser(int fd) : fd_(fd) {}
    ~Collapser();
    Collapser(const Collapser&) = delete;
    Collapser& operator=(const Collapser&) = delete;

    /// The hole [offset, +length) is to be mapped at `address`. True: it is one huge page of zeros now. False: it is no whole
    /// huge page, the two are not aligned alike, or the kernel has none or cannot (before Linux 6.1).
    bool make_huge(uint64_t address, uint64_t length, uint64_t offset);

private:
    bool reserve();

    int fd_;
    bool refused_ = false;
    uint64_t reserved_ = 0;  ///< two huge pages' worth of addresses, one of which is aligned
};

}  // namespace roci::memory
