// A QP and memory that only a worker may touch (mem/slow_memory.hpp). What needs such memory waits, and so does everything of the
// QP that comes after it in the same direction: the QP acts on one request, and on one response, at a time.
//
// Incoming: the packet is kept with its frame; when its bytes are in place, it takes effect. Packets behind it are kept too;
// those that find no room are dropped, as if the network had lost them. Outgoing: some packets' payload is fetched ahead at once.
#pragma once

#include <span>

#include "base/slab.hpp"
#include "mem/slow_memory.hpp"
#include "qp/state.hpp"
#include "wire/packet.hpp"

namespace roci::qp {

struct Context;
class SgeList;

/// What waits for a request.
enum class SlowRole : uint8_t {
    request,   ///< a packet to the responder: its payload is placed, or an atomic executed
    response,  ///< a packet to the completer
    payload,   ///< of the requester's packets
    answer,    ///< payload of READ responses
};

/// A request of a QP; behind it lies its frame or the bytes that it fetches.
struct alignas(64) SlowJob : mem::SlowRequest {
    SlowRole role = SlowRole::request;
    bool pending = false;
    mem::SlowLane* lane = nullptr;
    Qp* qp = nullptr;       ///< nullptr: nobody waits any more
    mem::WindowUse window;  ///< what a peer writes through a window is written before the window closes
    wire::Packet packet;    ///< request, response: points into the frame
    SlowJob* next = nullptr;
    int kept_for = -1;  ///< number of the worker whose user the frame is counted for
    // payload, answer: which part of which message
    uint64_t message = 0;
    uint64_t offset = 0;
    uint32_t length = 0;
    std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }
};

/// One direction of what a QP receives.
struct SlowQueue {
    static constexpr uint32_t kMost = 256;  ///< packets
    SlowJob* now = nullptr;                 ///< takes effect when it is done
    SlowJob *first = nullptr, *last = nullptr;
    uint32_t count = 0;  ///< behind it
};

/// Of a QP that met with slow memory.
struct SlowState {
    SlowQueue requests, responses;
    SlowJob* payload = nullptr;
    SlowJob* answer = nullptr;
    bool closing = false;  ///< the QP is about to go: what waits has no effect any more
};

/// An engine's blocks and the lanes on which it awaits something.
class SlowMemory {
public:
    static constexpr uint32_t kGrh = 40;          ///< room behind a frame for the GRH of a datagram
    static constexpr uint32_t kStage = 16 << 10;  ///< bytes fetched ahead
    static constexpr uint32_t kFrameBytes = wire::kMaxFrame + kGrh;
    static constexpr uint32_t kMostBehind = 1024;  ///< frames of QPs that wait for one user's memory

    explicit SlowMemory(ChunkSource& memory)
        : frames_(memory, sizeof(SlowJob) + kFrameBytes),
          stages_(memory, sizeof(SlowJob) + kStage),
          states_(memory, sizeof(SlowState)) {}

    bool awaits() const { return !lanes_.empty(); }
    /// Something is done that was not taken yet.
    bool has_done() const;

    // All nullptr: no memory.
    SlowJob* take_frame(SlowRole role, const wire::Packet& packet);
    /// For a packet behind one that waits on `lane`.
    SlowJob* take_frame_behind(SlowRole role, const wire::Packet& packet, const mem::SlowLane& lane);
    SlowJob* take_stage(SlowRole role);
    SlowState* take_state();
    void give_back(SlowJob* job) noexcept;
    void give_back(SlowState* state) noexcept { states_.give_back(state); }
    bool submit(SlowJob& job, uint32_t engine);
    /// Requests that are done, up to the size of `out`.
    size_t collect(std::span<SlowJob*> out);
    size_t blocks_in_use() const { return frames_.taken() + stages_.taken(); }

private:
    static bool is_frame(const SlowJob& job) { return job.role == SlowRole::request || job.role == SlowRole::response; }
    Slab frames_, stages_, states_;
    std::vector<mem::SlowLane*> lanes_;  ///< with requests under way
    std::array<uint32_t, mem::SlowWorker::kMost> behind_{};
};

// ---- incoming
enum class Placing : uint8_t {
    refused,  ///< the memory cannot be written, or there is none
    waits,    ///< the packet takes effect later
    lost,     ///< no room to keep it: as if it had not come
};
/// A payload that goes to [offset, offset + length) of a list of SGEs, or to `va` of a region. `payload` lies in the packet.
struct Target {
    const SgeList* sges = nullptr;
    uint64_t offset = 0;
    const mem::MemoryRegion* region = nullptr;
    uint64_t va = 0;
    mem::WindowUse* window = nullptr;
};
Placing place_slowly(Context& ctx, Qp& qp, SlowRole role, const wire::Packet& packet, const Target& to, const uint8_t* payload,
                     uint32_t length);
/// A datagram behind its GRH.
Placing place_datagram_slowly(Context& ctx, Qp& qp, const wire::Packet& packet, const SgeList& sges);
/// The result of an atomic goes to the SGEs.
Placing place_original_slowly(Context& ctx, Qp& qp, const wire::Packet& packet, const SgeList& sges);
/// An atomic on the region.
Placing exchange_slowly(Context& ctx, Qp& qp, const wire::Packet& packet, const Target& at);
/// The QP waits: a packet that has come meanwhile is kept if there is room.
void keep_behind(Context& ctx, Qp& qp, SlowRole role, const wire::Packet& packet);

// ---- outgoing
struct Staged {
    enum class Result : uint8_t { ready, waits, refused } result = Result::refused;
    const std::byte* bytes = nullptr;
    bool ends = false;  ///< nothing that follows in the message is there
};
/// Bytes [offset, offset + length) of the message that the SGEs name. `message` tells it from others; it has `total` bytes.
Staged stage_payload(Context& ctx, Qp& qp, const SgeList& sges, uint64_t message, uint64_t offset, uint32_t length,
                     uint64_t total);
Staged stage_answer(Context& ctx, Qp& qp, const mem::MemoryRegion& region, const ResponderJob& job, uint64_t va, uint64_t offset,
                    uint32_t length);
/// READ responses wait.
inline bool answer_waits(const Qp& qp) { return qp.slow != nullptr && qp.slow->answer != nullptr && qp.slow->answer->pending; }

// ---- both
/// Takes what is done. True: there was something.
bool collect_slow(Context& ctx);
/// Flushing would give buffers back to the program that a worker may still write.
bool flush_waits(const Qp& qp);
/// The QP is in error: what is kept has no effect.
void forget_slow(Context& ctx, Qp& qp);
/// The QP is to be reset or removed. False: a worker may still write its buffers; ask again. Nothing new is begun meanwhile.
bool close_slow(Context& ctx, Qp& qp);
/// The QP goes, whatever is under way.
void drop_slow(Context& ctx, Qp& qp);

}  // namespace roci::qp
