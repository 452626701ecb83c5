// A wrapper of a port that injects faults into sent frames: loss, corruption, reordering, duplicates, delay and congestion marks.
// With the same frames and the same seed, the faults are the same. rocid contains FaultPort so that users can test programs on a
// bad network.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <vector>

#include "base/time_source.hpp"
#include "io/port.hpp"

namespace roci::pmd {

/// The probability per frame of each fault, from 0 to 1, and the delay. The faults of a frame are independent of each other.
struct FaultSpec {
    uint64_t seed = 1;
    double drop = 0;
    double corrupt = 0;         ///< one bit behind the Ethernet header is flipped
    double reorder = 0;         ///< the frame waits for 1..kReorderDepth later frames, but at most for kReorderTimeout
    double duplicate = 0;       ///< the frame is sent twice
    double ecn = 0;             ///< the frame is marked Congestion Experienced, if the sender is ECN-capable (RFC 3168 clause 5)
    Nanos delay = 0;            ///< delay of every frame
    bool only_payload = false;  ///< `corrupt` does not change IP and UDP headers, because a UDP socket rebuilds them
};

/// Numbers of frames: offered to the port, sent by the inner port, and affected by each fault.
struct FaultCounts {
    uint64_t offered = 0, sent = 0, dropped = 0, corrupted = 0, reordered = 0, duplicated = 0, delayed = 0, marked = 0;
    uint64_t duplicate_failed = 0;  ///< duplicates that were omitted because no frame was free for the copy
};

/// All fields of FaultCounts. kFaultNames contains the names of the fields, in the same order.
inline constexpr uint64_t FaultCounts::*kFaultFields[] = {
    &FaultCounts::offered,   &FaultCounts::sent,      &FaultCounts::dropped,
    &FaultCounts::corrupted, &FaultCounts::reordered, &FaultCounts::duplicated,
    &FaultCounts::delayed,   &FaultCounts::marked,    &FaultCounts::duplicate_failed};
inline constexpr const char* kFaultNames[] = {"offered",    "sent",    "dropped", "corrupted",       "reordered",
                                              "duplicated", "delayed", "marked",  "duplicate_failed"};
static_assert(sizeof(FaultCounts) == sizeof(uint64_t) * std::size(kFaultFields) &&
              std::size(kFaultFields) == std::size(kFaultNames));

class FaultPort final : public io::Port {
public:
    static constexpr uint32_t kReorderDepth = 3;
    static constexpr Nanos kReorderTimeout = 100'000;
    static constexpr uint32_t kMaxHeld = 1024;  ///< largest number of frames in held_; at the limit, the port accepts no frame

    FaultPort(io::Port& inner, const FaultSpec& spec, const TimeSource& clock);
    ~FaultPort() override;

    unsigned rx_burst(io::RxFrame* frames, unsigned max) override;
    void rx_free(io::RxFrame* frames, unsigned count) override { inner_.rx_free(frames, count); }
    unsigned tx_alloc(io::TxFrame* frames, unsigned count) override { return inner_.tx_alloc(frames, count); }
    unsigned tx_burst(io::TxFrame* frames, unsigned count) override;
    void tx_free(io::TxFrame* frames, unsigned count) override { inner_.tx_free(frames, count); }
    uint64_t next_event() const override;
    unsigned best_burst() const override { return inner_.best_burst(); }
    uint32_t lends() const override { return inner_.lends(); }

    /// Any thread may read the counts.
    FaultCounts counts() const;

private:
    struct Held {
        io::TxFrame frame;
        Nanos due = 0;       ///< latest time at which the frame is sent
        uint64_t after = 0;  ///< the frame is sent before `due` when passed_ reaches this number
    };
    enum Fault : uint8_t { kDrop, kEcn, kDuplicate, kCorrupt, kReorder, kFaults };
    uint64_t draw_gap(Fault fault);
    bool hits(Fault fault);
    unsigned forward(io::TxFrame* frames, unsigned count);
    double fraction();
    uint64_t random();
    void offer(io::TxFrame f, Nanos now);
    void corrupt(io::TxFrame& f);
    void duplicate(const io::TxFrame& f, Nanos now);
    void mark(io::TxFrame& f);
    void pass(io::TxFrame f, Nanos now);
    void release_due(Nanos now);
    void flush();

    io::Port& inner_;
    const FaultSpec spec_;
    const TimeSource& clock_;
    std::array<uint64_t, 2> state_;
    std::array<double, kFaults> scales_;    ///< by fault: 1 / log(1 - probability), from which draw_gap() computes a gap
    std::array<uint64_t, kFaults> gaps_{};  ///< by fault: number of frames before the next frame that has the fault
    FaultCounts counts_;
    uint64_t passed_ = 0;     ///< number of frames that pass() moved to `out_` and that forward() sent; Held::after refers to it
    std::vector<Held> held_;  ///< delayed and reordered frames, in order of arrival
    std::vector<io::TxFrame> out_;  ///< frames to be sent now; the capacity is reserved, so no burst allocates memory
};

}  // namespace roci::pmd
