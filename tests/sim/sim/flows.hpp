// Flows of equal messages over one network, for measuring in virtual time. Each flow has its own host, which sends to or reads
// from host 0.
#pragma once

#include <optional>
#include <vector>

#include "sim/tcp.hpp"
#include "sim/world.hpp"

namespace roci::sim {

struct FlowOptions {
    abi::WrOpcode opcode = abi::WrOpcode::rdma_write;
    uint32_t senders = 1;
    uint32_t length = 64 << 10;  ///< of a message
    uint32_t depth = 32;         ///< messages under way
    uint32_t messages = 1000;    ///< of each sender; then it ends
    Nanos at_most = 60'000'000'000;
    Nanos from = 0;  ///< throughput is counted from here on
    uint64_t bits_per_second = 25'000'000'000;
    Nanos propagation = 5000;
    Faults faults{};
    bool keep = true;  ///< the reorder buffer is on
    bool selective = true;
    cc::Policy policy = cc::Policy::fixed_window;
    cc::Limits limits{};
    bool switched = false;
    Output output{};      ///< of the switch
    uint32_t spines = 0;  ///< spine switches between the switches of senders and receiver; 0: a single switch
    bool by_packet = false;
    std::optional<TcpKind> tcp{};  ///< a TCP flow beside the others, through the same spine
    Nanos start_within = 0;        ///< flows begin at a random time until then; something begins at once
};

struct FlowResult {
    uint64_t done = 0;     ///< messages
    uint64_t counted = 0;  ///< bytes since FlowOptions::from
    Nanos ended = 0;       ///< since the start
    uint32_t failed = 0;   ///< completions with an error
};

struct RunResult {
    std::vector<FlowResult> flows;
    Nanos time = 0;
    uint64_t payload_sent = 0, frames_lost = 0;
    uint64_t bytes_needed = 0;
    OutputCounters queue;      ///< in front of host 0
    uint64_t tcp_counted = 0;  ///< bytes since FlowOptions::from

    double gigabits() const;  ///< all of them, over the whole run
    double resent() const;    ///< retransmitted payload as a share of the needed payload
    double jain() const;      ///< fairness of `counted`
    double slowest_to_mean() const;
    uint32_t failed() const;
};

RunResult run_flows(const FlowOptions& o, uint64_t seed);

/// Round trips of 64 B SENDs between two hosts, one after the other; sorted.
std::vector<Nanos> ping_pong(const FlowOptions& o, uint32_t rounds, uint64_t seed);

}  // namespace roci::sim
