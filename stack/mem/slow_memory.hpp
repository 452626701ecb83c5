// Access to memory that could not be mapped, off the lcore. An engine puts a request into the ring of its lane; the worker of the
// memory's user serves it and puts it into the ring of what is done. An access may take as long as the client likes, so nobody
// but the worker waits for it: the QP has its turn again when the request is done.
//
// A request holds the regions that it names (MemoryRegion::slow_pending) from submit() until release(): they, and the client's
// process behind them, are not freed meanwhile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/spsc_ring.hpp"
#include "mem/memory_region.hpp"

namespace roci::mem {

/// One stretch of a client's memory, and the place of its bytes in the engine's memory.
struct SlowPiece {
    const MemoryRegion* region = nullptr;
    uint64_t address = 0;
    std::byte* bytes = nullptr;
    uint32_t length = 0;
};

struct SlowRequest {
    enum class Kind : uint8_t { read, write, fetch_add, compare_swap };
    /// More than a packet has that is scattered by 30 SGEs.
    static constexpr uint32_t kMostPieces = 48;

    Kind kind = Kind::read;
    bool good = false;  ///< out
    uint16_t count = 0;
    uint64_t operand = 0;  ///< of an atomic: what is added, or stored
    uint64_t compare = 0;
    uint64_t original = 0;  ///< out: the value before an atomic; the bytes of its pieces are in here
    std::array<SlowPiece, kMostPieces> pieces;
};

/// Adds what is reached by address of [va, va + length) to the request, and copies the rest between `bytes` and the memory now.
/// False: a part cannot be reached, is read-only, or there are too many. An atomic has no mapped part.
bool add(SlowRequest& request, const MemoryRegion& region, uint64_t va, std::byte* bytes, uint32_t length);

/// The worker's part: may take as long as the client likes.
void serve(SlowRequest& request);

/// Between one engine and one worker.
struct SlowLane {
    static constexpr uint32_t kSize = 512;
    SpscRing<SlowRequest*> requests{kSize};
    SpscRing<SlowRequest*> done{kSize};
    uint32_t worker = 0;     ///< its number
    uint32_t under_way = 0;  ///< the engine's; never more than kSize, so `done` always has room
};

/// Serves the requests of one user, in order. So a user whose memory does not answer holds up nobody else, and two atomics of one
/// user on the same place come one after the other, whichever engines they arrive at.
class SlowWorker {
public:
    static constexpr uint32_t kMost = 64;
    /// No two workers have the same number at a time.
    SlowWorker(uint32_t engines, uint32_t number) : lanes_(engines) {
        for (SlowLane& lane : lanes_) lane.worker = number;
    }
    virtual ~SlowWorker() = default;
    SlowLane& lane(uint32_t engine) { return lanes_[engine]; }
    uint32_t lanes() const { return uint32_t(lanes_.size()); }
    /// An engine has put a request into its lane.
    virtual void submitted() = 0;

private:
    std::vector<SlowLane> lanes_;
};

/// Hands the request to the worker of its pieces. nullptr: it has no pieces, nobody serves them, or the lane is full.
SlowLane* submit(SlowRequest& request, uint32_t engine);
/// The request is done: its regions may go.
void release(SlowRequest& request);

}  // namespace roci::mem
