// Tests of the run queue, which schedules users, sessions and QPs.
#include "qp/run_queue.hpp"

#include <gtest/gtest.h>

#include <map>

namespace roci::qp {
namespace {

using Queue = RunQueue<&Qp::asking>;

struct RunQueueTest : ::testing::Test {
    Queue queue;
    std::vector<std::unique_ptr<Qp>> qps;

    Qp& qp(uint16_t share) {
        qps.emplace_back(new Qp{});
        qps.back()->share = share;
        return *qps.back();
    }
    /// Gives `turns` turns to QPs that always have more work. Returns the sum of costs per Qp::share.
    std::map<uint16_t, uint64_t> serve(uint32_t turns, const std::map<uint16_t, uint64_t>& cost_of) {
        std::map<uint16_t, uint64_t> spent;
        for (uint32_t i = 0; i < turns; ++i) {
            Qp& next = queue.take();
            const uint64_t cost = cost_of.at(next.share);
            queue.add(next);
            queue.done(cost, TurnEnd::interrupted);
            spent[next.share] += cost;
        }
        return spent;
    }
};

TEST_F(RunQueueTest, AUserBeyondItsRateIsParkedUntilItsTime) {
    constexpr Nanos kNow = 1'000'000'000, kMs = 1'000'000;
    UserRate rate(1'000'000, 0);  // one byte per microsecond; the user starts with the credit of a millisecond
    queue.open(1, 1, &rate);
    queue.open(2, 2);
    Qp &a = qp(1), &b = qp(2), &later = qp(1);
    EXPECT_TRUE(queue.limits());
    const auto turn = [&](Qp& expected, uint64_t bytes) {
        Qp& next = queue.take();
        EXPECT_EQ(&next, &expected);
        queue.add(next);
        queue.done(bytes, TurnEnd::without_work);  // ends the turn, so that the next user is served
        queue.charge(next, kNow, 1, bytes);
    };
    queue.add(a);
    queue.add(b);
    turn(a, 1000);
    EXPECT_FALSE(queue.parked(a)) << "no more than it has saved up";
    turn(b, 1'000'000);
    turn(a, 2000);
    EXPECT_TRUE(queue.parked(a));
    EXPECT_EQ(queue.next_release(), kNow + 2 * kMs);
    queue.add(later);
    for (int i = 0; i < 3; ++i) turn(b, 1'000'000);
    queue.remove(b);
    EXPECT_TRUE(queue.empty()) << "nobody may have a turn";
    EXPECT_EQ(queue.count(), 2u);
    queue.release(kNow + 2 * kMs - 1);
    EXPECT_TRUE(queue.empty());
    rate.charge(kNow, 1, 1000);  // another engine has sent this traffic of the user
    queue.release(kNow + 2 * kMs);
    EXPECT_TRUE(queue.empty());
    EXPECT_EQ(queue.next_release(), kNow + 3 * kMs);
    queue.release(kNow + 3 * kMs);
    EXPECT_EQ(queue.next_release(), kNever);
    EXPECT_EQ(&queue.take(), &a);
    queue.done(0, TurnEnd::interrupted);
    queue.remove(later);
    EXPECT_TRUE(queue.empty());
    EXPECT_EQ(rate.waits(), 1u);
}

TEST_F(RunQueueTest, AParkedUserWhoLeavesLeavesNothingToItsSuccessor) {
    UserRate rate(0, 1);
    queue.open(1, 1, &rate);
    Qp &a = qp(1), &b = qp(1);
    queue.add(a);
    queue.take();
    queue.done(1, TurnEnd::finished);
    queue.charge(a, 1'000'000'000, 1, 100);
    EXPECT_TRUE(queue.parked(a));
    queue.close(1);
    queue.leave(1);
    EXPECT_EQ(queue.next_release(), kNever);
    queue.open(1, 1);
    queue.add(b);
    EXPECT_EQ(&queue.take(), &b);
    queue.done(1, TurnEnd::finished);
    queue.charge(b, 1'000'000'000, 1, 100);
    EXPECT_FALSE(queue.parked(b));
}

TEST_F(RunQueueTest, QpsWithoutASessionAreServedInOrder) {
    Qp &a = qp(0), &b = qp(0), &c = qp(0);
    EXPECT_EQ(queue.peek(), nullptr);
    for (Qp* q : {&a, &b, &c, &a}) queue.add(*q);
    EXPECT_EQ(queue.count(), 3u);
    EXPECT_EQ(queue.peek(), &a);
    queue.remove(b);
    queue.remove(b);
    EXPECT_EQ(&queue.take(), &a);
    queue.done(100, TurnEnd::interrupted);
    EXPECT_EQ(&queue.take(), &c);
    queue.done(100, TurnEnd::interrupted);
    EXPECT_TRUE(queue.empty());
    EXPECT_FALSE(queue.contended());
}

TEST_F(RunQueueTest, UsersHaveEqualSharesWhateverTheirQpsAndPackets) {
    queue.open(1, 1);
    queue.open(2, 2);
    for (int i = 0; i < 1000; ++i) queue.add(qp(1));
    queue.add(qp(2));
    EXPECT_TRUE(queue.contended());
    auto spent = serve(20'000, {{1, 8 * (kPacketCost + 4096)}, {2, kPacketCost + 64}});
    EXPECT_NEAR(double(spent[1]) / double(spent[2]), 1, 0.02);
}

TEST_F(RunQueueTest, SessionsOfAUserShareItsTurns) {
    queue.open(1, 1);
    queue.open(2, 1);
    queue.open(3, 2);
    for (uint16_t share : std::initializer_list<uint16_t>{1, 1, 1, 2, 3}) queue.add(qp(share));
    auto spent = serve(20'000, {{1, 2000}, {2, 1000}, {3, 3000}});
    EXPECT_NEAR(double(spent[1]) / double(spent[2]), 1, 0.02);
    EXPECT_NEAR(double(spent[1] + spent[2]) / double(spent[3]), 1, 0.02);
}

TEST_F(RunQueueTest, WhoeverComesWaitsForOneShareOfEachOther) {
    for (uint16_t user = 1; user <= 3; ++user) {
        queue.open(user, user);
        for (int i = 0; i < 100; ++i) queue.add(qp(user));
    }
    constexpr uint64_t kCost = 4608;
    serve(1000, {{1, kCost}, {2, kCost}, {3, kCost}});
    queue.open(4, 4);
    Qp& late = qp(4);
    queue.add(late);
    uint64_t waited = 0;
    for (Qp* next = &queue.take(); next != &late; next = &queue.take()) {
        queue.add(*next);
        queue.done(kCost, TurnEnd::interrupted);
        waited += kCost;
    }
    queue.done(0, TurnEnd::interrupted);
    EXPECT_LE(waited, 3 * (kShareQuantum + kCost));
}

/// A user that has no work after each of its turns must not get more than a user that always has work.
TEST_F(RunQueueTest, ADebtIsNotForgottenByPausing) {
    queue.open(1, 1);
    queue.open(2, 2);
    Qp &pauses = qp(1), &stays = qp(2);
    uint64_t spent[3] = {};
    queue.add(stays);
    for (int i = 0; i < 10'000; ++i) {
        queue.add(pauses);  // the QP leaves the queue after each of its turns
        Qp& next = queue.take();
        if (&next == &stays) queue.add(stays);
        queue.done(20'000, TurnEnd::interrupted);
        spent[next.share] += 20'000;
    }
    EXPECT_LE(double(spent[1]) / double(spent[2]), 1.02);
    EXPECT_GE(double(spent[1]) / double(spent[2]), 0.3);
}

TEST_F(RunQueueTest, ATurnWithoutWorkIsFollowedByTheOthers) {
    queue.open(1, 1);
    queue.open(2, 1);
    queue.open(3, 2);
    Qp *all[] = {&qp(1), &qp(2), &qp(3)}, *order[] = {all[0], all[2], all[1], all[2]};
    for (Qp* q : all) queue.add(*q);
    for (int i = 0; i < 12; ++i) {
        Qp& next = queue.take();
        EXPECT_EQ(&next, order[i % 4]) << i;
        queue.add(next);
        queue.done(kPacketCost, TurnEnd::without_work);
    }
}

TEST_F(RunQueueTest, ASessionWhoseOnlyQpHasNoMoreToDoPassesOn) {
    queue.open(1, 1);
    queue.open(2, 1);
    Qp *all[] = {&qp(1), &qp(2), &qp(2)}, *order[] = {all[0], all[1], all[2], all[1]};
    for (Qp* q : all) queue.add(*q);
    for (Qp* expected : order) {
        Qp& next = queue.take();
        EXPECT_EQ(&next, expected);
        queue.add(next);
        queue.done(kPacketCost, TurnEnd::finished);
    }
}

TEST_F(RunQueueTest, AQpMayLeaveDuringAnothersTurn) {
    queue.open(1, 1);
    Qp &a = qp(1), &b = qp(1);
    queue.add(a);
    queue.add(b);
    ASSERT_EQ(&queue.take(), &a);
    queue.remove(b);
    queue.add(b);
    queue.remove(b);
    queue.done(1, TurnEnd::interrupted);
    EXPECT_TRUE(queue.empty());
    queue.close(1);
    queue.open(1, 5);
    queue.add(b);
    uint32_t seen = 0;
    queue.for_each([&](Qp& q) { seen += &q == &b; });
    EXPECT_EQ(seen, 1u);
    queue.remove(b);
}

}  // namespace
}  // namespace roci::qp
