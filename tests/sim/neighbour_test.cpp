// Tests of hosts that resolve each other's MAC addresses. Some tests use forged ARP and ICMP frames.
#include "fixture.hpp"

namespace roci::sim {
namespace {

constexpr Nanos kSecond = 1'000'000'000;

bool is_roce(const Sent& s) { return s.parsed; }

struct NeighbourTest : StrangersTest {};

TEST_F(NeighbourTest, FindEachOtherByArp) {
    join_strangers(0);
    send_one();
}

TEST_F(NeighbourTest, FindEachOtherByNeighbourDiscovery) {
    join_strangers(1);
    send_one();
}

TEST_F(NeighbourTest, ALostQuestionIsRepeated) {
    world.run_for(1'000'000);  // waits until the hosts have sent the announcements of their addresses
    int lost = 0;
    world.net().set_script([&](const Sent& s) { return !is_roce(s) && lost++ < 2 ? Verdict{Verdict::drop} : Verdict{}; });
    const Nanos start = world.now();
    join_strangers(0);
    EXPECT_GE(world.now() - start, kSecond);
    world.net().set_script({});
    send_one();
}

TEST_F(NeighbourTest, OthersGoOnWhileOneWaitsInVain) {
    join_strangers(0);
    Side c(world, world.host(0));
    Qp& q = c.qp();
    c.client.to_init(q);
    Peer nobody = stranger(b, qb, 0);
    nobody.gid.bytes[15] = 77;
    b.client.post_recv(qb, 1, {b.sge(0, 100)});
    a.client.post_send(qa, a.send(2, 0, 100));
    const Nanos start = world.now();
    EXPECT_THROW(c.client.to_rtr(q, {}, nobody), std::exception);  // the world runs while to_rtr() waits for the reply
    EXPECT_NE(c.client.reason().find("does not answer"), std::string::npos) << c.client.reason();
    EXPECT_GE(world.now() - start, 3 * kSecond - kSecond / 10);
    EXPECT_EQ(a.poll_all().size(), 1u) << "sent and acknowledged long ago";
    c.client.close();
}

struct ArpPuppetTest : ::testing::Test {
    World world{WorldOptions{.hosts = 1, .resolver = host::Resolver::own}};
    Puppet puppet{world};
    Side a{world, world.host(0)};
};

TEST_F(ArpPuppetTest, AStormOfForgedFramesIsCountedAndHarmless) {
    uint8_t frame[64] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 9, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1};
    for (uint32_t i = 0; i < 20'000; ++i) {
        std::memcpy(frame + 22, "\x02\x00\x00\x00\x09\x01", 6);
        const uint8_t sender[4] = {10, 0, uint8_t(i >> 8), uint8_t(i)}, target[4] = {10, 0, 0, 1};
        std::memcpy(frame + 28, sender, 4);
        std::memcpy(frame + 38, target, 4);
        puppet.send_raw({frame, frame + 60});
        if (i % 16 == 0) world.run_for(2000);
    }
    world.run_for(1'000'000);
    Host& h = world.host(0);
    EXPECT_GT(h.counter(engine::Counter::other_received), 10'000u);
    EXPECT_EQ(h.counter(engine::Counter::other_received) + h.counter(engine::Counter::other_full), 20'000u);
    EXPECT_EQ(world.shut_down(), "");
}

TEST_F(ArpPuppetTest, UnreachableIsCountedAndEndsNothing) {
    Qp& q = a.qp();
    connect(a.client, q, puppet, {});
    a.client.post_send(q, a.send(1, 0, 100));
    const auto got = puppet.next();
    ASSERT_TRUE(got);
    std::vector<uint8_t> icmp(14 + 20 + 8 + 28);
    std::memcpy(&icmp[0], &got->bytes[6], 6);
    std::memcpy(&icmp[6], &got->bytes[0], 6);
    icmp[12] = 8;
    icmp[14] = 0x45;
    icmp[23] = 1;
    icmp[34] = 3;  // type 3: destination unreachable
    icmp[35] = 3;  // code 3: port
    puppet.send_raw(icmp);
    world.run_for(10'000);
    EXPECT_EQ(world.host(0).counter(engine::Counter::icmp_unreachable), 1u);
    EXPECT_TRUE(a.poll_all().empty());
    puppet.send_ack(got->psn(), 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(world.shut_down(), "");
}

}  // namespace
}  // namespace roci::sim
