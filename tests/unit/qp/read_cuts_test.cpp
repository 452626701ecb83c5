// Tests of the boundaries between the requests of a divided READ.
#include "qp/read_cuts.hpp"

#include <gtest/gtest.h>

namespace roci::qp {
namespace {

TEST(ReadCuts, ARequestEndsAtTheNextBoundaryOrAtTheEndOfTheRead) {
    ReadCuts cuts;
    const Psn first(0xfffffa), end = first + 20;
    EXPECT_EQ(cuts.end_of_request(first, end), end);
    cuts.add(first + 4);
    cuts.add(first + 9);
    EXPECT_EQ(cuts.end_of_request(first, end), first + 4);
    EXPECT_EQ(cuts.end_of_request(first + 3, end), first + 4);
    EXPECT_EQ(cuts.end_of_request(first + 4, end), first + 9);
    EXPECT_EQ(cuts.end_of_request(first + 9, end), end);
    EXPECT_EQ(cuts.end_of_request(first, first + 2), first + 2) << "the boundary belongs to a later READ";
    EXPECT_TRUE(cuts.begins(first + 4));
    EXPECT_FALSE(cuts.begins(first + 5));
}

TEST(ReadCuts, ABoundaryRemainsUntilThePsnBehindItIsAcknowledged) {
    ReadCuts cuts;
    cuts.add(Psn(4));
    cuts.add(Psn(8));
    EXPECT_FALSE(cuts.advance(Psn(3)));
    EXPECT_TRUE(cuts.advance(Psn(4)));
    EXPECT_TRUE(cuts.begins(Psn(4))) << "the request that begins here may be repeated";
    EXPECT_FALSE(cuts.advance(Psn(5)));
    EXPECT_FALSE(cuts.begins(Psn(4)));
    EXPECT_EQ(cuts.end_of_request(Psn(5), Psn(20)), Psn(8));
    EXPECT_TRUE(cuts.advance(Psn(8)));
    EXPECT_FALSE(cuts.advance(Psn(9)));
    EXPECT_EQ(cuts.end_of_request(Psn(9), Psn(20)), Psn(20));
}

TEST(ReadCuts, ThereIsRoomForTheRequestsOfAQp) {
    ReadCuts cuts;
    uint32_t n = 0;
    for (; !cuts.full(); ++n) cuts.add(Psn(1 + n));
    EXPECT_EQ(n, 17u);
    cuts.clear();
    EXPECT_FALSE(cuts.begins(Psn(1)));
}

}  // namespace
}  // namespace roci::qp
