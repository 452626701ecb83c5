// Passes frames that arrive at one engine to the engine of their QP. The engine of the QP gets pointers to the frames and
// returns these pointers after use. Therefore only one engine calls the methods of a port object. Each ordered pair of engines
// has two rings.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/spsc_ring.hpp"
#include "io/port.hpp"
#include "wire/packet.hpp"

namespace roci::io {

struct HandedFrame {
    RxFrame frame;
    uint32_t port = 0;
    wire::Packet packet;  ///< parsed already; points into the frame
    bool copy = false;    ///< copy of a multicast frame: the buffer belongs to the sender's FrameCopies, not to the port
};

struct HandoverLane {
    static constexpr uint32_t kSize = 1024;
    SpscRing<HandedFrame> there{kSize};
    SpscRing<HandedFrame> back{kSize};
    uint32_t away = 0;  ///< number of frames that the sender has not got back; at most kSize, so `back` is never full
};

/// Buffers for copies of multicast frames. Each engine with attached QPs gets its own copy, except the engine at which the
/// frame arrived.
class FrameCopies {
public:
    explicit FrameCopies(uint32_t count) {
        for (uint32_t i = 0; i < count; ++i) {
            buffers_.push_back(std::make_unique<uint8_t[]>(wire::kMaxFrame));
            free_.push_back(buffers_.back().get());
        }
    }
    /// Returns a buffer, or nullptr if all buffers are in use.
    uint8_t* take() {
        if (free_.empty()) return nullptr;
        uint8_t* b = free_.back();
        free_.pop_back();
        return b;
    }
    void give_back(uint8_t* buffer) { free_.push_back(buffer); }

private:
    std::vector<std::unique_ptr<uint8_t[]>> buffers_;
    std::vector<uint8_t*> free_;
};

class HandoverMatrix {
public:
    explicit HandoverMatrix(uint32_t engines) : engines_(engines), lanes_(engines * engines) {
        for (uint32_t i = 0; i < engines * engines; ++i)
            if (i / engines != i % engines) lanes_[i] = std::make_unique<HandoverLane>();
    }
    uint32_t engines() const { return engines_; }
    HandoverLane& lane(uint32_t from, uint32_t to) { return *lanes_[from * engines_ + to]; }

private:
    uint32_t engines_;
    std::vector<std::unique_ptr<HandoverLane>> lanes_;
};

}  // namespace roci::io
