#include "qp/send_window.hpp"

#include <gtest/gtest.h>

namespace roci::qp {
namespace {

SendWindow started(uint32_t psn = 0xfffffe) {  // the PSNs wrap around at 2^24
    SendWindow w;
    w.start(Psn(psn));
    return w;
}

TEST(SendWindow, BeginsWithNothingAwaited) {
    const SendWindow w = started();
    EXPECT_FALSE(w.awaits_answer());
    EXPECT_FALSE(w.repeats());
    EXPECT_FALSE(w.may_answer(Psn(0xfffffe)));
    EXPECT_EQ(w.check(), nullptr);
}

TEST(SendWindow, WhatWasSentMayBeAnsweredAndNothingElse) {
    SendWindow w = started();
    EXPECT_EQ(w.allocate(5), Psn(0xfffffe));
    w.sent(1);
    w.sent(2);
    EXPECT_EQ(w.next(), Psn(1));
    EXPECT_EQ(w.in_flight(), 3u);
    EXPECT_FALSE(w.may_answer(Psn(0xfffffd)));
    EXPECT_TRUE(w.may_answer(Psn(0xfffffe)));
    EXPECT_TRUE(w.may_answer(Psn(0)));
    EXPECT_FALSE(w.may_answer(Psn(1)));
    EXPECT_EQ(w.check(), nullptr);
}

TEST(SendWindow, GoingBackKeepsTheHighestPsnSent) {
    SendWindow w = started();
    w.allocate(4);
    w.sent(4);
    EXPECT_FALSE(w.acknowledge(1));
    w.go_back();
    EXPECT_TRUE(w.repeats());
    EXPECT_EQ(w.next(), Psn(0xffffff));
    EXPECT_EQ(w.unanswered(), 3u);
    w.sent(1);
    EXPECT_TRUE(w.repeats());
    w.sent(2);
    EXPECT_FALSE(w.repeats());
    EXPECT_EQ(w.highest_sent(), Psn(2));
    EXPECT_EQ(w.check(), nullptr);
}

TEST(SendWindow, AnAcknowledgementOvertakesWhatIsRepeated) {
    SendWindow w = started();
    w.allocate(4);
    w.sent(4);
    w.go_back();
    w.sent(1);
    EXPECT_FALSE(w.acknowledge(1)) << "just what was repeated";
    EXPECT_TRUE(w.acknowledge(2)) << "two more, which need not be repeated";
    EXPECT_EQ(w.next(), w.acked());
    EXPECT_EQ(w.unanswered(), 1u);
    EXPECT_EQ(w.check(), nullptr);
}

TEST(SendWindow, AbandonedNothingIsAwaited) {
    SendWindow w = started();
    w.allocate(4);
    w.sent(2);
    w.abandon();
    EXPECT_FALSE(w.awaits_answer());
    EXPECT_EQ(w.acked(), Psn(2));
    EXPECT_EQ(w.check(), nullptr);
}

TEST(SendWindow, HasRoomForTheLongestRequestAndThenForNone) {
    SendWindow w = started();
    EXPECT_TRUE(w.has_room());
    w.allocate(1u << 23);
    EXPECT_FALSE(w.has_room());
    EXPECT_EQ(w.check(), nullptr);
}

#ifdef NDEBUG
TEST(SendWindow, CheckFindsAPsnThatNoRequestHas) {
    SendWindow w = started();
    w.sent(1);
    EXPECT_STREQ(w.check(), "a PSN was sent that no work request has");
}
#else
TEST(SendWindowDeathTest, SendingAPsnThatNoRequestHas) {
    SendWindow w = started();
    EXPECT_DEATH(w.sent(1), "allocated");
}
TEST(SendWindowDeathTest, AcknowledgingWhatWasNotSent) {
    SendWindow w = started();
    w.allocate(1);
    EXPECT_DEATH(w.acknowledge(1), "unanswered");
}
#endif

}  // namespace
}  // namespace roci::qp
