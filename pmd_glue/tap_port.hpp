// Taps the frames of a port for a capture (pcapng) or a trace (text). The lcore copies frames into rings; writer threads
// (tap_writer.hpp) format and write. An lcore never waits: what a ring cannot hold is counted as missed. A port without rings
// costs one load a burst, so that a capture may start and end while rocid runs.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "io/port.hpp"
#include "tap_filter.hpp"
#include "time_source.hpp"

namespace roci::pmd {

/// Frames on their way from one lcore to the writer: single producer, single consumer, slots of fixed size.
class TapRing {
public:
    static constexpr uint32_t kSlots = 1024;
    struct Slot {
        Nanos time;
        uint32_t length;    ///< on the wire
        uint32_t captured;  ///< of `bytes`
        Direction direction;
        uint8_t bytes[4608];
    };
    /// `snap_length`: bytes of a frame to keep, 0 for all.
    TapRing(std::string interface_name, uint32_t queue, const TapFilter& filter = {}, uint32_t snap_length = 0);

    /// Result for one frame.
    enum class Offer : uint8_t { unwanted, full, filled };
    /// Copies a frame that passes the filter into the next slot; settle() makes it visible. `checksum_offset`, `sender`:
    /// as in io::TxFrame; the copy contains the checksum that the port will send.
    Offer fill(Nanos time, Direction direction, const uint8_t* data, uint32_t length, uint8_t checksum_offset = 0,
               uint32_t sender = 0);
    /// Makes the frame of fill() visible, or counts it as missed.
    void settle(Offer offer);
    void push(Nanos time, Direction direction, const uint8_t* data, uint32_t length) {
        settle(fill(time, direction, data, length));
    }
    /// The oldest slot, or nullptr; valid until pop().
    const Slot* peek() const;
    void pop() { tail_.store(tail_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

    const std::string& interface_name() const { return name_; }
    uint32_t queue() const { return queue_; }
    uint64_t captured() const { return captured_.load(std::memory_order_relaxed); }
    uint64_t missed() const { return missed_.load(std::memory_order_relaxed); }

private:
    const std::string name_;
    const uint32_t queue_;
    const TapFilter filter_;
    const uint32_t snap_length_;
    std::unique_ptr<Slot[]> slots_;
    alignas(64) std::atomic<uint32_t> head_{0};
    std::atomic<uint64_t> captured_{0}, missed_{0};
    alignas(64) std::atomic<uint32_t> tail_{0};
};

class TapPort final : public io::Port {
public:
    static constexpr uint32_t kMaxRings = 5;  ///< the configured capture's, and four live ones

    TapPort(io::Port& inner, const TimeSource& clock) : inner_(inner), clock_(clock) {}

    /// From any thread. False: there are kMaxRings already.
    bool attach(TapRing& ring);
    /// May be called from any thread. The lcore may access the ring until the end of its current round (wait with a fence
    /// command).
    void detach(TapRing& ring);

    unsigned rx_burst(io::RxFrame* frames, unsigned max) override;
    void rx_free(io::RxFrame* frames, unsigned count) override { inner_.rx_free(frames, count); }
    unsigned tx_alloc(io::TxFrame* frames, unsigned count) override { return inner_.tx_alloc(frames, count); }
    /// Records the frames that were accepted.
    unsigned tx_burst(io::TxFrame* frames, unsigned count) override;
    void tx_free(io::TxFrame* frames, unsigned count) override { inner_.tx_free(frames, count); }
    uint64_t next_event() const override { return inner_.next_event(); }
    unsigned best_burst() const override { return inner_.best_burst(); }

private:
    bool tx_one(Nanos now, io::TxFrame& frame);

    io::Port& inner_;
    const TimeSource& clock_;
    std::atomic<uint32_t> attached_{0};
    std::array<std::atomic<TapRing*>, kMaxRings> rings_{};
};

}  // namespace roci::pmd
