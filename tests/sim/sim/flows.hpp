// Flows of messages of equal length over one network, for measurements in virtual time. Each flow has a host of its
// own. This host sends messages to host 0 or reads from host 0.
#pragma once

#include <optional>
#include <vector>

#include "sim/tcp.hpp"
#include "sim/world.hpp"

namespace roci::sim {

struct FlowOptions {
    abi::WrOpcode opcode = abi::WrOpcode::rdma_write;
    uint32_t senders = 1;
    uint32_t length = 64 << 10;  ///< bytes per message
    uint32_t depth = 32;         ///< outstanding messages per sender
    uint32_t messages = 1000;    ///< messages per sender
    uint8_t timeout = 14;        ///< the exponent of the ACK timeout, see ibv_qp_attr::timeout
    Nanos at_most = 60'000'000'000;
    Nanos from = 0;  ///< FlowResult::counted contains only bytes after this time
    uint64_t bits_per_second = 25'000'000'000;
    Nanos propagation = 5000;
    Faults faults{};
    Nanos jitter = 0;  ///< jitter of each host, see Intake
    Pauses pauses{};   ///< of each host
    bool keep = true;  ///< true: the reorder buffer is on
    bool selective = true;
    bool reports = false;  ///< the ends exchange loss reports
    cc::Policy policy = cc::Policy::fixed_window;
    cc::Limits limits{};
    bool switched = false;
    Output output{};      ///< properties of the switch's outputs
    uint32_t spines = 0;  ///< spine switches between the senders' switch and the receiver's; 0: a single switch
    bool by_packet = false;
    std::optional<TcpKind> tcp{};  ///< adds a TCP flow over the same switches; `spines` must not be 0
    /// The TCP flow (if there is none, the first flow) begins at once. Each other flow begins at a random time before
    /// this time.
    Nanos start_within = 0;
    bool checks = false;  ///< see WorldOptions
};

struct FlowResult {
    uint64_t done = 0;     ///< completed messages
    uint64_t counted = 0;  ///< bytes after the time FlowOptions::from
    Nanos ended = 0;       ///< time since the start at which the flow ended
    uint32_t failed = 0;   ///< completions in error
};

struct RunResult {
    std::vector<FlowResult> flows;
    Nanos time = 0;
    uint64_t payload_sent = 0, payload_lost = 0, frames_lost = 0;
    uint64_t bytes_needed = 0;
    OutputCounters queue;      ///< counters of the output towards host 0
    uint64_t tcp_counted = 0;  ///< bytes of the TCP flow after the time FlowOptions::from

    double gigabits() const;         ///< throughput of all flows over the whole run, in Gbit/s
    double resent() const;           ///< retransmitted payload divided by the needed payload
    double resent_per_lost() const;  ///< retransmitted payload divided by the lost payload
    double jain() const;             ///< Jain's fairness index of `counted`
    double slowest_to_mean() const;
    uint32_t failed() const;
};

RunResult run_flows(const FlowOptions& o, uint64_t seed);

/// Sends `rounds` SENDs of 64 bytes from host 0 to host 1. Each SEND follows the answer to the previous SEND. Returns
/// the sorted round-trip times.
std::vector<Nanos> ping_pong(const FlowOptions& o, uint32_t rounds, uint64_t seed);

}  // namespace roci::sim
