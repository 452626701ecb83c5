// Runs short flows of each kind that tables_test.cpp measures, and checks what holds for every figure: each message completes
// once and without an error, the same seed gives the same run, and the switches, the TCP flow and the faults take part.
// Sanitizer builds run this test instead of tables_test.cpp, which takes too long there.
#include <gtest/gtest.h>

#include "sim/flows.hpp"

namespace roci::sim {
namespace {

constexpr cc::Policy kPolicies[] = {cc::Policy::fixed_window, cc::Policy::delay, cc::Policy::dcqcn, cc::Policy::adaptive};
constexpr abi::WrOpcode kOperations[] = {abi::WrOpcode::rdma_write, abi::WrOpcode::send, abi::WrOpcode::rdma_read};
constexpr Output kOutput{.bits_per_second = 25'000'000'000, .propagation = 1000, .buffer = 512 << 10, .mark = 100 << 10};

/// Runs the flows twice. All messages must complete, and both runs must be equal.
RunResult completed(FlowOptions o, uint64_t seed) {
    o.checks = true;
    const RunResult r = run_flows(o, seed), same = run_flows(o, seed);
    EXPECT_EQ(r.failed(), 0u);
    for (const FlowResult& f : r.flows) EXPECT_EQ(f.done, o.messages);
    EXPECT_EQ(r.time, same.time);
    EXPECT_EQ(r.payload_sent, same.payload_sent);
    EXPECT_EQ(r.frames_lost, same.frames_lost);
    EXPECT_GE(r.payload_sent, r.bytes_needed);
    return r;
}

TEST(Flows, LossIsRepairedByEachPolicyAndOperation) {
    for (const cc::Policy policy : kPolicies) {
        for (const abi::WrOpcode opcode : kOperations) {
            SCOPED_TRACE(testing::Message() << cc::policy_name(policy) << ", opcode " << int(opcode));
            FlowOptions o{.opcode = opcode, .messages = 40, .faults = {.drop = 0.03}};
            o.reports = true;
            o.policy = policy;
            const RunResult r = completed(o, 1);
            EXPECT_GT(r.payload_lost, 0u);
            EXPECT_GT(r.resent(), 0);
        }
    }
}

// Nothing is posted after the batch, so only the pacing timer lets the QP continue its repairs.
TEST(Flows, PacedRepairsContinueAfterTheLastRequest) {
    FlowOptions o{.depth = 12, .messages = 12, .propagation = 1'250'000};
    o.policy = cc::Policy::adaptive;
    o.reports = true;
    o.switched = true;
    o.spines = 1;
    o.limits.first_window = 200;
    o.output = {.bits_per_second = 200'000'000, .propagation = o.propagation, .buffer = 62'000, .mark = 0};
    const RunResult r = completed(o, 1);
    EXPECT_GT(r.frames_lost, 20u);
    EXPECT_LT(r.time, 260'000'000u) << "it takes about 320 ms if repairs wait for the next report";
}

TEST(Flows, OvertakenFramesAreKept) {
    for (const abi::WrOpcode opcode : kOperations) {
        SCOPED_TRACE(testing::Message() << "opcode " << int(opcode));
        FlowOptions o{.opcode = opcode, .messages = 60, .faults = {.delay = 0.1, .max_delay = 40'000}};
        EXPECT_LT(completed(o, 1).resent(), 0.05);
    }
}

TEST(Flows, JitterInOrderLosesNothing) {
    FlowOptions o{.messages = 60, .jitter = 20'000};
    o.policy = cc::Policy::adaptive;
    EXPECT_EQ(completed(o, 1).payload_lost, 0u);
}

TEST(Flows, IncastOverASwitchCompletes) {
    for (const cc::Policy policy : kPolicies) {
        SCOPED_TRACE(cc::policy_name(policy));
        FlowOptions o{.senders = 8, .length = 256 << 10, .depth = 1, .messages = 1, .propagation = 1000};
        o.switched = true;
        o.output = kOutput;
        o.policy = policy;
        o.start_within = 20'000;
        EXPECT_GT(completed(o, 1).queue.frames, 0u);
    }
}

TEST(Flows, SpreadByPacketOverSpines) {
    FlowOptions o{.messages = 40, .propagation = 1000};
    o.switched = true;
    o.output = kOutput;
    o.spines = 4;
    o.by_packet = true;
    EXPECT_EQ(completed(o, 1).frames_lost, 0u);
}

TEST(Flows, BesideTcpBothMove) {
    for (const TcpKind kind : {TcpKind::reno, TcpKind::cubic}) {
        FlowOptions o{.messages = 1'000'000, .at_most = 10'000'000, .bits_per_second = 40'000'000'000, .propagation = 10'000};
        o.policy = cc::Policy::adaptive;
        o.switched = true;
        o.spines = 1;
        o.output = {.bits_per_second = 10'000'000'000, .propagation = 10'000, .buffer = 200'000, .mark = 0};
        o.tcp = kind;
        const RunResult r = run_flows(o, 1);
        EXPECT_EQ(r.failed(), 0u);
        EXPECT_GT(r.flows[0].counted, 0u);
        EXPECT_GT(r.tcp_counted, 0u);
    }
}

TEST(Flows, PingPongUnderLossAnswersEachRound) {
    constexpr uint32_t kRounds = 500;
    for (const bool reports : {false, true}) {
        FlowOptions o{.faults = {.drop = 0.01}};
        o.reports = reports;
        EXPECT_EQ(ping_pong(o, kRounds, 1).size(), kRounds);
    }
}

}  // namespace
}  // namespace roci::sim
