// Tests that parse() reads the values that begin_frame and finish_frame wrote, for every opcode, path and length.
#include "wire/build.hpp"

#include <gtest/gtest.h>

#include "samples.hpp"
#include "wire/describe.hpp"

namespace roci::wire {
namespace {

using test::Frame;
using test::Offsets;

/// Checks every field of the headers that the opcode has. Fields of other headers are not compared.
void expect_same(const TransportHeaders& h, const Packet& p) {
    const OpcodeInfo& i = opcode_info(h.opcode);
    EXPECT_EQ(p.info, &i);
    EXPECT_EQ(p.opcode, h.opcode);
    EXPECT_EQ(p.solicited, h.solicited);
    EXPECT_EQ(p.ack_request, h.ack_request);
    EXPECT_EQ(p.mig_req, h.mig_req);
    EXPECT_EQ(p.pkey, h.pkey);
    EXPECT_EQ(p.dest_qp, h.dest_qp);
    EXPECT_EQ(p.psn, h.psn);
    EXPECT_FALSE(p.fecn);
    EXPECT_EQ(p.becn, h.opcode == kCnpOpcode);
    const struct {
        uint32_t headers;
        const char* name;
        bool same;
    } fields[] = {
        {kReth | kAtomicEth, "va", p.va == h.va},
        {kReth | kAtomicEth, "rkey", p.rkey == h.rkey},
        {kReth, "dma_length", p.dma_length == h.dma_length},
        {kAtomicEth, "swap_add", p.swap_add == h.swap_add},
        {kAtomicEth, "compare", p.compare == h.compare},
        {kAeth, "syndrome", p.syndrome == h.syndrome},
        {kAeth, "msn", p.msn == h.msn},
        {kAtomicAckEth, "atomic_original", p.atomic_original == h.atomic_original},
        {kImmDt, "imm_be", p.imm_be == h.imm_be},
        {kIeth, "invalidate", p.invalidate == h.invalidate},
        {kDeth, "qkey", p.qkey == h.qkey},
        {kDeth, "src_qp", p.src_qp == h.src_qp},
        {kXrcEth, "xrc_srqn", p.xrc_srqn == h.xrc_srqn},
        {kFlushEth, "flush", p.flush == h.flush},
    };
    for (const auto& field : fields) EXPECT_TRUE(!i.has(field.headers) || field.same) << i.name << ": " << field.name;
}

std::vector<uint32_t> payload_lengths(const OpcodeInfo& info) {
    if (!info.has(kPayload)) return {0};
    std::vector<uint32_t> lengths;
    for (uint32_t n = 0; n <= 40; ++n) lengths.push_back(n);
    for (const uint32_t mtu : {256u, 512u, 1024u, 2048u, 4096u})
        for (uint32_t n = mtu - 4; n <= mtu; ++n) lengths.push_back(n);
    return lengths;
}

void round_trip(uint8_t opcode, bool ipv6, bool tagged, uint32_t length) {
    const PathSpec spec = test::sample_path(ipv6, tagged);
    const TransportHeaders headers = test::sample_headers(opcode);
    const std::vector<uint8_t> payload = test::sample_payload(length);
    const Frame f = test::build_frame(spec, headers, payload.data(), length);
    const Offsets at(ipv6, tagged);
    const uint32_t padded = (length + 3) / 4 * 4;
    ASSERT_EQ(f.size(), at.bth + opcode_info(opcode).header_length + padded + kIcrcLength);

    Packet p;
    ASSERT_EQ(parse(f.data(), uint32_t(f.size()), p), Verdict::ok);
    expect_same(headers, p);
    ASSERT_EQ(p.payload_length, length);
    ASSERT_TRUE(length == 0 || std::memcmp(p.payload, payload.data(), length) == 0);
    for (uint32_t i = length; i < padded; ++i) EXPECT_EQ(p.payload[i], 0);
    EXPECT_EQ(p.ipv6, ipv6);
    EXPECT_EQ(p.udp_source, spec.udp_source);
    EXPECT_EQ(p.ecn, spec.traffic_class & 3);
    EXPECT_EQ(p.source_gid(), spec.source_gid);
    EXPECT_EQ(p.dest_gid(), spec.dest_gid);
}

TEST(Build, EveryOpcodePathAndLengthComesBack) {
    for (unsigned op = 0; op < 256; ++op) {
        const OpcodeInfo& info = opcode_info(uint8_t(op));
        if (!info.valid()) continue;
        for (unsigned kind = 0; kind < 4; ++kind) {
            for (const uint32_t length : payload_lengths(info)) {
                round_trip(uint8_t(op), (kind & 1) != 0, (kind & 2) != 0, length);
                if (HasFatalFailure()) FAIL() << info.name << " kind " << kind << " length " << length;
            }
        }
    }
}

TEST(Build, EveryLengthUpToTheLargestMtu) {
    for (uint32_t length = 0; length <= 4096; ++length) {
        round_trip(0x0b, (length & 1) != 0, (length & 2) != 0, length);
        if (HasFatalFailure()) FAIL() << length;
    }
}

TEST(Build, HeadersBelowTheBthAreWhatThePathSays) {
    const PathSpec spec = test::sample_path(false, true);
    const Frame f = test::sample_frame(0x04, false, true, 10);
    EXPECT_EQ(std::memcmp(&f[0], spec.dest_mac.bytes.data(), 6), 0);
    EXPECT_EQ(std::memcmp(&f[6], spec.source_mac.bytes.data(), 6), 0);
    EXPECT_EQ(load_be<uint32_t>(&f[12]), 0x8100a123u);
    EXPECT_EQ(load_be<uint16_t>(&f[16]), 0x0800);
    const uint8_t* ip = &f[18];
    EXPECT_EQ(load_be<uint16_t>(ip), 0x456a);
    EXPECT_EQ(load_be<uint16_t>(ip + 2), 20 + 8 + 12 + 12 + 4);
    EXPECT_EQ(load_be<uint32_t>(ip + 4), 0x00004000u);  // identification 0, DF flag
    EXPECT_EQ(load_be<uint16_t>(ip + 8), 61 << 8 | 17);
    EXPECT_EQ(load_be<uint32_t>(ip + 12), 0x0a010203u);
    EXPECT_EQ(load_be<uint32_t>(ip + 16), 0xc0a8fafbu);
    const uint8_t* udp = ip + 20;
    EXPECT_EQ(load_be<uint32_t>(udp), 0xd1e212b7u);
    EXPECT_EQ(load_be<uint16_t>(udp + 4), 8 + 12 + 12 + 4);
    EXPECT_EQ(load_be<uint16_t>(udp + 6), 0);
    EXPECT_EQ(udp[8 + 1] >> 4 & 3, 2);  // 10 bytes of payload, 2 of padding
}

TEST(Build, Ipv6HeaderIsWhatThePathSays) {
    const PathSpec spec = test::sample_path(true, false);
    const Frame f = test::sample_frame(0x04, true, false, 8);
    const uint8_t* ip = &f[14];
    EXPECT_EQ(load_be<uint16_t>(&f[12]), 0x86dd);
    EXPECT_EQ(load_be<uint32_t>(ip), 0x66aabcdeu);
    EXPECT_EQ(load_be<uint16_t>(ip + 4), 8 + 12 + 8 + 4);
    EXPECT_EQ(load_be<uint16_t>(ip + 6), 17 << 8 | 61);
    EXPECT_EQ(std::memcmp(ip + 8, spec.source_gid.bytes.data(), 16), 0);
    EXPECT_EQ(std::memcmp(ip + 24, spec.dest_gid.bytes.data(), 16), 0);
}

TEST(Build, Ipv4ChecksumIsRightForEveryLengthAndHeader) {
    PathSpec spec = test::sample_path(false, false);
    for (unsigned tos = 0; tos < 256; tos += 5) {
        spec.traffic_class = uint8_t(tos);
        spec.source_gid.bytes[15] = uint8_t(tos * 3);
        spec.dest_gid.bytes[12] = uint8_t(255 - tos);
        for (uint32_t length = 0; length <= 4096; length += 61) {
            Frame f = test::build_frame(spec, test::sample_headers(0x04), test::sample_payload(length).data(), length);
            const uint16_t written = load_be<uint16_t>(&f[kEthLength + 10]);
            test::repair_ipv4_checksum(&f[kEthLength]);
            ASSERT_EQ(written, load_be<uint16_t>(&f[kEthLength + 10]));
        }
    }
}

TEST(Build, Ipv4ChecksumCarriesIntoItself) {
    // One word of the header takes all 65,536 values. For some of them, adding the carry to the 16-bit sum of the header causes
    // another carry.
    PathSpec spec = test::sample_path(false, false);
    for (uint32_t host = 0; host < 65536; ++host) {
        store_be<uint16_t>(&spec.source_gid.bytes[14], uint16_t(host));
        Frame f = test::build_frame(spec, test::sample_headers(0x04), nullptr, 0);
        Packet p;
        ASSERT_EQ(parse(f.data(), uint32_t(f.size()), p), Verdict::ok) << host;
        const uint16_t written = load_be<uint16_t>(&f[kEthLength + 10]);
        test::repair_ipv4_checksum(&f[kEthLength]);
        ASSERT_EQ(written, load_be<uint16_t>(&f[kEthLength + 10])) << host;
    }
}

TEST(Build, AChecksumThatIsLeftToThePortIsZeroAndAllElseIsAsEver) {
    for (const bool ipv6 : {false, true})
        for (const bool tagged : {false, true}) {
            PathSpec spec = test::sample_path(ipv6, tagged);
            const Frame whole = test::build_frame(spec, test::sample_headers(0x04), nullptr, 0);
            spec.port_sums = true;
            const PathTemplate path = make_path(spec);
            EXPECT_EQ(path.left.checksum_offset, ipv6 ? 0u : Offsets(ipv6, tagged).l3);
            Frame f = test::build_frame(spec, test::sample_headers(0x04), nullptr, 0);
            if (!ipv6) {
                EXPECT_EQ(load_be<uint16_t>(&f[path.left.checksum_offset + 10]), 0u);
                fill_header_checksum(&f[path.left.checksum_offset]);
            }
            EXPECT_EQ(f, whole);
        }
}

/// A frame without ICRC differs from the whole frame only in its last four bytes, which nobody has written. write_left() writes
/// both checksums.
TEST(Build, AnIcrcThatIsLeftToThePortIsNotWritten) {
    const std::vector<uint8_t> payload = test::sample_payload(4096);
    for (const bool ipv6 : {false, true})
        for (const bool tagged : {false, true})
            for (const uint32_t length : {0u, 1u, 255u, 256u, 4095u, 4096u}) {
                PathSpec spec = test::sample_path(ipv6, tagged);
                const TransportHeaders headers = test::sample_headers(0x0a);
                const Frame whole = test::build_frame(spec, headers, payload.data(), length);
                spec.port_sums = tagged;
                spec.port_icrc = true;
                const PathTemplate path = make_path(spec);
                Frame gathered = test::build_frame(spec, headers, payload.data(), length);
                Frame copied(gathered.size(), 0xee);
                uint8_t* at = begin_frame(copied.data(), path, headers, length);
                const auto* from = reinterpret_cast<const std::byte*>(payload.data());
                if (copies_with_icrc(length)) {
                    ASSERT_EQ(finish_frame_from(copied.data(), path, at, from, length), whole.size());
                    EXPECT_EQ(copied, gathered);
                }
                ASSERT_EQ(gathered.size(), whole.size());
                EXPECT_EQ(load_be<uint32_t>(&gathered[whole.size() - kIcrcLength]), 0xeeeeeeeeu) << length;
                Packet p;
                EXPECT_EQ(
                    parse(gathered.data(), uint32_t(gathered.size()), p, true, HeaderChecksum::right, HeaderChecksum::absent),
                    Verdict::ok);
                EXPECT_FALSE(p.unchecked);
                write_left(gathered.data(), uint32_t(gathered.size()), path.left);
                EXPECT_EQ(gathered, whole) << length;
            }
}

TEST(Build, OverlongFieldsAreCutToTheirWidth) {
    TransportHeaders h = test::sample_headers(0xab);
    h.dest_qp = Qpn{0xff000001};
    h.xrc_srqn = 0xff000002;
    const Frame f = test::build_frame(test::sample_path(false, false), h, nullptr, 0);
    Packet p;
    ASSERT_EQ(parse(f.data(), uint32_t(f.size()), p), Verdict::ok);
    EXPECT_EQ(p.dest_qp.value, 1u);
    EXPECT_EQ(p.xrc_srqn, 2u);
    EXPECT_FALSE(p.fecn || p.becn);
}

TEST(Build, NothingIsWrittenBeyondTheFrame) {
    for (const uint32_t length : {0u, 1u, 4096u}) {
        Frame room(kMaxOverhead + length + 64, 0xee);
        const PathTemplate path = make_path(test::sample_path(true, true));
        uint8_t* at = begin_frame(room.data(), path, test::sample_headers(0xb3), length);
        std::memset(at, 1, length);
        finish_frame(room.data(), path, at, length);
        for (size_t i = kMaxOverhead + length; i < room.size(); ++i) ASSERT_EQ(room[i], 0xee);
    }
}

/// Copying and computing the ICRC in one pass gives the same frame as doing both in turn.
TEST(Build, CopyingWithTheIcrcMakesTheSameFrame) {
    const std::vector<uint8_t> payload = test::sample_payload(4096 + 64);
    for (const bool ipv6 : {false, true})
        for (const bool tagged : {false, true})
            for (const uint8_t opcode : {uint8_t(0x06), uint8_t(0x07), uint8_t(0x0a), uint8_t(0x0b), uint8_t(0x64)})
                for (uint32_t length = kCopyingStep; length <= 4096; length += kCopyingStep) {
                    ASSERT_TRUE(copies_with_icrc(length));
                    const PathTemplate path = make_path(test::sample_path(ipv6, tagged));
                    const TransportHeaders headers = test::sample_headers(opcode);
                    const uint8_t* from = payload.data() + length / kCopyingStep;
                    Frame copied(kMaxFrame, 0xee), fused(kMaxFrame, 0xee);
                    uint8_t* at = begin_frame(copied.data(), path, headers, length);
                    std::memcpy(at, from, length);
                    const uint32_t total = finish_frame(copied.data(), path, at, length);
                    at = begin_frame(fused.data(), path, headers, length);
                    ASSERT_EQ(finish_frame_from(fused.data(), path, at, reinterpret_cast<const std::byte*>(from), length), total);
                    ASSERT_EQ(fused, copied) << int(opcode) << " " << length;
                }
    for (const uint32_t length : {0u, 4u, 255u, 257u, 4092u}) EXPECT_FALSE(copies_with_icrc(length));
}

/// repeat_headers writes the same headers as begin_frame, for any next PSN and ACK request.
TEST(Build, RepeatedHeadersAreThoseOfTheNextPacket) {
    for (const bool ipv6 : {false, true})
        for (const bool tagged : {false, true})
            for (const uint8_t opcode : {uint8_t(0x01), uint8_t(0x07), uint8_t(0x21), uint8_t(0xa1), uint8_t(0xa7)}) {
                const PathTemplate path = make_path(test::sample_path(ipv6, tagged));
                TransportHeaders headers = test::sample_headers(opcode);
                Frame first(kMaxFrame, 0xee), next(kMaxFrame, 0xee), repeated(kMaxFrame, 0xee);
                RepeatedHeaders kept;
                keep_headers(kept, first.data(), path, begin_frame(first.data(), path, headers, 1024));
                for (const uint32_t psn : {0u, 1u, 0x800000u, 0xffffffu})
                    for (const bool ack : {false, true}) {
                        headers.psn = Psn(psn);
                        headers.ack_request = ack;
                        const auto length = begin_frame(next.data(), path, headers, 1024) - next.data();
                        ASSERT_EQ(repeat_headers(repeated.data(), kept, Psn(psn), ack) - repeated.data(), length);
                        ASSERT_TRUE(std::equal(next.begin(), next.begin() + length, repeated.begin())) << int(opcode);
                    }
            }
}

TEST(Build, MixedAddressFamiliesAreNoPath) {
    PathSpec spec = test::sample_path(true, false);
    spec.dest_gid = test::sample_path(false, false).dest_gid;
    EXPECT_EQ(make_path(spec).length, 0);
}

TEST(Build, CongestionNotificationHasBecnAndSixteenZeroBytes) {
    const Frame f = test::sample_frame(kCnpOpcode);
    const Offsets at(false, false);
    EXPECT_EQ(f.size(), at.bth + 12 + 16 + 4);
    EXPECT_EQ(f[at.bth + 4], 0x40);
    for (uint32_t i = 0; i < 16; ++i) EXPECT_EQ(f[at.bth + 12 + i], 0);
}

TEST(Describe, SaysWhatThePacketIs) {
    Packet p;
    const Frame write = test::sample_frame(0xab, false, false, 5);
    ASSERT_EQ(parse(write.data(), uint32_t(write.size()), p), Verdict::ok);
    EXPECT_EQ(describe(p),
              "10.1.2.3 > 192.168.250.251 XRC WRITE Only with Immediate qp 0xc0ffee psn 16702650 srq 0x654321 va "
              "0x123456789abcdef rkey "
              "0xdeadbeef length 2053856333 imm 0x01020304 payload 5 SE AckReq MigReq");
    const Frame ack = test::sample_frame(0x12, true, false, 0);
    ASSERT_EQ(parse(ack.data(), uint32_t(ack.size()), p), Verdict::ok);
    EXPECT_EQ(
        describe(p),
        "2021:2223:2425:2627:2829:2a2b:2c2d:2e2f > f0ef:eeed:eceb:eae9:e8e7:e6e5:e4e3:e2e1 RC Atomic Acknowledge qp 0xc0ffee psn "
        "16702650 syndrome 0x62 msn 1267611 original 0xfeedfacecafebabe AckReq MigReq");
}

}  // namespace
}  // namespace roci::wire
