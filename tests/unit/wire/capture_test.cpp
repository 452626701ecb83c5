// Tests stack/wire with a capture of frames of Linux Soft-RoCE: parses the frames, and builds the same frames again, byte for
// byte.
#include <gtest/gtest.h>

#include <map>

#include "pcap_file.hpp"
#include "samples.hpp"

namespace roci::wire {
namespace {

using test::Frame;

const std::vector<Frame>& capture() {
    static const std::vector<Frame> frames = test::read_pcap(ROCI_TEST_DATA "/rxe-excerpt.pcap");
    return frames;
}

/// The number of frames per opcode in the capture, counted with other tools.
const std::map<uint8_t, int> kOpcodeCounts = {
    {0x00, 9}, {0x01, 7},  {0x02, 8},  {0x03, 1}, {0x04, 20}, {0x05, 1}, {0x06, 4}, {0x07, 4},  {0x08, 4},  {0x09, 1},
    {0x0a, 7}, {0x0b, 12}, {0x0c, 10}, {0x0d, 3}, {0x0e, 3},  {0x0f, 4}, {0x10, 5}, {0x11, 52}, {0x12, 6},  {0x13, 3},
    {0x14, 3}, {0x16, 1},  {0x20, 2},  {0x21, 2}, {0x22, 2},  {0x26, 1}, {0x27, 1}, {0x28, 1},  {0x64, 24}, {0x65, 4},
};

TEST(Capture, EveryFrameOfThePeerIsUnderstood) {
    ASSERT_EQ(capture().size(), 223u);
    std::map<uint8_t, int> opcodes;
    int other = 0, ipv6 = 0;
    for (const Frame& f : capture()) {
        Packet p;
        const Verdict v = parse(f.data(), uint32_t(f.size()), p);
        if (v == Verdict::not_roce) {
            ++other;
            continue;
        }
        ASSERT_EQ(v, Verdict::ok) << verdict_name(v);
        ++opcodes[p.opcode];
        ipv6 += p.ipv6;
        EXPECT_FALSE(p.mig_req);  // the peer sends MigReq 0
        EXPECT_EQ(p.pkey, 0xffff);
    }
    EXPECT_EQ(opcodes, kOpcodeCounts);
    EXPECT_EQ(other, 18);
    EXPECT_EQ(ipv6, 8);
}

TEST(Capture, SyndromesOfThePeerAreTheSpecifications) {
    std::map<uint8_t, int> syndromes;
    for (const Frame& f : capture()) {
        Packet p;
        if (parse(f.data(), uint32_t(f.size()), p) == Verdict::ok && p.info->has(kAck)) ++syndromes[uint8_t(p.syndrome & 0xe0)];
    }
    EXPECT_GT(syndromes[0x00], 0);  // ACK
    EXPECT_GT(syndromes[0x20], 0);  // RNR NAK
    EXPECT_GT(syndromes[0x60], 0);  // NAK
}

/// A frame that is built from the fields of the peer's frame must equal the peer's frame. Before the comparison, the test copies
/// the pad bytes and the IPv4 identification from the peer's frame, because begin_frame sets the identification to 0. Then the
/// test corrects the checksum and the ICRC.
TEST(Capture, BuiltAgainByteForByte) {
    int compared = 0, identical_as_sent = 0;
    for (const Frame& f : capture()) {
        Packet p;
        if (parse(f.data(), uint32_t(f.size()), p) != Verdict::ok) continue;
        Frame ours = test::build_frame(test::path_of(p), test::headers_of(p), p.payload, p.payload_length);
        ASSERT_EQ(ours.size(), f.size()) << p.info->name;
        identical_as_sent += ours == f;
        const auto l3 = uint32_t(p.l3 - p.frame);
        if (!p.ipv6) {
            std::memcpy(&ours[l3 + 4], p.l3 + 4, 2);
            test::repair_ipv4_checksum(&ours[l3]);
        }
        const auto pad_at = size_t(p.payload + p.payload_length - p.frame);
        std::copy(f.begin() + ptrdiff_t(pad_at), f.end() - kIcrcLength, ours.begin() + ptrdiff_t(pad_at));
        test::repair_icrc(ours, l3, p.ipv6, p.ipv6 ? kIpv6Length : kIpv4Length);
        ASSERT_EQ(ours, f) << p.info->name;
        ++compared;
    }
    EXPECT_EQ(compared, 205);
    EXPECT_EQ(identical_as_sent, 8);  // all frames of IPv6, which has no identification
}

TEST(Capture, TruncatedFramesOfThePeerGiveAVerdict) {
    for (const Frame& f : capture()) {
        Packet p;
        if (parse(f.data(), uint32_t(f.size()), p) != Verdict::ok) continue;
        for (size_t n = 0; n < f.size(); n += 1 + n / 64) {
            const Frame cut(f.begin(), f.begin() + ptrdiff_t(n));
            Packet q;
            ASSERT_EQ(parse(cut.data(), uint32_t(cut.size()), q), Verdict::truncated);
        }
    }
}

}  // namespace
}  // namespace roci::wire
