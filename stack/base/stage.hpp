// Counts the CPU cycles of each stage of message processing. ROCI_STAGE(icrc) counts the cycles from the macro to the end of
// the enclosing block for the stage `icrc`, without the cycles of nested stages. The macro is empty in rocid.
// `transport_stages` (tests/bench) uses a second build of the transport, with ROCI_STAGES defined. Only the sources of that
// build (transport_sources in stack/meson.build) may contain the macro.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace roci {

/// Each row: stage, description.
#define ROCI_STAGE_TABLE(X)                                    \
    X(outside, "posting and polling, outside of the engine")   \
    X(round, "turns, and what has no other stage")             \
    X(doorbells, "collecting them")                            \
    X(timers, "the wheel, and arming")                         \
    X(fetch, "work requests, copied and validated")            \
    X(requester, "windows and headers of requests")            \
    X(transmit, "the port, empty frames")                      \
    X(receive, "the port, frames given back")                  \
    X(parse, "headers of received frames")                     \
    X(lookup, "the QP, and the check of the source")           \
    X(ahead, "many QPs: prefetching")                          \
    X(responder, "executing requests: order, rights, lengths") \
    X(completer, "taking ACKs and responses")                  \
    X(respond, "building ACKs and responses")                  \
    X(keys, "regions, rights, ranges")                         \
    X(copy, "from and to programs' memory")                    \
    X(icrc, "computing and checking")                          \
    X(cqe, "completions")                                      \
    X(notify, "completion events")

enum class Stage : uint8_t {
#define ROCI_STAGE_ROW(name, text) name,
    ROCI_STAGE_TABLE(ROCI_STAGE_ROW)
#undef ROCI_STAGE_ROW
        count_
};
inline constexpr size_t kStages = size_t(Stage::count_);

struct StageInfo {
    const char *name, *text;
};
inline constexpr StageInfo kStageInfo[] = {
#define ROCI_STAGE_ROW(name, text) {#name, text},
    ROCI_STAGE_TABLE(ROCI_STAGE_ROW)
#undef ROCI_STAGE_ROW
};

/// The counts of one stage. `entries` is the number of ROCI_STAGE blocks that were executed. An interval ends at each switch to
/// another stage. The cycles of each interval include the cost of one switch.
struct alignas(32) StageTally {
    uint64_t cycles = 0, intervals = 0, entries = 0;
    double without_switches(double switch_cycles) const { return double(cycles) - double(intervals) * switch_cycles; }
};

/// The counts of all stages of one thread. Cycles are read from the time stamp counter, which runs at a constant rate.
struct StageClock {
    std::array<StageTally, kStages> of{};
    uint64_t since = 0;
    Stage current = Stage::outside;

    void start(uint64_t now) { *this = {.since = now}; }
    /// Switches to `stage`. Returns the interrupted stage, which the caller passes to leave().
    Stage enter(Stage stage, uint64_t now) {
        const Stage before = current;
        end_interval(before, now);
        ++of[size_t(stage)].entries;
        current = stage;
        return before;
    }
    void leave(Stage stage, Stage before, uint64_t now) {
        end_interval(stage, now);
        current = before;
    }
    /// Returns the sum of the cycles of all stages.
    uint64_t whole() const {
        uint64_t cycles = 0;
        for (const StageTally& t : of) cycles += t.cycles;
        return cycles;
    }
    /// Ends the current interval and counts it for `stage`.
    void end_interval(Stage stage, uint64_t now) {
        StageTally& t = of[size_t(stage)];
        t.cycles += now - since;
        ++t.intervals;
        since = now;
    }
};

}  // namespace roci

#ifdef ROCI_STAGES
#ifndef __x86_64__
#error "stages are measured with the time stamp counter of x86-64"
#endif

namespace roci {

inline constinit thread_local StageClock stage_clock;
/// Returns the time stamp counter after all earlier instructions are done. A processor executes instructions of several stages at
/// the same time. Without the fence, most cycles of a large copy would be counted for the next stage.
inline uint64_t stage_now() {
    __builtin_ia32_lfence();
    return __builtin_ia32_rdtsc();
}

template <Stage stage>
class StageScope {
public:
    StageScope() : before_(stage_clock.enter(stage, stage_now())) {}
    ~StageScope() { stage_clock.leave(stage, before_, stage_now()); }
    StageScope(const StageScope&) = delete;

private:
    Stage before_;
};

/// Measures the cost of a switch between stages, in cycles. The result is from the fastest of many series of empty scopes.
/// Resets the thread's counts.
inline double calibrate_stage_switch() {
    constexpr uint32_t kRows = 40, kScopes = 1000;
    uint64_t best = ~uint64_t{0};
    for (uint32_t row = 0; row < kRows; ++row) {
        const uint64_t start = stage_now();
        for (uint32_t i = 0; i < kScopes; ++i) const StageScope<Stage::round> scope;
        const uint64_t took = stage_now() - start;
        if (took < best) best = took;
    }
    stage_clock.start(stage_now());
    return double(best) / (2 * kScopes);
}

}  // namespace roci

#define ROCI_STAGE(name) const ::roci::StageScope<::roci::Stage::name> roci_stage_scope
#else
#define ROCI_STAGE(name) static_cast<void>(::roci::Stage::name)
#endif
