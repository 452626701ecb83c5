// Tag matching: the list of tagged buffers of an SRQ, and the state of a QP of such an SRQ (current message, outstanding
// rendezvous). The wire format is that of <infiniband/tm_types.h>. One engine serves an SRQ and its QPs, so the list needs no
// lock and messages are matched in order.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "abi/tag_matching.hpp"
#include "base/types.hpp"

namespace roci::qp {

/// The rings of a tag matching SRQ. `shared` is nullptr for other kinds of SRQ.
struct TagSpec {
    abi::TagShared* shared = nullptr;
    const abi::TagOp* ops = nullptr;
    uint32_t* given_back = nullptr;
    uint32_t depth = 0, handles = 0;  ///< powers of two
    uint32_t max_tags = 0;
    uint32_t slot = 0;  ///< number of the doorbell bit
};

/// The values of enum ibv_tmh_op. Messages with a value other than `rendezvous` and `eager` are treated as untagged.
enum class TmOperation : uint8_t { no_tag = 0, rendezvous = 1, fin = 2, eager = 3 };
inline constexpr uint32_t kTmhBytes = 16, kRvhBytes = 16, kRndvBytes = kTmhBytes + kRvhBytes;
/// Longest rendezvous request, bytes. Such a request fits into one packet at every path MTU.
inline constexpr uint32_t kMaxRndvRequest = 256;
/// Limit of outstanding rendezvous per QP. Further rendezvous requests are refused with an RNR NAK.
inline constexpr uint32_t kRendezvous = 32;

/// A tagged buffer.
struct TagEntry {
    static constexpr uint32_t kNone = ~0u;
    uint32_t handle = 0;
    bool listed = false;
    bool waits = false;  ///< matches no message before TagList::release_waiting()
    uint16_t num_sge = 0;
    uint32_t prev = kNone, next = kNone;
    uint64_t recv_wr_id = 0, tag = 0, mask = 0;
    uint64_t capacity = 0;
    std::array<abi::Sge, abi::kMaxTagSge> sges{};
};

/// The tagged buffers in the order of their posting.
class TagList {
public:
    explicit TagList(uint32_t max_tags) : entries_(max_tags) {}
    /// Adds an entry. Returns false if the index in its handle is invalid or already in the list.
    bool add(const TagEntry& entry);
    /// Returns the entry of `handle`, or nullptr if there is no such entry in the list.
    TagEntry* find(uint32_t handle);
    /// Returns the first matching entry that is not waiting, or nullptr.
    TagEntry* match(uint64_t tag);
    void remove(TagEntry& entry);
    /// Permits all entries to match messages. Called when client and rocid have the same count of unexpected messages.
    void release_waiting();

private:
    std::vector<TagEntry> entries_;
    uint32_t first_ = TagEntry::kNone, last_ = TagEntry::kNone;
    uint32_t waiting_ = 0;
};

/// The tag matching state of an SRQ. `spec` refers to the SRQ's own spec.
struct alignas(64) TagSrq {
    explicit TagSrq(const TagSpec& s) : spec(s), list(s.max_tags) {}
    const TagSpec& spec;
    TagList list;
    uint32_t taken = 0;       ///< number of operations taken from the client's ring
    uint32_t returned = 0;    ///< number of handles returned to the client
    uint32_t unexpected = 0;  ///< number of messages that matched no entry, without those that failed
    uint32_t handled = 0;     ///< number of unexpected messages that the client has handled
    bool broken = false;      ///< the indices of the client's ring are invalid; the engine takes no more operations
    uint32_t unreported = 0;  ///< number of messages that wait for slow memory; their completions are not written yet
};

/// How the current message will be completed.
enum class TagMessage : uint8_t { ordinary, no_tag, unexpected, matched, rendezvous, handed };

/// A matched rendezvous. The QP first sends a READ, then a FIN.
struct Rendezvous {
    uint64_t recv_wr_id = 0, remote_va = 0;
    uint32_t rkey = 0, length = 0;
    uint16_t num_sge = 0;
    std::array<abi::Sge, abi::kMaxTagSge> sges{};
    std::array<uint8_t, kRndvBytes> header{};  ///< header of the request; the FIN repeats it
};

/// A FIFO of indices of Rendezvous.
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

/// The tag matching state of a QP. The QP's send queue contains only the READs and FINs of rendezvous. The engine fetches no
/// WQEs from the client.
struct alignas(64) TagQp {
    TagQp();
    TagMessage message = TagMessage::ordinary;
    abi::Cqe handed{};  ///< TagMessage::handed: the completion that is written when the headers are in the buffer
    uint64_t tag = 0;
    uint32_t app_ctx = 0;
    bool match_reported = false;  ///< for a message of several packets: the match has been reported
    std::array<Rendezvous, kRendezvous> jobs;
    RendezvousQueue free, to_read, to_finish;
};

}  // namespace roci::qp
