// Counters of an engine. One table defines the storage, the names in `roci status` and the documentation. The engine's thread
// writes the counters. The only exception is commands_waited, which the conductor (rocid's control thread) writes. Any thread may
// read the counters with relaxed loads.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "base/bump.hpp"
#include "wire/packet.hpp"

namespace roci::engine {

#define ROCI_ENGINE_COUNTERS(X)                                                                             \
    X(polls, "rounds of the engine's loop")                                                                 \
    X(busy_polls, "rounds with work")                                                                       \
    X(busy_ns, "nanoseconds in rounds with work")                                                           \
    X(sleeps, "times that the lcore went to sleep")                                                         \
    X(asleep_ns, "nanoseconds that the lcore slept")                                                        \
    X(lost_ns, "nanoseconds in which other threads had the CPU, for 1 ms or more each time")                \
    X(rx_frames, "frames received")                                                                         \
    X(tx_frames, "frames passed to ports")                                                                  \
    X(commands, "commands of the conductor executed")                                                       \
    X(commands_waited, "commands that found the engine's ring full")                                        \
    X(doorbells, "doorbells of QPs found set")                                                              \
    X(stray_doorbells, "doorbells for a slot that holds no QP")                                             \
    X(timers, "timers that expired")                                                                        \
    X(handed_over, "frames passed to another engine, which owns their QP")                                  \
    X(handover_full, "frames dropped because the inbox of the engine of their QP was full")                 \
    X(multicast, "frames for a multicast group")                                                            \
    X(multicast_copies, "copies of multicast frames that were passed to other engines")                     \
    X(unknown_group, "frames for a multicast group that no QP is attached to")                              \
    X(unknown_qp, "frames for a QP number that is not in use")                                              \
    X(acknowledged_again, "repeated requests that a removed QP had executed, acknowledged for it")          \
    X(wrong_service, "frames whose opcode is not of the QP's service")                                      \
    X(wrong_pkey, "frames whose P_Key is not the default partition's")                                      \
    X(wrong_address, "frames whose addresses are not those of the QP's path")                               \
    X(wrong_vlan, "frames whose VLAN is not the device's")                                                  \
    X(wrong_state, "frames for a QP that does not receive in its state")                                    \
    X(over_path_mtu, "frames with more payload than the QP's path MTU")                                     \
    X(ecn_marked, "frames that the network marked Congestion Experienced")                                  \
    X(cnp_received, "congestion notification packets (CNPs) from the peer of a QP")                         \
    X(cnp_sent, "CNPs sent in response to marked frames")                                                   \
    X(gsi_received, "management datagrams for QP 1 passed to the conductor")                                \
    X(gsi_sent, "management datagrams sent from QP 1")                                                      \
    X(gsi_refused, "frames for QP 1 refused: wrong address, or not a management datagram")                  \
    X(gsi_full, "management datagrams dropped because the conductor's ring was full")                       \
    X(other_received, "ARP, neighbour discovery and echo frames passed to the conductor")                   \
    X(other_sent, "ARP, neighbour discovery and echo frames sent")                                          \
    X(other_full, "ARP, neighbour discovery and echo frames dropped because the conductor's ring was full") \
    X(icmp_unreachable, "ICMP unreachable messages received; they have no effect")                          \
    X(reorder_kept, "frames that arrived before an earlier frame and were kept")                            \
    X(reorder_delivered, "kept frames that were executed in order later")                                   \
    X(reorder_duplicates, "frames dropped because a copy was kept already")                                 \
    X(reorder_beyond, "frames too far behind a missing one to be kept")                                     \
    X(reorder_share, "frames not kept because the QP had used its share of the pool")                       \
    X(reorder_no_memory, "frames not kept because memory was used up")                                      \
    X(reorder_late, "frames that arrived after they had been reported as missing")                          \
    X(reorder_bad_icrc, "kept requests dropped because their ICRC was wrong")                               \
    X(reorder_freed, "kept frames freed without execution: QP stalled, reset or in error")                  \
    X(loss_inquiries, "inquiries sent to find out whether a peer sends loss reports")                       \
    X(loss_reports_sent, "loss reports sent to peers that had inquired")                                    \
    X(loss_reports_used, "loss reports of peers that were used")                                            \
    X(loss_reports_refused, "loss reports and inquiries refused: malformed, contradictory or unsolicited")  \
    X(reorder_held, "frames that are kept at present")

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

/// Returns true if the value of the counter may also decrease.
constexpr bool is_level(Counter c) { return c == Counter::reorder_held; }
/// Returns the name of the counter of frames with this verdict, such as "frames_bad_icrc".
inline std::string verdict_counter(wire::Verdict v) { return std::string("frames_") + wire::verdict_name(v); }

struct Counters {
    std::array<uint64_t, size_t(Counter::count_)> value{};
    std::array<uint64_t, size_t(wire::Verdict::count_)> verdict{};  ///< number of frames received, by the parser's verdict

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
