#include "rig.hpp"

#include <infiniband/verbs.h>

#include <cstdio>
#include <cstring>

namespace roci::fuzz {

size_t Party::poll() {
    size_t n = 0;
    while (client.poll(cq)) ++n;
    return n;
}

sim::WorldOptions Rig::options(uint32_t hosts, uint32_t devices) {
    sim::WorldOptions o{.hosts = hosts, .devices = devices, .tx_pool = 256};
    o.resolver = host::Resolver::own;
    o.limits = {.max_sessions = 16, .max_qps = 64, .max_keys = 256, .max_ahs = 32, .max_qp_wr = 256, .max_cqe = 4096};
    o.limits.max_arena_bytes = 16 << 20;
    o.engine.event_ring = 256;
    o.engine.reorder_frames = 64;
    o.engine.reorder_bytes = 256 << 10;
    return o;
}

Rig::Rig(uint32_t hosts, uint32_t devices)
    : world_(options(hosts, devices)),
      left_(world_.host(0), 0, kBystander),
      right_(world_.host(hosts - 1), devices - 1, kBystander),
      left_qp_(left_.qp()),
      right_qp_(right_.qp()) {
    world_.net().keep_capture(false);
    sim::connect(left_.client, left_qp_, right_.client, right_qp_);
    before_ = host().conductor().totals();
}

void Rig::exchange() {
    constexpr uint32_t kLength = 3000;
    std::memset(left_.mr.data(), ++tag_, kLength);
    std::memset(right_.mr.data(), 0, kLength);
    require(right_.client.post_recv(right_qp_, tag_, {right_.sge(0, kLength)}), "the bystander can post a receive");
    require(left_.client.post_send(left_qp_, left_.send(tag_, 0, kLength)), "the bystander can post a send");
    require(left_.client.query(left_qp_).attr.qp_state == IBV_QPS_RTS, "the bystander's QP is connected");
    const uint64_t start = world_.rounds();
    size_t sent = 0, received = 0;
    world_.run_until([&] {
        for (auto [party, count] : {std::pair{&left_, &sent}, {&right_, &received}})
            for (auto e = party->client.poll(party->cq); e; e = party->client.poll(party->cq)) {
                require(e->status == abi::WcStatus::success, "the bystander's requests succeed");
                ++*count;
            }
        return (sent != 0 && received != 0) || world_.rounds() - start > kMostRounds;
    });
    require(sent == 1 && received == 1, "the bystander's message arrives within the limit of rounds");
    for (uint32_t i = 0; i < kLength; ++i) require(right_.mr.data()[i] == tag_, "the bystander's message has the right bytes");
    require(left_.client.guards_intact() && right_.client.guards_intact(), "nobody wrote beside the bystander's memory");
}

void Rig::require_only_bystander() {
    const auto t = host().conductor().totals();
    require(t.sessions == before_.sessions, "the hostile sessions have ended");
    require(t.pds == before_.pds && t.regions == before_.regions && t.mrs == before_.mrs && t.mws == before_.mws,
            "no memory is left");
    require(t.cqs == before_.cqs && t.srqs == before_.srqs && t.qps == before_.qps && t.ahs == before_.ahs, "no queues are left");
    require(t.channels == before_.channels && t.arena_bytes == before_.arena_bytes && t.mapped_bytes == before_.mapped_bytes,
            "no channels, arenas or mappings are left");
}

void Rig::end() {
    const std::string left = world_.shut_down();
    if (left.empty()) return;
    std::fprintf(stderr, "%s\n", left.c_str());
    fail("nothing is left after the end of the hosts");
}

}  // namespace roci::fuzz
