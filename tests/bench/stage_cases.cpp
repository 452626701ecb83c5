// Measures cycles per message and stage (stack/base/stage.hpp): both ends, the ACK, posting and polling. Figures per case:
//   stage.CASE.STAGE    a stage's own cycles, without the cost of its switches
//   stages.CASE.sum     sum of all stages, including the time outside the engine
//   stages.CASE.marked  total with counting; .switches: number of switches between stages;
//                       .switch: calibrated cost of a switch; .packets: packets per message
//   stages.CASE.plain   total with the ordinary transport, without counting
#include "stage_cases.hpp"

#include <rte_cycles.h>

#include <string>

#include "base/stage.hpp"
#include "report.hpp"
#include "transport_rig.hpp"

namespace roci::bench {
namespace {

struct Case {
    const char* name;
    abi::WrOpcode opcode;
    uint32_t bytes, qps, batch;
    uint32_t packets() const { return (bytes + kMtu - 1) / kMtu; }
    uint32_t messages() const { return qps * batch; }
    static constexpr uint32_t kMtu = 4096;
};
constexpr Case kCases[] = {
    {"write.64B.16qp", abi::WrOpcode::rdma_write, 64, 16, 32},    {"send.64B.16qp", abi::WrOpcode::send, 64, 16, 32},
    {"read.64B.16qp", abi::WrOpcode::rdma_read, 64, 16, 32},      {"write.64KiB.1qp", abi::WrOpcode::rdma_write, 65536, 1, 16},
    {"write.1MiB.1qp", abi::WrOpcode::rdma_write, 1 << 20, 1, 8}, {"write.64B.10000qp", abi::WrOpcode::rdma_write, 64, 10000, 1},
};

/// The number of windows, and the limits of a window. The fastest window is reported, because other programs can only
/// make a window longer. Windows are short, so that some of them are not interrupted by other programs.
struct Effort {
    uint32_t windows, window_bytes, window_messages;
    uint32_t rounds(const Case& c) const {
        return std::max(1u, std::min(window_messages / c.messages(), window_bytes / (c.messages() * c.bytes)));
    }
};
constexpr Effort kQuick{60, 8 << 20, 4096}, kThorough{100, 16 << 20, 8192};

#ifdef ROCI_STAGES
constexpr bool kCounted = true;
StageClock& window_clock() { return stage_clock; }
#else
constexpr bool kCounted = false;
double calibrate_stage_switch() { return 0; }
/// Without ROCI_STAGES the transport has no markers. Then this clock measures a whole window as one stage.
StageClock& window_clock() {
    static StageClock clock;
    return clock;
}
#endif

struct Window {
    StageClock took;
    double switch_cycles = 0;
};

/// Returns the fastest window, or a window of 0 cycles if a message has failed. The frequency of the core changes,
/// while the frequency of the counter does not. So the cost of a switch is calibrated before each window.
Window measure(const Case& c, const Effort& effort) {
    Rig rig({c.qps, c.bytes, c.batch * 2});
    Window best;
    for (uint32_t window = 0; window <= effort.windows; ++window) {
        const double switch_cycles = calibrate_stage_switch();
        window_clock().start(rte_rdtsc());
        for (uint32_t i = 0; i < effort.rounds(c); ++i)
            if (!one_round(rig, c.opcode, c.bytes, c.batch)) return {};
        window_clock().end_interval(Stage::outside, rte_rdtsc());
        const bool better = window_clock().whole() < best.took.whole();
        if (window <= 1 || better) best = {window_clock(), switch_cycles};  // the first window is only a warm-up
    }
    return best;
}

void tell(const Case& c, const StageClock& took, double messages, double switch_cycles) {
    const std::string name = c.name;
    double sum = 0, switches = 0;
    for (size_t s = 0; s < kStages; ++s) {
        const StageTally& t = took.of[s];
        const double self = t.without_switches(switch_cycles) / messages;
        report("stage." + name + "." + kStageInfo[s].name, self, "cycles/msg", double(t.entries) / messages, kStageInfo[s].text);
        sum += self;
        switches += double(t.intervals) / messages;
    }
    report("stages." + name + ".sum", sum, "cycles/msg");
    report("stages." + name + ".marked", double(took.whole()) / messages, "cycles/msg");
    report("stages." + name + ".switches", switches, "/msg");
    report("stages." + name + ".switch", switch_cycles, "cycles");
    report("stages." + name + ".packets", c.packets(), "/msg");
}

/// Prints the stages that no case enters, because nothing would test their markers. Returns the number of these
/// stages.
int never_entered(const StageTally (&of)[kStages]) {
    int missing = 0;
    for (size_t s = 0; s < kStages; ++s) {
        if (of[s].intervals != 0) continue;
        std::fprintf(stderr, "no case enters the stage %s\n", kStageInfo[s].name);
        ++missing;
    }
    return missing;
}

}  // namespace

int stages(bool quick) {
    const Effort& effort = quick ? kQuick : kThorough;
    StageTally all[kStages];
    for (const Case& c : kCases) {
        const auto [took, switch_cycles] = measure(c, effort);
        if (took.whole() == 0) return std::fprintf(stderr, "%s: a message failed\n", c.name), 1;
        const double messages = double(effort.rounds(c)) * c.messages();
        for (size_t s = 0; s < kStages; ++s) all[s].intervals += took.of[s].intervals;
        if (kCounted)
            tell(c, took, messages, switch_cycles);
        else
            report(std::string("stages.") + c.name + ".plain", double(took.whole()) / messages, "cycles/msg");
    }
    return kCounted && never_entered(all) != 0;
}

}  // namespace roci::bench
