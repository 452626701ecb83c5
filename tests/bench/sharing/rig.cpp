#include "rig.hpp"

#include <stdexcept>

#include "pmd_glue/lcore_loop.hpp"

namespace roci::sharing {
namespace {

struct ModelClock {
    Nanos now() const { return 1'000'000 + core_now(); }
};
using Loop = pmd::LcoreLoop<engine::Engine, ModelClock>;

void name_queue(Account& account, const abi::SqProducer& q) {
    account.name(q.shared, sizeof *q.shared, "sq_idle");
    account.name(q.slots, size_t{q.depth} * q.stride, "sq_slot");
}
void name_queue(Account& account, const abi::RqProducer& q) {
    account.name(&q.shared->producer, kLine, "rq_producer");
    account.name(&q.shared->ring, kLine, "rq_ring");
    account.name(q.slots, size_t{q.depth} * q.stride, "rq_slot");
}

}  // namespace

sim::WorldOptions Rig::options(const Case& c) {
    sim::WorldOptions o;
    o.hosts = 1;
    o.devices = 2;
    o.engines = c.engines;
    o.chunks = &chunks_;
    for (uint32_t e = 0; e < c.engines; ++e) wires_.push_back(std::make_unique<bench::MemoryWire>());
    o.port = [this](uint32_t endpoint, uint32_t engine) { return wires_[engine]->port(endpoint); };
    return o;
}

Rig::Rig(const Case& c, Account& account) : world_(options(c)) {
    sim::Host& host = world_.host(0);
    page_ = reinterpret_cast<abi::EnginePage*>(host.platform().memory_of(host.platform().engine_page_fd()));
    account.name(page_, sizeof *page_, "engine_sleeping");
    programs_.resize(c.one_program ? 1 : c.engines);
    for (Program& p : programs_) {
        p.left = add_side(host, 0, c, account);
        p.right = add_side(host, 1, c, account);
    }
    // All QPs of one side are created first. For each QP, rocid's control thread (the conductor) chooses the engine that has the
    // fewest QPs. So both ends of a pair get the same engine.
    std::vector<sim::Qp*> qps;
    for (uint32_t i = 0; i < c.qps; ++i) {
        Program& p = programs_[i % programs_.size()];
        qps.push_back(&add_end(p.a, sides_[2 * (i % programs_.size())], p.left, account));
    }
    for (uint32_t i = 0; i < c.qps; ++i) {
        const size_t n = i % programs_.size();
        sim::Qp& b = add_end(programs_[n].b, sides_[2 * n + 1], programs_[n].right, account);
        if (b.engine != qps[i]->engine) throw std::runtime_error("the ends of a pair are on two engines");
        sim::connect(*sides_[2 * n].client, *qps[i], *sides_[2 * n + 1].client, b, {.mtu = 5, .timeout = 14});
    }
}

abi::CqConsumer Rig::add_side(sim::Host& host, uint32_t device, const Case& c, Account& account) {
    Side s{.client = std::make_unique<sim::Client>(host, device)};
    s.pd = s.client->alloc_pd();
    // The CQs are so short that all their entries have been used before moves are counted.
    s.cq = &s.client->create_cq(c.ping_pong ? 32 : device == 0 ? c.qps * kBatches * 2 : c.qps * kMessages);
    for (uint32_t e = 0; e < c.engines; ++e) account.name(s.client->doorbells(e), sizeof(abi::DoorbellPage), "doorbells");
    abi::CqConsumer& ring = s.cq->ring;
    account.name(ring.shared, sizeof *ring.shared, "cq_arm");
    for (uint32_t l = 0; l < ring.lanes; ++l) {
        account.name(ring.lane(l), sizeof(abi::CqLane), "cq_consumer");
        account.name(ring.entry(l, 0), ring.depth * sizeof(abi::Cqe), "cqe");
    }
    sides_.push_back(std::move(s));
    return ring;
}

sim::Qp& Rig::add_end(std::vector<End>& ends, Side& side, abi::CqConsumer& cq, Account& account) {
    const sim::QpOptions o{
        .max_send_wr = kMessages, .max_recv_wr = kMessages, .max_send_sge = 1, .max_recv_sge = 1, .max_inline = kBytes};
    sim::Qp& qp = side.client->create_qp(side.pd, *side.cq, *side.cq, o);
    const sim::Mr& mr = side.client->reg_mr(side.pd, (kMessages + 2) * kBytes);
    End e{.sq = qp.sq, .rq = qp.rq, .bell = {side.client->doorbells(qp.engine), &page_->engine[qp.engine]}, .slot = qp.slot};
    e.cq = &cq;
    e.index = uint32_t(ends.size());
    e.buffer = reinterpret_cast<std::byte*>((mr.address() + kLine) / kLine * kLine);
    e.lkey = mr.lkey, e.rkey = mr.rkey;
    name_queue(account, qp.sq);
    name_queue(account, qp.rq);
    account.name(e.buffer, kMessages * kBytes, "payload");
    ends.push_back(e);
    return qp;
}

bool Rig::run(const Case& c, Account& account) {
    const ModelClock clock;
    pmd::WakeFlag events;
    const Epoch epoch;
    std::vector<std::unique_ptr<Loop>> loops;
    std::vector<std::function<void()>> bodies;
    for (uint32_t e = 0; e < c.engines; ++e) {
        loops.push_back(std::make_unique<Loop>(world_.host(0).engine(e), clock,
                                               pmd::IdlePolicy{.sleeps = false, .adaptive = false, .share_cpu = false},
                                               page_->engine[e].sleeping, events, epoch));
        bodies.push_back([&loop = *loops.back()] { loop.run(); });
    }
    bool good = true;
    size_t running = programs_.size();
    for (Program& p : programs_)
        bodies.push_back([&] {
            good = (c.ping_pong ? ping_pong : stream)(p, c.opcode, account) && good;
            if (--running != 0) return;
            for (const auto& loop : loops) loop->stop();
        });
    run_cores(account.lines(), std::move(bodies));
    return good;
}

}  // namespace roci::sharing
