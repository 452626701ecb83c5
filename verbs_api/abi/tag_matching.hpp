// Tag matching SRQs (IBV_SRQT_TM): the two rings by which a client changes the tag list of an SRQ.
//
// The arena contains one TagShared, then `depth` slots of type TagOp, then `handles` slots of type uint32_t. The TagOp slots form
// the ring of operations. The uint32_t slots form the ring of returned handles: rocid writes the handle of each entry that has
// left the tag list because a message matched the entry or the client deleted it.
//
// The low 16 bits of a handle are an index below `max_tags`. The upper 16 bits count the uses of the index. So two entries that
// use the same index one after the other have different handles.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

#include "rings.hpp"
#include "wqe.hpp"

namespace roci::abi {

/// The tag matching capabilities of a device (struct ibv_tm_caps). `flags`: enum ibv_tm_cap_flags.
struct TagCaps {
    uint32_t max_rndv_hdr_size, max_num_tags, flags, max_ops, max_sge, reserved;
};

inline constexpr uint32_t kMaxTagSge = 4;

/// The last kTagSlots bits of a doorbell bitmap belong to tag matching SRQs. The other bits belong to QPs.
inline constexpr uint32_t kTagSlots = 1024;
inline constexpr uint32_t kFirstTagSlot = kDoorbellSlots - kTagSlots;

/// TagOpcode has the values of enum ibv_ops_wr_opcode, and TagOpFlags those of enum ibv_ops_flags.
enum class TagOpcode : uint8_t { add = 0, del = 1, sync = 2 };
enum TagOpFlags : uint8_t { kTagSignaled = 1 << 0, kTagSync = 1 << 1 };

struct TagOp {
    uint64_t wr_id;
    uint64_t recv_wr_id;
    uint64_t tag, mask;
    uint32_t handle;
    uint32_t unexpected_count;  ///< with kTagSync: number of unexpected messages that the program has handled so far
    TagOpcode opcode;
    uint8_t flags;  ///< TagOpFlags
    uint16_t num_sge;
    uint32_t reserved[5];
    Sge sges[kMaxTagSge];
};
static_assert(sizeof(TagOp) == 128);

/// The head of the two rings. The client posts an operation and exchanges `idle` with 0. If `idle` was 1, the client rings the
/// doorbell. In contrast to a send queue, rocid reads the ring of operations only after a doorbell.
struct TagShared {
    alignas(kCacheLine) uint32_t producer;  ///< written by the client: number of operations posted so far
    alignas(kCacheLine) uint32_t idle;      ///< written by both sides; 1: the client must ring the doorbell
    alignas(kCacheLine) uint32_t consumed;  ///< written by rocid: number of operations taken so far
    uint32_t returned;                      ///< written by rocid: number of handles returned so far
};
static_assert(sizeof(TagShared) == 192);

/// The tag matching part of the reply to create_srq. `depth` is 0 for an SRQ without tag matching.
struct TagQueue {
    uint32_t depth;    ///< slots of the ring of operations, power of two
    uint32_t handles;  ///< slots of the ring of handles, power of two
    uint32_t max_tags, max_ops;
    uint32_t engine;  ///< engine whose doorbell page the SRQ uses
    uint32_t slot;    ///< bit of the SRQ in the doorbell page
    Location where;
};
constexpr uint64_t tag_queue_bytes(uint64_t depth, uint64_t handles) {
    return sizeof(TagShared) + depth * sizeof(TagOp) + handles * sizeof(uint32_t);
}

/// The client's end of both rings. The class is not thread-safe: the caller holds the SRQ's lock.
class TagProducer {
public:
    TagProducer() = default;
    /// `base` points to a TagShared and its rings: tag_queue_bytes() bytes of shared memory.
    TagProducer(std::byte* base, const TagQueue& q)
        : shared_(reinterpret_cast<TagShared*>(base)),
          ops_(reinterpret_cast<TagOp*>(base + sizeof(TagShared))),
          given_back_(reinterpret_cast<uint32_t*>(base + sizeof(TagShared) + size_t(q.depth) * sizeof(TagOp))),
          shape_(q),
          uses_(q.max_tags, 0) {
        free_.reserve(q.max_tags);
        for (uint32_t i = q.max_tags; i-- > 0;) free_.push_back(i);
    }
    bool valid() const { return shared_ != nullptr; }
    const TagQueue& shape() const { return shape_; }

    /// Writes an operation into the next slot. If the operation adds an entry, sets op.handle. The caller calls publish()
    /// afterwards. Returns 0, ENOMEM if the tag list or the ring is full, or EINVAL if the operation is malformed.
    int post(TagOp& op) {
        if (op.opcode > TagOpcode::sync || op.num_sge > kMaxTagSge || (op.flags & ~(kTagSignaled | kTagSync)) != 0) return EINVAL;
        if (op.opcode == TagOpcode::del && (op.handle & 0xffff) >= shape_.max_tags) return EINVAL;
        if (head_ - std::atomic_ref(shared_->consumed).load(std::memory_order_acquire) >= shape_.max_ops) return ENOMEM;
        if (op.opcode == TagOpcode::add && !take_handle(op.handle)) return ENOMEM;
        ops_[head_++ & (shape_.depth - 1)] = op;
        return 0;
    }
    /// Makes the written operations visible to rocid. Returns true if the caller must ring the doorbell.
    [[nodiscard]] bool publish() {
        std::atomic_ref(shared_->producer).store(head_, std::memory_order_release);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        return std::atomic_ref(shared_->idle).exchange(0, std::memory_order_acq_rel) != 0;
    }

private:
    bool take_handle(uint32_t& handle) {
        if (free_.empty()) collect();
        if (free_.empty()) return false;
        const uint32_t index = free_.back();
        free_.pop_back();
        handle = uint32_t(++uses_[index]) << 16 | index;
        return true;
    }
    void collect() {
        const uint32_t returned = std::atomic_ref(shared_->returned).load(std::memory_order_acquire);
        for (; collected_ != returned && free_.size() < shape_.max_tags; ++collected_) {
            const uint32_t index = given_back_[collected_ & (shape_.handles - 1)] & 0xffff;
            if (index < shape_.max_tags) free_.push_back(index);
        }
    }

    TagShared* shared_ = nullptr;
    TagOp* ops_ = nullptr;
    const uint32_t* given_back_ = nullptr;
    TagQueue shape_{};
    uint32_t head_ = 0, collected_ = 0;
    std::vector<uint16_t> uses_;
    std::vector<uint32_t> free_;
};

}  // namespace roci::abi
