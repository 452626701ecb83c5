#include "decoder.hpp"

#include <algorithm>
#include <cstring>

#include "base/bytes.hpp"

namespace roci::plot {
namespace {

using wire::Packet;
using wire::Verdict;

constexpr uint16_t kEtherRoceV1 = 0x8915;
constexpr uint8_t kProtocolTcp = 6;
constexpr uint32_t kMostLength = 1 << 16;

/// A link header that is not Ethernet (LINKTYPE_LINUX_SLL, LINKTYPE_LINUX_SLL2): the length of the header, and the offsets of its
/// fields for the protocol and the packet type.
struct LinkRow {
    Link link;
    uint32_t length, protocol, type;
};
constexpr LinkRow kAny = {Link::linux_any, 16, 14, 1}, kAny2 = {Link::linux_any2, 20, 0, 10};
constexpr uint8_t kOutgoing = 4;

uint32_t l3_offset(const uint8_t* frame) {
    return load_be<uint16_t>(frame + 12) == wire::kEtherVlan ? wire::kEthLength + wire::kVlanLength : wire::kEthLength;
}
uint16_t ether_type(const uint8_t* frame) { return load_be<uint16_t>(frame + l3_offset(frame) - 2); }

/// Returns the offset of the end of the IP packet in the frame, computed from the length in the IP header. Returns 0 if the frame
/// is not an IP packet.
uint32_t ip_end(const uint8_t* frame) {
    const uint32_t l3 = l3_offset(frame);
    if (ether_type(frame) == wire::kEtherIpv4) return l3 + load_be<uint16_t>(frame + l3 + 2);
    if (ether_type(frame) == wire::kEtherIpv6) return l3 + wire::kIpv6Length + load_be<uint16_t>(frame + l3 + 4);
    return 0;
}

Verdict parse_frame(const uint8_t* frame, uint32_t length, Packet& packet, bool check_icrc) {
    // The IPv4 checksum is not checked. If the sender's NIC computes checksums, a capture at the sender has wrong checksums.
    return wire::parse(frame, length, packet, check_icrc, wire::HeaderChecksum::right);
}

FlowKey key_of(const Packet& p) {
    const bool datagram = wire::service_of(p.opcode) == wire::Service::ud;
    return {p.source_gid(), p.dest_gid(), p.dest_qp, datagram ? p.src_qp : Qpn{}};
}

}  // namespace

bool Decoder::place_ethernet(std::span<const uint8_t> bytes, Link link) {
    if (link == Link::ethernet) {
        captured_ = uint32_t(std::min<size_t>(bytes.size(), kMostLength));
        std::memcpy(frame_.data(), bytes.data(), captured_);
        return captured_ >= wire::kEthLength;
    }
    uint16_t protocol = 0;
    uint32_t skip = 0;
    if (link == Link::raw_ip) {
        if (bytes.empty()) return false;
        protocol = bytes[0] >> 4 == 6 ? wire::kEtherIpv6 : wire::kEtherIpv4;
    } else {
        const LinkRow& row = link == Link::linux_any ? kAny : kAny2;
        if (bytes.size() < row.length) return false;
        protocol = load_be<uint16_t>(&bytes[row.protocol]);
        skip = row.length;
        if (link == Link::linux_any2) place_.interface = uint16_t(load_be<uint32_t>(&bytes[4]));
        place_.direction = bytes[row.type] == kOutgoing ? Direction::out : Direction::in;
    }
    captured_ = wire::kEthLength + uint32_t(std::min<size_t>(bytes.size() - skip, kMostLength));
    length_ = length_ - std::min(length_, skip) + wire::kEthLength;
    std::memset(frame_.data(), 0, wire::kEthLength);
    store_be<uint16_t>(&frame_[12], protocol);
    std::memcpy(&frame_[wire::kEthLength], bytes.data() + skip,
                bytes.size() - skip > kMostLength ? kMostLength : bytes.size() - skip);
    return true;
}

/// Adds space for an ICRC after the payload, and increases the lengths in the IP and UDP headers.
void Decoder::add_without_icrc() {
    uint8_t* l3 = &frame_[l3_offset(frame_.data())];
    const bool ipv6 = ether_type(frame_.data()) == wire::kEtherIpv6;
    uint8_t* length = l3 + (ipv6 ? 4 : 2);
    uint8_t* udp = l3 + (ipv6 ? wire::kIpv6Length : uint32_t(l3[0] & 0x0f) * 4) + 4;
    store_be<uint16_t>(length, uint16_t(load_be<uint16_t>(length) + wire::kIcrcLength));
    store_be<uint16_t>(udp, uint16_t(load_be<uint16_t>(udp) + wire::kIcrcLength));
    length_ += wire::kIcrcLength;
}

/// Parses frame_ with its full length. The bytes that were not captured are zero. If the parser refuses the frame, but would
/// accept the frame with an ICRC added, increments only_without_icrc_.
Verdict Decoder::parse_copy(Packet& packet) {
    if (without_icrc_) add_without_icrc();
    const uint32_t whole = std::min(std::max(length_, ip_end(frame_.data())), kMostLength + wire::kEthLength);
    const Verdict verdict = parse_frame(frame_.data(), whole, packet, false);
    if (verdict == Verdict::ok || verdict == Verdict::not_roce || without_icrc_) return verdict;
    add_without_icrc();
    Packet other;
    if (parse_frame(frame_.data(), whole + wire::kIcrcLength, other, false) == Verdict::ok) ++only_without_icrc_;
    return verdict;
}

void Decoder::count_refused(Verdict verdict) {
    ReadCounts& c = out_.counts;
    if (verdict != Verdict::not_roce && ip_end(frame_.data()) != 0) {
        ++c.malformed;
        return;
    }
    ++c.other;
    const uint32_t l3 = l3_offset(frame_.data());
    if (ether_type(frame_.data()) == kEtherRoceV1) ++c.roce_v1;
    if (ether_type(frame_.data()) == wire::kEtherIpv4 && frame_[l3 + 9] == kProtocolTcp) ++c.tcp;
    if (ether_type(frame_.data()) == wire::kEtherIpv6 && frame_[l3 + 6] == kProtocolTcp) ++c.tcp;
}

/// Returns the index of the flow of a packet, and creates the flow if necessary. Returns nullopt if there are already kMostFlows
/// flows.
std::optional<uint32_t> Decoder::flow_of(const Packet& packet) {
    const FlowKey key = key_of(packet);
    if (const auto found = flows_.find(key); found != flows_.end()) return found->second;
    if (flows_.size() >= kMostFlows) return std::nullopt;
    flows_[key] = uint32_t(out_.flows.size());
    out_.flows.push_back({.key = key});
    return uint32_t(out_.flows.size() - 1);
}

/// Counts the result of the ICRC check. Returns false if the capture does not contain all headers.
bool Decoder::count_icrc(const Packet& packet) {
    ReadCounts& c = out_.counts;
    if (size_t(packet.payload - packet.frame) > captured_) {
        ++c.headers_cut;
        return false;
    }
    if (without_icrc_) return true;
    if (ip_end(packet.frame) > captured_) {
        ++c.payload_cut;
        return true;
    }
    Packet again;
    ++(parse_frame(frame_.data(), captured_, again, true) == Verdict::ok ? c.icrc_good : c.icrc_wrong);
    return true;
}

void Decoder::add(int64_t time, std::span<const uint8_t> bytes, uint32_t length, Link link, std::optional<Place> place) {
    ++out_.counts.frames;
    std::memset(frame_.data(), 0, std::min<size_t>(frame_.size(), dirty_));
    length_ = std::min(std::max(length, uint32_t(std::min<size_t>(bytes.size(), kMostLength))), kMostLength);
    place_ = {};
    const bool placed = place_ethernet(bytes, link);
    dirty_ = captured_ + 128;
    if (place) place_ = *place;
    Packet packet;
    if (!placed) {
        ++out_.counts.headers_cut;
        return;
    }
    if (const Verdict v = parse_copy(packet); v != Verdict::ok) return count_refused(v);
    if (!count_icrc(packet)) return;
    const auto flow = flow_of(packet);
    if (!flow) return;
    Frame f{.time = time,
            .flow = *flow,
            .psn = packet.psn.value(),
            .payload = packet.payload_length,
            .dma_length = packet.dma_length};
    f.place = place_;
    f.opcode = packet.opcode;
    f.syndrome = packet.syndrome;
    f.ack_request = packet.ack_request;
    constexpr uint8_t kCongestionExperienced = 3;
    f.marked = packet.ecn == kCongestionExperienced;
    ++out_.counts.roce;
    Flow& of = out_.flows[*flow];
    if (of.service == wire::Service::cnp && (f.request() || f.response())) of.service = wire::service_of(packet.opcode);
    of.requests += f.request();
    of.responses += f.response();
    of.cnps += f.cnp();
    of.frames.push_back(uint32_t(out_.frames.size()));
    out_.frames.push_back(f);
}

}  // namespace roci::plot
