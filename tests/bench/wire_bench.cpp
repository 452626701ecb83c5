// Measures the time in which stack/wire parses a frame, builds a frame, and computes an ICRC.
#include <benchmark/benchmark.h>

#include "samples.hpp"

namespace roci::wire {
namespace {

constexpr uint8_t kWriteOnly = 0x0a, kAckOpcode = 0x11;

void set_rate(benchmark::State& state, size_t bytes) {
    state.SetBytesProcessed(int64_t(state.iterations()) * int64_t(bytes));
    state.SetItemsProcessed(int64_t(state.iterations()));
}

void parse_frame(benchmark::State& state, uint8_t opcode, bool check_icrc) {
    const test::Frame frame = test::sample_frame(opcode, false, false, uint32_t(state.range(0)));
    Packet p;
    for (auto _ : state) {
        const Verdict v = parse(frame.data(), uint32_t(frame.size()), p, check_icrc);
        if (v != Verdict::ok) state.SkipWithError(verdict_name(v));
        benchmark::DoNotOptimize(p);
    }
    set_rate(state, frame.size());
}

void build_frame(benchmark::State& state, bool ipv6) {
    const auto length = uint32_t(state.range(0));
    const PathTemplate path = make_path(test::sample_path(ipv6, false));
    TransportHeaders headers = test::sample_headers(kWriteOnly);
    alignas(64) uint8_t frame[kMaxFrame] = {};
    uint32_t total = 0;
    for (auto _ : state) {
        ++headers.psn;
        uint8_t* payload = begin_frame(frame, path, headers, length);
        total = finish_frame(frame, path, payload, length);
        benchmark::ClobberMemory();
    }
    set_rate(state, total);
}

void begin_only(benchmark::State& state) {
    const PathTemplate path = make_path(test::sample_path(false, false));
    TransportHeaders headers = test::sample_headers(kWriteOnly);
    alignas(64) uint8_t frame[kMaxFrame] = {};
    for (auto _ : state) {
        ++headers.psn;
        benchmark::DoNotOptimize(begin_frame(frame, path, headers, 64));
        benchmark::ClobberMemory();
    }
    set_rate(state, 64);
}

void icrc_only(benchmark::State& state) {
    const test::Frame frame = test::sample_frame(kWriteOnly, false, false, uint32_t(state.range(0)));
    const auto length = uint32_t(frame.size() - kEthLength - kIcrcLength);
    for (auto _ : state) benchmark::DoNotOptimize(icrc(&frame[kEthLength], length, false, kIpv4Length));
    set_rate(state, length);
}

BENCHMARK_CAPTURE(parse_frame, write_only, kWriteOnly, true)->Arg(64)->Arg(1024)->Arg(4096);
BENCHMARK_CAPTURE(parse_frame, write_only_without_icrc, kWriteOnly, false)->Arg(64);
BENCHMARK_CAPTURE(parse_frame, ack, kAckOpcode, true)->Arg(0);
BENCHMARK_CAPTURE(build_frame, ipv4, false)->Arg(64)->Arg(1024)->Arg(4096);
BENCHMARK_CAPTURE(build_frame, ipv6, true)->Arg(64)->Arg(1024)->Arg(4096);
BENCHMARK(begin_only);
BENCHMARK(icrc_only)->Arg(64)->Arg(1024)->Arg(4096);

}  // namespace
}  // namespace roci::wire

BENCHMARK_MAIN();
