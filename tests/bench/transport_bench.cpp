// The transport alone: one engine, one thread, two devices joined by memory, both ends of every QP driven by this process. What is
// measured is post + fetch + frames out and in + ICRC twice + ACK + completion + poll, per message.
#include <benchmark/benchmark.h>

#include <array>
#include <memory>
#include <vector>

#include "abi/client_rings.hpp"
#include "sim/client.hpp"
#include "sim/world.hpp"

namespace roci::bench {
namespace {

/// Frames of one pool, handed to the other end by pointer.
class MemoryPort final : public engine::Port {
public:
    static constexpr uint32_t kFrames = 4096, kRoom = 4352;

    MemoryPort() : bytes_(std::make_unique<uint8_t[]>(size_t{kFrames} * kRoom)) {
        for (uint32_t i = 0; i < kFrames; ++i) free_.push_back(bytes_.get() + size_t{i} * kRoom);
        wire_.reserve(kFrames);
    }
    void join(MemoryPort& peer) { peer_ = &peer, peer.peer_ = this; }

    unsigned rx_burst(engine::RxFrame* frames, unsigned max) override {
        const unsigned n = std::min<unsigned>(max, unsigned(wire_.size() - next_));
        for (unsigned i = 0; i < n; ++i) frames[i] = wire_[next_ + i];
        next_ += n;
        if (next_ == wire_.size()) wire_.clear(), next_ = 0;
        return n;
    }
    void rx_free(engine::RxFrame* frames, unsigned n) override {
        for (unsigned i = 0; i < n; ++i) peer_->free_.push_back(static_cast<uint8_t*>(frames[i].cookie));
    }
    unsigned tx_alloc(engine::TxFrame* frames, unsigned n) override {
        n = std::min<unsigned>(n, unsigned(free_.size()));
        for (unsigned i = 0; i < n; ++i) {
            frames[i] = {free_.back(), kRoom, 0, free_.back()};
            free_.pop_back();
        }
        return n;
    }
    unsigned tx_burst(engine::TxFrame* frames, unsigned n) override {
        for (unsigned i = 0; i < n; ++i) peer_->wire_.push_back({frames[i].data, frames[i].length, frames[i].cookie});
        return n;
    }
    void tx_free(engine::TxFrame* frames, unsigned n) override {
        for (unsigned i = 0; i < n; ++i) free_.push_back(static_cast<uint8_t*>(frames[i].cookie));
    }

private:
    std::unique_ptr<uint8_t[]> bytes_;
    std::vector<uint8_t*> free_;
    std::vector<engine::RxFrame> wire_;
    size_t next_ = 0;
    MemoryPort* peer_ = nullptr;
};

/// One host with two devices back to back, and `qps` connected pairs.
struct Rig {
    struct Pair {
        sim::Qp *a, *b;
        sim::Mr *source, *target;
    };
    std::array<MemoryPort, 2> ports;
    sim::World world;
    sim::Client left, right;
    sim::Cq *left_cq, *right_cq;
    std::vector<Pair> pairs;
    Nanos now = 1'000'000;

    static sim::WorldOptions options(std::array<MemoryPort, 2>& ports) {
        ports[0].join(ports[1]);
        sim::WorldOptions o;
        o.hosts = 1;
        o.devices = 2;
        o.limits = {.max_sessions = 8, .max_qps = 65536, .max_keys = 65536, .max_ahs = 16};
        o.port = [&ports](uint32_t endpoint, uint32_t) { return &ports[endpoint]; };
        return o;
    }
    Rig(uint32_t qps, uint32_t bytes, uint32_t depth)
        : world(options(ports)), left(world.host(0), 0), right(world.host(0), 1) {
        const uint32_t lpd = left.alloc_pd(), rpd = right.alloc_pd();
        left_cq = &left.create_cq(std::min(qps * depth, 1u << 20));
        right_cq = &right.create_cq(std::min(qps * depth, 1u << 20));
        for (uint32_t i = 0; i < qps; ++i) {
            const sim::QpOptions o{.max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1, .max_inline = 0};
            sim::Qp& a = left.create_qp(lpd, *left_cq, *left_cq, o);
            sim::Qp& b = right.create_qp(rpd, *right_cq, *right_cq, o);
            sim::connect(left, a, right, b, {.mtu = 5, .timeout = 14});
            pairs.push_back({&a, &b, &left.reg_mr(lpd, bytes), &right.reg_mr(rpd, bytes)});
        }
    }
    void post(Pair& p, abi::WrOpcode opcode, uint32_t bytes, bool signaled) {
        abi::SendWqe* w = p.a->sq.slot(p.a->sq.head++);
        *w = abi::SendWqe{};
        w->opcode = opcode;
        w->send_flags = signaled ? abi::kSendSignaled : 0;
        w->num_sge = 1;
        w->remote_addr = p.target->address();
        w->rkey = p.target->rkey;
        *abi::sges(w) = {p.source->address(), bytes, p.source->lkey};
    }
    void post_recv(Pair& p, uint32_t bytes) {
        abi::RecvWqe* w = p.b->rq.slot(p.b->rq.head++);
        *w = {0, 1, 0};
        *abi::sges(w) = {p.target->address(), bytes, p.target->lkey};
    }
    void publish(Pair& p) {
        if (p.a->sq.publish()) left.ring(p.a->engine, p.a->slot);
    }
    void poll() { world.host(0).engine(0).poll(now += 1000); }
};

/// Batches of `depth` messages a QP, the last of each signalled; rounds until all are complete.
void run(benchmark::State& state, abi::WrOpcode opcode) {
    const auto bytes = uint32_t(state.range(0)), qps = uint32_t(state.range(1));
    const auto batch = uint32_t(state.range(2));
    Rig rig(qps, bytes, batch * 2);
    const bool send = opcode == abi::WrOpcode::send;
    uint64_t messages = 0;
    for (auto _ : state) {
        for (Rig::Pair& p : rig.pairs) {
            for (uint32_t i = 0; send && i < batch; ++i) rig.post_recv(p, bytes);
            if (send && p.b->rq.publish()) state.SkipWithError("the receiver is in error");
            for (uint32_t i = 0; i < batch; ++i) rig.post(p, opcode, bytes, i + 1 == batch);
            rig.publish(p);
        }
        for (uint32_t done = 0, idle = 0; done < qps && idle < 100'000; ++idle) {
            rig.poll();
            while (const abi::Cqe* e = rig.left_cq->ring.peek()) {
                if (e->status != abi::WcStatus::success) state.SkipWithError("a message failed");
                rig.pairs[0].a->sq.free_send(e->wqe_index);
                rig.left_cq->ring.pop();
                ++done, idle = 0;
            }
            while (rig.right_cq->ring.peek() != nullptr) rig.right_cq->ring.pop();
        }
        messages += uint64_t{qps} * batch;
    }
    state.counters["msg/s"] = benchmark::Counter(double(messages), benchmark::Counter::kIsRate);
    state.counters["ns/msg"] = benchmark::Counter(double(messages) * 1e-9, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
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
BENCHMARK(write)->Apply(sizes)->Args({64, 10'000, 1});
BENCHMARK(send)->Apply(sizes);
BENCHMARK(read)->Apply(sizes);

}  // namespace
}  // namespace roci::bench

BENCHMARK_MAIN();
