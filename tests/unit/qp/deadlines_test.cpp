#include "qp/deadlines.hpp"

#include <gtest/gtest.h>

namespace roci::qp {
namespace {

TEST(Deadlines, TheEarliestIsWhatTheTimerFollows) {
    Deadlines d;
    EXPECT_EQ(d.earliest(), kNever);
    d.set(Deadline::ack, 300);
    d.set(Deadline::pacing, 200);
    EXPECT_EQ(d.earliest(), 200u);
    d.clear(Deadline::pacing);
    EXPECT_EQ(d.earliest(), 300u);
}

TEST(Deadlines, EachExpiresOnce) {
    Deadlines d;
    d.set(Deadline::rnr, 100);
    EXPECT_FALSE(d.expire(Deadline::rnr, 99));
    EXPECT_TRUE(d.expire(Deadline::rnr, 100));
    EXPECT_FALSE(d.expire(Deadline::rnr, 101));
    EXPECT_FALSE(d.expire(Deadline::ack, 101));
}

}  // namespace
}  // namespace roci::qp
