// Measures the shortest path between two programs: each program runs the engine of its own QP, and no third thread
// takes part. A kernel transport works in this way if its engine runs in the system call of the poster. Rocinante has
// no such mode. This benchmark shows the time that such a mode would save. shared.py measures the path through rocid.
//
// Two threads take the place of the two programs. The frames pass from engine to engine through the ring by which
// rocid's engines hand over frames.
#include "engine_in_program.hpp"

#include <atomic>
#include <cstdio>
#include <string_view>

#include "abi/cpu_pace.hpp"
#include "histogram.hpp"
#include "pmd_glue/clock.hpp"
#include "report.hpp"
#include "transport_rig.hpp"

namespace roci::bench {
namespace {

constexpr uint32_t kBytes = 64, kDepth = 64, kTrips = 200'000, kWarmUp = 10'000;
/// Number of empty polls before a yield on a CPU that no other thread needs, as in libibverbs.
constexpr uint32_t kMostPolls = 1024;

/// A program: its QP and CQ, and the engine that it runs.
struct Program {
    sim::Client& client;
    sim::Qp& qp;
    sim::Cq& cq;
    const sim::Mr& memory;
    uint32_t engine;
};

class PingPong {
public:
    PingPong() : rig_({1, 2 * kBytes, kDepth, 2, true}) {}
    /// Runs the measurement. Returns false if a message failed.
    bool run() {
        Rig::Pair& p = rig_.lanes[0].pairs[0];
        Program first{rig_.left, *p.a, *rig_.lanes[0].left_cq, *p.source, 0};
        Program second{rig_.right, *p.b, *rig_.lanes[1].right_cq, *p.target, 1};
        receive(first);
        receive(second);
        ring_wire->eal().launch(0, [&] { drive(first, true); });
        ring_wire->eal().launch(1, [&] { drive(second, false); });
        ring_wire->eal().join();
        return !failed_;
    }
    const Histogram& half_trips() const { return half_trips_; }

private:
    static void receive(Program& p) {
        abi::RecvWqe* w = p.qp.rq.slot(p.qp.rq.head++);
        *w = {0, 1, 0};
        *abi::sges(w) = {Rig::aligned(p.memory) + kBytes, kBytes, p.memory.lkey};
        if (p.qp.rq.publish()) p.client.ring(p.qp.engine, p.qp.slot);
    }
    static void send(Program& p) {
        abi::SendWqe* w = p.qp.sq.slot(p.qp.sq.head++);
        *w = abi::SendWqe{};
        w->opcode = abi::WrOpcode::send;
        w->send_flags = abi::kSendSignaled;
        w->num_sge = 1;
        *abi::sges(w) = {Rig::aligned(p.memory), kBytes, p.memory.lkey};
        if (p.qp.sq.publish()) p.client.ring(p.qp.engine, p.qp.slot);
    }
    /// Runs the program's engine until the next message has arrived. Returns false if a message has failed.
    bool await(Program& p, abi::CpuPace& pace) {
        while (!failed_) {
            rig_.world.host(0).engine(p.engine).poll(clock_.now());
            while (const abi::Cqe* e = p.cq.ring.peek()) {
                const bool good = e->status == abi::WcStatus::success, received = e->opcode == abi::WcOpcode::recv;
                if (!received) p.qp.sq.free_send(e->wqe_index);
                p.cq.ring.pop();
                if (!good) return false;
                if (received) return pace.found(), true;
            }
            if (pace.in_vain() != abi::CpuPace::Way::look_again) abi::yield_cpu(pace);
        }
        return false;
    }
    void drive(Program& p, bool begins) {
        abi::CpuPace pace(kMostPolls);
        for (uint32_t n = 0; n < kTrips && !failed_; ++n) {
            const uint64_t start = now_ns();
            if (begins) send(p);
            if (!await(p, pace)) failed_ = true;
            receive(p);
            if (!begins) send(p);
            if (begins && n >= kWarmUp) half_trips_.add((now_ns() - start) / 2);
        }
        // The peer may still wait for the last ACK and the last message.
        for (--running_; running_ != 0 && !failed_;) {
            rig_.world.host(0).engine(p.engine).poll(clock_.now());
            sched_yield();
        }
    }

    const pmd::Clock clock_;
    Rig rig_;
    Histogram half_trips_;  ///< half round trips in nanoseconds; only the first program writes them
    std::atomic<bool> failed_{false};
    std::atomic<uint32_t> running_{2};
};

}  // namespace

int in_program(int argc, char** argv) {
    const bool one = argc > 2 && std::string_view(argv[2]) == "--one-cpu";
    const std::vector<unsigned> cpus = pmd::allowed_cpus();
    ring_wire = std::make_unique<RingWire>(std::vector<unsigned>{cpus.front(), one ? cpus.front() : cpus.back()});
    PingPong pingpong;
    if (!pingpong.run()) return std::fprintf(stderr, "transport_bench: a message failed\n"), 1;
    const std::string name = std::string("transport.in_program") + (one || cpus.size() == 1 ? ".one_cpu" : "");
    report(name + ".p50", double(pingpong.half_trips().quantile(0.5)), "ns");
    report(name + ".p99", double(pingpong.half_trips().quantile(0.99)), "ns");
    return 0;
}

}  // namespace roci::bench
