// The last unusual events of a QP, in order. A QP without such events has no journal. The QP's engine writes the journal. The
// conductor (rocid's control thread) gets a copy for `roci why` (host/sessions/why.cpp).
#pragma once

#include <array>
#include <cstdint>

#include "abi/reasons.hpp"
#include "base/types.hpp"
#include "mem/memory_region.hpp"

namespace roci::qp {

// Each row: name; text for users, in which {} stands for the entry's code.
#define ROCI_JOURNAL_EVENTS(X)                                                   \
    X(state, "the QP is in {}")                                                  \
    X(refused, "refused a request of the peer")                                  \
    X(failed, "a work request failed")                                           \
    X(seq_nak_sent, "a packet was missing: sent a sequence NAK")                 \
    X(rnr_nak_sent, "a message came and no receive was posted: sent an RNR NAK") \
    X(seq_nak_received, "the peer missed a packet")                              \
    X(rnr_nak_received, "the peer had no receive posted")                        \
    X(response_missing, "a response was lost: asked again")                      \
    X(timeout, "no answer within the ACK timeout, {} retries left")              \
    X(overrun, "the completion queue overran")

enum class Happening : uint8_t {
#define X(name, text) name,
    ROCI_JOURNAL_EVENTS(X)
#undef X
};
inline constexpr const char* kHappeningTexts[] = {
#define X(name, text) text,
    ROCI_JOURNAL_EVENTS(X)
#undef X
};

struct JournalEntry {
    Nanos first = 0, last = 0;
    uint32_t times = 0;  ///< number of consecutive equal events
    Psn psn;             ///< PSN of the last of these events
    Happening what{};
    uint8_t code = 0;  ///< state: the State; refused: the mem::Fault; failed: the completion status; timeout: the retries left
    abi::Reason reason{};
};

/// A refused access to memory. `region_pd`, `allowed`, `start` and `size` describe the region that the key refers to. These
/// four fields are 0 if there is no such region.
struct RefusedAccess {
    mem::Fault fault{};
    uint32_t key = 0, pd = 0;
    uint32_t needed = 0;  ///< bits of mem::Access
    uint64_t va = 0, length = 0;
    // The region of the key. If there is none, these fields are 0.
    uint32_t region_pd = 0;
    uint32_t allowed = 0;  ///< bits of mem::Access
    uint64_t start = 0, size = 0;
};

struct Journal {
    static constexpr uint32_t kEntries = 32;
    uint32_t written = 0;
    std::array<JournalEntry, kEntries> entries;
    RefusedAccess access;  ///< the last refused access

    uint32_t count() const { return written < kEntries ? written : kEntries; }
    /// Returns entry `i`. Entry 0 is the oldest entry that is still stored.
    const JournalEntry& at(uint32_t i) const { return entries[(written - count() + i) % kEntries]; }
    /// Adds an event. Consecutive events with the same kind, code and reason share an entry. Consecutive timeouts share an entry
    /// even if their codes differ.
    void add(Nanos now, Happening what, uint8_t code, Psn psn, abi::Reason reason);
};

}  // namespace roci::qp
