// Tests of frames of ARP, neighbour discovery and ICMP echo.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/bytes.hpp"
#include "neighbour/frames.hpp"

namespace roci::neighbour {
namespace {

constexpr MacAddress kUs{{2, 0, 0, 0, 0, 1}}, kThem{{2, 0, 0, 0, 0, 2}};
constexpr Gid kUs4{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1}};
constexpr Gid kThem4{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2}};
constexpr Gid kUs6{{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56}};
constexpr Gid kThem6{{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};

Message parsed(const Frame& f) { return parse(f.bytes.data(), f.length); }

/// Returns the frame that `ping -s 8` sends on Linux.
std::vector<uint8_t> linux_echo() {
    return {0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x02, 0x00, 0x00, 0x00, 0x00, 0x02, 0x08, 0x00, 0x45, 0x00, 0x00,
            0x24, 0x00, 0x00, 0x40, 0x00, 0x40, 0x01, 0x26, 0xd7, 0x0a, 0x00, 0x00, 0x02, 0x0a, 0x00, 0x00, 0x01,
            0x08, 0x00, 0xef, 0xf1, 0x00, 0x01, 0x00, 0x01, 0x01, 0x02, 0x03, 0x04, 0x01, 0x02, 0x03, 0x04};
}

TEST(NeighbourFrames, ArpRequestAndItsAnswer) {
    Frame ask;
    make_solicitation(ask, {kThem, kThem4}, kUs4, {});
    EXPECT_EQ(ask.length, 42u);
    EXPECT_EQ(ask.bytes[0], 0xff) << "to everybody";
    const Message m = parsed(ask);
    ASSERT_EQ(m.kind, Kind::solicitation);
    EXPECT_EQ(m.target, kUs4);
    EXPECT_EQ(m.sender, kThem4);
    EXPECT_EQ(m.link, kThem);
    Frame answer;
    make_answer(answer, kUs, m);
    EXPECT_EQ(std::memcmp(answer.bytes.data(), kThem.bytes.data(), 6), 0) << "to the one who asked";
    const Message a = parsed(answer);
    ASSERT_EQ(a.kind, Kind::advertisement);
    EXPECT_EQ(a.target, kUs4);
    EXPECT_EQ(a.link, kUs);
    EXPECT_FALSE(a.unsolicited);
}

TEST(NeighbourFrames, SolicitationAndAdvertisement) {
    Frame ask;
    make_solicitation(ask, {kThem, kThem6}, kUs6, {});
    const uint8_t group[6] = {0x33, 0x33, 0xff, 0x12, 0x34, 0x56};
    EXPECT_EQ(std::memcmp(ask.bytes.data(), group, 6), 0) << "solicited-node multicast (RFC 4291 2.7.1)";
    const Message m = parsed(ask);
    ASSERT_EQ(m.kind, Kind::solicitation);
    EXPECT_EQ(m.target, kUs6);
    EXPECT_EQ(m.link, kThem);
    Frame answer;
    make_answer(answer, kUs, m);
    const Message a = parsed(answer);
    ASSERT_EQ(a.kind, Kind::advertisement);
    EXPECT_EQ(a.target, kUs6);
    EXPECT_EQ(a.link, kUs);
    EXPECT_FALSE(a.unsolicited);
    EXPECT_TRUE(a.override_link);
}

TEST(NeighbourFrames, WhoProbesOurAddressIsToldByMulticast) {
    Frame probe;
    make_solicitation(probe, {kThem, kThem6}, kUs6, {});
    std::memset(&probe.bytes[14 + 8], 0, 16);  // the source is the unspecified address
    probe.bytes[14 + 5] = 24;                  // the solicitation has no link-layer address option
    store_be<uint16_t>(&probe.bytes[14 + 42], uint16_t{0});
    probe.length -= 8;
    uint32_t sum = 24 + 58;
    for (uint32_t i = 14 + 8; i < probe.length; i += 2) sum += load_be<uint16_t>(&probe.bytes[i]);
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    store_be<uint16_t>(&probe.bytes[14 + 42], uint16_t(~sum));
    const Message m = parsed(probe);
    ASSERT_EQ(m.kind, Kind::solicitation);
    EXPECT_TRUE(m.sender.is_zero());
    Frame answer;
    make_answer(answer, kUs, m);
    EXPECT_EQ(answer.bytes[0], 0x33);
    EXPECT_EQ(answer.bytes[5], 0x01);
    EXPECT_TRUE(parsed(answer).unsolicited);
}

TEST(NeighbourFrames, Announcements) {
    for (const Gid& g : {kUs4, kUs6}) {
        Frame f;
        make_announcement(f, {kUs, g});
        const Message m = parsed(f);
        EXPECT_EQ(m.kind, Kind::advertisement);
        EXPECT_TRUE(m.unsolicited);
        EXPECT_EQ(m.target, g);
        EXPECT_EQ(m.link, kUs);
    }
}

TEST(NeighbourFrames, EchoIsSentBack) {
    const auto request = linux_echo();
    const Message m = parse(request.data(), uint32_t(request.size()));
    ASSERT_EQ(m.kind, Kind::echo);
    EXPECT_EQ(m.target, kUs4);
    Frame answer;
    make_echo_reply(answer, kUs, m, request.data());
    EXPECT_EQ(answer.length, request.size());
    EXPECT_EQ(answer.bytes[34], 0) << "echo reply";
    EXPECT_EQ(std::memcmp(&answer.bytes[38], &request[38], request.size() - 38), 0);
    uint32_t ip = 0, icmp = 0;
    for (uint32_t i = 14; i < 34; i += 2) ip += load_be<uint16_t>(&answer.bytes[i]);
    for (uint32_t i = 34; i < answer.length; i += 2) icmp += load_be<uint16_t>(&answer.bytes[i]);
    EXPECT_EQ((ip & 0xffff) + (ip >> 16), 0xffffu);
    EXPECT_EQ((icmp & 0xffff) + (icmp >> 16), 0xffffu);
}

TEST(NeighbourFrames, WhatIsNotExactlyRightIsNothing) {
    Frame good;
    make_solicitation(good, {kThem, kThem6}, kUs6, {});
    for (uint32_t i = 14; i < good.length; ++i) {
        Frame f = good;
        // The changed bit breaks the checksum or a field that needs a certain value, except in bytes 15 to 17. These bytes
        // contain traffic class and flow label. The checksum does not cover them, and the parser does not check them.
        f.bytes[i] ^= 0x40;
        EXPECT_EQ(parsed(f).kind == Kind::nothing, !(i >= 15 && i < 18)) << "byte " << i;
    }
    Frame far = good;
    far.bytes[14 + 7] = 254;
    EXPECT_EQ(parsed(far).kind, Kind::nothing) << "from beyond the link";
    for (uint32_t n = 0; n < good.length; ++n) EXPECT_EQ(parse(good.bytes.data(), n).kind, Kind::nothing);
    auto fragment = linux_echo();
    fragment[20] = 0x20;
    EXPECT_EQ(parse(fragment.data(), uint32_t(fragment.size())).kind, Kind::nothing);
}

/// Returns true if the bytes and their checksum have a one's complement sum of 0xffff.
bool sums_up(const uint8_t* p, uint32_t length) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < length; ++i) sum += uint32_t(p[i]) << (i % 2 == 0 ? 8 : 0);
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return sum == 0xffff;
}

/// The parser must refuse a damaged or truncated frame, unless the frame is still a valid message. The answer to such
/// a message must be a valid frame to one host. An undamaged frame must be parsed as its own kind. Each frame is a
/// separate allocation, so that the address sanitizer reports reads beyond its end.
TEST(NeighbourFrames, NoiseIsHarmless) {
    std::mt19937 random(7);
    constexpr Kind kKinds[] = {Kind::solicitation, Kind::solicitation, Kind::echo};
    uint32_t refused = 0, damaged_but_valid = 0, whole = 0;
    std::vector<Frame> seeds(3);
    make_solicitation(seeds[0], {kThem, kThem4}, kUs4, {});
    make_solicitation(seeds[1], {kThem, kThem6}, kUs6, {});
    const auto echo = linux_echo();
    std::memcpy(seeds[2].bytes.data(), echo.data(), echo.size());
    seeds[2].length = uint32_t(echo.size());
    for (int i = 0; i < 200'000; ++i) {
        const size_t seed = random() % seeds.size();
        const Frame& from = seeds[seed];
        const std::vector<uint8_t> sent(from.bytes.begin(), from.bytes.begin() + from.length);
        std::vector<uint8_t> f(sent.begin(), sent.begin() + (random() % 2 == 0 ? from.length : random() % (from.length + 1)));
        for (uint32_t n = random() % 4; n != 0 && !f.empty(); --n) f[random() % f.size()] = uint8_t(random());
        const Message m = parse(f.data(), uint32_t(f.size()));
        if (f == sent) {
            ++whole;
            ASSERT_EQ(m.kind, kKinds[seed]);
        }
        if (m.kind == Kind::nothing) {
            ++refused;
            continue;
        }
        damaged_but_valid += f != sent;
        ASSERT_EQ(m.from.bytes[0] & 1, 0);
        Frame out;
        if (m.kind == Kind::solicitation) {
            make_answer(out, kUs, m);
            const Message answer = parsed(out);
            ASSERT_EQ(answer.kind, Kind::advertisement);
            ASSERT_EQ(answer.target, m.target);
            ASSERT_EQ(answer.link, kUs);
            ASSERT_EQ(out.bytes[0] & 1, !m.target.is_ipv4() && m.sender.is_zero());
        } else if (m.kind == Kind::echo) {
            ASSERT_LE(m.length, f.size());
            ASSERT_FALSE(m.sender.is_zero());
            make_echo_reply(out, kUs, m, f.data());
            ASSERT_EQ(out.length, m.length);
            ASSERT_EQ(std::memcmp(out.bytes.data(), m.from.bytes.data(), 6), 0);
            ASSERT_TRUE(sums_up(&out.bytes[14], 20) && sums_up(&out.bytes[34], out.length - 34));
            ASSERT_EQ(std::memcmp(&out.bytes[38], &f[38], m.length - 38), 0);
        } else {
            ASSERT_FALSE(m.target.is_zero());
            ASSERT_EQ(m.link.bytes[0] & 1, 0);
        }
    }
    EXPECT_GT(refused, 0u);
    EXPECT_GT(damaged_but_valid, 0u);
    EXPECT_GT(whole, 0u);
}

}  // namespace
}  // namespace roci::neighbour
