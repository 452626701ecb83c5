// Frames that arrived before a frame that was sent earlier. They are copied, so that the port has its buffers back: a port whose
// buffers are kept receives nothing, not even the frame that is missing. The copies lie in one pool per engine. A QP may have
// part of what the pool has left, so that no peer can take it from the others.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "base/slab.hpp"
#include "base/timer_wheel.hpp"
#include "base/types.hpp"
#include "wire/packet.hpp"

namespace roci::qp {

struct ReorderLimits {
    uint32_t frames = 1024;     ///< PSNs behind a missing one that may be kept, per QP and direction; a power of two, 0: none
    uint64_t bytes = 32 << 20;  ///< of the engine's pool
};

struct ReorderCounters {
    uint64_t kept = 0, delivered = 0;
    uint64_t duplicates = 0;  ///< of a frame that is kept
    uint64_t beyond = 0;      ///< further behind the missing one than ReorderLimits::frames
    uint64_t share = 0;       ///< the QP has its share of the pool
    uint64_t no_memory = 0;   ///< the pool is used up
    uint64_t late = 0;        ///< frames that came after they had been asked for again: they were overtaken, not lost
    uint64_t freed = 0;       ///< kept in vain: stalled, reset, in error, or the peer sends all of it again
};

/// A copy of a frame that was parsed; the packet points into it.
struct KeptFrame {
    wire::Packet packet;
    uint8_t bytes[wire::kMaxFrame];
};

struct Reorder;

class ReorderPool {
public:
    ReorderPool(ChunkSource& memory, const ReorderLimits& limits);

    /// A copy. nullptr, counted: none may be had. `has`: frames that the QP keeps already.
    KeptFrame* copy(const wire::Packet& p, uint32_t has);
    void give_back(KeptFrame* frame) noexcept { frames_.give_back(frame); }
    /// Places for one direction of a QP, all empty. nullptr: no memory.
    KeptFrame** take_places();
    void give_back(KeptFrame** places) noexcept { places_.give_back(places); }
    /// For a QP that meets with its first frame out of order. nullptr: no memory.
    Reorder* make(void* owner);
    void give_back(Reorder* r) noexcept { reorders_.give_back(r); }

    uint32_t window() const { return limits_.frames; }
    size_t in_use() const { return frames_.taken(); }
    size_t capacity() const { return capacity_; }
    /// Tables of places that are in use.
    size_t windows_in_use() const { return places_.taken(); }
    void count(uint64_t ReorderCounters::*what, uint64_t n = 1) {
        counters_.*what += n;
        counted_ = true;
    }
    const ReorderCounters& counters() const { return counters_; }
    /// True if anything was counted since the last call.
    bool take_counted() { return std::exchange(counted_, false); }

private:
    ReorderCounters counters_;
    bool counted_ = false;
    ReorderLimits limits_;
    size_t capacity_;  ///< frames
    Slab frames_, places_, reorders_;
};

/// A frame that was asked for again, and then came: if it comes once more, the first one had only been overtaken.
struct Suspect {
    Psn psn;
    uint16_t places = 0;  ///< frames that overtook it
    Nanos lateness = 0;   ///< since the first of them
    bool valid = false;
};

/// How long a QP waits for a frame that others have overtaken until it takes it for lost: so many of them, or so much time. Both
/// follow the network: they grow when a frame that was taken for lost comes late, and shrink while that does not happen.
class Patience {
public:
    static constexpr uint16_t kFewest = 3, kMost = 128;                      ///< frames
    static constexpr Nanos kShortest = 8 * 4096, kLongest = Nanos{1} << 21;  ///< 33 us, 2.1 ms

    bool exhausted(uint32_t places, Nanos waited) const { return places > places_ || waited >= wait_; }
    uint16_t places() const { return places_; }
    Nanos wait() const { return wait_; }
    /// A frame that had been asked for again has come, overtaken by so many, so late.
    void arrived(Psn psn, uint32_t places, Nanos lateness);
    /// A frame came that has come before. True: it was late, not lost.
    bool repeated(Psn psn);

private:
    static constexpr uint8_t kCalm = 16;        ///< frames that were really lost, before patience shrinks
    static constexpr uint32_t kSettled = 1024;  ///< PSNs after which a repetition would have come
    uint16_t places_ = kFewest;
    uint8_t next_ = 0, calm_ = 0;
    Nanos wait_ = kShortest;
    std::array<Suspect, 8> suspects_{};
};

/// What one direction of a QP keeps: frames behind `base`, the first PSN that is missing.
struct Backlog {
    KeptFrame** places = nullptr;  ///< by PSN modulo the window; nullptr: nothing is kept
    uint32_t count = 0;
    Psn base;
    Psn first, end;      ///< of the frames that are kept: the first one, and one past the last one
    bool asked = false;  ///< the missing one has been asked for again
    Nanos opened = 0;    ///< when it was first missed
    Patience patience;
};

/// PSNs in a row that have not arrived.
struct Hole {
    Psn first;
    uint32_t length = 0;
    bool operator==(const Hole&) const = default;
};
/// The first hole at or behind `from`; of length 0: there is none before the last frame that is kept.
Hole hole_from(const Backlog& b, uint32_t window, Psn from);

/// Of a QP that was met with frames out of order, from then on until its reset.
struct Reorder {
    engine::Timer timer;
    Backlog requests, responses;
    /// The newest ACK that came before a response. It is cumulative, and its PSN may be a response's: it is kept by itself.
    wire::Packet ack;
    bool has_ack = false;
};

}  // namespace roci::qp
