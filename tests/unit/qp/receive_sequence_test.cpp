#include "qp/receive_sequence.hpp"

#include <gtest/gtest.h>

namespace roci::qp {
namespace {

ReceiveSequence started() {
    ReceiveSequence s;
    s.start(Psn(0xffffff));
    return s;
}

TEST(ReceiveSequence, AMissingPacketIsReportedOnceUntilItArrives) {
    ReceiveSequence s = started();
    s.owe_nak(0x60, false);
    EXPECT_TRUE(s.missing());
    EXPECT_TRUE(s.nak_due());
    EXPECT_EQ(s.check(), nullptr);
    EXPECT_FALSE(s.replied()) << "not a NAK that ends the QP";
    EXPECT_TRUE(s.missing()) << "the gap is still there";
    s.arrived();
    s.executed();
    EXPECT_FALSE(s.missing());
    EXPECT_EQ(s.expected(), Psn(0));
    EXPECT_EQ(s.check(), nullptr);
}

TEST(ReceiveSequence, AGapThatClosesInTimeNeedsNoNak) {
    ReceiveSequence s = started();
    s.owe_nak(0x60, false);
    s.arrived();
    EXPECT_FALSE(s.reply_due());
}

TEST(ReceiveSequence, ANakAcknowledgesWhatIsBeforeIt) {
    ReceiveSequence s = started();
    s.arrived();
    s.executed();
    s.owe_ack();
    s.owe_nak(0x60, false);
    s.replied();
    EXPECT_FALSE(s.reply_due());
}

TEST(ReceiveSequence, AResponseThatCannotBeMadeEndsTheQp) {
    ReceiveSequence s = started();
    s.executed(8);
    s.take_back(Psn(3), 0x62);
    EXPECT_EQ(s.expected(), Psn(3));
    EXPECT_TRUE(s.refused());
    EXPECT_EQ(s.check(), nullptr);
    EXPECT_TRUE(s.replied());
    s.fall_silent();
    EXPECT_FALSE(s.reply_due());
    EXPECT_EQ(s.check(), nullptr);
}

TEST(ReceiveSequence, CheckFindsAnAcknowledgementThatRegresses) {
    ReceiveSequence s = started();
    s.executed(8);
    s.owe_ack();
    s.replied();
    EXPECT_EQ(s.check(), nullptr);
    s.take_back(Psn(3), 0x62);  // an error, because the sequence has acknowledged everything before PSN 7
    EXPECT_STREQ(s.check(), "a PSN was acknowledged and is expected again");
}

}  // namespace
}  // namespace roci::qp
