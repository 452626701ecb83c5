#include "sim/plan.hpp"

#include <cstdio>

#include "qp/reorder_pool.hpp"

namespace roci::sim {

const char* load_name(LoadKind kind) {
    constexpr const char* kNames[] = {"rc", "xrc", "uc", "datagrams", "windows", "tags", "endings", "connections"};
    return kNames[size_t(kind)];
}

std::string Plan::text() const {
    char t[480];
    std::snprintf(
        t, sizeof t,
        "hosts=%u engines=%u users=%u messages=%u largest=%u drop=%.3f dup=%.3f corrupt=%.3f delay=%.3f/%llu burst=%.3f/%u "
        "starve=%.2f mark=%.1f congestion=%s pool=%u inflight=%u quantum=%u blackouts=%d spread=%d srq=%d "
        "reorder=%u/%llu reports=%d travel=%d pauses=%llu/%llu far=%d loads=",
        world.hosts, world.engines, world.users, messages, largest, faults.drop, faults.duplicate, faults.corrupt, faults.delay,
        static_cast<unsigned long long>(faults.max_delay), faults.burst, faults.burst_length, faults.starve, faults.mark,
        cc::policy_name(world.congestion), world.tx_pool, world.engine.max_inflight, world.engine.qp_quantum, blackouts,
        spread_by_chance, shared_receive, world.engine.reorder_frames,
        static_cast<unsigned long long>(world.engine.reorder_bytes / roci::qp::ReorderPool::kFrameBytes),
        world.engine.loss_reports, world.commands_travel, static_cast<unsigned long long>(pauses.longest),
        static_cast<unsigned long long>(pauses.apart), far);
    std::string all = t;
    for (const LoadKind k : loads) all += std::string(load_name(k)) + (&k == &loads.back() ? "" : ",");
    return all;
}

namespace {

void choose_engine(Rng& rng, WorldOptions& w) {
    w.hosts = uint32_t(rng.pick(1, 2, 2, 2));
    w.devices = w.hosts == 1 ? 2 : 1;
    w.engines = uint32_t(rng.pick(1, 1, 2, 3));
    w.tx_pool = uint32_t(rng.pick(40, 128, 1024, 1024));
    w.round_cost = rng.pick<uint64_t>(50, 200, 1000);
    w.engine.max_inflight = uint32_t(rng.pick(8, 16, 64, 256));
    w.engine.qp_quantum = uint32_t(rng.pick(1, 4, 16, 32, 64, 1024));
    w.engine.rx_burst = uint32_t(rng.pick(1, 7, 32));
    w.rx_lends = w.engine.rx_burst == 7 ? 0 : w.tx_pool / 4;
    w.engine.tx_burst = uint32_t(rng.pick(1, 5, 32));
    w.engine.ack_every = uint32_t(rng.pick(1, 8, 32));
    w.engine.reorder_frames = uint32_t(rng.pick(0, 4, 64, 1024, 1024));
    w.engine.reorder_bytes = uint64_t(rng.pick(5, 40, 8000, 8000)) * roci::qp::ReorderPool::kFrameBytes;
}

void choose_faults(Rng& rng, Faults& f) {
    if (!rng.chance(0.8)) return;
    // In 30 % of these worlds all kinds of faults are on. In the other worlds each kind is on with a probability of 30 %.
    const bool all = rng.chance(0.3);
    auto maybe = [&](double most) { return all || rng.chance(0.3) ? most * double(rng.below(1000)) / 1000 : 0; };
    f.drop = maybe(0.06);
    f.duplicate = maybe(0.1);
    f.corrupt = maybe(0.05);
    f.delay = maybe(0.2);
    f.max_delay = rng.pick<uint64_t>(5'000, 50'000, 400'000);
    f.burst = maybe(0.01);
    f.burst_length = uint32_t(rng.between(2, 30));
    f.starve = maybe(0.3);
}

/// Chooses by the number of the seed, without random numbers. Additional random numbers would change the traffic of
/// every seed.
void choose_congestion_control(Plan& p, uint64_t number) {
    p.world.congestion = cc::Policy(number % size_t(cc::Policy::count_));
    number /= size_t(cc::Policy::count_);
    if (number % 2 == 0) return;
    p.world.traffic_class = 2;  // ECN-capable, so that frames may be marked
    p.faults.mark = double(number / 2 % 3) * 0.1;
}

/// Makes a part of the worlds far whose congestion control distinguishes far paths. Uses only the number of the seed.
bool choose_far(cc::Policy policy, uint64_t seed) {
    return (policy == cc::Policy::delay || policy == cc::Policy::adaptive) && seed / 8 % 3 == 0;
}

/// Like choose_congestion_control(), uses only the number of the seed. The pauses are shorter than every ACK timeout.
void choose_pauses(Pauses& p, uint64_t seed) {
    if (seed % 5 == 0) p = {.apart = 200'000 + seed / 5 % 4 * 600'000, .longest = 100'000 + seed / 5 % 3 * 100'000};
}

}  // namespace

Plan make_plan(Rng& rng, uint64_t seed) {
    Plan p;
    p.world.seed = seed;
    p.world.port_sums = seed % 2 != 0;
    p.world.port_icrc = seed % 4 >= 2;
    p.world.users = 1 + uint32_t(seed % 3);
    p.world.commands_travel = seed / 12 % 2 == 0;
    p.world.best_burst = seed / 48 % 2 == 0 ? 64 : 1;
    p.world.engine.loss_reports = seed / 24 % 2 == 0;
    choose_congestion_control(p, seed / 2);
    p.far = choose_far(p.world.congestion, seed);
    choose_pauses(p.pauses, seed);
    choose_engine(rng, p.world);
    choose_faults(rng, p.faults);
    p.spread_by_chance = rng.chance(0.3);
    p.blackouts = rng.chance(0.2);
    const uint64_t loads = rng.pick(1, 1, 2, 3, 8);
    for (uint64_t i = 0; i < loads; ++i)
        p.loads.push_back(rng.pick(LoadKind::rc, LoadKind::rc, LoadKind::rc, LoadKind::xrc, LoadKind::uc, LoadKind::datagrams,
                                   LoadKind::windows, LoadKind::tags));
    p.messages = uint32_t(rng.between(5, 80));
    p.largest = uint32_t(rng.pick(64, 4096, 20'000, 20'000, 100'000));
    if (rng.chance(0.04)) {
        p.largest = 1 << 20;
        p.messages = 3;
        p.loads.resize(1);
    }
    p.shared_receive = rng.chance(0.2);
    // These loads are the last ones in the list, so that they do not change the traffic of the other loads.
    if (seed / 3 % 2 == 0) p.loads.push_back(LoadKind::endings);
    if (seed / 6 % 2 == 0) p.loads.push_back(LoadKind::connections);
    return p;
}

PathOptions make_path(Rng& rng, const Plan& plan) {
    PathOptions o;
    o.mtu = uint32_t(rng.between(1, 5));
    o.gid_index = uint32_t(rng.below(2));
    o.psn = rng.chance(0.3) ? uint32_t(0xffffff - rng.below(40)) : uint32_t(rng.below(1 << 24));
    o.peer_psn = rng.chance(0.3) ? uint32_t(0xffffff - rng.below(40)) : uint32_t(rng.below(1 << 24));
    // An engine that receives slowly has long queues. If the timeout were shorter than the time that frames spend in
    // these queues, QPs would retransmit forever.
    const bool slow = plan.world.round_cost / plan.world.engine.rx_burst > 100;
    // The timeout must also be so long that two blackouts do not cover all retries.
    o.timeout = uint8_t(rng.between(plan.blackouts ? 9 : 7, 10) + (slow || plan.far ? 4 : 0));
    o.retry_cnt = 7;
    o.rnr_retry = 7;
    o.min_rnr_timer = uint8_t(rng.between(1, 8));
    o.max_rd_atomic = uint8_t(rng.pick(1, 2, 4, 16));
    o.max_dest_rd_atomic = o.max_rd_atomic;
    return o;
}

}  // namespace roci::sim
