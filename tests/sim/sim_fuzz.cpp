// `sim_fuzz --seeds A..B [--verbose]` runs random worlds, one per seed. `sim_fuzz --fresh N` runs N worlds and starts
// at a random seed. If a world violates an invariant, the exit code is 1, and the program prints the command that
// repeats this world.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>

#include "sim/workload.hpp"

int main(int argc, char** argv) {
    CLI::App app{"Random workloads over a faulty network in virtual time"};
    std::string seeds = "1..300";
    bool verbose = false;
    uint64_t stop_after = 10, fresh = 0;
    app.add_option("--seeds", seeds, "A..B, or one seed");
    app.add_flag("--verbose", verbose, "say what every world was; print the last frames of a failing one");
    app.add_option("--stop-after", stop_after, "give up after so many failures");
    app.add_option("--fresh", fresh, "so many worlds, from a seed drawn by chance, which is printed");
    CLI11_PARSE(app, argc, argv);
    if (fresh != 0) {
        const uint64_t from = uint64_t{std::random_device{}()} * 1'000'000 + 1;
        seeds = std::to_string(from) + ".." + std::to_string(from + fresh - 1);
        std::printf("%s --seeds %s\n", argv[0], seeds.c_str());
        std::fflush(stdout);
    }
    const size_t dots = seeds.find("..");
    const uint64_t first = std::stoull(seeds);
    const uint64_t last = dots == std::string::npos ? first : std::stoull(seeds.substr(dots + 2));

    uint64_t failures = 0, messages = 0, frames = 0, lost = 0, worlds = 0;
    const auto start = std::chrono::steady_clock::now();
    for (uint64_t seed = first; seed <= last && failures < stop_after; ++seed) {
        const auto r = roci::sim::run_workload(seed, verbose);
        ++worlds;
        messages += r.messages;
        frames += r.frames;
        lost += r.lost;
        if (verbose) {
            std::printf("seed=%llu %s: %llu messages, %llu frames, %llu lost, %.3f ms\n", static_cast<unsigned long long>(seed),
                        r.summary.c_str(), static_cast<unsigned long long>(r.messages), static_cast<unsigned long long>(r.frames),
                        static_cast<unsigned long long>(r.lost), double(r.virtual_ns) / 1e6);
        }
        if (!r.failure.empty()) {
            ++failures;
            std::printf("FAILED seed=%llu (%s)\n  %s\n  replay: %s --seeds %llu --verbose\n",
                        static_cast<unsigned long long>(seed), r.summary.c_str(), r.failure.c_str(), argv[0],
                        static_cast<unsigned long long>(seed));
        }
        if (!verbose && worlds % 100 == 0) {
            std::printf("%llu worlds, %llu failures\n", static_cast<unsigned long long>(worlds),
                        static_cast<unsigned long long>(failures));
            std::fflush(stdout);
        }
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%llu worlds, %llu failures: %llu messages, %llu frames, %llu of them lost, %.1f s\n",
                static_cast<unsigned long long>(worlds), static_cast<unsigned long long>(failures),
                static_cast<unsigned long long>(messages), static_cast<unsigned long long>(frames),
                static_cast<unsigned long long>(lost), seconds);
    return failures == 0 ? 0 : 1;
}
