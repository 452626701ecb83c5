// Tag matching: the list of tagged buffers of an SRQ, and the state of a QP of such an SRQ (current message, outstanding
// rendezvous). Wire format: <infiniband/tm_types.h>. One engine serves an SRQ and its QPs, so the list needs no lock and matching
// is in order.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "abi/tag_matching.hpp"
#include "base/types.hpp"

namespace roci::qp {

/// The memory of a tag matching SRQ, allocated by the conductor; `shared` nullptr: another kind of SRQ.
struct TagSpec {
    abi::TagShared* shared = nullptr;
    const abi::TagOp* ops = nullptr;
    uint32_t* given_back = nullptr;
    uint32_t depth = 0, handles = 0;  ///< powers of two
    uint32_t max_tags = 0;
    uint32_t slot = 0;  ///< doorbell bit
};

/// enum ibv_tmh_op; messages with other values are treated as untagged.
enum class TmOperation : uint8_t { no_tag = 0, rendezvous = 1, fin = 2, eager = 3 };
inline constexpr uint32_t kTmhBytes = 16, kRvhBytes = 16, kRndvBytes = kTmhBytes + kRvhBytes;
/// Longest rendezvous request. It fits into a packet at every path MTU, so that matching is a single step.
inline constexpr uint32_t kMaxRndvRequest = 256;
/// Limit of outstanding rendezvous per QP; a further one gets an RNR NAK.
inline constexpr uint32_t kRendezvous = 32;

/// A tagged buffer.
struct TagEntry {
    static constexpr uint32_t kNone = ~0u;
    uint32_t handle = 0;
    bool listed = false;
    bool waits = false;  ///< added out of phase: does not match until client and rocid agree on the count of unexpected messages
    uint16_t num_sge = 0;
    uint32_t prev = kNone, next = kNone;
    uint64_t recv_wr_id = 0, tag = 0, mask = 0;
    uint64_t capacity = 0;
    std::array<abi::Sge, abi::kMaxTagSge> sges{};
};

/// Entries in posting order.
class TagList {
public:
    explicit TagList(uint32_t max_tags) : entries_(max_tags) {}
    /// False: no such index, or it is in the list.
    bool add(const TagEntry& entry);
    /// The entry of `handle`, or nullptr if it is not in the list.
    TagEntry* find(uint32_t handle);
    /// The first matching entry that is not waiting; nullptr: none.
    TagEntry* match(uint64_t tag);
    void remove(TagEntry& entry);
    /// The counts agree: all entries may match from now on.
    void release_waiting();

private:
    std::vector<TagEntry> entries_;
    uint32_t first_ = TagEntry::kNone, last_ = TagEntry::kNone;
    uint32_t waiting_ = 0;
};

/// The tag matching state of an SRQ, whose spec it uses.
struct alignas(64) TagSrq {
    explicit TagSrq(const TagSpec& s) : spec(s), list(s.max_tags) {}
    const TagSpec& spec;
    TagList list;
    uint32_t taken = 0;       ///< operations taken from the client's ring
    uint32_t returned = 0;    ///< handles given back
    uint32_t unexpected = 0;  ///< messages that matched nothing
    uint32_t handled = 0;     ///< number of these that the client has handled
    bool broken = false;      ///< the indices of the client's ring are invalid: it is not read any more
    uint32_t unreported = 0;  ///< messages whose buffer has left the list and waits for slow memory
};

/// How the current message will be completed.
enum class TagMessage : uint8_t { ordinary, no_tag, unexpected, matched, rendezvous, handed };

/// A matched rendezvous: READ, then FIN.
struct Rendezvous {
    uint64_t recv_wr_id = 0, remote_va = 0;
    uint32_t rkey = 0, length = 0;
    uint16_t num_sge = 0;
    std::array<abi::Sge, abi::kMaxTagSge> sges{};
    std::array<uint8_t, kRndvBytes> header{};  ///< of the request; the FIN repeats it
};

/// Indices of Rendezvous, FIFO.
struct RendezvousQueue {
    std::array<uint8_t, kRendezvous> slot{};
    uint32_t head = 0, count = 0;
    void push(uint32_t s) { slot[(head + count++) % kRendezvous] = uint8_t(s); }
    uint32_t pop() {
        const uint32_t s = slot[head];
        head = (head + 1) % kRendezvous;
        --count;
        return s;
    }
};

/// The tag matching state of a QP. Its send queue has only READs and FINs of rendezvous, in a ring of the engine; nothing is
/// fetched from the client.
struct alignas(64) TagQp {
    TagQp();
    TagMessage message = TagMessage::ordinary;
    abi::Cqe handed{};  ///< TagMessage::handed: completes the buffer when the headers are in it
    uint64_t tag = 0;
    uint32_t app_ctx = 0;
    bool match_reported = false;  ///< message of several packets: the match was reported already
    std::array<Rendezvous, kRendezvous> jobs;
    RendezvousQueue free, to_read, to_finish;
};

}  // namespace roci::qp
