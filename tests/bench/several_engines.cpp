// Measures several engines of one host. Each engine shares a CPU with the client of its QPs.
#include "several_engines.hpp"

#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <numeric>
#include <string_view>

#include "pmd_glue/clock.hpp"
#include "report.hpp"
#include "transport_rig.hpp"

namespace roci::bench {
namespace {

/// The engines of one host, as in rocid. Each engine has its own lcore. The lcore also runs the client of the
/// engine's QPs.
class Several {
public:
    Several(uint32_t engines, bool crossed, bool quick)
        : window_(quick ? 100'000'000 : 300'000'000),
          rig_({kQps, kBytes, kBatch * 2, engines, crossed}),
          rates_(engines),
          together_(engines),
          done_(engines) {}
    /// Returns the sum of the rates of all engines in millions of messages per second. The sum comes from the best of several
    /// windows. Returns 0 if a message failed.
    double rate() {
        for (uint32_t e = 0; e < rates_.size(); ++e) ring_wire->eal().launch(e, [this, e] { drive(e); });
        done_.wait();  // this thread sleeps, because the engines use all CPUs
        ring_wire->eal().join();
        return failed_ ? 0 : best_;
    }

private:
    static constexpr uint32_t kQps = 16, kBytes = 64, kBatch = 32;
    static constexpr unsigned kWindows = 4;

    void drive(uint32_t e) {
        for (unsigned w = 0; w < kWindows; ++w) {
            count_ = uint32_t(rates_.size());
            together_.arrive_and_wait();
            measure(e);
            together_.arrive_and_wait();
            if (e == 0) best_ = std::max(best_, std::accumulate(rates_.begin(), rates_.end(), 0.0));
        }
        done_.count_down();
    }
    void measure(uint32_t e) {
        const auto poll = [&] { rig_.world.host(0).engine(e).poll(clock_.now()); };
        const uint64_t start = now_ns();
        uint64_t messages = 0, now = start;
        for (; now - start < window_ && !failed_; now = now_ns(), messages += kQps * kBatch)
            if (!one_round(rig_, rig_.lanes[e], abi::WrOpcode::rdma_write, kBytes, kBatch, poll)) failed_ = true;
        rates_[e] = double(messages) * 1e3 / double(now - start);
        for (--count_; count_ != 0;) poll();  // other engines may still wait for responses of this engine
    }

    const uint64_t window_;
    const pmd::Clock clock_;
    Rig rig_;
    std::vector<double> rates_;  ///< rate of each engine in this window, in millions of messages per second
    double best_ = 0;
    std::atomic<bool> failed_{false};
    std::atomic<uint32_t> count_{0};  ///< number of engines that have not finished this window
    std::barrier<> together_;
    std::latch done_;
};

/// Returns one CPU per engine, spread over all permitted CPUs. Returns an empty list if there are fewer CPUs than
/// engines.
std::vector<unsigned> cpus_for(uint32_t engines) {
    const std::vector<unsigned> all = pmd::allowed_cpus();
    std::vector<unsigned> out;
    for (uint32_t e = 0; e < engines && engines <= all.size(); ++e)
        out.push_back(all[e * (all.size() - 1) / std::max(1u, engines - 1)]);
    return out;
}

}  // namespace

int several(int argc, char** argv) {
    bool crossed = false, quick = false;
    const auto engines = uint32_t(std::strtoul(argv[2], nullptr, 10));
    for (int i = 3; i < argc; ++i) {
        crossed = crossed || std::string_view(argv[i]) == "--crossed";
        quick = quick || std::string_view(argv[i]) == "--quick";
    }
    const std::vector<unsigned> cpus = cpus_for(engines);
    if (cpus.empty())
        return std::fprintf(stderr, "transport_bench: %u engines, but this process may use %zu CPUs\n", engines,
                            pmd::allowed_cpus().size()),
               1;
    ring_wire = std::make_unique<RingWire>(cpus);
    const double rate = Several(engines, crossed, quick).rate();
    if (rate == 0) return std::fprintf(stderr, "transport_bench: a message failed\n"), 1;
    report("transport.engines." + std::to_string(engines) + (crossed ? ".crossed" : ""), rate, "Mmsg/s");
    return 0;
}

}  // namespace roci::bench
