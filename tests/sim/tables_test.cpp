// Measures goodput and latency with loss, reordering and full queues, in virtual time. The same code and the same
// seeds give the same figures. The tests compare their tables with the tables in tables/. With ROCI_WRITE_TABLES=1
// they store the new tables instead. A table marks a missed goal, but the test does not fail.
#include <gtest/gtest.h>

#include "sim/flows.hpp"
#include "tables.hpp"

namespace roci::sim {
namespace {

struct Operation {
    const char* name;
    abi::WrOpcode opcode;
};
constexpr Operation kOperations[] = {
    {"WRITE", abi::WrOpcode::rdma_write}, {"SEND", abi::WrOpcode::send}, {"READ", abi::WrOpcode::rdma_read}};

/// The settings by which both ends of a connection react to loss.
struct Ends {
    const char* name;
    bool keep, selective, reports;
    cc::Policy policy;
};
constexpr Ends kEnds[] = {{"back N", false, false, false, cc::Policy::fixed_window},
                          {"dropped", false, true, false, cc::Policy::fixed_window},
                          {"kept", true, true, false, cc::Policy::fixed_window},
                          {"reports", true, true, true, cc::Policy::fixed_window},
                          {"adaptive", true, true, true, cc::Policy::adaptive}};

constexpr double kDrops[] = {0, 0.0001, 0.001, 0.01, 0.03, 0.05};

FlowOptions lossy(const Operation& op, const Ends& ends, double drop) {
    FlowOptions o{.opcode = op.opcode, .messages = ends.keep ? 3000u : drop < 0.005 ? 600u : 100u, .faults = {.drop = drop}};
    o.keep = ends.keep;
    o.selective = ends.selective;
    o.reports = ends.reports;
    o.policy = ends.policy;
    return o;
}

TEST(Tables, GoodputByLoss) {
    std::string table =
        "One QP, 64 KiB per work request, 32 under way, path MTU 4096, 25 Gb/s, 10 us round trip, ACK timeout 67 ms; frames "
        "lost\n"
        "by chance in each direction. Gb/s of data without loss, then the share of it that is left; at 1 %, bytes sent again per "
        "byte lost.\nIf the receiver keeps frames, the figures at 1, 3 and 5 % are the worst of six seeds. Goals: 99, 98, 90, "
        "75, "
        "60 %; 1.3 bytes.\n\n";
    table += text("%-6s %-9s %7s %7s %7s %7s %7s %7s %7s\n", "", "", "Gb/s", "0.01 %", "0.1 %", "1 %", "3 %", "5 %", "again");
    for (const Ends& ends : kEnds) {
        for (const Operation& op : kOperations) {
            table += text("%-6s %-9s", op.name, ends.name);
            double whole = 0, again = 0;
            for (const double drop : kDrops) {
                Worst goodput, resent, failed;
                for (uint64_t seed = 1; seed <= (ends.keep && drop >= 0.01 ? 6u : 1u); ++seed) {
                    const RunResult r = run_flows(lossy(op, ends, drop), seed);
                    goodput.take(r.gigabits());
                    resent.take(r.resent_per_lost());
                    failed.take(r.failed());
                }
                if (drop == 0) whole = goodput.least;
                table += drop == 0 ? text(" %7.2f", whole) : text(" %6.1f%%", 100 * goodput.least / whole);
                if (failed.most != 0) table += "!";
                if (drop == 0.01) again = resent.most;
            }
            table += text(" %7.2f\n", again);
        }
    }
    table +=
        "\n\"back N\": neither end keeps frames, nor repeats single ones. \"dropped\": frames behind a lost one are not kept "
        "(engine.reorder_frames\n= 0). \"kept\": they are kept (the default). \"reports\": the same with engine.loss_reports = "
        "on. "
        "\"adaptive\": \"reports\" with\ncongestion control; the others have the fixed window. \"!\": the QP went to error.\n";
    expect_table("goodput_by_loss", table);
}

TEST(Tables, PingPongUnderLoss) {
    constexpr uint32_t kRounds = 20'000;
    const auto us = [](const std::vector<Nanos>& t, double share) {
        return double(t[size_t(double(t.size() - 1) * share)]) / 1000;
    };
    std::string table =
        "64 B SEND and its answer, one QP, 25 Gb/s, 10 us round trip, ACK timeout 67 ms: microseconds per round, of 20,000.\n"
        "Goal: p99 at 1 % loss <= 6 times p99 without loss + 2 round trips.\n\n";
    table += text("%-9s %6s %9s %9s %9s %9s\n", "", "loss", "p50", "p99", "p99.9", "longest");
    for (const Ends& ends : kEnds) {
        double whole = 0;
        for (const double drop : {0.0, 0.01}) {
            FlowOptions o{.faults = {.drop = drop}};
            o.keep = ends.keep;
            o.selective = ends.selective;
            o.reports = ends.reports;
            o.policy = ends.policy;
            const auto t = ping_pong(o, kRounds, 1);
            if (t.size() != kRounds) {
                table += text("%-9s %5.0f%%  the QP went to error\n", ends.name, 100 * drop);
                continue;
            }
            if (drop == 0) whole = us(t, 0.99);
            table += text("%-9s %5.0f%% %9.1f %9.1f %9.1f %9.1f  %s\n", ends.name, 100 * drop, us(t, 0.5), us(t, 0.99),
                          us(t, 0.999), us(t, 1),
                          drop == 0                       ? ""
                          : us(t, 0.99) <= 6 * whole + 20 ? "met"
                                                          : "MISSED");
        }
    }
    expect_table("ping_pong", table);
}

// A tenth of the frames is delayed. Up to 32 later frames overtake each of the delayed frames.
TEST(Tables, Reordering) {
    const Nanos place = (4096 + 90) * 8 / 25 + 1;
    std::string table =
        "One QP, 64 KiB per work request, 25 Gb/s; a tenth of the frames is late by up to 32 places, none is lost.\n"
        "Goal: goodput >= 95 %, less than 1 % sent again, no QP in error.\n\n";
    table += text("%-6s %-8s %8s %10s %7s\n", "", "", "goodput", "sent again", "errors");
    for (const bool keep : {false, true}) {
        for (const Operation& op : kOperations) {
            FlowOptions o{.opcode = op.opcode, .messages = keep ? 1000u : 100u};
            o.keep = keep;
            const double whole = run_flows(o, 1).gigabits();
            o.faults = {.delay = 0.1, .max_delay = 32 * place};
            const RunResult r = run_flows(o, 1);
            const double share = r.gigabits() / whole;
            const bool met = share >= 0.95 && r.resent() < 0.01 && r.failed() == 0;
            table += text("%-6s %-8s %7.1f%% %9.2f%% %7u  %s\n", op.name, keep ? "kept" : "dropped", 100 * share,
                          100 * r.resent(), r.failed(), met ? "" : "missed");
        }
    }
    expect_table("reordering", table);
}

const Output kOutput{.bits_per_second = 25'000'000'000, .propagation = 1000, .buffer = 512 << 10, .mark = 100 << 10};

FlowOptions switched(FlowOptions o, cc::Policy policy, bool marks) {
    o.switched = true;
    o.output = kOutput;
    if (!marks) o.output.mark = 0;
    o.policy = policy;
    return o;
}

constexpr Nanos kStartWithin = 20'000;

/// A policy on a network with or without marks. The fixed window ignores marks, and dcqcn reacts to nothing else.
struct Case {
    cc::Policy policy;
    bool marks;
};
constexpr Case kCases[] = {{cc::Policy::fixed_window, false}, {cc::Policy::delay, false},    {cc::Policy::delay, true},
                           {cc::Policy::dcqcn, true},         {cc::Policy::adaptive, false}, {cc::Policy::adaptive, true}};

std::string incast(cc::Policy policy, bool marks) {
    FlowOptions o = switched({.senders = 32, .length = 1 << 20, .depth = 1, .messages = 1, .propagation = 1000}, policy, marks);
    o.start_within = kStartWithin;
    Worst share, slowest, errors, resent, dropped;
    for (size_t i = 0; i < seeds_of(policy); ++i) {
        const RunResult r = run_flows(o, kSeeds[i]);
        share.take(r.gigabits() / 25);
        slowest.take(r.slowest_to_mean());
        errors.take(r.failed());
        resent.take(r.resent());
        dropped.take(double(r.frames_lost));
    }
    const bool met = share.least >= 0.95 && slowest.most <= 1.5 && errors.most == 0;
    return text("%-9s %-5s %7.1f%% %9.2f %7.0f %10.1f%% %8.0f  %s\n", cc::policy_name(policy), marks ? "yes" : "no",
                100 * share.least, slowest.most, errors.most, 100 * resent.most, dropped.most, verdict(met).c_str());
}

std::string long_flows(cc::Policy policy, bool marks) {
    FlowOptions o = switched(
        {.senders = 8, .messages = 1'000'000, .at_most = 30'000'000, .from = 10'000'000, .propagation = 1000}, policy, marks);
    o.start_within = kStartWithin;
    Worst share, jain, queue, resent, marked;
    for (size_t i = 0; i < seeds_of(policy); ++i) {
        const RunResult r = run_flows(o, kSeeds[i]);
        uint64_t counted = 0;
        for (const FlowResult& f : r.flows) counted += f.counted;
        share.take(double(counted) * 8 / double(r.time - o.from) / 25);
        jain.take(r.jain());
        queue.take(r.queue.p99());
        resent.take(r.resent());
        marked.take(double(r.queue.marked) / double(r.queue.frames));
    }
    const bool met = share.least >= 0.95 && jain.least >= 0.98 && queue.most <= 0.3;
    return text("%-9s %-5s %7.1f%% %9.3f %9.1f%% %8.1f%% %7.1f%%  %s\n", cc::policy_name(policy), marks ? "yes" : "no",
                100 * share.least, jain.least, 100 * queue.most, 100 * resent.most, 100 * marked.most, verdict(met).c_str());
}

TEST(Tables, Congestion) {
    std::string table =
        "25 Gb/s links, 1 us each, 512 KiB per output of a switch, tail drop, no PFC, path MTU 4096. \"marks\": the switch "
        "marks\n"
        "frames that find 100 KiB waiting. The flows begin within 20 us. Each figure is the worst of five seeds (fixed: of "
        "one).\n"
        "The fixed window ignores marks. dcqcn reacts to nothing else, so use it only where switches mark.\n\n"
        "Incast: 32 hosts WRITE 1 MiB each to one. Goals: goodput >= 95 % of the link, the slowest flow takes <= 1.5 times the "
        "mean,\nno QP in error.\n\n";
    table += text("%-9s %-5s %8s %9s %7s %11s %8s\n", "policy", "marks", "goodput", "slowest", "errors", "sent again", "dropped");
    for (const auto& [policy, marks] : kCases) table += incast(policy, marks);
    table +=
        "\n8 long flows of WRITEs to one host, from 10 ms to 30 ms. Goals: link >= 95 %, fairness (Jain) >= 0.98, queue p99 <= "
        "30 % of\nthe buffer.\n\n";
    table += text("%-9s %-5s %8s %9s %10s %9s %8s\n", "policy", "marks", "link", "fairness", "queue", "again", "marked");
    for (const auto& [policy, marks] : kCases) table += long_flows(policy, marks);
    expect_table("congestion", table);
}

FlowOptions calm(const Operation& op, cc::Policy policy) {
    FlowOptions o{.opcode = op.opcode};
    o.policy = policy;
    o.reports = policy != cc::Policy::fixed_window;
    return o;
}

FlowOptions with_jitter(FlowOptions o, bool overtakes) {
    constexpr Nanos kMost = 20'000;
    if (overtakes) {
        o.faults = {.delay = 1, .max_delay = kMost};
    } else {
        o.jitter = kMost;
    }
    return o;
}

TEST(Tables, Jitter) {
    std::string table =
        "One QP, 64 KiB per work request, 32 under way, 25 Gb/s, 10 us round trip. Each frame is 0 to 20 us late: at its "
        "receiver, "
        "in\n"
        "order (\"in order\"), or on its way, so that later frames overtake it (\"overtaken\"). Share of the goodput without "
        "jitter,\n"
        "the worst of five seeds. No frame is marked, so adaptive is the same as delay. Goal: >= 90 %.\n\n";
    table += text("%-9s %-10s %7s %7s %7s\n", "policy", "frames", "WRITE", "SEND", "READ");
    for (const cc::Policy p : {cc::Policy::fixed_window, cc::Policy::delay}) {
        std::string rows[2];
        double least[2] = {1, 1};
        for (const Operation& op : kOperations) {
            const double whole = run_flows(calm(op, p), 1).gigabits();
            for (const bool overtakes : {false, true}) {
                double share = 1;
                for (const uint64_t seed : kSeeds)
                    share = std::min(share, run_flows(with_jitter(calm(op, p), overtakes), seed).gigabits() / whole);
                least[overtakes] = std::min(least[overtakes], share);
                rows[overtakes] += text(" %6.1f%%", 100 * share);
            }
        }
        for (const bool overtakes : {false, true})
            table += text("%-9s %-10s", cc::policy_name(p), overtakes ? "overtaken" : "in order") + rows[overtakes] + "  " +
                     verdict(least[overtakes] >= 0.9) + "\n";
    }
    expect_table("jitter", table);
    const FlowOptions delay = with_jitter(calm(kOperations[0], cc::Policy::delay), true);
    const FlowOptions adaptive = with_jitter(calm(kOperations[0], cc::Policy::adaptive), true);
    EXPECT_EQ(run_flows(delay, 1).time, run_flows(adaptive, 1).time);
}

// The threads of both engines have no CPU for random times. Such a time delays all packets of a round trip, as a queue does.
TEST(Tables, Pauses) {
    constexpr Pauses kPauses{.apart = 1'000'000, .longest = 3'000'000};
    std::string table =
        "One QP, 64 KiB per work request, 32 under way, 25 Gb/s, 10 us round trip. The engine of each host has no CPU for up to "
        "3 "
        "ms\nat a time, and then has a CPU for up to 1 ms. Gb/s with the fixed window, and the share of them with adaptive: the "
        "worst\nof five seeds. Goal: >= 90 %.\n\n";
    table += text("%-6s %7s %9s\n", "", "fixed", "adaptive");
    for (const Operation& op : kOperations) {
        double whole = 1e9, share = 1e9;
        for (const uint64_t seed : kSeeds) {
            const auto with = [&](cc::Policy p) {
                FlowOptions o = calm(op, p);
                o.messages = 3000;
                o.pauses = kPauses;
                return run_flows(o, seed).gigabits();
            };
            const double fixed = with(cc::Policy::fixed_window);
            whole = std::min(whole, fixed);
            share = std::min(share, with(cc::Policy::adaptive) / fixed);
        }
        table += text("%-6s %7.2f %8.1f%%  %s\n", op.name, whole, 100 * share, verdict(share >= 0.9).c_str());
    }
    expect_table("pauses", table);
}

std::string beside_tcp(cc::Policy policy, TcpKind kind, double products) {
    constexpr uint64_t kRate = 10'000'000'000;
    constexpr Nanos kHop = 10'000, kRoundTrip = 8 * kHop;
    FlowOptions o{
        .messages = 1'000'000, .at_most = 200'000'000, .from = 50'000'000, .bits_per_second = 4 * kRate, .propagation = kHop};
    o.policy = policy;
    o.switched = true;
    o.spines = 1;
    o.output = {
        .bits_per_second = kRate, .propagation = kHop, .buffer = uint32_t(products * kRate * kRoundTrip / 8e9), .mark = 0};
    o.tcp = kind;
    o.start_within = 5'000'000;
    Worst ours, theirs;
    for (size_t i = 0; i < seeds_of(policy); ++i) {
        const RunResult r = run_flows(o, kSeeds[i]);
        const double fair = double(kRate) / 8 * double(r.time - o.from) / 1e9 / 2;
        ours.take(double(r.flows[0].counted) / fair);
        theirs.take(double(r.tcp_counted) / fair);
    }
    const bool met = std::min(ours.least, theirs.least) >= 1.0 / 3;
    return text("%-9s %-6s %6.1f %8.2f to %.2f %8.2f to %.2f  %s\n", cc::policy_name(policy),
                kind == TcpKind::reno ? "Reno" : "CUBIC", products, ours.least, ours.most, theirs.least, theirs.most,
                verdict(met).c_str());
}

TEST(Tables, BesideTcp) {
    std::string table =
        "One flow of WRITEs and one TCP flow share a link of 10 Gb/s with a round trip of 80 us and tail drop, from 50 to 200 "
        "ms.\n"
        "Path MTU 4096, TCP segments of 4148 B; the senders' links have 40 Gb/s. \"queue\": its size in products of bandwidth "
        "and\n"
        "round trip. Shares: of a half of the link, of five seeds (fixed: of one). Goal: each between 1/3 and 3.\n\n";
    table += text("%-9s %-6s %6s %16s %16s\n", "policy", "TCP", "queue", "WRITE", "TCP");
    for (const cc::Policy p : {cc::Policy::fixed_window, cc::Policy::adaptive})
        for (const TcpKind kind : {TcpKind::reno, TcpKind::cubic})
            for (const double products : {0.5, 2.0}) table += beside_tcp(p, kind, products);
    expect_table("beside_tcp", table);
}

TEST(Tables, Switches) {
    std::string table = "25 Gb/s links, 1 us each, 512 KiB per output of a switch, tail drop, no PFC, path MTU 4096.\n\n";
    {
        FlowOptions o{.senders = 1, .messages = 600, .propagation = 1000};
        o.switched = true;
        o.output = kOutput;
        o.spines = 4;
        const double by_flow = run_flows(o, 1).gigabits();
        o.by_packet = true;
        const RunResult r = run_flows(o, 1);
        table += text("one flow over 4 ways that differ by 4 us each, spread by packet instead of by flow\n");
        table += text("  goodput            %6.1f %% of by flow    goal >= 95 %%        %s\n", 100 * r.gigabits() / by_flow,
                      verdict(r.gigabits() >= 0.95 * by_flow).c_str());
        table += text("  sent again         %6.2f %%              goal < 1 %%           %s\n", 100 * r.resent(),
                      verdict(r.resent() < 0.01).c_str());
    }
    expect_table("switches", table);
}

}  // namespace
}  // namespace roci::sim
