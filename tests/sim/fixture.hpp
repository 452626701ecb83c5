// Fixtures with few hosts. Each test that uses them tests one situation.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "sim/puppet.hpp"
#include "sim/world.hpp"

namespace roci::sim {

using abi::WcStatus;
using abi::WrOpcode;
using wire::Operation;

/// Returns byte `i` of the payload pattern `tag`.
inline uint8_t pattern_byte(uint64_t tag, uint64_t i) {
    return uint8_t((tag * 0x9e3779b97f4a7c15 >> 56) + i * 7 + (i >> 8) * 13 + tag);
}
inline void fill(uint8_t* p, uint64_t n, uint64_t tag) {
    for (uint64_t i = 0; i < n; ++i) p[i] = pattern_byte(tag, i);
}
/// Returns the index of the first byte that differs from the pattern, or -1.
inline int64_t first_wrong(const uint8_t* p, uint64_t n, uint64_t tag) {
    for (uint64_t i = 0; i < n; ++i)
        if (p[i] != pattern_byte(tag, i)) return int64_t(i);
    return -1;
}
inline std::vector<uint8_t> bytes_of(uint64_t n, uint64_t tag) {
    std::vector<uint8_t> v(n);
    fill(v.data(), n, tag);
    return v;
}

/// One side of a connection: a client with a PD, a CQ and an MR. The test creates the QPs.
struct Side {
    World& world;
    Client client;
    uint32_t pd;
    Cq& cq;
    Mr& mr;
    Side(World& w, Host& host, uint32_t device = 0, uint64_t bytes = 1 << 20, uint32_t uid = Client::kNextUser)
        : world(w), client(host, device, uid), pd(client.alloc_pd()), cq(client.create_cq(1024)), mr(client.reg_mr(pd, bytes)) {}
    Qp& qp(const QpOptions& o = {}) { return client.create_qp(pd, cq, cq, o); }
    Sge sge(uint64_t offset, uint32_t length) const { return {mr.address() + offset, length, mr.lkey}; }
    SendWr send(uint64_t id, uint64_t offset, uint32_t length) const {
        return {.id = id, .opcode = WrOpcode::send, .sges = {sge(offset, length)}};
    }
    SendWr rdma(WrOpcode op, uint64_t id, uint64_t offset, uint32_t length, uint64_t remote, uint32_t rkey) const {
        return {.id = id, .opcode = op, .sges = {sge(offset, length)}, .remote_addr = remote, .rkey = rkey};
    }
    /// Runs the world until `count` completions have arrived. Returns fewer completions if no further event can occur
    /// or if the time `at_most` has passed.
    std::vector<abi::Cqe> wait(size_t count, Nanos at_most = 100'000'000'000) {
        std::vector<abi::Cqe> got;
        world.run_until(
            [&] {
                for (auto e = client.poll(cq); e; e = client.poll(cq)) got.push_back(*e);
                return got.size() >= count;
            },
            at_most);
        return got;
    }
    std::vector<abi::Cqe> poll_all() {
        std::vector<abi::Cqe> got;
        for (auto e = client.poll(cq); e; e = client.poll(cq)) got.push_back(*e);
        return got;
    }
    WcStatus wait_status() {
        const auto c = wait(1);
        return c.empty() ? WcStatus::general_err : c.front().status;
    }
};

/// Two hosts with one QP each. The QPs are connected to each other.
struct PairTest : ::testing::Test {
    World world;
    Side a, b;
    Qp& qa;
    Qp& qb;
    explicit PairTest(const WorldOptions& o = {}, const QpOptions& q = {})
        : world(o), a(world, world.host(0)), b(world, world.host(o.hosts - 1)), qa(a.qp(q)), qb(b.qp(q)) {}
    void join(const PathOptions& o = {}) { connect(a.client, qa, b.client, qb, o); }
    void TearDown() override {
        EXPECT_TRUE(a.client.guards_intact());
        EXPECT_TRUE(b.client.guards_intact());
        EXPECT_EQ(world.shut_down(), "");
    }
};

/// Two hosts with one QP each. Neither host has the MAC address of the other, so the hosts must resolve the
/// addresses.
struct StrangersTest : PairTest {
    explicit StrangersTest(const WorldOptions& o = {.resolver = host::Resolver::own}) : PairTest(o) {}
    Peer stranger(Side& s, Qp& q, uint32_t gid_index) const {
        Peer p = s.client.self(q, gid_index);
        p.mac = {};
        return p;
    }
    void join_strangers(uint32_t gid_index) {
        const PathOptions o{.gid_index = gid_index};
        for (auto [from, q, to, peer] : {std::tuple{&a, &qa, &b, &qb}, std::tuple{&b, &qb, &a, &qa}}) {
            from->client.to_init(*q);
            from->client.to_rtr(*q, o, stranger(*to, *peer, gid_index));
            from->client.to_rts(*q, o);
        }
    }
    void send_one() {
        b.client.post_recv(qb, 1, {b.sge(0, 5000)});
        fill(a.mr.data(), 5000, 3);
        a.client.post_send(qa, a.send(2, 0, 5000));
        EXPECT_EQ(a.wait_status(), WcStatus::success);
        ASSERT_EQ(b.wait(1).size(), 1u);
        EXPECT_EQ(first_wrong(b.mr.data(), 5000, 3), -1);
    }
};

/// A QP of an engine. The peer of this QP is a puppet, whose frames the test writes.
struct PuppetTest : ::testing::Test {
    static constexpr uint32_t kMtu = 1024;
    World world;
    explicit PuppetTest(const WorldOptions& o = {.hosts = 1}) : world(o) {}
    /// Options for tests of gaps without a reorder buffer (engine.reorder_frames = 0).
    static WorldOptions keeps_nothing() {
        WorldOptions o{.hosts = 1};
        o.engine.reorder_frames = 0;
        return o;
    }
    Puppet puppet{world};
    Side a{world, world.host(0)};
    Qp& qp = a.qp();
    PathOptions path;
    void join() { connect(a.client, qp, puppet, path); }
    void TearDown() override {
        EXPECT_TRUE(a.client.guards_intact());
        EXPECT_EQ(world.shut_down(), "");
    }
    uint32_t state() { return a.client.query(qp).attr.qp_state; }
    static std::vector<uint32_t> psns(const std::vector<Puppet::Got>& packets) {
        std::vector<uint32_t> v;
        for (const auto& g : packets) v.push_back(g.psn());
        return v;
    }
    static std::vector<uint32_t> range(uint32_t from, uint32_t count) {
        std::vector<uint32_t> v;
        for (uint32_t i = 0; i < count; ++i) v.push_back((from + i) & kMask24);
        return v;
    }
};

constexpr uint8_t kNakSequence = 0x60, kNakInvalid = 0x61, kNakAccess = 0x62, kNakOperational = 0x63;
constexpr uint8_t rnr_nak(uint8_t timer) { return uint8_t(0x20 | timer); }

}  // namespace roci::sim
