// Frame buffers of fixed size in one block of memory, for ports that do not use DPDK. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "wire/packet.hpp"

namespace roci::pmd {

class FrameSlots {
public:
    static constexpr uint32_t kLine = 64;
    /// Bytes per slot: at least the length of the longest frame plus 63 bytes, so that the engine can align the payload.
    static constexpr uint32_t kBytes = (wire::kMaxFrame + kLine - 1 + 2 * kLine - 1) / kLine * kLine;

    explicit FrameSlots(uint32_t count)
        : memory_(static_cast<Slot*>(operator new[](count * sizeof(Slot), std::align_val_t{kLine}))) {
        free_.reserve(count);
        for (uint32_t i = count; i-- != 0;) free_.push_back(memory_[i].bytes);
    }
    /// Returns a free slot, or nullptr if no slot is free.
    uint8_t* take() {
        if (free_.empty()) return nullptr;
        uint8_t* slot = free_.back();
        free_.pop_back();
        return slot;
    }
    void give_back(uint8_t* slot) { free_.push_back(slot); }
    uint32_t available() const { return uint32_t(free_.size()); }

private:
    struct alignas(kLine) Slot {
        uint8_t bytes[kBytes];
    };
    struct Free {
        void operator()(Slot* p) const noexcept { operator delete[](p, std::align_val_t{kLine}); }
    };
    std::unique_ptr<Slot[], Free> memory_;
    std::vector<uint8_t*> free_;  ///< has capacity for all slots, so it never grows
};

}  // namespace roci::pmd
