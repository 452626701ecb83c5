// Pages that are missing in clients' memory. A client allocates the pages of what it registers, but it may remove them again, and
// the kernel charges a page to the process that touches it first: rocid. Where rocid's control group has a limit, userfaultfd
// turns such accesses into SIGBUS, whose handler allows them up to a credit. Beyond it the region is poisoned, as a truncated
// one.
#pragma once

#include <atomic>
#include <cstdint>

namespace roci::rocid {

class HoleFiller {
public:
    HoleFiller() = default;
    ~HoleFiller();
    HoleFiller(const HoleFiller&) = delete;

    /// False: the kernel does not permit it (Linux 5.11, or a filter of system calls); errno says why.
    bool open();
    /// From now on missing pages of this mapping of shared memory raise SIGBUS.
    /// Returns false if the kernel refuses: the mapping can never be written, or open() has failed.
    bool watch(void* base, uint64_t length) const;
    bool is_open() const { return fd_ >= 0; }
    /// Bytes that may be filled until the next call.
    void set_credit(uint64_t bytes) { credit_.store(int64_t(bytes), std::memory_order_relaxed); }
    /// For the handler of SIGBUS: makes the page at `address` present. False: not watched, beyond the end of the file, or no
    /// credit.
    bool fill(uintptr_t address);
    uint64_t filled() const { return filled_.load(std::memory_order_relaxed); }

private:
    int fd_ = -1;
    std::atomic<int64_t> credit_{0};
    std::atomic<uint64_t> filled_{0};
};

}  // namespace roci::rocid
