// Tests of the messages that rocid logs about the CRC kernel, which is the function that computes ICRCs.
#include "apps/rocid/icrc_kernel.hpp"

#include <gtest/gtest.h>

namespace roci::rocid {
namespace {

using wire::crc::Choice;
using wire::crc::Kernel;

constexpr Kernel kGood{"good", wire::crc::crc_by_table, wire::crc::copying_by_table, nullptr},
    kBad{"bad", wire::crc::crc_by_table, wire::crc::copying_by_table, nullptr};

TEST(IcrcKernel, OfTheBestOneThereIsNothingToWarnOf) {
    EXPECT_TRUE(icrc_warnings({.kernel = &kGood}, "").empty());
    EXPECT_TRUE(icrc_warnings({.kernel = &kGood}, "good").empty());
    EXPECT_EQ(icrc_kernel(), wire::crc::chosen().kernel->name);
}

TEST(IcrcKernel, OneThatFailsItsSelfTestIsNamed) {
    const auto lines = icrc_warnings({.kernel = &kGood, .failed = &kBad}, "");
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(lines[0].find("bad failed its self-test"), std::string::npos) << lines[0];
}

TEST(IcrcKernel, AWantedOneThatCannotRunIsNamedWithTheOneThatDoes) {
    const auto lines = icrc_warnings({.kernel = &kGood, .unknown_name = true}, "fast");
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(lines[0].find("ROCI_CRC=fast"), std::string::npos) << lines[0];
    EXPECT_NE(lines[0].find("ICRC by good"), std::string::npos) << lines[0];
}

TEST(IcrcKernel, TheTableIsSaidToBeSlowUnlessItIsWanted) {
    const auto lines = icrc_warnings({.kernel = &wire::crc::kTable}, "");
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(lines[0].find("ICRC by table"), std::string::npos) << lines[0];
    EXPECT_TRUE(icrc_warnings({.kernel = &wire::crc::kTable}, "table").empty());
}

TEST(IcrcKernel, OneThatIsSlowerIsNamed) {
    const auto lines = icrc_warnings({.kernel = &wire::crc::kTable, .slow = &kGood}, "");
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(lines[0].find("ICRC by table: good is slower"), std::string::npos) << lines[0];
}

}  // namespace
}  // namespace roci::rocid
