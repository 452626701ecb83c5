// Measures the transport alone: one engine in one thread with two devices. The devices are connected by memory, or with
// --net-ring by DPDK's ring driver, as in rocid. This process drives both QPs of every connection. The time of a message
// includes posting, fetching, sending and receiving frames, two ICRCs, the ACK, the completion and polling. Options:
//   --stages [--quick]  figures in cycles; in the program transport_stages per stage (stage_cases.cpp)
//   --engines N         N engines of one host, each on one CPU with its QPs and their client (several_engines.cpp)
//   --loss [OPERATION]  share of the throughput that remains if frames are lost (loss_shares.cpp)
//   --in-program [--one-cpu]  half a round trip between programs that run their engines themselves (engine_in_program.cpp)
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "engine_in_program.hpp"
#include "loss_shares.hpp"
#include "several_engines.hpp"
#include "stage_cases.hpp"
#include "transport_rig.hpp"

namespace roci::bench {
namespace {

void run(benchmark::State& state, abi::WrOpcode opcode) {
    const auto bytes = uint32_t(state.range(0)), qps = uint32_t(state.range(1));
    const auto batch = uint32_t(state.range(2));
    Rig rig({qps, bytes, batch * 2});
    uint64_t messages = 0;
    for (auto _ : state) {
        if (!one_round(rig, opcode, bytes, batch)) state.SkipWithError("a message failed");
        messages += uint64_t{qps} * batch;
    }
    state.counters["msg/s"] = benchmark::Counter(double(messages), benchmark::Counter::kIsRate);
    state.counters["ns/msg"] =
        benchmark::Counter(double(messages) * 1e-9, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
    state.SetItemsProcessed(int64_t(messages));
    state.SetBytesProcessed(int64_t(messages * bytes));
}

void write(benchmark::State& s) { run(s, abi::WrOpcode::rdma_write); }
void send(benchmark::State& s) { run(s, abi::WrOpcode::send); }
void read(benchmark::State& s) { run(s, abi::WrOpcode::rdma_read); }
void sizes(benchmark::internal::Benchmark* b) {
    b->ArgNames({"bytes", "qps", "batch"});
    for (int64_t qps : {1, 16}) b->Args({64, qps, 32});
    b->Args({4096, 16, 32})->Args({65536, 1, 16})->Args({1 << 20, 1, 8});
}
BENCHMARK(write)->Apply(sizes)->Args({64, 16, 1})->Args({64, 10'000, 1})->Args({64, 10'000, 32});
BENCHMARK(send)->Apply(sizes);
BENCHMARK(read)->Apply(sizes);

/// `--fixed write|send|read BYTES QPS BATCH ROUNDS` executes a fixed number of rounds without a clock, for tools that
/// count instructions. The difference between two runs with different ROUNDS is the cost of the additional messages.
int fixed(char** argv) {
    const std::string_view name = argv[2];
    const abi::WrOpcode opcode = name == "read"   ? abi::WrOpcode::rdma_read
                                 : name == "send" ? abi::WrOpcode::send
                                                  : abi::WrOpcode::rdma_write;
    const auto number = [&](int i) { return uint32_t(std::strtoul(argv[i], nullptr, 10)); };
    Rig rig({number(4), number(3), number(5) * 2});
    for (uint32_t i = 0; i < number(6); ++i)
        if (!one_round(rig, opcode, number(3), number(5))) return 1;
    return 0;
}

}  // namespace
}  // namespace roci::bench

int main(int argc, char** argv) {
    using namespace roci::bench;
    if (argc > 2 && std::string_view(argv[1]) == "--engines") return several(argc, argv);
    if (argc > 1 && std::string_view(argv[1]) == "--in-program") return in_program(argc, argv);
    if (argc > 1 && std::string_view(argv[1]) == "--loss") return loss_shares(argc > 2 ? argv[2] : "");
    if (argc > 1 && std::string_view(argv[1]) == "--net-ring") {  // --net-ring must be the first argument
        ring_wire = std::make_unique<RingWire>(std::vector<unsigned>{});
        std::rotate(argv + 1, argv + 2, argv + argc);
        argv[--argc] = nullptr;
    }
    if (argc == 7 && std::string_view(argv[1]) == "--fixed") return fixed(argv);
    if (argc > 1 && std::string_view(argv[1]) == "--stages") return stages(argc > 2 && std::string_view(argv[2]) == "--quick");
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
