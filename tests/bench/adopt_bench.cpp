/// Measures the time that the client library takes to register memory, for the first time ("adoption") and again.

#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "adopt.hpp"

namespace {

using roci::memory::acquire;
using roci::memory::Piece;
using roci::memory::release;

char* map_touched(size_t bytes) {
    void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) std::abort();
    std::memset(p, 1, bytes);
    return static_cast<char*>(p);
}

void check(int error, const std::vector<Piece>& pieces) {
    if (error != 0 || pieces.front().fd < 0) std::abort();
}

/// Measures the first registration of memory that the program has touched. Also reports bytes per second.
void adopt(benchmark::State& state) {
    const auto bytes = static_cast<size_t>(state.range(0));
    std::vector<Piece> pieces;
    for (auto _ : state) {
        state.PauseTiming();
        char* p = map_touched(bytes);
        uint64_t token = 0;
        state.ResumeTiming();
        check(acquire(p, bytes, true, pieces, token), pieces);
        state.PauseTiming();
        release(token);
        ::munmap(p, bytes);
        state.ResumeTiming();
    }
    state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(adopt)->Arg(4 << 10)->Arg(64 << 10)->Arg(1 << 20)->Arg(16 << 20)->Arg(1 << 30)->Unit(benchmark::kMicrosecond);

/// Registers 1 GiB of touched memory in steps, each step by its own registration.
void adopt_in_steps(benchmark::State& state) {
    constexpr size_t kBytes = 1 << 30;
    const auto step = static_cast<size_t>(state.range(0));
    std::vector<Piece> pieces;
    for (auto _ : state) {
        state.PauseTiming();
        char* p = map_touched(kBytes);
        std::vector<uint64_t> tokens(kBytes / step);
        state.ResumeTiming();
        for (size_t i = 0; i < tokens.size(); i++) check(acquire(p + i * step, step, true, pieces, tokens[i]), pieces);
        state.PauseTiming();
        for (const uint64_t token : tokens) release(token);
        ::munmap(p, kBytes);
        state.ResumeTiming();
    }
    state.SetBytesProcessed(state.iterations() * int64_t{kBytes});
}
BENCHMARK(adopt_in_steps)->Arg(2 << 20)->Arg(4 << 20)->Unit(benchmark::kMillisecond);

/// Registers new heap buffers of 4 KiB one after the other. Each buffer is on two pages. The first of these pages is
/// registered already, because the previous buffer is on it too.
void adopt_heap_buffer(benchmark::State& state) {
    std::vector<Piece> pieces;
    std::vector<uint64_t> tokens;
    std::vector<void*> buffers;
    for (auto _ : state) {
        state.PauseTiming();
        buffers.push_back(std::malloc(4096));
        std::memset(buffers.back(), 1, 4096);
        tokens.push_back(0);
        state.ResumeTiming();
        check(acquire(buffers.back(), 4096, true, pieces, tokens.back()), pieces);
    }
    for (const uint64_t token : tokens) release(token);
    for (void* buffer : buffers) std::free(buffer);
}
BENCHMARK(adopt_heap_buffer)->Unit(benchmark::kMicrosecond)->Iterations(5000);

/// Measures a further registration of memory that was registered before, and its release.
void adopted_again(benchmark::State& state) {
    const auto bytes = static_cast<size_t>(state.range(0));
    char* p = map_touched(bytes);
    std::vector<Piece> pieces;
    uint64_t first = 0, token = 0;
    check(acquire(p, bytes, true, pieces, first), pieces);
    for (auto _ : state) {
        check(acquire(p, bytes, true, pieces, token), pieces);
        release(token);
    }
    release(first);
    ::munmap(p, bytes);
}
BENCHMARK(adopted_again)->Arg(4 << 10)->Arg(1 << 20)->Arg(1 << 30)->Unit(benchmark::kMicrosecond);

/// Measures the first registration of memory that the program has not touched.
void adopt_untouched(benchmark::State& state) {
    const auto bytes = static_cast<size_t>(state.range(0));
    std::vector<Piece> pieces;
    for (auto _ : state) {
        void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        uint64_t token = 0;
        check(acquire(p, bytes, true, pieces, token), pieces);
        release(token);
        ::munmap(p, bytes);
    }
}
BENCHMARK(adopt_untouched)->Arg(1 << 30)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
