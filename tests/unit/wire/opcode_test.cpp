// Compares the opcode table with a copy of the specification's table that was typed by hand (IBA 9.2.1, table 38; annex A14).
#include "wire/opcode.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <string>

#include "wire/packet.hpp"

namespace roci::wire {
namespace {

struct Row {
    uint8_t opcode;
    const char* name;
    uint8_t length;
    uint32_t headers;
};
constexpr uint32_t kAllHeaders = kReth | kAeth | kAtomicEth | kAtomicAckEth | kImmDt | kIeth | kDeth | kXrcEth | kFlushEth;

// The lengths are sums of the header sizes in IBA 9.3, added by hand.
constexpr Row kExpected[] = {
    {0x00, "RC SEND First", 12, 0},
    {0x01, "RC SEND Middle", 12, 0},
    {0x02, "RC SEND Last", 12, 0},
    {0x03, "RC SEND Last with Immediate", 16, kImmDt},
    {0x04, "RC SEND Only", 12, 0},
    {0x05, "RC SEND Only with Immediate", 16, kImmDt},
    {0x06, "RC WRITE First", 28, kReth},
    {0x07, "RC WRITE Middle", 12, 0},
    {0x08, "RC WRITE Last", 12, 0},
    {0x09, "RC WRITE Last with Immediate", 16, kImmDt},
    {0x0a, "RC WRITE Only", 28, kReth},
    {0x0b, "RC WRITE Only with Immediate", 32, kReth | kImmDt},
    {0x0c, "RC READ Request", 28, kReth},
    {0x0d, "RC READ Response First", 16, kAeth},
    {0x0e, "RC READ Response Middle", 12, 0},
    {0x0f, "RC READ Response Last", 16, kAeth},
    {0x10, "RC READ Response Only", 16, kAeth},
    {0x11, "RC Acknowledge", 16, kAeth},
    {0x12, "RC Atomic Acknowledge", 24, kAeth | kAtomicAckEth},
    {0x13, "RC CmpSwap", 40, kAtomicEth},
    {0x14, "RC FetchAdd", 40, kAtomicEth},
    {0x16, "RC SEND Last with Invalidate", 16, kIeth},
    {0x17, "RC SEND Only with Invalidate", 16, kIeth},
    {0x1c, "RC FLUSH", 32, kFlushEth | kReth},
    {0x1d, "RC ATOMIC WRITE", 28, kReth},
    {0x20, "UC SEND First", 12, 0},
    {0x21, "UC SEND Middle", 12, 0},
    {0x22, "UC SEND Last", 12, 0},
    {0x23, "UC SEND Last with Immediate", 16, kImmDt},
    {0x24, "UC SEND Only", 12, 0},
    {0x25, "UC SEND Only with Immediate", 16, kImmDt},
    {0x26, "UC WRITE First", 28, kReth},
    {0x27, "UC WRITE Middle", 12, 0},
    {0x28, "UC WRITE Last", 12, 0},
    {0x29, "UC WRITE Last with Immediate", 16, kImmDt},
    {0x2a, "UC WRITE Only", 28, kReth},
    {0x2b, "UC WRITE Only with Immediate", 32, kReth | kImmDt},
    {0x64, "UD SEND Only", 20, kDeth},
    {0x65, "UD SEND Only with Immediate", 24, kDeth | kImmDt},
    {0x81, "CNP", 28, 0},
    {0xa0, "XRC SEND First", 16, kXrcEth},
    {0xa1, "XRC SEND Middle", 16, kXrcEth},
    {0xa2, "XRC SEND Last", 16, kXrcEth},
    {0xa3, "XRC SEND Last with Immediate", 20, kXrcEth | kImmDt},
    {0xa4, "XRC SEND Only", 16, kXrcEth},
    {0xa5, "XRC SEND Only with Immediate", 20, kXrcEth | kImmDt},
    {0xa6, "XRC WRITE First", 32, kXrcEth | kReth},
    {0xa7, "XRC WRITE Middle", 16, kXrcEth},
    {0xa8, "XRC WRITE Last", 16, kXrcEth},
    {0xa9, "XRC WRITE Last with Immediate", 20, kXrcEth | kImmDt},
    {0xaa, "XRC WRITE Only", 32, kXrcEth | kReth},
    {0xab, "XRC WRITE Only with Immediate", 36, kXrcEth | kReth | kImmDt},
    {0xac, "XRC READ Request", 32, kXrcEth | kReth},
    {0xad, "XRC READ Response First", 16, kAeth},
    {0xae, "XRC READ Response Middle", 12, 0},
    {0xaf, "XRC READ Response Last", 16, kAeth},
    {0xb0, "XRC READ Response Only", 16, kAeth},
    {0xb1, "XRC Acknowledge", 16, kAeth},
    {0xb2, "XRC Atomic Acknowledge", 24, kAeth | kAtomicAckEth},
    {0xb3, "XRC CmpSwap", 44, kXrcEth | kAtomicEth},
    {0xb4, "XRC FetchAdd", 44, kXrcEth | kAtomicEth},
    {0xb6, "XRC SEND Last with Invalidate", 20, kXrcEth | kIeth},
    {0xb7, "XRC SEND Only with Invalidate", 20, kXrcEth | kIeth},
    {0xbc, "XRC FLUSH", 36, kXrcEth | kFlushEth | kReth},
    {0xbd, "XRC ATOMIC WRITE", 32, kXrcEth | kReth},
    {0xc0, "Rocinante Loss Report", 12, 0},
};

TEST(Opcode, TableHasExactlyTheOpcodesOfTheSpecification) {
    std::set<uint8_t> expected;
    for (const Row& row : kExpected) {
        const OpcodeInfo& info = opcode_info(row.opcode);
        ASSERT_TRUE(info.valid()) << row.name;
        EXPECT_STREQ(info.name, row.name);
        EXPECT_EQ(info.header_length, row.length) << row.name;
        EXPECT_EQ(info.flags & kAllHeaders, row.headers) << row.name;
        expected.insert(row.opcode);
    }
    for (unsigned op = 0; op < 256; ++op) EXPECT_EQ(opcode_info(uint8_t(op)).valid(), expected.contains(uint8_t(op))) << op;
}

TEST(Opcode, EveryOneOfTheServicesHasOneDirectionAndOnePosition) {
    for (const Row& row : kExpected) {
        if (row.opcode == kCnpOpcode || row.opcode == kLossReportOpcode) continue;
        const uint32_t f = opcode_info(row.opcode).flags;
        EXPECT_EQ(std::popcount(f & (kRequest | kResponse)), 1) << row.name;
        EXPECT_EQ(std::popcount(f & (kFirst | kMiddle | kLast | kOnly)), 1) << row.name;
        const std::string name = row.name;
        EXPECT_EQ((f & kFirst) != 0, name.find("First") != std::string::npos) << name;
        EXPECT_EQ((f & kMiddle) != 0, name.find("Middle") != std::string::npos) << name;
        EXPECT_EQ((f & kLast) != 0, name.find("Last") != std::string::npos) << name;
        EXPECT_EQ((f & kSend) != 0, name.find("SEND") != std::string::npos) << name;
        EXPECT_EQ((f & kRead) != 0, name.find("READ") != std::string::npos) << name;
    }
    EXPECT_EQ(opcode_info(kCnpOpcode).flags, 0u);
    EXPECT_EQ(opcode_info(kLossReportOpcode).flags, uint32_t(kPayload));
}

TEST(Opcode, ReceiveWqeIsTakenOncePerMessage) {
    // The first packet of a SEND consumes a receive WQE. So does the packet of a WRITE that carries immediate data (IBA 9.7.4,
    // 9.7.5).
    const std::set<unsigned> takes = {0x00, 0x04, 0x05, 0x09, 0x0b, 0x17, 0x20, 0x24, 0x25, 0x29,
                                      0x2b, 0x64, 0x65, 0xa0, 0xa4, 0xa5, 0xa9, 0xab, 0xb7};
    for (unsigned op = 0; op < 256; ++op) EXPECT_EQ(opcode_info(uint8_t(op)).has(kConsumesRecv), takes.contains(op)) << op;
}

TEST(Opcode, PayloadIsForDataOnly) {
    for (const unsigned op : {0x0c, 0x11, 0x12, 0x13, 0x14, 0x1c, 0x81, 0xac, 0xb1, 0xb2, 0xb3, 0xb4, 0xbc}) {
        EXPECT_FALSE(opcode_info(uint8_t(op)).has(kPayload)) << op;
    }
    for (const unsigned op : {0x00, 0x04, 0x06, 0x0a, 0x0d, 0x0e, 0x0f, 0x10, 0x1d, 0x24, 0x64, 0xaa}) {
        EXPECT_TRUE(opcode_info(uint8_t(op)).has(kPayload)) << op;
    }
}

TEST(Opcode, EveryHeaderFitsTheOverheadThatFramesReserve) {
    for (const OpcodeInfo& info : kOpcodes) {
        EXPECT_LE(kEthLength + kVlanLength + kIpv6Length + kUdpLength + info.header_length + 3 + kIcrcLength, kMaxOverhead);
    }
}

TEST(Opcode, ServiceAndOperationAreTheTwoPartsOfTheByte) {
    EXPECT_EQ(make_opcode(Service::ud, Operation::send_only), 0x64);
    EXPECT_EQ(service_of(0xb1), Service::xrc);
    EXPECT_EQ(operation_of(0xb1), Operation::ack);
}

}  // namespace
}  // namespace roci::wire
