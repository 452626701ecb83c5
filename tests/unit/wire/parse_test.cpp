// Tests of each check of parse(). Most tests take a valid frame and introduce one error.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>

#include "samples.hpp"

namespace roci::wire {
namespace {

using test::Frame;
using test::Offsets;
using test::sample_frame;

constexpr uint8_t kSendOnly = 0x04, kReadRequest = 0x0c, kAckOpcode = 0x11, kWriteOnly = 0x0a;

Verdict verdict(const Frame& f) {
    Packet p;
    return parse(f.data(), uint32_t(f.size()), p);
}
/// Parses a copy of the frame in a heap block of exactly the frame's size, so that the address sanitizer detects any
/// read beyond the frame.
Verdict verdict_exact(const uint8_t* data, uint32_t length) {
    const std::unique_ptr<uint8_t[]> block(new uint8_t[length]);
    std::memcpy(block.get(), data, length);
    Packet p;
    return parse(block.get(), length, p);
}
void set16(Frame& f, uint32_t at, uint32_t v) { store_be<uint16_t>(&f[at], uint16_t(v)); }
void add16(Frame& f, uint32_t at, int delta) { set16(f, at, uint32_t(load_be<uint16_t>(&f[at]) + delta)); }

class Parse : public testing::TestWithParam<std::tuple<bool, bool>> {
protected:
    bool ipv6 = std::get<0>(GetParam()), tagged = std::get<1>(GetParam());
    Offsets at{ipv6, tagged};
    uint32_t ip_header() const { return ipv6 ? kIpv6Length : kIpv4Length; }
    Frame good(uint8_t opcode = kSendOnly, uint32_t length = 64) const { return sample_frame(opcode, ipv6, tagged, length); }
    void repair(Frame& f) const {
        if (!ipv6) test::repair_ipv4_checksum(&f[at.l3]);
        test::repair_icrc(f, at.l3, ipv6, ip_header());
    }
    /// Adds `delta` to the length of the frame and to its IP and UDP length fields. Removes or inserts the bytes directly
    /// before the ICRC, and corrects the checksum and the ICRC.
    void resize(Frame& f, int delta) const {
        if (delta < 0) f.erase(f.end() - kIcrcLength + delta, f.end() - kIcrcLength);
        if (delta > 0) f.insert(f.end() - kIcrcLength, size_t(delta), uint8_t{0x5a});
        add16(f, at.l3 + (ipv6 ? 4 : 2), delta);
        add16(f, at.udp + 4, delta);
        repair(f);
    }
};
INSTANTIATE_TEST_SUITE_P(Paths, Parse, testing::Combine(testing::Bool(), testing::Bool()), [](const auto& path) {
    return std::string(std::get<0>(path.param) ? "ipv6" : "ipv4") + (std::get<1>(path.param) ? "_tagged" : "");
});

TEST_P(Parse, GoodFrameIsOk) { EXPECT_EQ(verdict(good()), Verdict::ok); }

TEST_P(Parse, EthernetPaddingIsTolerated) {
    Frame f = good(kAckOpcode, 0);
    f.resize(f.size() + 46, 0x77);
    Packet p;
    EXPECT_EQ(parse(f.data(), uint32_t(f.size()), p), Verdict::ok);
    EXPECT_EQ(p.payload_length, 0u);
}

TEST_P(Parse, OtherTrafficIsNotOurs) {
    Frame f = good();
    set16(f, at.udp + 2, 4790);
    EXPECT_EQ(verdict(f), Verdict::not_roce);
    f = good();
    f[at.l3 + (ipv6 ? 6 : 9)] = 6;
    EXPECT_EQ(verdict(f), Verdict::not_roce);
    f = good();
    set16(f, at.l3 - 2, 0x0806);
    EXPECT_EQ(verdict(f), Verdict::not_roce);
    f = good();
    set16(f, at.l3 - 2, 0x8100);  // the EtherType of a VLAN tag instead of IP; a tagged frame then has two tags
    EXPECT_NE(verdict(f), Verdict::ok);
}

TEST_P(Parse, EveryTruncationIsRefused) {
    for (const uint8_t opcode : {kSendOnly, kReadRequest, kAckOpcode, kWriteOnly}) {
        const Frame f = good(opcode, opcode_info(opcode).has(kPayload) ? 33 : 0);
        for (uint32_t n = 0; n < f.size(); ++n) ASSERT_EQ(verdict_exact(f.data(), n), Verdict::truncated) << n;
        ASSERT_EQ(verdict_exact(f.data(), uint32_t(f.size())), Verdict::ok);
    }
}

TEST_P(Parse, TruncationWithConsistentLengthsNeverPassesNorReadsBeyond) {
    // The frame of every opcode is cut to every shorter length. The IP and UDP lengths, the IPv4 checksum and the ICRC are
    // corrected.
    for (unsigned op = 0; op < 256; ++op) {
        const OpcodeInfo& info = opcode_info(uint8_t(op));
        if (!info.valid()) continue;
        Frame f = good(uint8_t(op), 0);
        for (uint32_t room = info.header_length; room-- > kBthLength;) {
            resize(f, -1);
            ASSERT_EQ(verdict_exact(f.data(), uint32_t(f.size())), Verdict::short_for_opcode) << info.name << ' ' << room;
        }
        for (uint32_t n = kBthLength; n-- > 0;) {
            f.erase(f.end() - 1);
            add16(f, at.l3 + (ipv6 ? 4 : 2), -1);
            add16(f, at.udp + 4, -1);
            if (!ipv6) test::repair_ipv4_checksum(&f[at.l3]);
            ASSERT_EQ(verdict_exact(f.data(), uint32_t(f.size())), Verdict::truncated) << info.name << ' ' << n;
        }
    }
}

TEST_P(Parse, IpVersionMustFitTheEtherType) {
    Frame f = good();
    f[at.l3] = uint8_t((f[at.l3] & 0x0f) | 0x50);
    EXPECT_EQ(verdict(f), Verdict::bad_ip_header);
}

TEST_P(Parse, IpLengthBelowUdpHeaderIsBad) {
    Frame f = good();
    set16(f, at.l3 + (ipv6 ? 4 : 2), (ipv6 ? 0 : kIpv4Length) + kUdpLength - 1);
    repair(f);
    EXPECT_EQ(verdict(f), Verdict::bad_ip_header);
}

TEST_P(Parse, UdpLengthMustEqualIpLength) {
    for (const int delta : {-4, -1, 1, 4, 0x7000}) {
        Frame f = good();
        add16(f, at.udp + 4, delta);
        repair(f);
        EXPECT_EQ(verdict(f), Verdict::bad_udp_length) << delta;
    }
}

TEST_P(Parse, TransportVersionMustBeZero) {
    Frame f = good();
    f[at.bth + 1] |= 0x01;
    repair(f);
    EXPECT_EQ(verdict(f), Verdict::bad_bth_version);
}

TEST_P(Parse, LossReportsHaveAVersionOfTheirOwn) {
    Frame f = good(kLossReportOpcode, 52);
    EXPECT_EQ(f[at.bth + 1] & 0x0f, kLossReportVersion);
    EXPECT_EQ(verdict(f), Verdict::ok);
    f[at.bth + 1] &= 0xf0;
    repair(f);
    EXPECT_EQ(verdict(f), Verdict::bad_bth_version);
}

TEST_P(Parse, UnknownOpcodesAreRefused) {
    for (unsigned op = 0; op < 256; ++op) {
        if (opcode_info(uint8_t(op)).valid()) continue;
        Frame f = good();
        f[at.bth] = uint8_t(op);
        repair(f);
        EXPECT_EQ(verdict(f), Verdict::unknown_opcode) << op;
    }
}

TEST_P(Parse, PadLargerThanThePayloadIsBad) {
    Frame f = good(kSendOnly, 0);
    f[at.bth + 1] |= 0x10;
    repair(f);
    EXPECT_EQ(verdict(f), Verdict::bad_pad);
    f = good(kReadRequest, 0);  // an opcode without payload has no padding
    f[at.bth + 1] |= 0x30;
    repair(f);
    EXPECT_EQ(verdict(f), Verdict::bad_pad);
}

TEST_P(Parse, LengthMustBeAMultipleOfFour) {
    for (int delta = 1; delta <= 3; ++delta) {
        Frame f = good();
        resize(f, delta);
        EXPECT_EQ(verdict(f), Verdict::bad_pad) << delta;
    }
}

TEST_P(Parse, PayloadWhereNoneBelongsIsRefused) {
    for (const uint8_t opcode : {kReadRequest, kAckOpcode, uint8_t(0x12), uint8_t(0x13), uint8_t(0x14), kCnpOpcode}) {
        Frame f = good(opcode, 0);
        resize(f, 4);
        EXPECT_EQ(verdict(f), Verdict::unexpected_payload) << opcode_info(opcode).name;
    }
}

TEST_P(Parse, PaddingOfAWholeWordIsNoPayload) {
    Frame f = good(kSendOnly, 1);  // 1 byte of payload, 3 of padding
    Packet p;
    ASSERT_EQ(parse(f.data(), uint32_t(f.size()), p), Verdict::ok);
    EXPECT_EQ(p.payload_length, 1u);
}

TEST_P(Parse, WrongIcrcIsRefusedUnlessNotAskedFor) {
    Frame f = good();
    f.back() ^= 0x80;
    Packet p;
    EXPECT_EQ(parse(f.data(), uint32_t(f.size()), p), Verdict::bad_icrc);
    EXPECT_EQ(parse(f.data(), uint32_t(f.size()), p, false), Verdict::ok);
}

/// parse() refuses a frame with one flipped bit, unless the ICRC does not cover this bit and parse() does not check it.
TEST_P(Parse, EveryCoveredBitIsGuarded) {
    const Frame original = good(kWriteOnly, 61);
    const auto in = [](uint32_t v, uint32_t first, uint32_t count) { return v - first < count; };
    for (uint32_t bit = 0; bit < original.size() * 8; ++bit) {
        Frame f = original;
        const uint32_t byte = bit / 8;
        f[byte] = uint8_t(f[byte] ^ 0x80 >> bit % 8);
        const bool addresses = byte < 12 || (tagged && in(byte, 14, 2));
        const bool udp_checksum = in(byte, at.udp + 6, 2);
        const bool resv8a = byte == at.bth + 4;
        const uint32_t ip = byte - at.l3;
        const bool ip_variant = ipv6 && byte >= at.l3 && ((ip == 0 && bit % 8 >= 4) || in(ip, 1, 3) || ip == 7);
        const bool free = addresses || udp_checksum || resv8a || ip_variant;
        ASSERT_EQ(verdict(f) == Verdict::ok, free) << "byte " << byte << " bit " << bit % 8 << ' ' << verdict_name(verdict(f));
    }
}

TEST(ParseIpv4, EveryHeaderBitIsGuardedByTheIcrcButTosTtlAndChecksum) {
    const Offsets at(false, false);
    const Frame original = sample_frame(kSendOnly, false, false, 64);
    for (uint32_t bit = 0; bit < kIpv4Length * 8; ++bit) {
        const uint32_t byte = bit / 8;
        if (byte == 0 || byte == 2 || byte == 3 || byte == 9) continue;  // version, lengths, protocol: refused before the ICRC
        Frame f = original;
        f[at.l3 + byte] = uint8_t(f[at.l3 + byte] ^ 0x80 >> bit % 8);
        EXPECT_NE(verdict(f), Verdict::ok);
        test::repair_ipv4_checksum(&f[at.l3]);
        const bool variant = byte == 1 || byte == 8 || byte == 10 || byte == 11;
        const bool fragment = (byte == 6 && bit % 8 >= 2) || byte == 7;
        const Verdict expected = variant ? Verdict::ok : fragment ? Verdict::ip_fragment : Verdict::bad_icrc;
        EXPECT_EQ(verdict(f), expected) << "byte " << byte << " bit " << bit % 8;
    }
}

TEST(ParseIpv4, ChecksumIsVerified) {
    Frame f = sample_frame(kSendOnly);
    f[kEthLength + 8]--;  // decrements the TTL without an update of the checksum
    EXPECT_EQ(verdict(f), Verdict::bad_ip_checksum);
    test::repair_ipv4_checksum(&f[kEthLength]);
    EXPECT_EQ(verdict(f), Verdict::ok);
}

TEST(ParseIpv4, ExactlyOneChecksumIsRight) {
    Frame f = sample_frame(kSendOnly);
    const uint16_t right = load_be<uint16_t>(&f[kEthLength + 10]);
    for (uint32_t checksum = 0; checksum < 65536; ++checksum) {
        set16(f, kEthLength + 10, checksum);
        ASSERT_EQ(verdict(f) == Verdict::ok, checksum == right) << checksum;
    }
}

TEST(ParseIpv4, FragmentsAreRefused) {
    for (const uint32_t bits : {0x2000u, 0x2001u, 0x0001u, 0x1fffu}) {
        Frame f = sample_frame(kSendOnly);
        set16(f, kEthLength + 6, bits);
        test::repair_ipv4_checksum(&f[kEthLength]);
        EXPECT_EQ(verdict(f), Verdict::ip_fragment) << bits;
    }
}

TEST(ParseIpv6, FragmentsAreCountedApart) {
    Frame f = sample_frame(kSendOnly, true);
    f[kEthLength + 6] = 44;  // next header: fragment
    EXPECT_EQ(verdict(f), Verdict::ip_fragment);
}

TEST(ParseIpv4, OptionsAreSkippedAndTruncationWithinThemSeen) {
    for (uint32_t options = 4; options <= 40; options += 4) {
        Frame f = sample_frame(kWriteOnly, false, false, 30);
        f.insert(f.begin() + kEthLength + kIpv4Length, options, uint8_t{1});  // NOP
        f[kEthLength] = uint8_t(0x45 + options / 4);
        add16(f, kEthLength + 2, int(options));
        test::repair_ipv4_checksum(&f[kEthLength]);
        test::repair_icrc(f, kEthLength, false, kIpv4Length + options);
        Packet p;
        ASSERT_EQ(parse(f.data(), uint32_t(f.size()), p), Verdict::ok) << options;
        EXPECT_EQ(p.payload_length, 30u);
        EXPECT_EQ(p.dma_length, test::sample_headers(kWriteOnly).dma_length);
        for (uint32_t n = kEthLength; n < f.size(); n += 3) EXPECT_EQ(verdict_exact(f.data(), n), Verdict::truncated);
    }
}

TEST(ParseIpv4, ThePortsWordOnTheChecksumIsTaken) {
    const auto verdict_if = [](const Frame& f, HeaderChecksum said) {
        Packet p;
        return parse(f.data(), uint32_t(f.size()), p, true, said);
    };
    for (const bool tagged : {false, true}) {
        Frame f = sample_frame(kSendOnly, false, tagged);
        EXPECT_EQ(verdict_if(f, HeaderChecksum::right), Verdict::ok);
        EXPECT_EQ(verdict_if(f, HeaderChecksum::wrong), Verdict::bad_ip_checksum);
        f[Offsets(false, tagged).l3 + 10] ^= 1;  // the ICRC does not cover the checksum
        EXPECT_EQ(verdict_if(f, HeaderChecksum::right), Verdict::ok) << "not summed up again";
        EXPECT_EQ(verdict_if(f, HeaderChecksum::unknown), Verdict::bad_ip_checksum);
    }
    Frame others = sample_frame(kSendOnly);
    add16(others, Offsets(false, false).udp + 2, 1);
    EXPECT_EQ(verdict_if(others, HeaderChecksum::wrong), Verdict::not_roce) << "what is not RoCE is not ours to judge";
    EXPECT_EQ(verdict_if(sample_frame(kSendOnly, true), HeaderChecksum::wrong), Verdict::ok) << "IPv6 has none";
}

TEST(ParseIpv4, HeaderLengthBelowFiveWordsIsBad) {
    Frame f = sample_frame(kSendOnly);
    f[kEthLength] = 0x44;
    EXPECT_EQ(verdict(f), Verdict::bad_ip_header);
}

TEST(ParseIpv6, ExtensionHeadersAreNotOurs) {
    for (const unsigned next : {0u, 43u, 60u}) {
        Frame f = sample_frame(kSendOnly, true);
        f[kEthLength + 6] = uint8_t(next);
        EXPECT_EQ(verdict(f), Verdict::not_roce);
    }
}

TEST(Parse, EcnAndCongestionBitsAreRead) {
    for (const bool ipv6 : {false, true}) {
        const Offsets at(ipv6, false);
        Frame f = sample_frame(kSendOnly, ipv6);
        f[at.bth + 4] = 0x80;
        f[at.l3 + 1] = uint8_t(f[at.l3 + 1] | (ipv6 ? 0x30 : 0x03));  // a switch sets ECN to CE; the ICRC does not cover ECN
        if (!ipv6) test::repair_ipv4_checksum(&f[at.l3]);
        Packet p;
        ASSERT_EQ(parse(f.data(), uint32_t(f.size()), p), Verdict::ok);
        EXPECT_EQ(p.ecn, 3);
        EXPECT_TRUE(p.fecn);
        EXPECT_FALSE(p.becn);
    }
}

TEST(Parse, GrhOfAUdReceiver) {
    for (const bool ipv6 : {false, true}) {
        const Frame f = sample_frame(0x64, ipv6, true, 8);
        Packet p;
        ASSERT_EQ(parse(f.data(), uint32_t(f.size()), p), Verdict::ok);
        uint8_t grh[40];
        std::memset(grh, 0xcc, sizeof grh);
        p.copy_grh(grh);
        const uint8_t zeros[20] = {};
        const uint8_t* l3 = &f[Offsets(ipv6, true).l3];
        EXPECT_TRUE(ipv6 || std::memcmp(grh, zeros, 20) == 0);
        EXPECT_EQ(std::memcmp(ipv6 ? grh : grh + 20, l3, ipv6 ? 40 : 20), 0);
        EXPECT_EQ(p.source_gid(), test::sample_path(ipv6, true).source_gid);
        EXPECT_EQ(p.dest_gid(), test::sample_path(ipv6, true).dest_gid);
    }
}

TEST(Verdicts, HaveDistinctNames) {
    std::vector<std::string> names;
    for (unsigned v = 0; v < unsigned(Verdict::count_); ++v) names.emplace_back(verdict_name(Verdict(v)));
    std::sort(names.begin(), names.end());
    EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
    EXPECT_STREQ(verdict_name(Verdict::bad_icrc), "bad_icrc");
    EXPECT_STREQ(verdict_name(Verdict::count_), "invalid");
}

}  // namespace
}  // namespace roci::wire
