// Counters of an engine. One table defines the storage, the names in `roci status` and the documentation. The engine alone
// writes them; any thread may read them (relaxed).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "base/bump.hpp"
#include "wire/packet.hpp"

namespace roci::engine {

#define ROCI_ENGINE_COUNTERS(X)                                                \
    X(polls, "rounds of the engine's loop")                                    \
    X(busy_polls, "rounds that had something to do")                           \
    X(busy_ns, "nanoseconds of such rounds")                                   \
    X(sleeps, "times that the lcore went to sleep")                            \
    X(asleep_ns, "nanoseconds asleep")                                         \
    X(lost_ns, "nanoseconds in which others had the CPU, 1 ms or more a time") \
    X(rx_frames, "frames received")                                            \
    X(tx_frames, "frames handed to ports")                                     \
    X(commands, "commands of the conductor executed")                          \
    X(commands_waited, "commands that found the engine's ring full")           \
    X(doorbells, "doorbells of QPs seen")                                      \
    X(stray_doorbells, "doorbells for a slot that holds no QP")                \
    X(timers, "timers that expired")                                           \
    X(handed_over, "frames passed on to the engine that owns their QP")        \
    X(handover_full, "frames dropped because that engine's inbox was full")    \
    X(multicast, "frames for a multicast group")                               \
    X(multicast_copies, "copies of them that were handed to other engines")    \
    X(unknown_group, "frames for a multicast group that no QP is attached to") \
    X(unknown_qp, "frames for a QP number that is not in use")                 \
    X(wrong_service, "frames whose opcode is not of the QP's service")         \
    X(wrong_pkey, "frames whose P_Key is not the default partition's")         \
    X(wrong_address, "frames whose addresses are not those of the QP's path")  \
    X(wrong_vlan, "frames whose VLAN is not the device's")                     \
    X(wrong_state, "frames for a QP that does not receive in its state")       \
    X(over_path_mtu, "frames with more payload than the QP's path MTU")        \
    X(ecn_marked, "frames that the network marked Congestion Experienced")     \
    X(cnp_received, "congestion notification packets of a QP's peer")          \
    X(cnp_sent, "congestion notification packets, for marked frames")          \
    X(gsi_received, "management datagrams for QP 1 handed to the conductor")   \
    X(gsi_sent, "management datagrams sent from QP 1")                         \
    X(gsi_refused, "frames for QP 1, not to us or no management datagram")     \
    X(gsi_full, "management datagrams dropped: the conductor was behind")      \
    X(other_received, "ARP, ND and echo frames handed to the conductor")       \
    X(other_sent, "ARP, ND and echo frames sent")                              \
    X(other_full, "such frames dropped: the conductor was behind")             \
    X(icmp_unreachable, "ICMP unreachable messages: counted, without effect")  \
    X(reorder_kept, "frames that came too early and were kept")                \
    X(reorder_delivered, "of them: executed when their turn had come")         \
    X(reorder_duplicates, "frames dropped because they were kept already")     \
    X(reorder_beyond, "frames too far behind a missing one to be kept")        \
    X(reorder_share, "frames not kept: the QP had its share of the pool")      \
    X(reorder_no_memory, "frames not kept: the pool was used up")              \
    X(reorder_late, "frames that came after they had been asked for again")    \
    X(reorder_freed, "frames kept in vain: QP stalled, reset or in error")     \
    X(reorder_held, "frames that are kept now")

enum class Counter : uint32_t {
#define X(name, text) name,
    ROCI_ENGINE_COUNTERS(X)
#undef X
        count_,
};

struct CounterText {
    const char* name;
    const char* text;
};
inline constexpr CounterText kCounterTexts[] = {
#define X(name, text) {#name, text},
    ROCI_ENGINE_COUNTERS(X)
#undef X
};

inline constexpr size_t kCounters = size_t(Counter::count_), kVerdicts = size_t(wire::Verdict::count_);

/// Its value also falls.
constexpr bool is_level(Counter c) { return c == Counter::reorder_held; }
/// The counter of frames with this verdict: "frames_bad_icrc".
inline std::string verdict_counter(wire::Verdict v) { return std::string("frames_") + wire::verdict_name(v); }

struct Counters {
    std::array<uint64_t, size_t(Counter::count_)> value{};
    std::array<uint64_t, size_t(wire::Verdict::count_)> verdict{};  ///< frames by the parser's verdict

    void add(Counter c, uint64_t n = 1) { bump(value[size_t(c)], n); }
    void add(wire::Verdict v, uint64_t n = 1) { bump(verdict[size_t(v)], n); }
    void set(Counter c, uint64_t n) { std::atomic_ref(value[size_t(c)]).store(n, std::memory_order_relaxed); }
    uint64_t get(Counter c) const {
        return std::atomic_ref(const_cast<uint64_t&>(value[size_t(c)])).load(std::memory_order_relaxed);
    }
    uint64_t get(wire::Verdict v) const {
        return std::atomic_ref(const_cast<uint64_t&>(verdict[size_t(v)])).load(std::memory_order_relaxed);
    }
};

}  // namespace roci::engine
