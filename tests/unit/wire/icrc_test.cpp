// Compares icrc() with a bitwise CRC that the test computes by the definition (IBA 7.8.1, RoCEv2 annex A17.3.3).
#include "wire/icrc.hpp"

#include <gtest/gtest.h>

#include "samples.hpp"

namespace roci::wire {
namespace {

uint32_t crc32_bitwise(const std::vector<uint8_t>& bytes) {
    uint32_t crc = 0xffffffff;
    for (const uint8_t byte : bytes) {
        crc ^= byte;
        for (int i = 0; i < 8; ++i) crc = (crc & 1) != 0 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    }
    return ~crc;
}

uint32_t icrc_by_definition(const uint8_t* l3, uint32_t length, bool ipv6, uint32_t header) {
    std::vector<uint8_t> b(8 + length, 0xff);
    std::memcpy(&b[8], l3, length);
    uint8_t* ip = &b[8];
    const std::vector<uint32_t> masked = ipv6 ? std::vector<uint32_t>{1, 2, 3, 7} : std::vector<uint32_t>{1, 8, 10, 11};
    for (const uint32_t at : masked) ip[at] = 0xff;
    if (ipv6) ip[0] = 0x6f;
    ip[header + 6] = ip[header + 7] = 0xff;
    ip[header + 8 + 4] = 0xff;
    return crc32_bitwise(b);
}

TEST(Icrc, BitwiseReferenceIsCrc32) {
    const std::string check = "123456789";  // the text whose CRC is the published check value of CRC-32/ISO-HDLC
    EXPECT_EQ(crc32_bitwise({check.begin(), check.end()}), 0xcbf43926u);
}

TEST(Icrc, EqualsTheDefinitionAtEveryLength) {
    for (const bool ipv6 : {false, true}) {
        const uint32_t header = ipv6 ? 40 : 20;
        for (uint32_t length = 0; length <= 300; ++length) {
            const test::Frame f = test::sample_frame(0x04, ipv6, false, length);
            const auto covered = uint32_t(f.size() - kEthLength - kIcrcLength);
            ASSERT_EQ(icrc(&f[kEthLength], covered, ipv6, header), icrc_by_definition(&f[kEthLength], covered, ipv6, header))
                << length;
        }
    }
}

TEST(Icrc, CoversIpv4Options) {
    for (uint32_t header = 20; header <= 60; header += 4) {
        std::vector<uint8_t> packet = test::sample_payload(header + kUdpLength + kBthLength + 77);
        packet[0] = uint8_t(0x40 | header / 4);
        const auto length = uint32_t(packet.size());
        const uint32_t before = icrc(packet.data(), length, false, header);
        EXPECT_EQ(before, icrc_by_definition(packet.data(), length, false, header));
        if (header == 20) continue;
        packet[header - 1] ^= 0x10;
        EXPECT_NE(icrc(packet.data(), length, false, header), before);
    }
}

}  // namespace
}  // namespace roci::wire
