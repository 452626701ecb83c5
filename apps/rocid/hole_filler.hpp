// Allocates pages that clients have removed from registered memory. The kernel charges such a page to the process that touches it
// first: rocid. If rocid's control group has a limit, userfaultfd turns an access to a missing page into SIGBUS. The handler of
// SIGBUS allocates pages up to a credit. Beyond the credit the handler poisons the region, as after a truncation.
#pragma once

#include <atomic>
#include <cstdint>

namespace roci::rocid {

class HoleFiller {
public:
    HoleFiller() = default;
    ~HoleFiller();
    HoleFiller(const HoleFiller&) = delete;

    /// Returns false, with errno set, if the kernel does not permit userfaultfd (before Linux 5.11, or by a seccomp filter).
    bool open();
    /// Makes missing pages of this mapping of shared memory raise SIGBUS. Returns false if the kernel refuses because the mapping
    /// can never be written, or if open() has failed.
    bool watch(void* base, uint64_t length) const;
    bool is_open() const { return fd_ >= 0; }
    /// Sets the number of bytes that may be filled until the next call.
    void set_credit(uint64_t bytes) { credit_.store(int64_t(bytes), std::memory_order_relaxed); }
    /// Allocates the page at `address`; the handler of SIGBUS calls this function. Returns false if the page is not watched or is
    /// beyond the end of the file, or if no credit is left.
    bool fill(uintptr_t address);
    uint64_t filled() const { return filled_.load(std::memory_order_relaxed); }

private:
    int fd_ = -1;
    std::atomic<int64_t> credit_{0};
    std::atomic<uint64_t> filled_{0};
};

}  // namespace roci::rocid
