#include <gtest/gtest.h>

#include "fixture.hpp"

namespace roci::rings {
namespace {

TEST(CqLaneTest, EntriesComeOutInOrderOverManyWraps) {
    CqPair p(1, 8);
    for (uint64_t i = 0; i < 1000; ++i) {
        ASSERT_EQ(p.push(i), PushResult::ok);
        if (i % 3 == 0) {
            ASSERT_EQ(p.push(1000000 + i), PushResult::ok);
        }
        ASSERT_EQ(p.poll(), int64_t(i));
        if (i % 3 == 0) {
            ASSERT_EQ(p.poll(), int64_t(1000000 + i));
        }
        ASSERT_EQ(p.poll(), -1);
    }
}

TEST(CqLaneTest, IndexWrapsAt32Bits) {
    CqPair p(1, 4);
    p.cq.lanes[0].produced = p.cq.lanes[0].consumer_seen = 0xfffffffe;
    p.cq.lanes[0].shared->consumer = 0xfffffffe;
    p.client.index[0] = 0xfffffffe;
    p.cq.lanes[0].entries[3].seq = 0xfffffffc;  // a value of an earlier wrap; the entry at index 0xffffffff will get seq 0
    for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(p.push(i), PushResult::ok);
    for (int64_t i = 0; i < 4; ++i) ASSERT_EQ(p.poll(), i);
    for (uint64_t i = 4; i < 20; ++i) {
        ASSERT_EQ(p.push(i), PushResult::ok);
        ASSERT_EQ(p.poll(), int64_t(i));
    }
}

TEST(CqLaneTest, ASleeperIsTakenOnceAndALiarIsSeldomBelieved) {
    CqPair p(1, 8);
    CqLane& lane = p.cq.lanes[0];
    EXPECT_FALSE(take_sleeper(p.cq, lane));
    uint32_t* word = p.client.prepare_sleep();
    ASSERT_NE(word, nullptr);
    ASSERT_EQ(p.push(1), PushResult::ok);
    EXPECT_TRUE(take_sleeper(p.cq, lane));
    EXPECT_EQ(*word, 0u) << "so that it does not fall asleep any more";
    EXPECT_FALSE(take_sleeper(p.cq, lane));
    EXPECT_EQ(p.client.prepare_sleep(), nullptr) << "there is an entry";
    uint32_t believed = 0;
    for (int i = 0; i < 1000; ++i) {  // no thread sleeps on the word in this loop
        p.cq.shared->sleeping = 1;
        if (!take_sleeper(p.cq, lane)) continue;
        Sleeper{word, &lane}.woke(false);
        ++believed;
    }
    EXPECT_LT(believed, 40u);
    Sleeper{word, &lane}.woke(true);
    for (int i = 0; i < 10; ++i) {
        p.cq.shared->sleeping = 1;
        EXPECT_TRUE(take_sleeper(p.cq, lane)) << "whoever does sleep is believed again";
    }
}

// An engine collects the entries of a round in a batch and writes them together. If the batch is full, the engine
// writes the batch at once. The entries stay in order.
TEST(CqLaneTest, EntriesOfARoundAreSeenWhenTheyAreWrittenOut) {
    CqPair first(1, 128), second(1, 128);
    Completions round;
    const auto take = [&round](CqPair& p, uint64_t id) {
        abi::Cqe e{};
        e.wr_id = id;
        e.byte_len = uint32_t(id * 3);
        return rings::push(p.cq, 0, e, round);
    };
    ASSERT_EQ(take(first, 0), PushResult::ok);
    EXPECT_EQ(first.poll(), -1) << "not written yet";
    round.write_out();
    EXPECT_EQ(first.poll(), 0);
    for (uint64_t i = 1; i <= 100; ++i) ASSERT_EQ(take(i % 2 != 0 ? first : second, i), PushResult::ok);
    round.write_out();
    for (int64_t i = 1; i <= 100; ++i) ASSERT_EQ((i % 2 != 0 ? first : second).poll(), i);
    round.write_out();
    EXPECT_EQ(first.poll(), -1) << "none twice";
    EXPECT_EQ(second.poll(), -1);
}

// An entry in the batch counts as used, although it is not written to the ring yet.
TEST(CqLaneTest, EntriesThatAreNotWrittenYetCountAsThere) {
    CqPair p(1, 4);
    Completions round;
    abi::Cqe e{};
    for (uint32_t i = 0; i < 4; ++i) ASSERT_EQ(rings::push(p.cq, 0, e, round), PushResult::ok);
    EXPECT_EQ(rings::push(p.cq, 0, e, round), PushResult::overrun);
}

// A CQ error (IBA 11.6.3.2). The overrun must be detected at exactly the first excess entry. The client must still be
// able to poll earlier entries.
TEST(CqLaneTest, OverrunIsExactAndLosesNothingAlreadyThere) {
    CqPair p(1, 8);
    for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(p.push(i), PushResult::ok);
    EXPECT_FALSE(p.cq.dead);
    EXPECT_EQ(p.push(8), PushResult::overrun);
    EXPECT_TRUE(p.cq.dead);
    for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(p.poll(), i);
    EXPECT_EQ(p.poll(), -1);
    EXPECT_EQ(p.push(9), PushResult::overrun) << "a CQ in error takes no more entries";
    EXPECT_EQ(p.poll(), -1);
}

TEST(CqLaneTest, OnePolledEntryMakesRoomForOne) {
    CqPair p(1, 8);
    for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(p.push(i), PushResult::ok);
    EXPECT_EQ(p.poll(), 0);
    EXPECT_EQ(p.push(8), PushResult::ok);
    EXPECT_EQ(p.push(9), PushResult::overrun);
}

TEST(CqLaneTest, IgnoredOverrunDropsTheNewEntry) {
    CqPair p(1, 2);
    p.cq.ignore_overrun = true;
    for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(p.push(i), PushResult::ok);
    EXPECT_FALSE(p.cq.dead);
    EXPECT_EQ(p.poll(), 0);
    EXPECT_EQ(p.push(7), PushResult::ok);
    EXPECT_EQ(p.poll(), 1);
    EXPECT_EQ(p.poll(), 7);
    EXPECT_EQ(p.poll(), -1);
}

// The client can write any value to `consumer`. An impossible value must count as "nothing polled".
TEST(CqLaneTest, HostileConsumerCannotMakeRoomThatIsNotThere) {
    for (uint32_t lie : {9u, 100u, 0x80000000u, 0xffffffffu, 0xfffffff8u}) {
        CqPair p(1, 8);
        for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(p.push(i), PushResult::ok);
        p.cq.lanes[0].shared->consumer = lie;
        EXPECT_EQ(p.push(8), PushResult::overrun) << lie;
        for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(p.client.entry(0, uint32_t(i))->wr_id, uint64_t(i));
    }
}

TEST(CqLaneTest, ConsumerGoingBackwardsIsNotBelieved) {
    CqPair p(1, 4);
    for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(p.push(i), PushResult::ok);
    for (int i = 0; i < 3; ++i) p.poll();
    for (uint64_t i = 4; i < 7; ++i) ASSERT_EQ(p.push(i), PushResult::ok);
    EXPECT_EQ(p.cq.lanes[0].consumer_seen, 3u);
    p.cq.lanes[0].shared->consumer = 1;
    EXPECT_EQ(p.push(7), PushResult::overrun);
    EXPECT_EQ(p.cq.lanes[0].consumer_seen, 3u);
}

TEST(CqLaneTest, SharedConsumerIsReadOnlyWhenTheCachedOneSaysFull) {
    CqPair p(1, 8);
    for (uint64_t i = 0; i < 6; ++i) {
        ASSERT_EQ(p.push(i), PushResult::ok);
        p.poll();
        EXPECT_EQ(p.cq.lanes[0].consumer_seen, 0u);
    }
}

TEST(CqLaneTest, LanesAreIndependent) {
    CqPair p(3, 2);
    EXPECT_EQ(p.push(1, 0), PushResult::ok);
    EXPECT_EQ(p.push(2, 2), PushResult::ok);
    EXPECT_EQ(p.push(3, 2), PushResult::ok);
    EXPECT_EQ(p.poll(), 1);
    EXPECT_EQ(p.poll(), 2);
    EXPECT_EQ(p.poll(), 3);
    EXPECT_EQ(p.poll(), -1);
}

struct NotifyTest : ::testing::Test {
    CqPair p{2, 8};
    io::EventRing events{4};
    io::Event e;
    unsigned fired() {
        unsigned n = 0;
        while (events.pop(e)) ++n;
        return n;
    }
};

TEST_F(NotifyTest, UnarmedIsSilent) {
    p.push(1);
    EXPECT_TRUE(notify(p.cq, true, events));
    EXPECT_EQ(fired(), 0u);
}

TEST_F(NotifyTest, OneArmIsOneEventThatNamesTheCq) {
    p.client.arm(false);
    EXPECT_TRUE(notify(p.cq, false, events));
    EXPECT_TRUE(notify(p.cq, true, events));
    ASSERT_EQ(fired(), 1u);
    EXPECT_EQ(e.kind, io::Event::Kind::completion);
    EXPECT_EQ(e.session, 3u);
    EXPECT_EQ(e.handle, 11u);
    EXPECT_EQ(e.generation, 5u);
    EXPECT_EQ(e.channel, 2u);
    p.client.arm(false);
    EXPECT_TRUE(notify(p.cq, false, events));
    EXPECT_EQ(fired(), 1u);
}

TEST_F(NotifyTest, ArmingTwiceIsOneEvent) {
    p.client.arm(false);
    p.client.arm(false);
    notify(p.cq, false, events);
    notify(p.cq, false, events);
    EXPECT_EQ(fired(), 1u);
}

TEST_F(NotifyTest, SolicitedOnlyWaitsForASolicitedEntry) {
    p.client.arm(true);
    EXPECT_TRUE(notify(p.cq, false, events));
    EXPECT_EQ(fired(), 0u);
    EXPECT_TRUE(notify(p.cq, true, events));
    EXPECT_EQ(fired(), 1u);
    p.client.arm(false);  // arm(false) clears bit 0 again
    notify(p.cq, false, events);
    EXPECT_EQ(fired(), 1u);
}

TEST_F(NotifyTest, ARequestForAnyEntryIsNotNarrowedBeforeItIsAnswered) {
    p.client.arm(false);
    p.client.arm(true);
    p.client.arm(true);
    notify(p.cq, false, events);
    EXPECT_EQ(fired(), 1u);
    p.client.arm(true);
    notify(p.cq, false, events);
    EXPECT_EQ(fired(), 0u);
    notify(p.cq, true, events);
    EXPECT_EQ(fired(), 1u);
}

TEST_F(NotifyTest, WithoutAChannelThereIsNoEvent) {
    p.cq.channel = abi::kNoHandle;
    p.client.arm(false);
    EXPECT_TRUE(notify(p.cq, true, events));
    EXPECT_EQ(fired(), 0u);
}

TEST_F(NotifyTest, FullEventRingKeepsTheEventDue) {
    io::Event filler;
    while (events.push(filler)) {
    }
    p.client.arm(false);
    EXPECT_FALSE(notify(p.cq, false, events));
    EXPECT_FALSE(notify(p.cq, false, events));
    EXPECT_EQ(fired(), 4u);
    EXPECT_TRUE(notify(p.cq, false, events));
    ASSERT_EQ(fired(), 1u);
    EXPECT_EQ(e.handle, 11u);
    EXPECT_TRUE(notify(p.cq, false, events));
    EXPECT_EQ(fired(), 0u);
}

TEST_F(NotifyTest, ArmCounterWraps) {
    p.cq.fired = 0xfffffffe;
    p.cq.shared->arm = 0xfffffffe;
    p.client.arm(false);
    EXPECT_EQ(p.cq.shared->arm, 0u);
    notify(p.cq, false, events);
    EXPECT_EQ(fired(), 1u);
}

TEST(MoveLane, UnpolledEntriesMoveToTheFront) {
    CqPair p(1, 4);
    for (uint64_t i = 0; i < 4; ++i) p.push(i);
    p.poll();
    p.poll();
    p.push(4);
    Block memory = make_block(abi::CqConsumer::lane_bytes(8));
    ASSERT_TRUE(move_lane(p.cq.lanes[0], lane_in(memory.get(), 8), 2));
    p.client.lane_base = memory.get();
    p.client.depth = 8;
    p.client.index[0] = 0;
    for (uint64_t i = 5; i < 10; ++i) ASSERT_EQ(p.push(i), PushResult::ok);
    EXPECT_EQ(p.push(10), PushResult::overrun);
    for (int64_t i = 2; i < 10; ++i) EXPECT_EQ(p.poll(), i);
    EXPECT_EQ(p.poll(), -1);
}

TEST(MoveLane, RefusesLiesAndTooSmallRings) {
    CqPair p(1, 4);
    for (uint64_t i = 0; i < 4; ++i) p.push(i);
    Block memory = make_block(abi::CqConsumer::lane_bytes(4));
    EXPECT_FALSE(move_lane(p.cq.lanes[0], lane_in(memory.get(), 2), 1)) << "3 entries into 2 slots";
    EXPECT_FALSE(move_lane(p.cq.lanes[0], lane_in(memory.get(), 4), 5)) << "polled more than there was";
    EXPECT_FALSE(move_lane(p.cq.lanes[0], lane_in(memory.get(), 4), 0xffffffff));
    for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(p.poll(), i);
}

/// A receive queue with its memory and rocid's view of the queue.
struct Queue {
    static constexpr uint32_t kStride = 32;
    Block memory;
    RqView view;
    explicit Queue(uint32_t depth) : memory(make_block(sizeof(abi::RqShared) + depth * kStride)) {
        view.shared = reinterpret_cast<abi::RqShared*>(memory.get());
        view.depth = depth;
        view.stride = kStride;
    }
    void post(uint64_t id) {
        auto* slot = const_cast<std::byte*>(view.slot(view.shared->producer++));
        std::memcpy(slot, &id, sizeof id);
    }
    static uint64_t take(const RqView& q, RqCursor& at) {
        uint64_t id;
        std::memcpy(&id, q.slot(at.consumed++), sizeof id);
        return id;
    }
};

/// Writes work requests up to index `end`. The wr_id of each request is its index.
void fill_to(SqPair& q, uint32_t end) {
    for (; q.client.head != end; ++q.client.head) q.client.slot(q.client.head)->wr_id = q.client.head;
}

TEST(SendQueue, WhatIsWrittenIsPostedWhenItIsPublished) {
    SqPair q(4, 64);
    // Near 2^32: the indices overflow and the ring wraps several times.
    q.client.head = q.client.published = q.client.tail = 0xfffffffa;
    for (uint32_t i = q.client.head; i != 6; i += 2) {
        fill_to(q, i + 2);
        EXPECT_FALSE(q.view.posted(i));
        (void)q.client.publish();
        EXPECT_TRUE(q.view.posted(i) && q.view.posted(i + 1));
        EXPECT_FALSE(q.view.posted(i + 2)) << "a WQE of the previous phase is not posted again";
    }
}

TEST(SendQueue, WhatWasGivenUpIsNotPosted) {
    SqPair q(4, 64);
    fill_to(q, 3);
    q.client.head = 1;  // as after ibv_wr_abort of two more requests
    (void)q.client.publish();
    EXPECT_TRUE(q.view.posted(0));
    EXPECT_FALSE(q.view.posted(1) || q.view.posted(2));
}

TEST(SendQueue, AfterAResetNothingIsPosted) {
    SqPair q(4, 64);
    fill_to(q, 6);
    (void)q.client.publish();
    q.client.reset();
    for (uint32_t i = 0; i < 8; ++i) EXPECT_FALSE(q.view.posted(i)) << i;
}

TEST(ReceiveQueue, TheClientsIndexIsAskedForWhenTooFewAreKnown) {
    Queue q(16);
    for (uint64_t i = 0; i < 8; ++i) q.post(i);
    RqCursor at;
    EXPECT_EQ(at.posted(q.view, 1), 8u);
    q.post(8);
    EXPECT_EQ(at.posted(q.view, 1), 8u) << "enough are known";
    EXPECT_EQ(at.enough, 4u);
    at.consumed += 5;
    EXPECT_EQ(at.posted(q.view, at.enough), 4u) << "fewer than half of what there was";
    at.consumed += 4;
    EXPECT_EQ(at.posted(q.view, 1), 0u);
    q.view.shared->producer += 100;
    EXPECT_GT(at.posted(q.view, 1), q.view.depth) << "a lie is seen as one";
}

TEST(MoveQueue, WhatWasNotTakenMovesAndKeepsItsIndices) {
    Queue from(4), to(8);
    RqCursor at{.consumed = 0xfffffffd};  // the indices wrap around at 2^32
    from.view.shared->producer = at.consumed;
    for (uint64_t i = 0; i < 4; ++i) from.post(i);
    EXPECT_EQ(Queue::take(from.view, at), 0u);
    RqView queue = from.view;
    ASSERT_TRUE(move_queue(queue, at, to.view));
    EXPECT_EQ(queue.shared, to.view.shared);
    EXPECT_EQ(queue.depth, 8u);
    EXPECT_EQ(to.view.shared->producer, from.view.shared->producer);
    for (uint64_t i = 4; i < 9; ++i) to.post(i);
    for (uint64_t i = 1; i < 9; ++i) EXPECT_EQ(Queue::take(queue, at), i);
    EXPECT_EQ(at.consumed, queue.producer());
}

TEST(MoveQueue, RefusesLiesAndTooSmallRings) {
    Queue from(4), small(2), large(8);
    for (uint64_t i = 0; i < 3; ++i) from.post(i);
    RqView queue = from.view;
    RqCursor at;
    EXPECT_FALSE(move_queue(queue, at, small.view));
    EXPECT_EQ(Queue::take(queue, at), 0u);
    EXPECT_TRUE(move_queue(queue, at, small.view));
    small.view.shared->producer += 5;
    EXPECT_FALSE(move_queue(queue, at, large.view)) << "more is posted than the queue holds";
    EXPECT_EQ(queue.shared, small.view.shared);
}

}  // namespace
}  // namespace roci::rings
