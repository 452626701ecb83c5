// The output of the benchmark programs. They print one line of JSON per figure on standard output. run.py collects
// these lines.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

namespace roci::bench {

inline uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return uint64_t(t.tv_sec) * 1'000'000'000 + uint64_t(t.tv_nsec);
}

/// Reads a fast counter for short intervals. Its unit depends on the machine. A call of now_ns() takes longer.
inline uint64_t ticks() {
#ifdef __x86_64__
    return __builtin_ia32_rdtsc();
#else
    return now_ns();
#endif
}

/// Prints a figure. `name` must be unique in the run. It consists of words that are joined by dots. The first word is
/// the most general.
inline void report(const std::string& name, double value, const char* unit) {
    std::printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"}\n", name.c_str(), value, unit);
    std::fflush(stdout);
}

/// Prints a figure with two more fields. `times` is the number of times that the measured code is executed per
/// message. `what` describes the figure.
inline void report(const std::string& name, double value, const char* unit, double times, const char* what) {
    std::printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"times\": %.6g, \"what\": \"%s\"}\n", name.c_str(), value,
                unit, times, what);
    std::fflush(stdout);
}

/// Executes `work` `tries` times and returns the time of the fastest try in nanoseconds. Other programs can only make
/// a try longer.
template <class Work>
double best_ns(unsigned tries, Work&& work) {
    double best = 1e300;
    for (unsigned i = 0; i < tries; ++i) {
        const uint64_t start = now_ns();
        work();
        best = std::min(best, double(now_ns() - start));
    }
    return best;
}

}  // namespace roci::bench
