// sim_goodput: what a QP keeps of its goodput when the network loses frames, in virtual time. Two hosts, a link of 25 Gb/s and 10
// us round trip, 64 KiB per work request, path MTU 4096, one QP; the same share of frames is lost in each direction. One line per
// operation and policy: goodput as a share of the loss-free run. The same seed gives the same table.
#include <infiniband/verbs.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "sim/world.hpp"

namespace roci::sim {
namespace {

constexpr uint32_t kLength = 64 << 10, kDepth = 32;

struct Result {
    double gbps = 0;
    bool failed = false;
};

struct Setup {
    abi::WrOpcode opcode;
    double drop;
    bool selective;
    uint32_t messages;
    uint64_t seed;
};

Result run(const Setup& s) {
    WorldOptions o;
    o.seed = s.seed;
    o.engine.selective_repeat = s.selective;
    World world(o);
    world.net().keep_capture(false);
    for (uint32_t h = 0; h < 2; ++h) {
        world.net().link(world.host(h).endpoint(0)) = {.bits_per_second = 25'000'000'000, .latency = 5'000};
        world.net().faults(world.host(h).endpoint(0)).drop = s.drop;
    }
    Client a(world.host(0), 0), b(world.host(1), 0);
    const uint32_t pda = a.alloc_pd(), pdb = b.alloc_pd();
    Cq &cqa = a.create_cq(4096), &cqb = b.create_cq(4096);
    Mr &ma = a.reg_mr(pda, kLength), &mb = b.reg_mr(pdb, kLength);
    QpOptions q;
    q.max_send_wr = q.max_recv_wr = 256;
    Qp &qa = a.create_qp(pda, cqa, cqa, q), &qb = b.create_qp(pdb, cqb, cqb, q);
    PathOptions path;
    path.mtu = IBV_MTU_4096;
    path.timeout = 14;
    path.retry_cnt = 7;
    path.max_rd_atomic = path.max_dest_rd_atomic = 16;
    connect(a, qa, b, qb, path);
    const bool sends = s.opcode == abi::WrOpcode::send;
    for (uint32_t i = 0; sends && i < 128; ++i) b.post_recv(qb, i, {{mb.address(), kLength, mb.lkey}});
    uint32_t posted = 0, done = 0;
    Result r;
    const Nanos start = world.now();
    world.run_until(
        [&] {
            for (auto e = b.poll(cqb); e; e = b.poll(cqb)) b.post_recv(qb, 0, {{mb.address(), kLength, mb.lkey}});
            for (auto e = a.poll(cqa); e; e = a.poll(cqa)) {
                r.failed |= e->status != abi::WcStatus::success;
                ++done;
            }
            for (; posted < s.messages && posted - done < kDepth; ++posted)
                a.post_send(qa, {.id = posted,
                                 .opcode = s.opcode,
                                 .sges = {{ma.address(), kLength, ma.lkey}},
                                 .remote_addr = mb.address(),
                                 .rkey = mb.rkey});
            return done == s.messages || r.failed;
        },
        600'000'000'000);
    r.failed |= done != s.messages;
    r.gbps = double(done) * kLength * 8 / double(world.now() - start);
    return r;
}

void table(uint32_t messages, uint64_t seed) {
    constexpr double kDrops[] = {0, 0.0001, 0.001, 0.01, 0.03, 0.05};
    constexpr std::pair<const char*, abi::WrOpcode> kOperations[] = {
        {"WRITE", abi::WrOpcode::rdma_write}, {"SEND", abi::WrOpcode::send}, {"READ", abi::WrOpcode::rdma_read}};
    std::printf("%-6s %-10s %8s %8s %8s %8s %8s %8s\n", "", "", "Gb/s", "0.01 %", "0.1 %", "1 %", "3 %", "5 %");
    for (const bool selective : {false, true}) {
        for (const auto& [name, opcode] : kOperations) {
            std::printf("%-6s %-10s", name, selective ? "selective" : "go-back-n");
            double whole = 0;
            for (const double drop : kDrops) {
                const uint32_t count = selective || drop < 0.005 ? messages : messages / 8;
                const Result r = run({opcode, drop, selective, count, seed});
                if (drop == 0) whole = r.gbps;
                std::printf(drop == 0 ? " %8.2f" : " %7.1f%%", drop == 0 ? r.gbps : 100 * r.gbps / whole);
                if (r.failed) std::printf("!");
                std::fflush(stdout);
            }
            std::printf("\n");
        }
    }
}

}  // namespace
}  // namespace roci::sim

int main(int argc, char** argv) {
    CLI::App app{"Goodput by share of lost frames, in virtual time"};
    uint32_t messages = 4000;
    uint64_t seed = 1;
    app.add_option("--messages", messages, "work requests per run");
    app.add_option("--seed", seed, "of the network's faults");
    CLI11_PARSE(app, argc, argv);
    roci::sim::table(messages, seed);
    return 0;
}
