// Access to slow memory, which is client memory that rocid could not map. A worker thread accesses this memory by the address
// in the client's process, so that no lcore waits. Each pair of engine and worker shares a SlowLane, which has two rings. An
// engine puts a request into `requests`. The worker of the client's user executes the request and puts the request into `done`.
// The client can delay an access without limit, so only the worker waits for the access. The engine continues the QP when the
// request is done.
//
// From submit() until release(), a request counts in MemoryRegion::slow_pending of its regions. During this time neither the
// regions nor the client's RemoteProcess are freed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/spsc_ring.hpp"
#include "mem/memory_region.hpp"

namespace roci::mem {

/// A part of a client's memory, and the address of the corresponding bytes in the engine's memory.
struct SlowPiece {
    const MemoryRegion* region = nullptr;
    uint64_t address = 0;
    std::byte* bytes = nullptr;
    uint32_t length = 0;
};

struct SlowRequest {
    enum class Kind : uint8_t { read, write, fetch_add, compare_swap };
    /// Enough for a packet that is scattered over 30 SGEs, the default limit of a device.
    static constexpr uint32_t kMostPieces = 48;

    Kind kind = Kind::read;
    bool good = false;  ///< result: the access succeeded
    uint16_t count = 0;
    uint64_t operand = 0;  ///< for an atomic: the value to add, or the value to store
    uint64_t compare = 0;
    uint64_t original = 0;  ///< result of an atomic: the value before the operation; the request's pieces point to this field
    std::array<SlowPiece, kMostPieces> pieces;
};

/// Adds an access to the range [va, va + length) of `region`. Adds the parts that are accessed by address to the request.
/// Copies the mapped parts from or to `bytes` at once. Returns false in these cases: a part is unreachable, there are too many
/// parts, a write or an atomic has a read-only part, or an atomic has a mapped part.
bool add(SlowRequest& request, const MemoryRegion& region, uint64_t va, std::byte* bytes, uint32_t length);

/// Executes the request. Only the worker calls this function, because the client can delay the call without limit.
void serve(SlowRequest& request);

/// The rings between one engine and one worker.
struct SlowLane {
    static constexpr uint32_t kSize = 512;
    SpscRing<SlowRequest*> requests{kSize};
    SpscRing<SlowRequest*> done{kSize};
    uint32_t worker = 0;     ///< number of the worker
    uint32_t under_way = 0;  ///< requests not taken from `done` yet; used by the engine; at most kSize, so no ring is ever full
};

/// Executes the requests of one user, one at a time. Each user has its own worker, so a user whose memory does not respond
/// delays no other user. Two atomics on the same address of one user are executed one after the other, even if they arrive at
/// different engines.
class SlowWorker {
public:
    static constexpr uint32_t kMost = 64;
    /// `number` is unique among the workers that exist at a time.
    SlowWorker(uint32_t engines, uint32_t number) : lanes_(engines) {
        for (SlowLane& lane : lanes_) lane.worker = number;
    }
    virtual ~SlowWorker() = default;
    SlowLane& lane(uint32_t engine) { return lanes_[engine]; }
    uint32_t lanes() const { return uint32_t(lanes_.size()); }
    /// Notifies the worker that an engine has put a request into a lane.
    virtual void submitted() = 0;

private:
    std::vector<SlowLane> lanes_;
};

/// Passes the request to the worker that accesses the memory of its pieces. Returns the lane. Returns nullptr if the request
/// has no pieces, if there is no worker, or if the lane is full.
SlowLane* submit(SlowRequest& request, uint32_t engine);
/// Called when the request is done. The regions of the request may then be freed.
void release(SlowRequest& request);

}  // namespace roci::mem
