// Tests of the ring of commands from the conductor (rocid's control thread) to an lcore.
#include "engine/command_ring.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <thread>
#include <vector>

namespace roci::engine {
namespace {

uint32_t number(const Command& c) { return std::get<DetachSession*>(c)->session; }

struct CommandRingTest : testing::Test {
    CommandRing ring;
    std::vector<DetachSession> commands = std::vector<DetachSession>(3 * CommandRing::kSize);
    Ticket last = 0;
    std::vector<uint32_t> executed;

    CommandRingTest() {
        for (uint32_t i = 0; i < commands.size(); ++i) commands[i].session = i;
    }
    bool push(uint32_t i) { return ring.push(&commands[i], last); }
    uint32_t execute(uint32_t most) {
        return ring.execute(most, [&](const Command& c) { executed.push_back(number(c)); });
    }
};

TEST_F(CommandRingTest, ExecutesInOrderAndTellsWhatIsDone) {
    EXPECT_FALSE(ring.waiting());
    EXPECT_TRUE(ring.done(0));
    ASSERT_TRUE(push(0));
    const Ticket first = last;
    ASSERT_TRUE(push(1));
    EXPECT_TRUE(ring.waiting());
    EXPECT_FALSE(ring.done(first));
    EXPECT_EQ(execute(1), 1u);
    EXPECT_TRUE(ring.done(first));
    EXPECT_FALSE(ring.done(last));
    EXPECT_EQ(execute(4), 1u);
    EXPECT_TRUE(ring.done(last));
    EXPECT_FALSE(ring.waiting());
    EXPECT_EQ(executed, (std::vector<uint32_t>{0, 1}));
}

TEST_F(CommandRingTest, IsFullWithSixtyFour) {
    for (uint32_t i = 0; i < CommandRing::kSize; ++i) ASSERT_TRUE(push(i));
    EXPECT_FALSE(push(CommandRing::kSize));
    EXPECT_EQ(execute(4), 4u);
    for (uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(push(CommandRing::kSize + i));
    EXPECT_FALSE(push(CommandRing::kSize + 4));
    while (execute(4) != 0) {
    }
    ASSERT_EQ(executed.size(), CommandRing::kSize + 4);
    for (uint32_t i = 0; i < executed.size(); ++i) EXPECT_EQ(executed[i], i);
}

TEST_F(CommandRingTest, WhatIsPushedMeanwhileWaitsForTheNextRound) {
    ASSERT_TRUE(push(0));
    EXPECT_EQ(ring.execute(4, [&](const Command&) { ASSERT_TRUE(push(1)); }), 1u);
    EXPECT_TRUE(ring.waiting());
}

TEST_F(CommandRingTest, ADatagramTravelsByValue) {
    SendGsi send;
    send.datagram.mad.fill(0);
    send.datagram.mad[0] = 7;
    ASSERT_TRUE(ring.push(send, last));
    send.datagram.mad[0] = 8;
    ring.execute(1, [&](const Command& c) { EXPECT_EQ(std::get<SendGsi>(c).datagram.mad[0], 7); });
    EXPECT_TRUE(ring.done(last));
}

TEST_F(CommandRingTest, AClosedRingRefusesWhatItHolds) {
    AddQp add;
    ASSERT_TRUE(ring.push(&add, last));
    ASSERT_TRUE(push(0));
    EXPECT_FALSE(ring.closed());
    ring.close();
    EXPECT_TRUE(ring.closed());
    ring.refuse_all(ESHUTDOWN);
    EXPECT_EQ(add.error, ESHUTDOWN);
    EXPECT_TRUE(ring.done(last));
}

/// A command port that records the waits of a batch.
struct CountingPort : CommandPort {
    std::vector<std::pair<uint32_t, Ticket>> waits;
    std::vector<Ticket> last = {0, 0, 0};
    uint32_t engines() const override { return 3; }
    Ticket submit(uint32_t e, const Command&) override { return ++last[e]; }
    void wait(uint32_t e, Ticket t) override { waits.push_back({e, t}); }
    void fence_all() override {}
};
using Waits = std::vector<std::pair<uint32_t, Ticket>>;

TEST(Batch, WaitsOncePerEngineForTheLastCommand) {
    CountingPort port;
    {
        Batch batch(port);
        for (int i = 0; i < 5; ++i) batch.submit(2, Barrier{});
        batch.submit(0, Barrier{});
        EXPECT_TRUE(port.waits.empty());
        batch.wait();
        EXPECT_EQ(port.waits, (Waits{{0, 1}, {2, 5}}));
        batch.wait();
        EXPECT_EQ(port.waits.size(), 2u) << "nothing more to wait for";
        batch.submit(1, Barrier{});
    }
    EXPECT_EQ(port.waits.back(), (std::pair<uint32_t, Ticket>{1, 1})) << "also at its end: the commands may point to its owner";
    port.waits.clear();
    port.barrier_all();
    EXPECT_EQ(port.waits, (Waits{{0, 2}, {1, 2}, {2, 6}}));
}

// The conductor reads a result only after the ring has reported the command as executed. The lcore ends while the
// conductor still submits commands.
TEST(CommandRing, ConductorAndLcore) {
    constexpr uint32_t kCommands = 20000;
    CommandRing ring;
    std::atomic<bool> stop{false};
    uint32_t executed = 0;
    std::thread lcore([&] {
        const auto run = [&](const Command& c) { std::get<QuerySrq*>(c)->limit = ++executed; };
        while (!stop.load(std::memory_order_relaxed))
            if (ring.execute(4, run) == 0) std::this_thread::yield();
        ring.execute(CommandRing::kSize, run);
        ring.close();
    });
    std::vector<QuerySrq> queries(kCommands);
    std::vector<Ticket> tickets(kCommands);
    for (uint32_t i = 0; i < kCommands; ++i) {
        if (i == kCommands / 2) stop = true;
        while (!ring.push(&queries[i], tickets[i])) {
            if (ring.closed()) ring.refuse_all(ESHUTDOWN);
            std::this_thread::yield();
        }
        if (i < 30) continue;
        const QuerySrq& early = queries[i - 30];
        while (!ring.done(tickets[i - 30])) {
            if (ring.closed()) ring.refuse_all(ESHUTDOWN);
            std::this_thread::yield();
        }
        ASSERT_EQ(early.limit, early.error == 0 ? i - 29 : 0) << i;
    }
    lcore.join();
    ring.refuse_all(ESHUTDOWN);
    uint32_t refused = 0;
    for (const QuerySrq& q : queries) {
        ASSERT_TRUE(q.error == 0 || q.error == ESHUTDOWN);
        refused += q.error != 0;
    }
    EXPECT_EQ(executed + refused, kCommands);
    EXPECT_GE(executed, kCommands / 2 - CommandRing::kSize);
}

}  // namespace
}  // namespace roci::engine
