#include "sim/workload.hpp"

#include <map>

#include "qp/reorder_pool.hpp"
#include "sim/load.hpp"

namespace roci::sim {
namespace {

class Run {
public:
    Run(uint64_t seed, bool trace) : rng_(seed), plan_(make_plan(rng_, seed)), world_(plan_.world), trace_(trace) {
        world_.net().keep_capture(trace);
        world_.net().spread_by_chance(plan_.spread_by_chance);
        world_.net().set_watch([this](const Sent& s) { watch(s); });
        for (uint32_t h = 0; plan_.far && h < world_.hosts(); ++h)
            for (uint32_t d = 0; d < plan_.world.devices; ++d)
                world_.net().link(world_.host(h).endpoint(d)).latency = kFarLatency;
        result_.summary = plan_.text();
    }

    WorkloadResult go() {
        try {
            build();
            drive();
            settle();
        } catch (const std::exception& e) {
            result_.failure = e.what();
            result_.failure += "\n";
            for (auto& l : loads_)
                if (!l->finished()) result_.failure += l->state();
        }
        finish();
        return result_;
    }

private:
    static constexpr Nanos kFarLatency = 600'000;  ///< per direction

    void build() {
        const Seats seats{world_, world_.host(0), 0, world_.host(world_.hosts() - 1), world_.hosts() == 1 ? 1u : 0u};
        for (const LoadKind kind : plan_.loads) loads_.push_back(make_load(kind, seats, plan_, rng_));
        world_.net().set_faults(plan_.faults);
        for (uint32_t h = 0; h < world_.hosts(); ++h) world_.host(h).pause_at_random(plan_.pauses);
    }

    /// Checks that the acknowledged PSN of a QP never decreases.
    void watch(const Sent& s) {
        if (!s.parsed || !s.packet.info->has(wire::kAck) || s.packet.info->has(wire::kAtomic)) return;
        for (const auto& l : loads_)
            if (l->renews(s.packet.dest_qp)) return;
        const bool ack = s.packet.syndrome < 0x20;  // a NAK acknowledges the packets before its PSN
        const Psn end = s.packet.psn + uint32_t(ack);
        const auto [seen, fresh] = acknowledged_.try_emplace(uint64_t{s.from} << 32 | s.packet.dest_qp.value, end);
        if (!fresh && end.distance_from(seen->second) < 0 && regressed_.empty()) regressed_ = "an ACK went back: " + s.text();
        seen->second = end;
    }
    /// Checks that no engine keeps more frames than its pool can hold, and that watch() has found no decreasing
    /// acknowledgement.
    void check_pools() {
        const uint64_t most = world_.host(0).engines() * (plan_.world.engine.reorder_bytes / roci::qp::ReorderPool::kFrameBytes);
        for (uint32_t h = 0; h < world_.hosts(); ++h)
            if (world_.host(h).counter(engine::Counter::reorder_held) > most) broken("more frames are kept than the pool has");
        if (!regressed_.empty()) broken("%s", regressed_.c_str());
    }

    bool finished() const {
        for (const auto& l : loads_)
            if (!l->finished()) return false;
        return true;
    }
    uint64_t progress() const {
        uint64_t n = 0;
        for (const auto& l : loads_) n += l->done();
        return n;
    }

    Nanos patience() const {
        Nanos most = Load::kPatience;
        for (const auto& l : loads_)
            if (!l->finished()) most = std::max(most, l->patience());
        return most;
    }
    /// Returns true if every unfinished load waits for a timer of several seconds.
    bool only_waits() const {
        for (const auto& l : loads_)
            if (!l->finished() && !l->waits()) return false;
        return true;
    }

    void drive() {
        constexpr Nanos kLongStep = 20'000'000;
        uint64_t last = 0;
        Nanos since = world_.now();
        while (!finished()) {
            for (auto& l : loads_) l->act();
            check_pools();
            if (plan_.blackouts && rng_.chance(0.001))
                world_.net().blackout(uint32_t(rng_.below(2)), world_.now() + rng_.below(1'500'000));
            const Nanos step = rng_.pick<uint64_t>(300, 1000, 5000, 50'000);
            world_.run_for(only_waits() ? kLongStep : step);
            if (progress() != last) {
                last = progress();
                since = world_.now();
            }
            if (const Nanos hang = patience(); world_.now() - since > hang)
                broken("no progress for %llu virtual seconds", ull(hang / 1'000'000'000));
            if (world_.rounds() > 20'000'000) broken("too many rounds");
        }
    }

    /// Ends the faults of the network after the work is done. Then the world must become idle, all results must be
    /// right, and the engines must keep no frames.
    void settle() {
        world_.net().set_faults({});
        for (uint32_t h = 0; h < world_.hosts(); ++h) world_.host(h).pause_at_random({});
        if (!world_.run_idle(100'000'000'000)) broken("the world does not come to rest");
        for (auto& l : loads_) l->check_end();
        check_pools();
        for (uint32_t h = 0; h < world_.hosts(); ++h)
            if (world_.host(h).counter(engine::Counter::reorder_held) != 0) broken("frames are still kept at the end");
    }

    void finish() {
        result_.messages = progress();
        result_.frames = world_.net().frames();
        result_.lost = world_.net().lost();
        result_.virtual_ns = world_.now();
        result_.rounds = world_.rounds();
        if (trace_ && !result_.failure.empty()) {
            const auto& all = world_.net().capture();
            for (size_t i = all.size() > 400 ? all.size() - 400 : 0; i < all.size(); ++i)
                std::fprintf(stderr, "%s\n", all[i].text().c_str());
        }
        const std::string left = world_.shut_down();
        if (result_.failure.empty()) result_.failure = left;
    }

    Rng rng_;
    Plan plan_;
    World world_;
    bool trace_;
    std::vector<std::unique_ptr<Load>> loads_;
    WorkloadResult result_;
    std::map<uint64_t, Psn> acknowledged_;  ///< key: endpoint and destination QP
    std::string regressed_;
};

}  // namespace

WorkloadResult run_workload(uint64_t seed, bool trace) { return Run(seed, trace).go(); }

}  // namespace roci::sim
