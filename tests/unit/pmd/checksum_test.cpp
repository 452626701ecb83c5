// A port that computes IPv4 header checksums gets frames without these checksums, and a loopback port gets frames without ICRC.
// Code that takes such a frame before the port (hairpin, faults, captures) must fill in what its receiver needs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/bytes.hpp"
#include "fake_port.hpp"
#include "pmd_glue/fault_port.hpp"
#include "pmd_glue/hairpin_port.hpp"
#include "pmd_glue/tap_port.hpp"
#include "wire/packet.hpp"

namespace roci::pmd {
namespace {

using wire::HeaderChecksum;

constexpr MacAddress kOwn{{0x02, 0, 0, 0, 0, 1}};
constexpr uint8_t kOwnLast = 1, kOtherLast = 2;

/// Returns a frame whose IPv4 header begins at `l3` and has no checksum. The tests do not use the other bytes.
std::string without_checksum_to(uint8_t mac_last, uint8_t l3 = wire::kEthLength) {
    std::string f = frame_to(mac_last, 7);
    const bool tagged = l3 != wire::kEthLength;
    store_be<uint16_t>(reinterpret_cast<uint8_t*>(&f[12]), tagged ? wire::kEtherVlan : wire::kEtherIpv4);
    if (tagged) store_be<uint16_t>(reinterpret_cast<uint8_t*>(&f[16]), wire::kEtherIpv4);
    std::fill_n(f.begin() + l3, wire::kIpv4Length, '\x11');
    f[l3] = 0x45;
    f[l3 + 1] = 0x02;  // ECN-capable
    f[l3 + 10] = f[l3 + 11] = 0;
    return f;
}

/// Computes the RFC 1071 checksum over the whole header. Returns 0 if the checksum in the header is right.
uint16_t checksum_of(const std::string& f, size_t l3 = wire::kEthLength) {
    uint32_t sum = 0;
    for (size_t i = l3; i < l3 + wire::kIpv4Length; i += 2) sum += load_be<uint16_t>(reinterpret_cast<const uint8_t*>(&f[i]));
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    return uint16_t(~sum);
}

struct Unsummed : testing::Test {
    FakePort wire;
    FakeTime time;

    static bool send(io::Port& port, const std::string& bytes, uint8_t l3 = wire::kEthLength) {
        return offer(port, bytes, {.checksum_offset = l3});
    }
    /// Returns the frame that the hairpin has sent back.
    static std::string receive(io::Port& port, HeaderChecksum& known) {
        io::RxFrame f;
        if (port.rx_burst(&f, 1) != 1) return {};
        known = f.ip_checksum;
        std::string bytes(reinterpret_cast<const char*>(f.data), f.length);
        port.rx_free(&f, 1);
        return bytes;
    }
};

TEST_F(Unsummed, ThePortGetsItAsItIs) {
    HairpinPort hairpin(wire, kOwn);
    TapPort tap(hairpin, time);
    FaultPort top(tap, {}, time);
    ASSERT_TRUE(send(top, without_checksum_to(kOtherLast)));
    ASSERT_TRUE(send(top, without_checksum_to(kOtherLast, 18), 18));
    ASSERT_TRUE(offer(top, frame_to(kOtherLast, 1)));
    EXPECT_EQ(wire.sent[0], without_checksum_to(kOtherLast));
    EXPECT_EQ(wire.checksum_offsets, (std::vector<uint8_t>{14, 18, 0}));
}

TEST_F(Unsummed, WhatComesBackByTheHairpinIsWhole) {
    HairpinPort port(wire, kOwn);
    for (const uint8_t l3 : {uint8_t{14}, uint8_t{18}}) {
        ASSERT_TRUE(send(port, without_checksum_to(kOwnLast, l3), l3));
        HeaderChecksum known = HeaderChecksum::unknown;
        const std::string back = receive(port, known);
        EXPECT_EQ(checksum_of(back, l3), 0u) << "its receiver may read the header (GRH)";
        EXPECT_EQ(known, HeaderChecksum::right);
    }
    ASSERT_TRUE(offer(port, frame_to(kOwnLast, 1)));
    HeaderChecksum known = HeaderChecksum::right;
    receive(port, known);
    EXPECT_EQ(known, HeaderChecksum::unknown) << "a frame that came whole is looked at";
}

TEST_F(Unsummed, OfAGroupsFrameTheCopyIsWholeAndTheOtherIsThePorts) {
    HairpinPort port(wire, kOwn);
    std::string f = without_checksum_to(kOtherLast);
    f[0] = 0x01;
    ASSERT_TRUE(send(port, f));
    EXPECT_EQ(wire.sent, std::vector<std::string>{f});
    EXPECT_EQ(wire.checksum_offsets, std::vector<uint8_t>{14});
    HeaderChecksum known = HeaderChecksum::unknown;
    EXPECT_EQ(checksum_of(receive(port, known)), 0u);
}

TEST_F(Unsummed, ACaptureShowsWhatWillBeSent) {
    TapPort port(wire, time);
    TapRing whole("roci0", 0), short_one("roci0", 0, {}, 20), header("roci0", 0, {}, 34);
    for (TapRing* r : {&whole, &short_one, &header}) ASSERT_TRUE(port.attach(*r));
    ASSERT_TRUE(send(port, without_checksum_to(kOtherLast)));
    EXPECT_EQ(wire.sent[0], without_checksum_to(kOtherLast)) << "only the copy is summed";
    for (TapRing* r : {&whole, &header})
        EXPECT_EQ(checksum_of({reinterpret_cast<const char*>(r->peek()->bytes), r->peek()->captured}), 0u);
    EXPECT_EQ(short_one.peek()->captured, 20u);
    for (TapRing* r : {&whole, &short_one, &header}) port.detach(*r);
}

TEST_F(Unsummed, ACorruptFrameIsNotMadeRightByThePort) {
    FaultPort port(wire, {.corrupt = 1}, time);
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(send(port, without_checksum_to(kOtherLast)));
    EXPECT_EQ(wire.checksum_offsets, std::vector<uint8_t>(200, 0));
    const auto wrong = std::ranges::count_if(wire.sent, [](const std::string& f) { return checksum_of(f) != 0; });
    EXPECT_GT(wrong, 0) << "some bits are in the header";
}

TEST_F(Unsummed, AMarkedFrameIsRight) {
    FaultPort port(wire, {.ecn = 1}, time);
    ASSERT_TRUE(send(port, without_checksum_to(kOtherLast)));
    EXPECT_EQ(wire.sent[0][15], 3);
    EXPECT_EQ(checksum_of(wire.sent[0]), 0u);
    EXPECT_EQ(wire.checksum_offsets, std::vector<uint8_t>{0});
}

TEST_F(Unsummed, ADuplicateIsLeftToThePortToo) {
    FaultPort port(wire, {.duplicate = 1}, time);
    ASSERT_TRUE(send(port, without_checksum_to(kOtherLast)));
    EXPECT_EQ(wire.checksum_offsets, (std::vector<uint8_t>{14, 14}));
}

/// Frames without ICRC, as the engine builds them for a loopback port.
struct WithoutIcrc : Unsummed {
    static constexpr uint8_t kRcSendOnly = 0x04;
    /// Returns a frame of 64 bytes of payload to `mac_last`.
    static std::string build(uint8_t mac_last, bool whole) {
        wire::PathSpec spec;
        spec.source_mac = kOwn;
        spec.dest_mac = {{0x02, 0, 0, 0, 0, mac_last}};
        spec.source_gid.bytes[10] = spec.source_gid.bytes[11] = spec.dest_gid.bytes[10] = spec.dest_gid.bytes[11] = 0xff;
        spec.traffic_class = 2;  // ECN-capable
        spec.port_icrc = !whole;
        const wire::PathTemplate path = wire::make_path(spec);
        wire::TransportHeaders headers;
        headers.opcode = kRcSendOnly;
        std::string frame(wire::kMaxOverhead + 64, 'x');
        auto* bytes = reinterpret_cast<uint8_t*>(frame.data());
        uint8_t* payload = wire::begin_frame(bytes, path, headers, 64);
        frame.resize(wire::finish_frame(bytes, path, payload, 64));
        return frame;
    }
    static bool send(io::Port& port, const std::string& bytes) { return offer(port, bytes, {.icrc = true}); }
    static std::string captured(const TapRing& ring) {
        const TapRing::Slot& slot = *ring.peek();
        return {reinterpret_cast<const char*>(slot.bytes), slot.captured};
    }
};

TEST_F(WithoutIcrc, TheHairpinSaysSoAndComputesNone) {
    HairpinPort port(wire, kOwn);
    const std::string sent = build(kOwnLast, false);
    ASSERT_TRUE(send(port, sent));
    io::RxFrame f;
    ASSERT_EQ(port.rx_burst(&f, 1), 1u);
    EXPECT_EQ(f.icrc, HeaderChecksum::absent);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(f.data), f.length), sent);
    port.rx_free(&f, 1);
    ASSERT_TRUE(offer(port, build(kOwnLast, true)));
    ASSERT_EQ(port.rx_burst(&f, 1), 1u);
    EXPECT_EQ(f.icrc, HeaderChecksum::unknown) << "a whole frame is checked";
    port.rx_free(&f, 1);
}

TEST_F(WithoutIcrc, ACaptureShowsIt) {
    TapPort port(wire, time);
    const auto length = uint32_t(build(kOtherLast, true).size());
    TapRing whole("roci0", 0), cut("roci0", 0, {}, 60), within("roci0", 0, {}, length - 1);
    const std::array rings{&whole, &cut, &within};
    for (TapRing* r : rings) ASSERT_TRUE(port.attach(*r));
    ASSERT_TRUE(send(port, build(kOtherLast, false)));
    EXPECT_EQ(wire.sent[0], build(kOtherLast, false)) << "only the copy is completed";
    EXPECT_EQ(wire.without_icrc, 1u);
    EXPECT_EQ(captured(whole), build(kOtherLast, true));
    EXPECT_EQ(captured(cut), build(kOtherLast, true).substr(0, 60));
    EXPECT_EQ(captured(within), build(kOtherLast, true).substr(0, length - 4)) << "no byte of an earlier frame";
    for (TapRing* r : rings) r->pop();

    wire.icrc = HeaderChecksum::absent;
    wire.incoming.push_back(build(kOwnLast, false));
    io::RxFrame f;
    ASSERT_EQ(port.rx_burst(&f, 1), 1u);
    EXPECT_EQ(captured(whole), build(kOwnLast, true));
    EXPECT_EQ(captured(cut), build(kOwnLast, true).substr(0, 60));
    EXPECT_EQ(captured(within), build(kOwnLast, true).substr(0, length - 4));
    EXPECT_EQ(f.icrc, HeaderChecksum::absent);
    port.rx_free(&f, 1);
    for (TapRing* r : rings) port.detach(*r);
}

TEST_F(WithoutIcrc, AFaultIsFoundByTheReceiver) {
    FaultPort port(wire, {.corrupt = 1}, time);
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(send(port, build(kOtherLast, false)));
    EXPECT_EQ(wire.without_icrc, 0u) << "otherwise the receiver would not check the frame";
    const auto accepted = std::ranges::count_if(wire.sent, [](const std::string& f) {
        wire::Packet p;
        return wire::parse(reinterpret_cast<const uint8_t*>(f.data()), uint32_t(f.size()), p) == wire::Verdict::ok;
    });
    EXPECT_LT(accepted, 20) << "the ICRC does not cover all bits of the headers";
}

}  // namespace
}  // namespace roci::pmd
