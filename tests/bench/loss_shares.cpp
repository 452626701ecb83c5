// Measures the share of its throughput that one QP keeps if frames are lost at random. One thread drives both ends over DPDK's
// ring driver. Runs with and without loss alternate every millisecond, so that a CPU whose speed changes slows down both. In both
// runs, the frames pass the same fault injection.
#include "loss_shares.hpp"

#include <chrono>
#include <cmath>
#include <cstdio>

#include "pmd_glue/fault_port.hpp"
#include "transport_rig.hpp"

namespace roci::bench {
namespace {

constexpr uint32_t kBytes = 65536, kBatch = 64;
constexpr uint32_t kBlocks = 24;        ///< number of blocks per figure; their spread gives the standard error
constexpr uint32_t kRounds = 100;       ///< number of rounds with loss, and of rounds without loss, per block
constexpr double kAlmostNever = 1e-12;  ///< a probability of loss that is not 0, so that FaultPort does the same work
constexpr double kLosses[] = {0.0001, 0.001, 0.01, 0.03, 0.05};
constexpr struct {
    const char* name;
    abi::WrOpcode opcode;
} kOperations[] = {{"WRITE", abi::WrOpcode::rdma_write}, {"SEND", abi::WrOpcode::send}, {"READ", abi::WrOpcode::rdma_read}};

/// A port that loses frames only while `loses` is true.
class SometimesLossy final : public io::Port {
public:
    SometimesLossy(io::Port& inner, double loss, uint64_t seed, const TimeSource& clock, const bool& loses)
        : faultless_(inner, {.drop = kAlmostNever}, clock), faulty_(inner, {.seed = seed, .drop = loss}, clock), loses_(loses) {}
    unsigned rx_burst(io::RxFrame* frames, unsigned max) override { return now().rx_burst(frames, max); }
    void rx_free(io::RxFrame* frames, unsigned n) override { now().rx_free(frames, n); }
    uint32_t lends() const override { return faultless_.lends(); }
    unsigned tx_alloc(io::TxFrame* frames, unsigned n) override { return now().tx_alloc(frames, n); }
    unsigned tx_burst(io::TxFrame* frames, unsigned n) override { return now().tx_burst(frames, n); }
    void tx_free(io::TxFrame* frames, unsigned n) override { now().tx_free(frames, n); }

private:
    pmd::FaultPort& now() { return loses_ ? faulty_ : faultless_; }
    pmd::FaultPort faultless_, faulty_;
    const bool& loses_;
};

struct Stopped final : TimeSource {
    Nanos now() const override { return 0; }  // a lost frame needs no time
};

class Comparison {
public:
    explicit Comparison(double loss) : ports_{port(0, loss), port(1, loss)} {}

    /// Runs one block. Returns the time without loss divided by the time with loss, or 0 if a message has failed.
    double block(abi::WrOpcode opcode) {
        double seconds[2] = {};
        for (uint32_t i = 0; i < 2 * kRounds; ++i) {
            loses_ = (i + i / 2) % 2 != 0;  // no, yes, yes, no
            const auto start = std::chrono::steady_clock::now();
            if (!one_round(rig_, opcode, kBytes, kBatch)) return 0;
            seconds[loses_] += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        }
        return seconds[0] / seconds[1];
    }

private:
    std::unique_ptr<SometimesLossy> port(uint32_t device, double loss) {
        return std::make_unique<SometimesLossy>(*ring_wire->port(device, 0), loss, device + 1, clock_, loses_);
    }
    const Stopped clock_;
    bool loses_ = false;
    std::array<std::unique_ptr<SometimesLossy>, 2> ports_;
    Rig rig_{{.qps = 1, .bytes = kBytes, .depth = 2 * kBatch},
             [this](uint32_t device, uint32_t) { return ports_[device].get(); }};
};

/// Prints one figure. Returns false if a message has failed.
bool measure(double loss, abi::WrOpcode opcode) {
    Comparison comparison(loss);
    comparison.block(opcode);  // warms up
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < kBlocks; ++i) {
        const double share = 100 * comparison.block(opcode);
        if (share == 0) return false;
        sum += share;
        squares += share * share;
    }
    const double mean = sum / kBlocks, variance = std::max(0.0, squares / kBlocks - mean * mean);
    std::printf("  %5.1f +- %3.1f %%", mean, std::sqrt(variance / (kBlocks - 1)));
    std::fflush(stdout);
    return true;
}

}  // namespace

int loss_shares(std::string_view only) {
    const auto known = [&](const auto& operation) { return only == operation.name; };
    if (!only.empty() && std::ranges::none_of(kOperations, known))
        return std::fprintf(stderr, "transport_bench: --loss needs WRITE, SEND, READ or no operation\n"), 1;
    ring_wire = std::make_unique<RingWire>(std::vector<unsigned>{});
    std::printf(
        "One QP, one busy thread, %u messages of %u bytes at a time, path MTU 4096: share of the throughput without loss,\n"
        "and its standard error. Frames are lost at random, in each direction.\n      ",
        kBatch, kBytes);
    for (const double loss : kLosses) std::printf("  %12g %%", 100 * loss);
    std::printf("\n");
    for (const auto& [name, opcode] : kOperations) {
        if (!only.empty() && only != name) continue;
        std::printf("%-6s", name);
        for (const double loss : kLosses)
            if (!measure(loss, opcode)) return std::fprintf(stderr, "transport_bench: a message failed\n"), 1;
        std::printf("\n");
    }
    return 0;
}

}  // namespace roci::bench
