// Measures round trips for congestion control. One measurement per round trip is not enough where the hosts delay single
// frames. Therefore the send times of several packets per round trip are kept, and each ACK of such a packet gives a sample.
#pragma once

#include <array>

#include "base/types.hpp"

namespace roci::qp {

/// The send times of the packets whose round trips are measured, in the order of their PSNs. The size of the list is limited.
/// If the list is full, every second entry is removed.
class SendTimes {
public:
    /// Records that the packet was sent for the first time. `psn` must be higher than all PSNs recorded before.
    void add(Psn psn, Nanos now);
    /// Called when all PSNs before `acked` are acknowledged. Removes the entries of these PSNs. Returns the time since the
    /// packet of the newest removed entry was sent, in ns, or 0 if no entry was removed. remove() must have been called for
    /// packets that were sent again, because the acknowledgement may belong to any of their transmissions.
    uint32_t take(Psn acked, Nanos now);
    /// Called when the response with this PSN has arrived while an earlier response is missing. Returns the time since its
    /// request was sent, in ns, or 0 if the list has no entry for this PSN. Removes the entry.
    uint32_t take_one(Psn psn, Nanos now);
    /// Called when the packets [begin, end) are sent again.
    void remove(Psn begin, Psn end);
    void clear() { count_ = 0; }

private:
    static constexpr uint32_t kMost = 6;
    static constexpr Nanos kLongest = 1u << 30;  ///< ns; longest sample
    struct Entry {
        Psn psn;
        uint32_t at = 0;
    };
    void drop(uint32_t first, uint32_t n);
    void forget_old(Nanos now);

    std::array<Entry, kMost> entries_{};
    Nanos newest_ = 0;  ///< time of the newest entry
    uint32_t count_ = 0;
};

}  // namespace roci::qp
