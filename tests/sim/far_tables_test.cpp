// Measures flows on paths with long round trips, whose queues are shorter or longer than the product of bandwidth and round trip.
#include <gtest/gtest.h>

#include "sim/flows.hpp"
#include "tables.hpp"

namespace roci::sim {
namespace {

/// A path of eight links. The product of bandwidth and round trip fits into the largest window, 256 packets.
struct Path {
    Nanos round_trip;
    uint64_t bits_per_second;
};
constexpr Path kPaths[] = {{1'000'000, 1'000'000'000}, {10'000'000, 200'000'000}, {50'000'000, 50'000'000}};
constexpr Path kMiddle = kPaths[1];

/// Sizes of the bottleneck's queue, in products of bandwidth and round trip.
constexpr double kQueues[] = {0.1, 0.25, 1, 4};

/// Fewer seeds than in other tables, because the flows run for seconds.
size_t seeds_far(cc::Policy policy) { return std::min<size_t>(seeds_of(policy), 3); }

/// Returns flows that run for 300 times the longest round trip. The last 200 times are counted. The senders' links have 25 Gb/s,
/// so only the senders themselves limit their bursts.
FlowOptions far_flows(const Path& p, double queue, cc::Policy policy) {
    const auto longest = Nanos((1 + queue) * double(p.round_trip));
    FlowOptions o{.messages = 1'000'000, .timeout = 17, .at_most = 300 * longest, .from = 100 * longest};
    o.propagation = p.round_trip / 8;
    o.policy = policy;
    o.reports = true;
    o.switched = true;
    o.spines = 1;
    o.output = {.bits_per_second = p.bits_per_second,
                .propagation = o.propagation,
                .buffer = uint32_t(queue * double(p.bits_per_second) * double(p.round_trip) / 8e9),
                .mark = 0};
    o.start_within = 20 * p.round_trip;
    return o;
}

/// Returns the share of the link that `bytes` take.
double share_of(const Path& p, const FlowOptions& o, const RunResult& r, uint64_t bytes) {
    return double(bytes) * 8e9 / double(r.time - o.from) / double(p.bits_per_second);
}

std::string row_begin(cc::Policy policy, const Path& p, double queue) {
    return text("%-9s %2u ms %4u Mb/s %6.2f", cc::policy_name(policy), unsigned(p.round_trip / 1'000'000),
                unsigned(p.bits_per_second / 1'000'000), queue);
}

std::string alone(const Path& p, double queue, cc::Policy policy) {
    Worst share, resent, errors;
    for (size_t i = 0; i < seeds_far(policy); ++i) {
        const FlowOptions o = far_flows(p, queue, policy);
        const RunResult r = run_flows(o, kSeeds[i]);
        share.take(share_of(p, o, r, r.flows[0].counted));
        resent.take(r.resent());
        errors.take(r.failed());
    }
    const bool met = share.least >= 0.8 && resent.most <= 0.02 && errors.most == 0;
    return row_begin(policy, p, queue) +
           text(" %6.1f%% %9.2f%%  %s\n", 100 * share.least, 100 * resent.most, verdict(met).c_str());
}

/// Returns the goodput and the repeated share of READs of this length.
std::string reads_of(const Path& p, double queue, uint32_t length, bool& met) {
    Worst share, resent;
    for (size_t i = 0; i < seeds_far(cc::Policy::adaptive); ++i) {
        FlowOptions o = far_flows(p, queue, cc::Policy::adaptive);
        o.opcode = abi::WrOpcode::rdma_read;
        o.length = length;
        o.depth = std::max((2u << 20) / length, 4u);
        const RunResult r = run_flows(o, kSeeds[i]);
        share.take(share_of(p, o, r, r.flows[0].counted));
        resent.take(r.resent());
    }
    met = met && share.least >= 0.8 && resent.most <= 0.02;
    return text(" %6.1f%% %9.2f%%", 100 * share.least, 100 * resent.most);
}

std::string several(const Path& p, double queue, cc::Policy policy) {
    Worst share, resent, jain;
    for (size_t i = 0; i < seeds_far(policy); ++i) {
        FlowOptions o = far_flows(p, queue, policy);
        o.senders = 4;
        const RunResult r = run_flows(o, kSeeds[i]);
        uint64_t counted = 0;
        for (const FlowResult& f : r.flows) counted += f.counted;
        share.take(share_of(p, o, r, counted));
        resent.take(r.resent());
        jain.take(r.jain());
    }
    const bool met = share.least >= 0.8 && resent.most <= 0.05 && jain.least >= 0.8;
    return row_begin(policy, p, queue) +
           text(" %6.1f%% %9.2f%% %9.3f  %s\n", 100 * share.least, 100 * resent.most, jain.least, verdict(met).c_str());
}

std::string beside_cubic(const Path& p, double queue, cc::Policy policy) {
    Worst ours, theirs;
    for (size_t i = 0; i < seeds_far(policy); ++i) {
        FlowOptions o = far_flows(p, queue, policy);
        o.tcp = TcpKind::cubic;
        const RunResult r = run_flows(o, kSeeds[i]);
        ours.take(2 * share_of(p, o, r, r.flows[0].counted));
        theirs.take(2 * share_of(p, o, r, r.tcp_counted));
    }
    const bool met = std::min(ours.least, theirs.least) >= 1.0 / 3;
    return row_begin(policy, p, queue) +
           text(" %6.2f to %.2f %6.2f to %.2f  %s\n", ours.least, ours.most, theirs.least, theirs.most, verdict(met).c_str());
}

/// Returns the rows of all paths and queues with congestion control, and the rows of the middle path with the fixed window.
std::string rows(std::string (*row)(const Path&, double, cc::Policy), double least_queue) {
    std::string table;
    for (const double queue : kQueues)
        if (queue >= least_queue) table += row(kMiddle, queue, cc::Policy::fixed_window);
    for (const Path& p : kPaths)
        for (const double queue : kQueues)
            if (queue >= least_queue) table += row(p, queue, cc::Policy::adaptive);
    return table;
}

TEST(FarTables, Far) {
    std::string table =
        "Paths with long round trips and one bottleneck with tail drop. Path MTU 4096, 64 KiB per WRITE, loss reports. "
        "\"queue\": "
        "its\n"
        "size in products of bandwidth and round trip. Each flow runs for 300 round trips with a full queue, and the last 200 "
        "count. The\n"
        "worst of three seeds (fixed: of one).\n\n"
        "One flow. Goals: link >= 80 %, sent again <= 2 %.\n\n";
    table += text("%-9s %5s %9s %6s %7s %10s\n", "policy", "", "link", "queue", "goodput", "sent again");
    table += rows(alone, 0);
    table +=
        "\nFour flows, which begin within 20 round trips. Goals: link >= 80 %, sent again <= 5 %, fairness (Jain) >= 0.8.\n\n";
    table += text("%-9s %5s %9s %6s %7s %10s %9s\n", "policy", "", "link", "queue", "goodput", "sent again", "fairness");
    table += rows(several, 0.25);
    table += "\nOne flow beside a TCP flow (CUBIC): the shares of both, of a half of the link. Goal: each between 1/3 and 3.\n\n";
    table += text("%-9s %5s %9s %6s %14s %14s\n", "policy", "", "link", "queue", "WRITE", "TCP");
    table += rows(beside_cubic, 0.25);
    table +=
        "\nOne flow of READs of 64 KiB, and of 1 MiB. The requester divides long READs. Goals: link >= 80 %, sent again <= 2 "
        "%.\n\n";
    table += text("%-9s %5s %9s %6s %7s %10s %7s %10s\n", "policy", "", "link", "queue", "64 KiB", "sent again", "1 MiB",
                  "sent again");
    for (const Path& p : kPaths) {
        for (const double queue : {0.25, 1.0}) {
            bool met = true;
            table += row_begin(cc::Policy::adaptive, p, queue);
            for (const uint32_t length : {64u << 10, 1u << 20}) table += reads_of(p, queue, length, met);
            table += "  " + verdict(met) + "\n";
        }
    }
    expect_table("far", table);
}

/// What disturbs a flow besides its own queue.
struct Disturbance {
    const char* name;
    double drop;
    Pauses pauses;
    Nanos jitter;
};
constexpr Disturbance kDisturbances[] = {{"none", 0, {}, 0},
                                         {"loss 0.1 %", 0.001, {}, 0},
                                         {"loss 1 %", 0.01, {}, 0},
                                         {"loss 3 %", 0.03, {}, 0},
                                         {"jitter of 2 ms", 0, {}, 2'000'000},
                                         {"pauses of up to 3 ms", 0, {.apart = 1'000'000, .longest = 3'000'000}, 0}};
constexpr abi::WrOpcode kOperations[] = {abi::WrOpcode::rdma_write, abi::WrOpcode::send, abi::WrOpcode::rdma_read};

TEST(FarTables, Disturbed) {
    std::string table =
        "One flow over 10 ms and 200 Mb/s with a queue of 1 product of bandwidth and round trip. Goodput as a share of the link: "
        "the\n"
        "worst of three seeds. Goals: 80 %; with loss of 3 %: 30 %.\n\n";
    table += text("%-9s %-22s %7s %7s %7s\n", "policy", "", "WRITE", "SEND", "READ");
    for (const Disturbance& d : kDisturbances) {
        double least = 1;
        table += text("%-9s %-22s", cc::policy_name(cc::Policy::adaptive), d.name);
        for (const abi::WrOpcode opcode : kOperations) {
            Worst share;
            for (size_t i = 0; i < seeds_far(cc::Policy::adaptive); ++i) {
                FlowOptions o = far_flows(kMiddle, 1, cc::Policy::adaptive);
                o.opcode = opcode;
                o.faults.drop = d.drop;
                o.pauses = d.pauses;
                o.jitter = d.jitter;
                const RunResult r = run_flows(o, kSeeds[i]);
                share.take(share_of(kMiddle, o, r, r.flows[0].counted));
            }
            least = std::min(least, share.least);
            table += text(" %6.1f%%", 100 * share.least);
        }
        table += "  " + verdict(least >= (d.drop >= 0.03 ? 0.3 : 0.8)) + "\n";
    }
    expect_table("far_disturbed", table);
}

}  // namespace
}  // namespace roci::sim
