// Tables of the goodput with loss, reordering and full queues, in virtual time. The same code and seeds give the same figures.
// The tables are stored next to this file, and changes of them are reviewed. ROCI_WRITE_TABLES=1 writes them again. The test
// compares figures; missed goals are only marked.
#include <gtest/gtest.h>

#include <cstdarg>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "sim/flows.hpp"

namespace roci::sim {
namespace {

std::string text(const char* format, ...) {
    char line[400];
    va_list args;
    va_start(args, format);
    std::vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return line;
}

/// Compares with the table of that name, or writes it.
void expect_table(const std::string& name, const std::string& now) {
    std::printf("%s", now.c_str());
    const std::string file = std::string(ROCI_TABLES) + "/" + name + ".txt";
    if (std::getenv("ROCI_WRITE_TABLES") != nullptr) {
        std::ofstream(file) << now;
        return;
    }
    std::ifstream in(file);
    std::ostringstream stored;
    stored << in.rdbuf();
    EXPECT_EQ(stored.str(), now) << file << " is another: if the change is meant, write it with ROCI_WRITE_TABLES=1";
}

struct Operation {
    const char* name;
    abi::WrOpcode opcode;
};
constexpr Operation kOperations[] = {
    {"WRITE", abi::WrOpcode::rdma_write}, {"SEND", abi::WrOpcode::send}, {"READ", abi::WrOpcode::rdma_read}};

constexpr double kDrops[] = {0, 0.0001, 0.001, 0.01, 0.03, 0.05};

TEST(Tables, GoodputByLoss) {
    std::string table =
        "One QP, 64 KiB per work request, 32 under way, path MTU 4096, 25 Gb/s, 10 us round trip, ACK timeout 67 ms; frames "
        "lost\n"
        "by chance in each direction. Gb/s of data without loss, then the share of it that is left.\n\n";
    table += text("%-6s %-8s %7s %7s %7s %7s %7s %7s\n", "", "", "Gb/s", "0.01 %", "0.1 %", "1 %", "3 %", "5 %");
    for (const bool keep : {false, true}) {
        for (const Operation& op : kOperations) {
            table += text("%-6s %-8s", op.name, keep ? "kept" : "dropped");
            double whole = 0;
            for (const double drop : kDrops) {
                FlowOptions o{.opcode = op.opcode, .messages = drop < 0.005 || keep ? 600u : 100u, .faults = {.drop = drop}};
                o.keep = keep;
                const RunResult r = run_flows(o, 1);
                if (drop == 0) whole = r.gigabits();
                table += drop == 0 ? text(" %7.2f", whole) : text(" %6.1f%%", 100 * r.gigabits() / whole);
                if (r.failed() != 0) table += "!";
            }
            table += "\n";
        }
    }
    table += "\n\"dropped\": frames behind a lost one are not kept (engine.reorder_frames = 0). \"!\": the QP went to error.\n";
    expect_table("goodput_by_loss", table);
}

// A tenth of the frames is overtaken by up to 32 others.
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

std::string verdict(bool met) { return met ? "met" : "MISSED"; }

TEST(Tables, Switches) {
    std::string table = "25 Gb/s links, 1 us each, 512 KiB per output of a switch, tail drop, no PFC, path MTU 4096.\n\n";
    const Output output{.bits_per_second = 25'000'000'000, .propagation = 1000, .buffer = 512 << 10, .mark = 100 << 10};
    {
        FlowOptions o{.senders = 32, .length = 1 << 20, .depth = 1, .messages = 1, .propagation = 1000};
        o.switched = true;
        o.output = output;
        const RunResult r = run_flows(o, 1);
        const double share = r.gigabits() / 25;
        table += text("incast: 32 hosts WRITE 1 MiB each to one\n");
        table += text("  goodput            %6.1f %% of the link   goal >= 95 %%        %s\n", 100 * share,
                      verdict(share >= 0.95).c_str());
        table += text("  slowest flow       %6.2f x the mean      goal <= 1.5          %s\n", r.slowest_to_mean(),
                      verdict(r.slowest_to_mean() <= 1.5).c_str());
        table += text("  QPs in error       %6u                 goal 0               %s\n", r.failed(),
                      verdict(r.failed() == 0).c_str());
        table += text("  sent again         %6.1f %%\n  dropped            %6llu frames\n\n", 100 * r.resent(),
                      static_cast<unsigned long long>(r.frames_lost));
    }
    {
        FlowOptions o{.senders = 8, .messages = 1'000'000, .at_most = 30'000'000, .from = 10'000'000, .propagation = 1000};
        o.switched = true;
        o.output = output;
        const RunResult r = run_flows(o, 1);
        uint64_t counted = 0;
        for (const FlowResult& f : r.flows) counted += f.counted;
        const double share = double(counted) * 8 / double(r.time - o.from) / 25;
        table += text("8 long flows of WRITEs to one host, from 10 ms to 30 ms\n");
        table += text("  goodput            %6.1f %% of the link   goal >= 95 %%        %s\n", 100 * share,
                      verdict(share >= 0.95).c_str());
        table += text("  fairness (Jain)    %6.3f                 goal >= 0.98         %s\n", r.jain(),
                      verdict(r.jain() >= 0.98).c_str());
        table += text("  queue, p99         %6.1f %% of the buffer goal <= 30 %%        %s\n", 100 * r.queue.p99(),
                      verdict(r.queue.p99() <= 0.3).c_str());
        table += text("  sent again         %6.1f %%\n  marked             %6.1f %% of the frames\n\n", 100 * r.resent(),
                      100 * double(r.queue.marked) / double(r.queue.frames));
    }
    {
        FlowOptions o{.senders = 1, .messages = 600, .propagation = 1000};
        o.switched = true;
        o.output = output;
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
