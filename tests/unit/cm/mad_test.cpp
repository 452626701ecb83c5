// Tests of CM messages. The tests compare encoded messages with messages of Linux's CM. A message that is decoded and encoded
// again must have the same bytes.
#include <gtest/gtest.h>

#include <cstring>

#include "cm/ip_cm.hpp"
#include "cm/mad.hpp"
#include "pcap_file.hpp"
#include "wire/packet.hpp"

namespace roci::cm {
namespace {

struct Captured {
    Header header;
    Mad mad;
};

std::vector<Captured> capture() {
    std::vector<Captured> out;
    for (const test::Frame& f : test::read_pcap(ROCI_TEST_DATA "/cm.pcap")) {
        wire::Packet p;
        if (wire::parse(f.data(), uint32_t(f.size()), p) != wire::Verdict::ok) continue;
        EXPECT_EQ(p.dest_qp, kGsiQpn);
        EXPECT_EQ(p.qkey, kGsiQkey);
        EXPECT_EQ(p.payload_length, kMadLength);
        Captured c;
        std::memcpy(c.mad.data(), p.payload, kMadLength);
        EXPECT_TRUE(parse_header(c.mad, c.header));
        out.push_back(c);
    }
    return out;
}

template <class Message>
Mad rewritten(const Captured& c) {
    return encode(c.header.transaction, decode<Message>(c.mad));
}

Mad rewritten(const Captured& c) {
    switch (c.header.attribute) {
        case Attribute::req:
            return rewritten<Req>(c);
        case Attribute::rej:
            return rewritten<Rej>(c);
        case Attribute::rep:
            return rewritten<Rep>(c);
        case Attribute::rtu:
            return rewritten<Rtu>(c);
        case Attribute::dreq:
            return rewritten<Dreq>(c);
        case Attribute::drep:
            return rewritten<Drep>(c);
        case Attribute::sidr_req:
            return rewritten<SidrReq>(c);
        case Attribute::sidr_rep:
            return rewritten<SidrRep>(c);
        default:
            return {};
    }
}

TEST(CmMad, MessagesOfThePeerSurviveDecodingAndEncoding) {
    const auto all = capture();
    ASSERT_EQ(all.size(), 21u);
    for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(rewritten(all[i]), all[i].mad) << "message " << i << ", " << attribute_name(all[i].header.attribute);
    }
}

TEST(CmMad, FieldsOfAReqAreWhereTheSpecificationPutsThem) {
    const auto all = capture();
    ASSERT_FALSE(all.empty());
    const Req r = decode<Req>(all[0].mad);
    EXPECT_EQ(all[0].header.transaction, 0x2da83f891u);
    EXPECT_EQ(r.local_comm_id, 0x91f883dau);
    EXPECT_EQ(r.service_id, 0x1061c06u);
    EXPECT_EQ(r.ca_guid, 0x505400fffec279feu);
    EXPECT_EQ(r.qpn, 0x21u);
    EXPECT_EQ(r.responder_resources, 1);
    EXPECT_EQ(r.initiator_depth, 1);
    EXPECT_EQ(r.remote_response_timeout, 0x14);
    EXPECT_EQ(r.local_response_timeout, 0x14);
    EXPECT_EQ(r.service, Service::rc);
    EXPECT_EQ(r.psn, 0x25dc85u);
    EXPECT_EQ(r.retry_count, 7);
    EXPECT_EQ(r.rnr_retry_count, 7);
    EXPECT_EQ(r.mtu, 5);
    EXPECT_EQ(r.max_cm_retries, 15);
    EXPECT_EQ(r.primary.local_lid, kPermissiveLid);
    EXPECT_EQ(r.primary.flow_label, 0xcf433u);
    EXPECT_EQ(r.primary.packet_rate, 0);
    EXPECT_EQ(r.primary.hop_limit, 64);
    EXPECT_EQ(r.primary.ack_timeout, 0x13);
    const uint8_t from[] = {10, 77, 0, 1}, to[] = {10, 77, 0, 2};
    EXPECT_EQ(r.primary.local_gid, Gid::from_ipv4(from));
    EXPECT_EQ(r.primary.remote_gid, Gid::from_ipv4(to));
    const auto ip = get_ip_header(r.private_data);
    ASSERT_TRUE(ip);
    EXPECT_EQ(ip->source_port, 0xee33);
    EXPECT_EQ(ip->source, Gid::from_ipv4(from));
    EXPECT_EQ(ip->dest, Gid::from_ipv4(to));
    std::array<uint8_t, kIpHeaderLength> again{};
    put_ip_header(again.data(), *ip);
    EXPECT_EQ(std::memcmp(again.data(), r.private_data.data(), kIpHeaderLength), 0);
}

TEST(CmMad, FieldsOfTheAnswers) {
    const auto all = capture();
    ASSERT_EQ(all.size(), 21u);
    const Rep rep = decode<Rep>(all[1].mad);
    EXPECT_EQ(rep.local_comm_id, 0xd7052079u);
    EXPECT_EQ(rep.remote_comm_id, 0x91f883dau);
    EXPECT_EQ(rep.qpn, 0x21u);
    EXPECT_EQ(rep.psn, 0xe6dee3u);
    EXPECT_EQ(rep.responder_resources, 1);
    EXPECT_EQ(rep.initiator_depth, 1);
    EXPECT_EQ(rep.target_ack_delay, 0x0f);
    EXPECT_EQ(rep.rnr_retry_count, 7);
    EXPECT_EQ(rep.ca_guid, 0x505400fffe29262du);
    const Rtu rtu = decode<Rtu>(all[2].mad);
    EXPECT_EQ(rtu.local_comm_id, 0x91f883dau);
    EXPECT_EQ(rtu.remote_comm_id, 0xd7052079u);
    EXPECT_EQ(decode<Dreq>(all[3].mad).remote_qpn, 0x21u);
    const Rej rej = decode<Rej>(all[13].mad);
    EXPECT_EQ(rej.reason, Reason::invalid_service_id);
    EXPECT_EQ(rej.message, Answered::req);
    EXPECT_EQ(rej.remote_comm_id, decode<Req>(all[12].mad).local_comm_id);
    const SidrReq sidr = decode<SidrReq>(all[10].mad);
    EXPECT_EQ(port_space_of(sidr.service_id), PortSpace::udp);
    EXPECT_TRUE(get_ip_header(sidr.private_data));
    const SidrRep answer = decode<SidrRep>(all[11].mad);
    EXPECT_EQ(answer.status, SidrStatus::valid);
    EXPECT_EQ(answer.request_id, sidr.request_id);
    EXPECT_EQ(answer.qkey, 0x01234567u);  // rdma_cm uses this Q_Key for every UDP port
    EXPECT_NE(answer.qpn, 0u);
}

TEST(CmMad, FieldsDoNotOverlap) {
    // If one field has its largest value, the other fields must keep their values. MRA and REJ have the narrowest
    // fields.
    Mra mra;
    mra.message = Answered::other;
    mra.service_timeout = 31;
    const Mra back = decode<Mra>(encode(7, mra));
    EXPECT_EQ(back.message, Answered::other);
    EXPECT_EQ(back.service_timeout, 31);
    EXPECT_EQ(back.local_comm_id, 0u);
    EXPECT_EQ(back.private_data, mra.private_data);
    Rej rej;
    rej.info_length = 127;
    rej.reason = Reason::stale_connection;
    rej.info.fill(0xaa);
    rej.private_data.fill(0x55);
    const Rej again = decode<Rej>(encode(7, rej));
    EXPECT_EQ(again.info_length, 127);
    EXPECT_EQ(again.message, Answered::req);
    EXPECT_EQ(again.reason, Reason::stale_connection);
    EXPECT_EQ(again.info, rej.info);
    EXPECT_EQ(again.private_data, rej.private_data);
}

TEST(CmMad, OtherClassesAndVersionsAreNotOurs) {
    Mad mad = encode(1, Rtu{});
    Header h;
    EXPECT_TRUE(parse_header(mad, h));
    EXPECT_EQ(h.attribute, Attribute::rtu);
    EXPECT_FALSE(parse_header(std::span(mad).first(kMadLength - 1), h));
    for (const size_t at : {0, 1, 2, 3}) {
        Mad other = mad;
        other[at] ^= 0x40;
        EXPECT_FALSE(parse_header(other, h)) << "byte " << at;
    }
}

TEST(CmMad, IpHeadersOfOtherVersionsAreRefused) {
    std::array<uint8_t, kIpHeaderLength> bytes{};
    EXPECT_FALSE(get_ip_header(bytes));  // IP version 0
    bytes[1] = 0x60;
    EXPECT_TRUE(get_ip_header(bytes));
    bytes[0] = 0x10;
    EXPECT_FALSE(get_ip_header(bytes));
    bytes[0] = 0;
    EXPECT_FALSE(get_ip_header(std::span(bytes).first(kIpHeaderLength - 1)));
}

}  // namespace
}  // namespace roci::cm
