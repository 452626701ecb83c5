// Frames to be sent by one port. The outbox allocates frames in bulk and passes built frames to the port in bursts. Frames that
// the port does not accept remain in the outbox. If a whole burst remains, acquire() returns nullptr, so the transport builds
// no more frames.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/bump.hpp"
#include "base/stage.hpp"
#include "io/port.hpp"
#include "wire/packet.hpp"

namespace roci::qp {

class alignas(64) Outbox {
public:
    static constexpr uint32_t kMax = 256;
    static constexpr uint32_t kLine = 64;

    Outbox() = default;
    Outbox(io::Port* port, uint32_t burst)
        : port_(port), best_(port->best_burst()), burst_(std::clamp<uint32_t>(std::max(burst, best_), 1, kMax)) {}

    /// Returns the next empty frame. The caller fills the frame in and calls commit(). Returns nullptr if the port is full or
    /// the port's pool is empty.
    io::TxFrame* acquire() {
        if (ready_ == burst_ && (flush(), ready_ == burst_)) return nullptr;
        if (ready_ == have_) refill();
        return ready_ < have_ ? &frames_[ready_] : nullptr;
    }
    /// Returns the address where the frame must start so that its payload, after `headers` bytes, begins at a cache line. This
    /// alignment halves the time of copying a full packet and computing its ICRC. If the buffer is too small for the alignment,
    /// returns the start of the buffer.
    static uint8_t* place(const io::TxFrame& frame, uint32_t headers) {
        if (frame.capacity < wire::kMaxFrame + kLine - 1) return frame.data;
        return frame.data + (-(reinterpret_cast<uintptr_t>(frame.data) + headers) & (kLine - 1));
    }
    /// Marks the frame that acquire() returned as built. The frame begins at `start`. io::TxFrame describes `left` and
    /// `sender`.
    void commit(uint8_t* start, uint32_t length, const wire::LeftToPort& left, uint32_t sender) {
        io::TxFrame& f = frames_[ready_++];
        f.data = start;
        f.length = length;
        f.left = left;
        f.sender = sender;
    }

    /// Passes the built frames to the port. Returns the number of frames that the port accepted.
    unsigned flush() {
        if (ready_ == 0) return 0;
        ROCI_STAGE(transmit);
        const unsigned sent = port_->tx_burst(frames_.data(), ready_);
        ready_ -= sent;
        have_ -= sent;
        bump(sent_, sent);
        close_gap(sent);
        return sent;
    }
    /// Returns the number of frames that the port has accepted.
    uint64_t sent() const { return sent_; }
    uint32_t waiting() const { return ready_; }
    /// Returns the number of bytes in the built frames that wait for the port.
    uint64_t waiting_octets() const {
        uint64_t octets = 0;
        for (uint32_t i = 0; i < ready_; ++i) octets += frames_[i].length;
        return octets;
    }
    /// Returns the number of frames per burst that the port prefers (io::Port::best_burst()).
    uint32_t best_burst() const { return best_; }
    /// Returns all frames to the port without sending them. Called at shutdown.
    void drop_all() {
        if (have_ != 0) port_->tx_free(frames_.data(), have_);
        ready_ = have_ = 0;
    }

private:
    void refill() {
        ROCI_STAGE(transmit);
        have_ += port_->tx_alloc(&frames_[have_], burst_ - have_);
    }
    /// Moves the remaining frames into the first `gap` places of the array, whose frames were sent. Built frames keep their
    /// order. If all frames are empty, only the last frames are moved, because empty frames have no order.
    void close_gap(unsigned gap) {
        const auto first = frames_.begin(), end = first + have_ + gap;
        if (ready_ == 0)
            std::copy(end - std::min(gap, have_), end, first);
        else
            std::copy(first + gap, end, first);
    }

    io::Port* port_ = nullptr;
    uint32_t best_ = 1, burst_ = 0;
    uint64_t sent_ = 0;
    uint32_t ready_ = 0;  ///< frames_[0, ready_) are built
    uint32_t have_ = 0;   ///< frames_[ready_, have_) are empty
    std::array<io::TxFrame, kMax> frames_;
};

}  // namespace roci::qp
