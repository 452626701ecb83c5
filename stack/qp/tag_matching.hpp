// Tag matching: the list of tagged buffers of an SRQ, and what a QP of such an SRQ remembers of messages and rendezvous under
// way. Wire format: <infiniband/tm_types.h>. An SRQ and its QPs are on one engine, so that the list needs no lock and matching is
// in order.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "abi/tag_matching.hpp"
#include "base/types.hpp"

namespace roci::qp {

/// What the conductor laid out for a tag matching SRQ; `shared` nullptr: another kind of SRQ.
struct TagSpec {
    abi::TagShared* shared = nullptr;
    const abi::TagOp* ops = nullptr;
    uint32_t* given_back = nullptr;
    uint32_t depth = 0, handles = 0;  ///< powers of two
    uint32_t max_tags = 0;
    uint32_t slot = 0;  ///< doorbell bit
};

/// enum ibv_tmh_op; anything else is no tag to us.
enum class TmOperation : uint8_t { no_tag = 0, rendezvous = 1, fin = 2, eager = 3 };
inline constexpr uint32_t kTmhBytes = 16, kRvhBytes = 16, kRndvBytes = kTmhBytes + kRvhBytes;
/// Longest rendezvous request: fits a packet at every path MTU, so that a match is decided and done with in one step.
inline constexpr uint32_t kMaxRndvRequest = 256;
/// Rendezvous of one QP at a time; one more is answered by an RNR NAK.
inline constexpr uint32_t kRendezvous = 32;

/// A tagged buffer.
struct TagEntry {
    static constexpr uint32_t kNone = ~0u;
    uint32_t handle = 0;
    bool listed = false;
    bool waits = false;  ///< added out of phase: does not match until SW and we agree on the count of unexpected messages
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
    /// The entry that `handle` names, or nullptr: it was never there or has left.
    TagEntry* find(uint32_t handle);
    /// The first that matches and may match; nullptr: none.
    TagEntry* match(uint64_t tag);
    void remove(TagEntry& entry);
    /// Phases agree: everything may match from now on.
    void release_waiting();

private:
    std::vector<TagEntry> entries_;
    uint32_t first_ = TagEntry::kNone, last_ = TagEntry::kNone;
    uint32_t waiting_ = 0;
};

/// Of an SRQ.
struct alignas(64) TagSrq {
    explicit TagSrq(const TagSpec& s) : spec(s), list(s.max_tags) {}
    TagSpec spec;
    TagList list;
    uint32_t taken = 0;       ///< operations taken from the client's ring
    uint32_t returned = 0;    ///< handles given back
    uint32_t unexpected = 0;  ///< messages that matched nothing
    uint32_t handled = 0;     ///< of these, what the client says that it has dealt with
    bool broken = false;      ///< the client lied about its ring: it is not read any more
};

/// How the message under way is to be completed.
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

/// Of a QP whose SRQ matches tags. Its send queue is ours: READs and FINs, in the engine's own ring; nothing is fetched from the
/// client.
struct alignas(64) TagQp {
    TagQp();
    TagMessage message = TagMessage::ordinary;
    abi::Cqe handed{};  ///< TagMessage::handed: completes the buffer when the headers are in it
    uint64_t tag = 0;
    uint32_t app_ctx = 0;
    bool match_told = false;  ///< a message of many packets: the match was completed already
    std::array<Rendezvous, kRendezvous> jobs;
    RendezvousQueue free, to_read, to_finish;
};

}  // namespace roci::qp
