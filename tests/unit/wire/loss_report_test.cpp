// Tests of the format of loss reports: the bytes that are written, and the bytes that are accepted.
#include "wire/loss_report.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace roci::wire {
namespace {

LossReport sample() {
    LossReport r;
    r.kind = ReportKind::report;
    r.serial = 0x1234;
    r.length = 10;
    r.places = 3;
    r.base = Psn(0xfffffe);
    r.newest = Psn(0x20);
    r.set(1);
    r.set(8);
    return r;
}
std::vector<uint8_t> bytes_of(const LossReport& r) {
    std::vector<uint8_t> b(LossReport::kBytes);
    write_loss_report(b.data(), r);
    return b;
}
bool reads(const std::vector<uint8_t>& b) {
    LossReport r;
    return read_loss_report(b.data(), uint32_t(b.size()), r);
}

TEST(LossReport, IsReadAsItWasWritten) {
    const auto b = bytes_of(sample());
    EXPECT_EQ(std::string(b.begin(), b.begin() + 4), "Roci");
    LossReport r;
    ASSERT_TRUE(read_loss_report(b.data(), uint32_t(b.size()), r));
    EXPECT_EQ(r.kind, ReportKind::report);
    EXPECT_EQ(r.serial, 0x1234);
    EXPECT_EQ(r.length, 10);
    EXPECT_EQ(r.places, 3);
    EXPECT_EQ(r.base, Psn(0xfffffe));
    EXPECT_EQ(r.newest, Psn(0x20));
    EXPECT_EQ(r.arrived, sample().arrived);
    EXPECT_TRUE(reads(bytes_of({}))) << "an inquiry";
}

TEST(LossReport, OfAnotherLengthMagicVersionOrKindIsRefused) {
    const auto b = bytes_of(sample());
    for (size_t n = 0; n < b.size(); ++n) EXPECT_FALSE(reads({b.begin(), b.begin() + ptrdiff_t(n)})) << n;
    auto longer = b;
    longer.push_back(0);
    EXPECT_FALSE(reads(longer));
    for (size_t at = 0; at < 6; ++at) {
        auto wrong = b;
        wrong[at] ^= 0x80;
        EXPECT_FALSE(reads(wrong)) << at;
    }
}

TEST(LossReport, ThatContradictsItselfIsRefused) {
    const auto refused = [](auto change) {
        LossReport r = sample();
        change(r);
        return !reads(bytes_of(r));
    };
    EXPECT_TRUE(refused([](LossReport& r) { r.set(0); })) << "the expected PSN has not arrived";
    EXPECT_TRUE(refused([](LossReport& r) { r.set(10); })) << "behind the covered part";
    EXPECT_TRUE(refused([](LossReport& r) { r.length = 257; }));
    EXPECT_TRUE(refused([](LossReport& r) { r.newest = r.base + 8; })) << "covers more than has arrived";
    EXPECT_TRUE(refused([](LossReport& r) { r.newest = r.base - 2; }));
    EXPECT_FALSE(refused([](LossReport& r) { r.newest = r.base + 9; }));
}

}  // namespace
}  // namespace roci::wire
