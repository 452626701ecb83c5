// Access of a QP to slow memory, which rocid could not map. Only a worker thread accesses slow memory (mem/slow_memory.hpp). A
// packet that needs slow memory waits, and the QP's later packets in the same direction wait behind this packet. The QP
// therefore executes one request and one response at a time.
//
// The engine keeps an incoming packet with its frame. The packet takes effect when the access to memory is complete. Packets
// behind this packet are kept too. A packet that cannot be kept is dropped as if the network had lost the packet. For outgoing
// packets, the payload of several packets is fetched at once.
#pragma once

#include <span>

#include "base/line_memory.hpp"
#include "base/slab.hpp"
#include "mem/slow_memory.hpp"
#include "qp/state.hpp"
#include "wire/packet.hpp"

namespace roci::qp {

struct Context;
class SgeList;

/// The purpose of a request for slow memory.
enum class SlowRole : uint8_t {
    request,   ///< the payload of an incoming request is stored, or an atomic is executed
    response,  ///< the payload of an incoming response is stored
    payload,   ///< payload of outgoing requests is read
    answer,    ///< payload of outgoing READ responses is read
};

/// A QP's request for slow memory. The packet's frame, or the fetched bytes, follow this object in memory.
struct alignas(64) SlowJob : mem::SlowRequest {
    SlowRole role = SlowRole::request;
    bool pending = false;
    mem::SlowLane* lane = nullptr;
    Qp* qp = nullptr;       ///< nullptr: no QP waits for the result any more
    mem::WindowUse window;  ///< reference to the memory window of the access, until the access ends
    wire::Packet packet;    ///< roles request and response: points into the frame
    SlowJob* next = nullptr;
    int kept_for = -1;  ///< number of the worker whose count of kept frames includes this frame; -1: none
    // for the roles payload and answer: identifies the message, and the part of the message that is fetched
    uint64_t message = 0;
    uint64_t offset = 0;
    uint32_t length = 0;
    std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }
};

/// The waiting packets of one role, request or response.
struct SlowQueue {
    static constexpr uint32_t kMost = 256;  ///< limit of `count`
    SlowJob* now = nullptr;                 ///< the packet whose memory access is in progress
    SlowJob *first = nullptr, *last = nullptr;
    uint32_t count = 0;  ///< number of packets behind `now`
};

/// The slow memory state of a QP. A QP has no such state before it first uses slow memory.
struct SlowState {
    SlowQueue requests, responses;
    SlowJob* payload = nullptr;
    SlowJob* answer = nullptr;
    bool closing = false;  ///< the QP is being reset or removed; waiting packets take no effect any more
};

/// An engine's memory for the objects SlowJob and SlowState, and the list of worker lanes (mem::SlowLane) on which the engine
/// has requests in progress.
class SlowMemory {
public:
    static constexpr uint32_t kGrh = 40;          ///< bytes behind a frame for the GRH of a datagram
    static constexpr uint32_t kStage = 16 << 10;  ///< largest number of bytes that one request fetches for outgoing packets
    static constexpr uint32_t kFrameBytes = wire::kMaxFrame + kGrh;
    static constexpr uint32_t kMostBehind = 1024;  ///< limit of kept frames that wait for one user's memory

    explicit SlowMemory(ChunkSource& memory)
        : frames_(memory, sizeof(SlowJob) + kFrameBytes),
          stages_(memory, sizeof(SlowJob) + kStage),
          states_(memory, sizeof(SlowState)) {}

    bool awaits() const { return !lanes_.empty(); }
    /// Returns true if a request is done and collect() has not returned it yet.
    bool has_done() const;

    // take_frame() copies a packet into a new block. All take functions return nullptr if memory is exhausted.
    SlowJob* take_frame(SlowRole role, const wire::Packet& packet);
    /// Like take_frame(), for a packet behind another packet that waits on `lane`. Also returns nullptr if kMostBehind is
    /// reached.
    SlowJob* take_frame_behind(SlowRole role, const wire::Packet& packet, const mem::SlowLane& lane);
    SlowJob* take_stage(SlowRole role);
    SlowState* take_state();
    void give_back(SlowJob* job) noexcept;
    void give_back(SlowState* state) noexcept { states_.give_back(state); }
    bool submit(SlowJob& job, uint32_t engine);
    /// Collects completed requests, up to the size of `out`. Returns their number.
    size_t collect(std::span<SlowJob*> out);

private:
    static bool is_frame(const SlowJob& job) { return job.role == SlowRole::request || job.role == SlowRole::response; }
    Slab frames_, stages_, states_;
    LineVector<mem::SlowLane*> lanes_;  ///< lanes with requests in progress
    std::array<uint32_t, mem::SlowWorker::kMost> behind_{};
};

// ---- incoming
enum class Placing : uint8_t {
    refused,  ///< the memory cannot be written, or the packet refers to no memory
    waits,    ///< the packet is kept and takes effect later
    lost,     ///< the packet cannot be kept and is treated as not received
};
/// The destination of a payload: position `offset` in a list of SGEs, or address `va` in a region.
struct Target {
    const SgeList* sges = nullptr;
    uint64_t offset = 0;
    const mem::MemoryRegion* region = nullptr;
    uint64_t va = 0;
    mem::WindowUse* window = nullptr;
};
/// Begins to store `length` bytes from `payload` on at the destination `to`. The bytes are a part of the packet's payload.
Placing place_slowly(Context& ctx, Qp& qp, SlowRole role, const wire::Packet& packet, const Target& to, const uint8_t* payload,
                     uint32_t length);
/// Begins to store a datagram and its GRH.
Placing place_datagram_slowly(Context& ctx, Qp& qp, const wire::Packet& packet, const SgeList& sges);
/// Begins to store the result of an atomic in the memory of the SGEs.
Placing place_original_slowly(Context& ctx, Qp& qp, const wire::Packet& packet, const SgeList& sges);
/// Begins to execute an atomic on the region of `at`.
Placing exchange_slowly(Context& ctx, Qp& qp, const wire::Packet& packet, const Target& at);
/// Keeps a packet that arrives while an earlier packet of its role waits. Drops the packet if it cannot be kept.
void keep_behind(Context& ctx, Qp& qp, SlowRole role, const wire::Packet& packet);

// ---- outgoing
struct Staged {
    enum class Result : uint8_t { ready, waits, refused } result = Result::refused;
    const std::byte* bytes = nullptr;
    bool ends = false;  ///< no bytes behind these have been fetched
};
/// Returns bytes [offset, offset + length) of the message in the SGEs, or begins to fetch them. `message` identifies the message,
/// and `total` is its length.
Staged stage_payload(Context& ctx, Qp& qp, const SgeList& sges, uint64_t message, uint64_t offset, uint32_t length,
                     uint64_t total);
Staged stage_answer(Context& ctx, Qp& qp, const mem::MemoryRegion& region, const ResponderJob& job, uint64_t va, uint64_t offset,
                    uint32_t length);
/// Returns true if the QP's READ responses wait for slow memory.
inline bool answer_waits(const Qp& qp) { return qp.slow != nullptr && qp.slow->answer != nullptr && qp.slow->answer->pending; }

// ---- both directions
/// Continues the QPs whose requests for slow memory are done. Returns true if any request was done.
bool collect_slow(Context& ctx);
/// Returns true if the flush must wait, because a worker may still write buffers that the flush would return to the program.
bool flush_waits(const Qp& qp);
/// Drops the packets that wait behind another packet, and the payload that was fetched for outgoing packets.
void forget_slow(Context& ctx, Qp& qp);
/// Called before the QP is reset or removed. Prevents new requests. Returns false while a worker may still access memory for an
/// incoming packet; the caller then tries again.
bool close_slow(Context& ctx, Qp& qp);
/// Releases the slow memory state of a QP at once. Requests in progress have no effect on the QP any more.
void drop_slow(Context& ctx, Qp& qp);

}  // namespace roci::qp
