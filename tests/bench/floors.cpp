// Measures lower limits of times on this machine. run.py compares the figures of the transport with these limits,
// which are measured in the same run.
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "crc_floors.hpp"
#include "histogram.hpp"
#include "pmd_glue/dpdk_port.hpp"
#include "pmd_glue/eal.hpp"
#include "pmd_glue/net_ring.hpp"
#include "pmd_glue/sleeper.hpp"
#include "report.hpp"

namespace roci::bench {
namespace {

bool quick = false;

/// Returns memory. Every byte was written, so all pages are allocated.
std::unique_ptr<uint8_t[]> memory(size_t bytes) {
    auto m = std::make_unique_for_overwrite<uint8_t[]>(bytes);
    std::memset(m.get(), 0x5a, bytes);
    return m;
}

void memcpy_floor(const char* where, size_t bytes) {
    const auto from = memory(bytes), to = memory(bytes);
    const size_t rounds = std::max<size_t>(1, (size_t{32} << 20) / bytes);
    const double ns = best_ns(quick ? 5 : 15, [&] {
        for (size_t i = 0; i < rounds; ++i) {
            std::memcpy(to.get(), from.get(), bytes);
            asm volatile("" ::: "memory");
        }
    });
    report(std::string("floor.memcpy.") + where, double(bytes * rounds) / ns, "GB/s");
}

/// Measures the frequency of the time stamp counter. run.py uses this frequency to convert figures to cycles.
void counter_rate() {
    const uint64_t ns = now_ns(), start = ticks();
    usleep(quick ? 20'000 : 100'000);
    const uint64_t cycles = ticks() - start;
    report("floor.counter", double(cycles) * 1e3 / double(now_ns() - ns), "MHz");
}

void pin(unsigned cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

/// Measures a round trip between two cores. One core writes a cache line, and the other core answers in a second
/// line. The time depends on the places of the lines in the shared cache. So each round trip uses the next two lines,
/// as in a ring.
void cross_core_floor() {
    const std::vector<unsigned> cpus = pmd::allowed_cpus();
    if (cpus.size() < 2) return;
    struct alignas(64) Line {
        std::atomic<uint32_t> value{0};
    };
    constexpr uint32_t kLines = 64, kRounds = 2048, kStop = ~0u;
    std::array<Line, kLines> there, back;
    std::thread echo([&] {
        pin(cpus[1]);
        for (uint32_t next = 1;;) {
            const uint32_t v = there[next % kLines].value.load(std::memory_order_acquire);
            if (v == kStop) return;
            if (v != next) continue;
            back[next % kLines].value.store(next, std::memory_order_release);
            ++next;
        }
    });
    std::thread asker([&] {
        pin(cpus[0]);
        uint32_t next = 1;
        const double ns = best_ns(quick ? 20 : 100, [&] {
            for (uint32_t i = 0; i < kRounds; ++i, ++next) {
                there[next % kLines].value.store(next, std::memory_order_release);
                while (back[next % kLines].value.load(std::memory_order_acquire) != next) {
                }
            }
        });
        there[next % kLines].value.store(kStop, std::memory_order_release);
        report("floor.cross_core_round_trip", ns / kRounds, "ns");
    });
    asker.join();
    echo.join();
}

/// Measures the time from a write to an eventfd until a thread has answered in memory. Before the write, the thread has slept on
/// the eventfd for 5 ms. The measured time is the lowest cost of waking a sleeping engine.
void wake_floor() {
    const std::vector<unsigned> cpus = pmd::allowed_cpus();
    if (cpus.size() < 2) return;
    pmd::Sleeper sleeper;
    std::atomic<uint32_t> answered{0};
    std::atomic<bool> stop{false};
    std::thread engine([&] {
        pin(cpus.front());
        while (!stop.load())
            if (sleeper.sleep(100'000'000)) answered.fetch_add(1, std::memory_order_release);
    });
    std::thread client([&] {
        pin(cpus.back());
        Histogram h;
        for (uint32_t i = 0; i < (quick ? 50u : 300u); ++i) {
            usleep(5000);
            const uint32_t before = answered.load();
            const uint64_t start = now_ns();
            sleeper.wake();
            while (answered.load(std::memory_order_acquire) == before) {
            }
            h.add(now_ns() - start);
        }
        report("floor.wake.p50", double(h.quantile(0.5)), "ns");
        report("floor.wake.p99", double(h.quantile(0.99)), "ns");
        stop = true;
        sleeper.wake();
    });
    client.join();
    engine.join();
}

/// Passes 64-byte frames through DPDK's ring driver and returns them to their pool. The frames pass through DpdkPort
/// (the port class of rocid) on one lcore, without the transport.
void net_ring_floor() {
    constexpr uint32_t kMbufs = 4096, kBurst = 32, kRounds = 20'000;
    pmd::EalOptions options;
    options.hugepages = pmd::Hugepages::never;
    options.memory_bytes = pmd::MbufPool::bytes(kMbufs) + (16 << 20);
    pmd::Eal eal(options);
    pmd::MbufPool pool("floor", kMbufs, 0);
    pmd::RingPair pair("fa", "fb", 1);
    pmd::MbufPool* pools[] = {&pool};
    pmd::start_port(pair.port_a(), pools, {1});
    pmd::start_port(pair.port_b(), pools, {1});
    eal.launch(0, [&] {
        pmd::DpdkPort a(pair.port_a(), 0, pool), b(pair.port_b(), 0, pool);
        io::TxFrame out[kBurst];
        io::RxFrame in[kBurst];
        const double ns = best_ns(quick ? 5 : 20, [&] {
            for (uint32_t i = 0; i < kRounds; ++i) {
                const unsigned n = a.tx_alloc(out, kBurst);
                for (unsigned k = 0; k < n; ++k) out[k].length = 64;
                a.tx_burst(out, n);
                b.rx_free(in, b.rx_burst(in, kBurst));
            }
        });
        report("floor.net_ring_io", double(kRounds) * kBurst * 1e3 / ns, "Mframes/s");
    });
    eal.join();
    pmd::stop_port(pair.port_a());
    pmd::stop_port(pair.port_b());
}

}  // namespace
}  // namespace roci::bench

int main(int argc, char** argv) {
    using namespace roci::bench;
    quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
    counter_rate();
    memcpy_floor("4KiB", 4096);
    memcpy_floor("64KiB", 64 << 10);
    memcpy_floor("1MiB", 1 << 20);
    memcpy_floor("256MiB", 256 << 20);
    crc_floors(quick);
    cross_core_floor();
    wake_floor();
    net_ring_floor();
    return 0;
}
