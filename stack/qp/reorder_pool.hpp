// The pool of frames that arrived before a frame that was sent earlier. They are copies, because a port without free buffers
// receives nothing, not even the missing frame. There is one pool per engine. A QP may use a part of the free pool, so that no
// peer can exhaust it for others.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/slab.hpp"
#include "base/timer_wheel.hpp"
#include "base/types.hpp"
#include "qp/asked.hpp"
#include "wire/packet.hpp"

namespace roci::qp {

struct ReorderLimits {
    uint32_t frames = 1024;     ///< PSNs behind a missing one that may be kept, per QP and direction; a power of two, 0: none
    uint64_t bytes = 32 << 20;  ///< of the engine's pool
};

struct ReorderCounters {
    uint64_t kept = 0, delivered = 0;
    uint64_t duplicates = 0;  ///< of a frame that is kept
    uint64_t beyond = 0;      ///< more than ReorderLimits::frames behind the missing one
    uint64_t share = 0;       ///< not kept: the QP has used its share of the pool
    uint64_t no_memory = 0;   ///< not kept: the pool is exhausted
    uint64_t late = 0;        ///< frames that were reported as missing but only late
    uint64_t freed = 0;       ///< freed without execution: stalled, reset, in error, or the peer repeats all packets
};

/// A copy of a parsed frame; the packet points into it.
struct KeptFrame {
    wire::Packet packet;
    uint8_t bytes[wire::kMaxFrame];
};

struct Reorder;

class ReorderPool {
public:
    ReorderPool(ChunkSource& memory, const ReorderLimits& limits);

    /// Copies a frame. nullptr: not possible, which is counted. `has`: number of frames that the QP keeps already.
    KeptFrame* copy(const wire::Packet& p, uint32_t has);
    void give_back(KeptFrame* frame) noexcept { frames_.give_back(frame); }
    /// Allocates an empty table of places for one direction of a QP. nullptr: no memory.
    KeptFrame** take_places();
    void give_back(KeptFrame** places) noexcept { places_.give_back(places); }
    /// Allocates the state of a QP at its first frame out of order. nullptr: no memory.
    Reorder* make(void* owner);
    void give_back(Reorder* r) noexcept { reorders_.give_back(r); }

    uint32_t window() const { return limits_.frames; }
    size_t in_use() const { return frames_.taken(); }
    size_t capacity() const { return capacity_; }
    /// Frames that a QP keeps at most, per direction.
    size_t most_per_qp() const { return std::max<size_t>(capacity_ / kPart, 1); }
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
    /// A QP may keep the number of free frames divided by this. So a single QP can keep nearly its whole window, and if many QPs
    /// lose frames at the same time, each can keep some.
    static constexpr size_t kPart = 4;

    ReorderCounters counters_;
    bool counted_ = false;
    ReorderLimits limits_;
    size_t capacity_;  ///< frames
    Slab frames_, places_, reorders_;
};

/// A frame that was reported as missing and then arrived. If it arrives again, the first copy was only late.
struct Suspect {
    Psn psn;
    uint16_t places = 0;  ///< number of frames that overtook it
    Nanos lateness = 0;   ///< since the first of them
    bool valid = false;
};

/// A QP's patience: the number of overtaking frames, or the time, after which it treats a missing frame as lost. Both adapt to
/// the network: they grow when a frame treated as lost was only late, and shrink while frames are really lost.
class Patience {
public:
    static constexpr uint16_t kFewest = 3, kMost = 128;                      ///< frames
    static constexpr Nanos kShortest = 8 * 4096, kLongest = Nanos{1} << 21;  ///< 33 us, 2.1 ms

    bool exhausted(uint32_t places, Nanos waited) const { return places > places_ || waited >= wait_; }
    uint16_t places() const { return places_; }
    Nanos wait() const { return wait_; }
    /// Called when a frame that was reported as missing arrives: the number of frames that overtook it, and its delay.
    void arrived(Psn psn, uint32_t places, Nanos lateness);
    /// Called for a duplicate. True: the first copy was late, not lost.
    bool repeated(Psn psn);

private:
    static constexpr uint8_t kCalm = 16;        ///< number of really lost frames before the patience shrinks
    static constexpr uint32_t kSettled = 1024;  ///< number of PSNs after which a repetition would have arrived
    uint16_t places_ = kFewest;
    uint8_t next_ = 0, calm_ = 0;
    Nanos wait_ = kShortest;
    std::array<Suspect, 8> suspects_{};
};

/// If a gap is not closed within this time, the peer has ended or starts again, and the kept frames are freed.
inline constexpr Nanos kStalled = Nanos{1} << 29;  // 0.5 s

/// The kept frames of one direction of a QP, behind `base`, the first missing PSN.
struct Backlog {
    KeptFrame** places = nullptr;  ///< by PSN modulo the window; nullptr: nothing is kept
    uint32_t count = 0;
    Psn base;
    Psn first, end;      ///< of the frames that are kept: the first one, and one past the last one
    bool asked = false;  ///< the gap was reported
    Psn again;           ///< frames before it were requested more than once: a second copy says nothing
    Nanos opened = 0;    ///< when the gap was detected
    Patience patience;
};

/// The first hole at or behind `from`; length 0: there is none before the last kept frame.
Hole hole_from(const Backlog& b, uint32_t window, Psn from);

/// What a requester knows of the responses that are missing, while it keeps others (missing.cpp).
struct Missing {
    Asked asked;
    Psn frontier;          ///< holes before it are requested again
    Psn hole;              ///< the first hole behind the frontier
    Nanos since = 0;       ///< when that hole was detected
    bool waits = false;    ///< that hole may only be late
    bool request = false;  ///< `named` is to be sent again
    Psn named;             ///< request that a kept NAK reports as missing
};

/// The reorder state of a QP, from its first frame out of order until its reset.
struct Reorder {
    Timer timer;
    Backlog requests, responses;
    Missing missing;
    /// The newest ACK or NAK that arrived before a missing response. It is kept separately, because it is cumulative and its PSN
    /// may be that of a response.
    wire::Packet ack;
    bool has_ack = false;
};

}  // namespace roci::qp
