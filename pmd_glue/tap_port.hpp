// A tap: a wrapper of a port that records frames for a capture (pcapng) or a trace (text). The lcore copies frames into rings.
// Writer threads (tap_writer.hpp) format and write the copies. An lcore never waits: if a ring is full, the lcore counts the
// frame as missed. A capture may start and end while rocid runs. A tap without rings costs one load per burst.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/time_source.hpp"
#include "io/port.hpp"
#include "tap_filter.hpp"

namespace roci::pmd {

/// A ring of frames from one lcore to one writer thread, with slots of fixed size. The limit of the memory is the same for every
/// snap length, so a ring with a shorter snap length usually has more slots.
class TapRing {
public:
    static constexpr uint32_t kMaxBytes = 4608;
    static constexpr uint32_t kWholeFrames = 1024;  ///< number of slots without a snap length
    struct Slot {
        Nanos time;
        uint32_t length;    ///< length of the frame on the wire
        uint32_t captured;  ///< number of bytes in `bytes`
        Direction direction;
        uint8_t* bytes;
    };
    /// `snap_length` is the largest number of bytes that the ring stores per frame. 0 means whole frames.
    TapRing(std::string interface_name, uint32_t queue, const TapFilter& filter = {}, uint32_t snap_length = 0);

    /// Result of fill().
    enum class Offer : uint8_t { unwanted, full, filled };
    /// If the filter selects the frame, copies the frame into the next slot. settle() then makes the slot visible to the reader.
    /// `left` and `sender` are the fields of io::TxFrame. Writes the checksums that were left to the port into the copy. A copy
    /// that is cut contains no part of such an ICRC.
    Offer fill(Nanos time, Direction direction, const uint8_t* data, uint32_t length, wire::LeftToPort left = {},
               uint32_t sender = 0);
    /// Completes fill(), whose result is `offer`. Makes a filled slot visible to the reader. Counts the frame as missed if the
    /// ring was full.
    void settle(Offer offer);
    void push(Nanos time, Direction direction, const uint8_t* data, uint32_t length, wire::LeftToPort left = {}) {
        settle(fill(time, direction, data, length, left));
    }
    /// Returns the oldest slot, or nullptr if the ring is empty. The slot is valid until pop().
    const Slot* peek() const;
    void pop() { tail_.store(tail_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

    const std::string& interface_name() const { return name_; }
    uint32_t queue() const { return queue_; }
    uint32_t slots() const { return slot_count_; }
    uint64_t captured() const { return captured_.load(std::memory_order_relaxed); }
    uint64_t missed() const { return missed_.load(std::memory_order_relaxed); }

private:
    const std::string name_;
    const uint32_t queue_;
    const TapFilter filter_;
    const uint32_t snap_length_, slot_count_;
    std::unique_ptr<uint8_t[]> bytes_;
    std::unique_ptr<Slot[]> slots_;
    alignas(64) std::atomic<uint32_t> head_{0};
    std::atomic<uint64_t> captured_{0}, missed_{0};
    alignas(64) std::atomic<uint32_t> tail_{0};
};

class TapPort final : public io::Port {
public:
    static constexpr uint32_t kMaxRings = 5;  ///< one ring of the configured capture, and four of live captures

    TapPort(io::Port& inner, const TimeSource& clock) : inner_(inner), clock_(clock) {}

    /// May be called by any thread. Returns false if there are kMaxRings rings already.
    bool attach(TapRing& ring);
    /// May be called by any thread. The lcore may access the ring until the end of the lcore's current round. So the caller must
    /// execute a fence before it destroys the ring.
    void detach(TapRing& ring);

    unsigned rx_burst(io::RxFrame* frames, unsigned max) override;
    void rx_free(io::RxFrame* frames, unsigned count) override { inner_.rx_free(frames, count); }
    unsigned tx_alloc(io::TxFrame* frames, unsigned count) override { return inner_.tx_alloc(frames, count); }
    /// Sends the frames, and records the frames that the inner port accepts.
    unsigned tx_burst(io::TxFrame* frames, unsigned count) override;
    void tx_free(io::TxFrame* frames, unsigned count) override { inner_.tx_free(frames, count); }
    uint64_t next_event() const override { return inner_.next_event(); }
    unsigned best_burst() const override { return inner_.best_burst(); }
    uint32_t lends() const override { return inner_.lends(); }

private:
    bool tx_one(Nanos now, io::TxFrame& frame);

    io::Port& inner_;
    const TimeSource& clock_;
    std::atomic<uint32_t> attached_{0};
    std::array<std::atomic<TapRing*>, kMaxRings> rings_{};
};

}  // namespace roci::pmd
