// Taps the frames of a port for a capture file (pcapng) or a trace (text). The lcore copies frames into a ring; a writer thread
// (tap_writer.hpp) formats and writes. An lcore never waits: what the ring cannot hold is counted as missed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "io/port.hpp"
#include "time_source.hpp"

namespace roci::pmd {

enum class Direction : uint8_t { in = 1, out = 2 };  ///< values of the pcapng epb_flags option

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
    TapRing(std::string interface_name, uint32_t queue);

    /// Copies a frame; a full ring counts it as missed.
    void push(Nanos time, Direction direction, const uint8_t* data, uint32_t length) {
        push_if(time, direction, data, length, [] { return true; });
    }
    /// Copies a frame, then asks `accept`: only if that is true does the frame stand in the ring. Returns what `accept` said.
    template <class Accept>
    bool push_if(Nanos time, Direction direction, const uint8_t* data, uint32_t length, Accept accept) {
        const bool room = fill(time, direction, data, length);
        if (!accept()) return false;
        room ? publish() : miss();
        return true;
    }
    /// The oldest slot, or nullptr; valid until pop().
    const Slot* peek() const;
    void pop() { tail_.store(tail_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

    const std::string& interface_name() const { return name_; }
    uint32_t queue() const { return queue_; }
    uint64_t captured() const { return captured_.load(std::memory_order_relaxed); }
    uint64_t missed() const { return missed_.load(std::memory_order_relaxed); }

private:
    bool fill(Nanos time, Direction direction, const uint8_t* data, uint32_t length);
    void publish();
    void miss();

    const std::string name_;
    const uint32_t queue_;
    std::unique_ptr<Slot[]> slots_;
    alignas(64) std::atomic<uint32_t> head_{0};
    std::atomic<uint64_t> captured_{0}, missed_{0};
    alignas(64) std::atomic<uint32_t> tail_{0};
};

class TapPort final : public engine::Port {
public:
    TapPort(engine::Port& inner, TapRing& ring, const TimeSource& clock) : inner_(inner), ring_(ring), clock_(clock) {}

    unsigned rx_burst(engine::RxFrame* frames, unsigned max) override;
    void rx_free(engine::RxFrame* frames, unsigned count) override { inner_.rx_free(frames, count); }
    unsigned tx_alloc(engine::TxFrame* frames, unsigned count) override { return inner_.tx_alloc(frames, count); }
    /// Records the frames that were accepted.
    unsigned tx_burst(engine::TxFrame* frames, unsigned count) override;
    void tx_free(engine::TxFrame* frames, unsigned count) override { inner_.tx_free(frames, count); }
    uint64_t next_event() const override { return inner_.next_event(); }

private:
    engine::Port& inner_;
    TapRing& ring_;
    const TimeSource& clock_;
};

}  // namespace roci::pmd
