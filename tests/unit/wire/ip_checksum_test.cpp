// Tests of the checksums of IPv4 packets inside datagrams. The tests compare them with checksums by the definition of RFC 1071.
#include "wire/ip_checksum.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace roci::wire {
namespace {

using Bytes = std::vector<uint8_t>;

/// Returns an RFC 4391 header, then the IPv4 header that many texts use as an example (checksum b861), then UDP with `data`
/// bytes.
Bytes udp_packet(uint32_t data = 7) {
    Bytes p = {0x08, 0x00, 0, 0, 0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 17, 0, 0, 0xc0, 0xa8, 0, 0x01, 0xc0, 0xa8, 0, 0xc7};
    const uint32_t total = 28 + data;
    p[6] = uint8_t(total >> 8);
    p[7] = uint8_t(total);
    const uint32_t udp = 8 + data;
    for (const uint32_t byte : {0x04u, 0xd2u, 0x16u, 0x2eu, udp >> 8, udp & 0xff, 0u, 0u}) p.push_back(uint8_t(byte));
    for (uint32_t i = 0; i < data; ++i) p.push_back(uint8_t(i * 37 + 1));
    return p;
}
Bytes filled(Bytes p) {
    fill_ip_checksums(p.data(), uint32_t(p.size()));
    return p;
}
bool holds(const Bytes& p) { return ip_checksums_hold(p.data(), uint32_t(p.size())); }

/// Returns the checksum by its definition: the complement of the one's complement sum of 16-bit words.
uint16_t reference(const Bytes& words) {
    uint64_t s = 0;
    for (size_t i = 0; i < words.size(); ++i) s += uint64_t(words[i]) << (i % 2 == 0 ? 8 : 0);
    while (s >> 16 != 0) s = (s & 0xffff) + (s >> 16);
    return uint16_t(~s);
}

TEST(IpChecksum, TheHeaderOfTheTextbooks) {
    Bytes p = udp_packet(0x73 - 28);
    p = filled(p);
    EXPECT_EQ(p[4 + 10], 0xb8);
    EXPECT_EQ(p[4 + 11], 0x61);
}

TEST(IpChecksum, WhatIsFilledInHolds) {
    for (const uint8_t protocol : {uint8_t{17}, uint8_t{6}}) {
        for (uint32_t data = 12; data < 60; ++data) {  // even and odd lengths; TCP needs 20 bytes of header
            Bytes p = udp_packet(data);
            p[4 + 9] = protocol;
            EXPECT_FALSE(holds(p));
            p = filled(p);
            EXPECT_TRUE(holds(p)) << data;
            const size_t at = 24 + (protocol == 17 ? 6 : 16);
            const Bytes copy = p;
            p[at] = p[at + 1] = 0;
            Bytes pseudo(p.begin() + 16, p.begin() + 24);
            pseudo.insert(pseudo.end(), {0, protocol, 0, uint8_t(8 + data)});
            pseudo.insert(pseudo.end(), p.begin() + 24, p.end());
            EXPECT_EQ(reference(pseudo), copy[at] << 8 | copy[at + 1]) << data;
        }
    }
}

TEST(IpChecksum, EveryFlippedBitIsSeen) {
    const Bytes good = filled(udp_packet());
    for (size_t bit = 4 * 8; bit < good.size() * 8; ++bit) {
        Bytes p = good;
        p[bit / 8] ^= uint8_t(1 << bit % 8);
        EXPECT_FALSE(holds(p)) << "bit " << bit;
    }
}

TEST(IpChecksum, UdpWithoutAChecksumIsNotVerified) {
    Bytes p = filled(udp_packet());
    p[24 + 6] = p[24 + 7] = 0;
    EXPECT_FALSE(holds(p));
}

TEST(IpChecksum, OfAFragmentAndOfOtherProtocolsTheHeaderOnly) {
    for (const bool fragment : {true, false}) {
        Bytes p = udp_packet();
        if (fragment)
            p[4 + 6] |= 0x20;  // more fragments
        else
            p[4 + 9] = 1;  // ICMP
        const Bytes q = filled(p);
        EXPECT_NE((Bytes{q[14], q[15]}), (Bytes{0, 0}));
        EXPECT_EQ(Bytes(q.begin() + 16, q.end()), Bytes(p.begin() + 16, p.end()));
        EXPECT_FALSE(holds(q));
    }
}

/// No byte outside the packet is read or written (checked by ASan). A payload that is not an IPv4 packet is not changed.
TEST(IpChecksum, AnythingElseIsLeftAlone) {
    const Bytes good = filled(udp_packet());
    for (size_t length = 0; length < good.size(); ++length) {
        const Bytes cut(good.begin(), good.begin() + std::ptrdiff_t(length));
        EXPECT_EQ(filled(cut), cut);
        EXPECT_FALSE(holds(cut));
    }
    struct {
        size_t at;
        uint8_t value;
    } const spoiled[] = {{0, 0x86}, {4, 0x65}, {4, 0x44}, {4, 0x4f}, {7, 10}, {6, 0xff}};
    for (const auto& s : spoiled) {
        Bytes p = good;
        p[s.at] = s.value;
        EXPECT_EQ(filled(p), p) << s.at;
        EXPECT_FALSE(holds(p));
    }
    Bytes lying = good;
    lying[24 + 5] = 200;  // a UDP length that exceeds the packet
    EXPECT_FALSE(holds(filled(lying)));
}

}  // namespace
}  // namespace roci::wire
