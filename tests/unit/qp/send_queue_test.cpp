#include "qp/send_queue.hpp"

#include <gtest/gtest.h>

namespace roci::qp {
namespace {

struct SendQueueTest : ::testing::Test {
    Slab slab{HeapChunks::instance(), sizeof(SendRecord) + 64};
    SendQueue queue;
    SendWindow window;
    SendQueueTest() {
        EXPECT_TRUE(slab.reserve(16));
        queue.attach(&slab);
        window.start(Psn(10));
    }
    ~SendQueueTest() override {
        queue.drop_all();
        queue.detach()->unreserve(16);
    }
    void append(WorkKind kind, uint32_t packets) {
        SendRecord& r = queue.append();
        r.kind = kind;
        r.packets = packets;
        r.first_psn = window.allocate(packets);
    }
    void send_all() {
        while (queue.current() != nullptr) {
            const SendRecord& r = *queue.current();
            send(needs_response(r.kind) ? r.packets - queue.packet() : 1);
        }
    }
    void send(uint32_t psns) {
        queue.sent(psns);
        window.sent(psns);
    }
    const char* check() const { return queue.check(window); }
};

TEST_F(SendQueueTest, TheCursorGoesPacketByPacketAndReadByRead) {
    append(WorkKind::write, 2);
    append(WorkKind::read, 5);
    EXPECT_EQ(check(), nullptr);
    send(1);
    EXPECT_TRUE(queue.within_message());
    send(1);
    send(5);  // a READ request takes the PSNs of its responses
    EXPECT_TRUE(queue.all_sent());
    EXPECT_EQ(queue.reads_outstanding(), 1u);
    EXPECT_EQ(check(), nullptr);
}

TEST_F(SendQueueTest, EachRequestOfADividedReadIsOutstanding) {
    append(WorkKind::read, 5);
    append(WorkKind::write, 1);
    append(WorkKind::write, 1);
    const uint32_t ssn = queue.current()->next->next->ssn;
    send(2);
    queue.count_part();
    EXPECT_TRUE(queue.within_message());
    EXPECT_EQ(queue.current()->next->next->ssn, ssn + 1) << "the peer counts both requests";
    send(3);
    EXPECT_FALSE(queue.within_message());
    EXPECT_EQ(queue.reads_outstanding(), 2u);
    EXPECT_EQ(check(), nullptr);
    window.acknowledge(2);
    queue.part_answered();
    EXPECT_EQ(queue.reads_outstanding(), 1u);
    window.acknowledge(3);
    queue.drop_oldest();
    EXPECT_EQ(queue.reads_outstanding(), 0u);
    EXPECT_EQ(check(), nullptr);
}

TEST_F(SendQueueTest, AnAnswerAfterGoingBackLeavesTheCountAlone) {
    append(WorkKind::read, 5);
    send(2);
    send(3);
    window.go_back();
    queue.forget_requests();
    queue.rewind(window.acked());
    EXPECT_EQ(queue.reads_outstanding(), 0u);
    queue.part_answered();
    EXPECT_EQ(queue.reads_outstanding(), 0u);
    EXPECT_EQ(check(), nullptr);
}

TEST_F(SendQueueTest, GoesBackIntoTheMiddleOfAMessage) {
    append(WorkKind::write, 3);
    append(WorkKind::read, 5);
    send_all();
    window.acknowledge(1);
    window.go_back();
    queue.forget_requests();
    queue.rewind(window.acked());
    EXPECT_EQ(queue.packet(), 1u);
    EXPECT_EQ(queue.reads_outstanding(), 0u);
    EXPECT_EQ(check(), nullptr);
}

TEST_F(SendQueueTest, WhatCompletesTakesItsReadAlong) {
    append(WorkKind::read, 5);
    send_all();
    window.acknowledge(5);
    queue.drop_oldest();
    EXPECT_EQ(queue.reads_outstanding(), 0u);
    EXPECT_TRUE(queue.empty());
    EXPECT_EQ(check(), nullptr);
}

TEST_F(SendQueueTest, CheckFindsACursorThatWasForgotten) {
    append(WorkKind::write, 3);
    send_all();
    window.go_back();  // an error, because the cursor of the send queue must be set back too
    EXPECT_STREQ(check(), "the cursor is not at the next PSN");
    queue.rewind(window.acked());
    EXPECT_EQ(check(), nullptr);
}

TEST_F(SendQueueTest, CheckFindsACompletionThatWasForgotten) {
    append(WorkKind::write, 1);
    append(WorkKind::write, 1);
    send_all();
    window.acknowledge(2);
    EXPECT_STREQ(check(), "the oldest work request is acknowledged");
}

}  // namespace
}  // namespace roci::qp
