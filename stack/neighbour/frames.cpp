#include "neighbour/frames.hpp"

#include <algorithm>
#include <cstring>

#include "base/bytes.hpp"
#include "wire/packet.hpp"

namespace roci::neighbour {
namespace {

using wire::kEthLength, wire::kIpv4Length, wire::kIpv6Length;

constexpr uint16_t kEtherArp = 0x0806;
constexpr uint32_t kArpLength = 28;
constexpr uint16_t kArpRequest = 1, kArpReply = 2;
constexpr uint8_t kArpForm[6] = {0, 1, 8, 0, 6, 4};  // Ethernet, IPv4, and the lengths of their addresses
constexpr MacAddress kEverybody{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};

constexpr uint8_t kIcmp = 1, kIcmpV6 = 58;
constexpr uint8_t kEcho4 = 8, kEchoReply4 = 0, kEcho6 = 128, kEchoReply6 = 129, kSolicit = 135, kAdvertise = 136;
constexpr uint8_t kSourceLink = 1, kTargetLink = 2;             // option types of neighbour discovery
constexpr uint8_t kSolicitedFlag = 0x40, kOverrideFlag = 0x20;  // flags of an advertisement
constexpr uint32_t kEchoHeader = 8, kNdLength = 24, kLinkOption = 8;
constexpr uint8_t kNdHopLimit = 255;  // no router has forwarded the message, so the sender is on the link (RFC 4861 7.1.1)
constexpr uint8_t kHopLimit = 64;

MacAddress mac_at(const uint8_t* p) {
    MacAddress m;
    std::memcpy(m.bytes.data(), p, 6);
    return m;
}
Gid ipv6_at(const uint8_t* p) {
    Gid g;
    std::memcpy(g.bytes.data(), p, 16);
    return g;
}
void put(uint8_t* p, const MacAddress& m) { std::memcpy(p, m.bytes.data(), 6); }
bool is_group(const MacAddress& m) { return (m.bytes[0] & 1) != 0; }
bool is_any4(const uint8_t* p) { return load_be<uint32_t>(p) == 0; }

uint32_t sum(const uint8_t* p, uint32_t length, uint32_t start = 0) {
    for (; length > 1; p += 2, length -= 2) start += load_be<uint16_t>(p);
    if (length != 0) start += uint32_t(*p) << 8;
    return start;
}
uint16_t fold(uint32_t s) {
    while (s >> 16 != 0) s = (s & 0xffff) + (s >> 16);
    return uint16_t(s);
}
/// Returns the checksum of an ICMPv6 message behind the IPv6 header `ip` (RFC 8200 8.1).
uint16_t icmp6_sum(const uint8_t* ip, uint32_t length) {
    return fold(sum(ip + kIpv6Length, length, sum(ip + 8, 32, length + kIcmpV6)));
}

// ---- parsing --------------------------------------------------------------------------------------------------------

Message parse_arp(const uint8_t* frame, uint32_t length, Message m) {
    const uint8_t* arp = frame + kEthLength;
    if (length < kEthLength + kArpLength || !std::equal(std::begin(kArpForm), std::end(kArpForm), arp)) return {};
    const auto operation = load_be<uint16_t>(arp + 6);
    m.link = mac_at(arp + 8);
    if (is_group(m.link) || m.link.is_zero()) return {};
    if (!is_any4(arp + 14)) m.sender = Gid::from_ipv4(arp + 14);
    if (operation == kArpReply || std::memcmp(arp + 14, arp + 24, 4) == 0) {  // a reply or a gratuitous ARP
        if (m.sender.is_zero()) return {};
        m.kind = Kind::advertisement;
        m.target = m.sender;
        m.unsolicited = is_group(mac_at(frame));
        return m;
    }
    if (operation != kArpRequest || is_any4(arp + 24)) return {};
    m.kind = Kind::solicitation;
    m.target = Gid::from_ipv4(arp + 24);
    return m;
}

Message parse_icmp(const uint8_t* frame, uint32_t length, Message m) {
    const uint8_t* ip = frame + kEthLength;
    if (length < kEthLength + kIpv4Length + kEchoHeader || ip[0] != 0x45 || ip[9] != kIcmp) return {};
    const uint32_t total = load_be<uint16_t>(ip + 2);
    if (total < kIpv4Length + kEchoHeader || total > length - kEthLength) return {};
    if ((load_be<uint16_t>(ip + 6) & 0x3fff) != 0) return {};  // a fragment
    const uint8_t* icmp = ip + kIpv4Length;
    if (icmp[0] != kEcho4 || icmp[1] != 0 || is_any4(ip + 12)) return {};
    if (fold(sum(ip, kIpv4Length)) != 0xffff || fold(sum(icmp, total - kIpv4Length)) != 0xffff) return {};
    m.kind = Kind::echo;
    m.sender = Gid::from_ipv4(ip + 12);
    m.target = Gid::from_ipv4(ip + 16);
    m.l3 = kEthLength;
    m.length = kEthLength + total;
    return m;
}

/// Copies the MAC address in the option of type `type` to `link`. If the option is missing, does not change `link`. Returns false
/// if an option is malformed, or if `link` is a group address. The caller must then drop the message.
bool find_link(const uint8_t* p, uint32_t length, uint8_t type, MacAddress& link) {
    while (length != 0) {
        const uint32_t size = length < 2 ? 0 : uint32_t(p[1]) * 8;
        if (size == 0 || size > length) return false;
        if (p[0] == type && size == kLinkOption) link = mac_at(p + 2);
        p += size;
        length -= size;
    }
    return !is_group(link);
}

/// Parses a solicitation or an advertisement with the checks of RFC 4861 7.1.1 and 7.1.2.
Message parse_discovery(const uint8_t* ip, uint32_t length, Message m) {
    const uint8_t* nd = ip + kIpv6Length;
    if (length < kNdLength || nd[1] != 0 || ip[7] != kNdHopLimit) return {};
    const Gid to = ipv6_at(ip + 24);
    const bool asks = nd[0] == kSolicit;
    if (m.sender.is_zero() && (!asks || !is_multicast(to))) return {};
    m.target = ipv6_at(nd + 8);
    if (is_multicast(m.target) || m.target.is_zero() || m.target.is_ipv4()) return {};
    if (!find_link(nd + kNdLength, length - kNdLength, asks ? kSourceLink : kTargetLink, m.link)) return {};
    m.kind = asks ? Kind::solicitation : Kind::advertisement;
    if (asks) return m.sender.is_zero() && !m.link.is_zero() ? Message{} : m;
    if (is_multicast(to) && (nd[4] & kSolicitedFlag) != 0) return {};
    m.unsolicited = (nd[4] & kSolicitedFlag) == 0;
    m.override_link = (nd[4] & kOverrideFlag) != 0;
    if (m.link.is_zero()) m.link = m.from;  // an answer to a unicast solicitation need not contain the option
    return m;
}

Message parse_icmp6(const uint8_t* frame, uint32_t length, Message m) {
    const uint8_t* ip = frame + kEthLength;
    if (length < kEthLength + kIpv6Length + kEchoHeader || ip[0] >> 4 != 6 || ip[6] != kIcmpV6) return {};
    const uint32_t payload = load_be<uint16_t>(ip + 4);
    if (payload < kEchoHeader || payload > length - kEthLength - kIpv6Length) return {};
    if (icmp6_sum(ip, payload) != 0xffff) return {};
    m.sender = ipv6_at(ip + 8);
    if (is_multicast(m.sender)) return {};
    const uint8_t type = ip[kIpv6Length];
    if (type == kSolicit || type == kAdvertise) return parse_discovery(ip, payload, m);
    if (type != kEcho6 || ip[kIpv6Length + 1] != 0 || m.sender.is_zero()) return {};
    m.kind = Kind::echo;
    m.target = ipv6_at(ip + 24);
    m.l3 = kEthLength;
    m.length = kEthLength + kIpv6Length + payload;
    return m;
}

// ---- building -------------------------------------------------------------------------------------------------------

uint8_t* put_ethernet(Frame& f, const MacAddress& to, const MacAddress& from, uint16_t type) {
    uint8_t* p = f.bytes.data();
    put(p, to);
    put(p + 6, from);
    store_be<uint16_t>(p + 12, type);
    return p + kEthLength;
}

struct ArpEnd {
    MacAddress mac;
    Gid ip;
};
void put_arp(Frame& f, uint16_t operation, const ArpEnd& from, const ArpEnd& about, const MacAddress& to) {
    uint8_t* arp = put_ethernet(f, to, from.mac, kEtherArp);
    std::copy(std::begin(kArpForm), std::end(kArpForm), arp);
    store_be<uint16_t>(arp + 6, operation);
    put(arp + 8, from.mac);
    std::memcpy(arp + 14, &from.ip.bytes[12], 4);
    put(arp + 18, about.mac);
    std::memcpy(arp + 24, &about.ip.bytes[12], 4);
    f.length = kEthLength + kArpLength;
}

struct Discovery {
    uint8_t type, flags, option;
    MacAddress mac, to_mac;
    Gid from, to, target;
};
void put_discovery(Frame& f, const Discovery& d) {
    uint8_t* ip = put_ethernet(f, d.to_mac, d.mac, wire::kEtherIpv6);
    constexpr uint32_t kLength = kNdLength + kLinkOption;
    std::memset(ip, 0, kIpv6Length + kLength);
    ip[0] = 0x60;
    store_be<uint16_t>(ip + 4, uint16_t(kLength));
    ip[6] = kIcmpV6;
    ip[7] = kNdHopLimit;
    std::memcpy(ip + 8, d.from.bytes.data(), 16);
    std::memcpy(ip + 24, d.to.bytes.data(), 16);
    uint8_t* nd = ip + kIpv6Length;
    nd[0] = d.type;
    nd[4] = d.flags;
    std::memcpy(nd + 8, d.target.bytes.data(), 16);
    nd[kNdLength] = d.option;
    nd[kNdLength + 1] = kLinkOption / 8;
    put(nd + kNdLength + 2, d.mac);
    store_be<uint16_t>(nd + 2, uint16_t(~icmp6_sum(ip, kLength)));
    f.length = kEthLength + kIpv6Length + kLength;
}

constexpr Gid kAllNodes{{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
Gid solicited_node(const Gid& g) {
    return {{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, g.bytes[13], g.bytes[14], g.bytes[15]}};
}

}  // namespace

bool insert_tag(Frame& f, uint16_t tag) {
    constexpr uint32_t kMacs = 12;
    if (f.length < kMacs || f.length + wire::kVlanLength > kMaxFrame) return false;
    uint8_t* at = f.bytes.data() + kMacs;
    std::memmove(at + wire::kVlanLength, at, f.length - kMacs);
    store_be<uint16_t>(at, wire::kEtherVlan);
    store_be<uint16_t>(at + 2, tag);
    f.length += wire::kVlanLength;
    return true;
}

bool is_multicast(const Gid& g) { return g.is_ipv4() ? (g.bytes[12] & 0xf0) == 0xe0 : g.bytes[0] == 0xff; }
bool is_link_local(const Gid& g) { return g.bytes[0] == 0xfe && (g.bytes[1] & 0xc0) == 0x80; }

MacAddress multicast_mac(const Gid& g) {
    const auto& b = g.bytes;
    if (g.is_ipv4()) return {{0x01, 0x00, 0x5e, uint8_t(b[13] & 0x7f), b[14], b[15]}};
    return {{0x33, 0x33, b[12], b[13], b[14], b[15]}};
}

Message parse(const uint8_t* frame, uint32_t length) {
    if (length < kEthLength || length > kMaxFrame) return {};
    Message m;
    m.from = mac_at(frame + 6);
    if (is_group(m.from)) return {};
    const auto type = load_be<uint16_t>(frame + 12);
    if (type == kEtherArp) return parse_arp(frame, length, m);
    if (type == wire::kEtherIpv4) return parse_icmp(frame, length, m);
    return type == wire::kEtherIpv6 ? parse_icmp6(frame, length, m) : Message{};
}

void make_solicitation(Frame& f, const Ends& own, const Gid& target, const MacAddress& to) {
    if (target.is_ipv4()) return put_arp(f, kArpRequest, {own.mac, own.address}, {{}, target}, to.is_zero() ? kEverybody : to);
    const Gid group = solicited_node(target);
    put_discovery(f, {kSolicit, 0, kSourceLink, own.mac, to.is_zero() ? multicast_mac(group) : to, own.address,
                      to.is_zero() ? group : target, target});
}

void make_answer(Frame& f, const MacAddress& own, const Message& asked) {
    if (asked.target.is_ipv4()) {
        const Gid sender = asked.sender.is_zero() ? Gid{} : asked.sender;
        return put_arp(f, kArpReply, {own, asked.target}, {asked.link, sender}, asked.link);
    }
    const bool probe = asked.sender.is_zero();  // duplicate address detection: the answer is sent to all hosts
    put_discovery(f,
                  {kAdvertise, uint8_t(kOverrideFlag | (probe ? 0 : kSolicitedFlag)), kTargetLink, own,
                   probe ? multicast_mac(kAllNodes) : asked.from, asked.target, probe ? kAllNodes : asked.sender, asked.target});
}

void make_announcement(Frame& f, const Ends& own) {
    if (own.address.is_ipv4()) return put_arp(f, kArpRequest, {own.mac, own.address}, {{}, own.address}, kEverybody);
    put_discovery(
        f, {kAdvertise, kOverrideFlag, kTargetLink, own.mac, multicast_mac(kAllNodes), own.address, kAllNodes, own.address});
}

void make_echo_reply(Frame& f, const MacAddress& own, const Message& asked, const uint8_t* frame) {
    std::memcpy(f.bytes.data(), frame, asked.length);
    f.length = asked.length;
    put(f.bytes.data(), asked.from);
    put(f.bytes.data() + 6, own);
    uint8_t* ip = f.bytes.data() + asked.l3;
    if (asked.target.is_ipv4()) {
        std::memcpy(ip + 12, &asked.target.bytes[12], 4);
        std::memcpy(ip + 16, &asked.sender.bytes[12], 4);
        ip[8] = kHopLimit;
        store_be<uint16_t>(ip + 10, uint16_t{0});
        store_be<uint16_t>(ip + 10, uint16_t(~fold(sum(ip, kIpv4Length))));
        uint8_t* icmp = ip + kIpv4Length;
        icmp[0] = kEchoReply4;
        store_be<uint16_t>(icmp + 2, uint16_t{0});
        store_be<uint16_t>(icmp + 2, uint16_t(~fold(sum(icmp, asked.length - asked.l3 - kIpv4Length))));
        return;
    }
    std::memcpy(ip + 8, asked.target.bytes.data(), 16);
    std::memcpy(ip + 24, asked.sender.bytes.data(), 16);
    ip[7] = kHopLimit;
    uint8_t* icmp = ip + kIpv6Length;
    icmp[0] = kEchoReply6;
    store_be<uint16_t>(icmp + 2, uint16_t{0});
    store_be<uint16_t>(icmp + 2, uint16_t(~icmp6_sum(ip, asked.length - asked.l3 - kIpv6Length)));
}

}  // namespace roci::neighbour
