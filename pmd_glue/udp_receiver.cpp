#include "udp_receiver.hpp"

#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/bytes.hpp"
#include "wire/icrc.hpp"
#include "wire/ip_checksum.hpp"
#include "wire/packet.hpp"

namespace roci::pmd {
namespace {

void add(std::atomic<uint64_t>& counter, uint64_t n = 1) {
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

template <class T>
T value_of(const cmsghdr* c) {
    T value{};
    std::memcpy(&value, CMSG_DATA(c), std::min(sizeof value, size_t(c->cmsg_len - CMSG_LEN(0))));
    return value;
}

Gid gid_of(const in6_addr& a) {
    Gid g;
    std::memcpy(g.bytes.data(), &a, g.bytes.size());
    return g;
}

uint64_t hash_of(const Gid& source, uint16_t port) {
    uint64_t high, low;
    std::memcpy(&high, source.bytes.data(), sizeof high);
    std::memcpy(&low, source.bytes.data() + 8, sizeof low);
    return (high * 0xff51afd7ed558ccdull ^ low) + port;
}

}  // namespace

UdpReceiver::UdpReceiver(const UdpSockets& sockets, const MacAddress& mac) : sockets_(sockets), mac_(mac) {
    for (unsigned i = 0; i < kMessages; ++i) messages_.push_back(std::make_unique<Message>());
    pending_.reserve(kMessages * kSegments);
}

/// Prepares the buffers of a message: one slot per expected frame, and the overflow buffer for the remaining bytes. There may be
/// fewer free slots than expected frames, because the engine may hold slots for a long time.
void UdpReceiver::prepare(Message& m, mmsghdr& header) {
    if (m.ready && m.piece == expected_piece_ && m.prepared == expected_count_) return;
    m.ready = true;
    m.piece = expected_piece_;
    m.prepared = 0;
    while (m.prepared < expected_count_) {
        uint8_t*& slot = m.slots[m.prepared];
        if (slot == nullptr) slot = slots_.take();
        if (slot == nullptr) break;
        m.pieces[m.prepared++] = {slot + kBth, m.piece};
    }
    m.pieces[m.prepared] = {m.overflow.get(), kOverflow};
    header.msg_hdr = {};
    header.msg_hdr.msg_name = &m.from;
    header.msg_hdr.msg_namelen = sizeof m.from;
    header.msg_hdr.msg_iov = m.pieces.data();
    header.msg_hdr.msg_iovlen = m.prepared + 1;
    header.msg_hdr.msg_control = m.control.data();
    header.msg_hdr.msg_controllen = m.control.size();
}

bool UdpReceiver::receive(const UdpSockets::Socket& socket) {
    // If the last call received nothing, first peeks, because a peek takes half the time of recvmmsg().
    if (quiet_ && recv(socket.fd, nullptr, 0, MSG_PEEK | MSG_DONTWAIT) < 0) return false;
    for (unsigned i = 0; i < kMessages; ++i) prepare(*messages_[i], headers_[i]);
    const int n = recvmmsg(socket.fd, headers_.data(), kMessages, MSG_DONTWAIT, nullptr);
    quiet_ = n <= 0;
    if (quiet_) return false;
    add(counters_.calls);
    for (int i = 0; i < n; ++i) {
        messages_[i]->ready = false;
        Header& h = received_[i] = read_header(headers_[i].msg_hdr);
        if (!socket.address.is_zero()) h.dest = socket.address;
        if ((headers_[i].msg_hdr.msg_flags & MSG_TRUNC) != 0)
            add(counters_.too_large);
        else
            take(*messages_[i], h, headers_[i].msg_len);
        expect(h, headers_[i].msg_len);
    }
    return true;
}

UdpReceiver::Header UdpReceiver::read_header(const msghdr& m) const {
    Header h;
    sockaddr_in6 six{};
    sockaddr_in four{};
    if (static_cast<const sockaddr*>(m.msg_name)->sa_family == AF_INET6) {
        std::memcpy(&six, m.msg_name, sizeof six);
        h.source = gid_of(six.sin6_addr);
        h.source_port = ntohs(six.sin6_port);
    } else {
        std::memcpy(&four, m.msg_name, sizeof four);
        h.source = Gid::from_ipv4(reinterpret_cast<const uint8_t*>(&four.sin_addr));
        h.source_port = ntohs(four.sin_port);
    }
    h.ipv4 = h.source.is_ipv4();
    for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(const_cast<msghdr*>(&m), c)) {
        const bool ip = c->cmsg_level == IPPROTO_IP, ipv6 = c->cmsg_level == IPPROTO_IPV6;
        if (ip && c->cmsg_type == IP_PKTINFO) {
            const auto to = value_of<in_pktinfo>(c);
            h.dest = Gid::from_ipv4(reinterpret_cast<const uint8_t*>(&to.ipi_addr));
        } else if (ipv6 && c->cmsg_type == IPV6_PKTINFO) {
            h.dest = gid_of(value_of<in6_pktinfo>(c).ipi6_addr);
        } else if (ip && c->cmsg_type == IP_TOS) {
            h.traffic_class = value_of<uint8_t>(c);
        } else if (ipv6 && c->cmsg_type == IPV6_TCLASS) {
            h.traffic_class = uint8_t(value_of<int>(c));
        } else if ((ip && c->cmsg_type == IP_TTL) || (ipv6 && c->cmsg_type == IPV6_HOPLIMIT)) {
            h.hop_limit = uint8_t(value_of<int>(c));
        } else if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
            h.segment = uint32_t(value_of<int>(c));
        }
    }
    return h;
}

/// Stores the layout of a received datagram as the expected layout of the next datagrams. A datagram that fits into one slot does
/// not change the expected layout.
void UdpReceiver::expect(const Header& h, uint32_t bytes) {
    if (bytes <= kPayload || h.segment == 0 || h.segment > kPayload) return;
    expected_piece_ = h.segment;
    expected_count_ = std::min((bytes + h.segment - 1) / h.segment + 1, kSegments);
}

/// Copies bytes [offset, offset + length) of the datagram from the slots and the overflow buffer.
void UdpReceiver::copy_out(const Message& m, uint32_t offset, uint32_t length, uint8_t* to) {
    const uint32_t in_slots = m.prepared * m.piece;
    while (length != 0) {
        const bool slot = offset < in_slots;
        const uint8_t* from = slot ? static_cast<const uint8_t*>(m.pieces[offset / m.piece].iov_base) + offset % m.piece
                                   : m.overflow.get() + (offset - in_slots);
        const uint32_t n = slot ? std::min(length, m.piece - offset % m.piece) : length;
        std::memcpy(to, from, n);
        to += n;
        offset += n;
        length -= n;
    }
}

/// Returns a slot in which bytes [offset, offset + length) of the datagram begin at position kBth. Returns nullptr if no slot is
/// free. If `direct` is true, the kernel has stored the first m.piece bytes of the frame in slot `index`. Then only the remaining
/// bytes are copied. Only a datagram with a single frame can have remaining bytes.
uint8_t* UdpReceiver::piece_of(Message& m, uint32_t offset, uint32_t length, unsigned index, bool direct) {
    if (direct && index < m.prepared) {
        uint8_t* slot = std::exchange(m.slots[index], nullptr);
        if (length > m.piece) copy_out(m, offset + m.piece, length - m.piece, slot + kBth + m.piece);
        return slot;
    }
    uint8_t* slot = slots_.take();
    if (slot == nullptr) return nullptr;
    add(counters_.split);
    copy_out(m, offset, length, slot + kBth);
    return slot;
}

void UdpReceiver::take(Message& m, const Header& h, uint32_t bytes) {
    const uint32_t segment = h.segment != 0 ? h.segment : bytes;
    const bool direct = segment == m.piece || bytes <= segment;
    unsigned index = 0;
    for (uint32_t offset = 0; offset < bytes; offset += segment, ++index) {
        const uint32_t length = std::min(segment, bytes - offset);
        if (length > kPayload || length < wire::kBthLength + wire::kIcrcLength || pending_.size() == pending_.capacity()) {
            add(counters_.too_large);
            continue;
        }
        uint8_t* slot = piece_of(m, offset, length, index, direct);
        if (slot == nullptr) continue;  // drops the frame, like a NIC without free descriptors
        pending_.push_back({slot, &h, length, index});
    }
}

/// Writes the Ethernet, IP and UDP headers in front of the BTH, as the sender's kernel had written the IP and UDP headers.
/// Returns the address of the IP header.
uint8_t* UdpReceiver::put_headers(uint8_t* slot, const Header& h, uint32_t length, uint16_t id) {
    const auto datagram = uint16_t(length + wire::kUdpLength);
    uint8_t* udp = slot + kBth - wire::kUdpLength;
    store_be<uint16_t>(udp, h.source_port);
    store_be<uint16_t>(udp + 2, wire::kRoceUdpPort);
    store_be<uint16_t>(udp + 4, datagram);
    store_be<uint16_t>(udp + 6, uint16_t{0});
    uint8_t* l3 = udp - (h.ipv4 ? wire::kIpv4Length : wire::kIpv6Length);
    if (h.ipv4) {
        l3[0] = 0x45;
        l3[1] = h.traffic_class;
        store_be<uint16_t>(l3 + 2, uint16_t(datagram + wire::kIpv4Length));
        store_be<uint16_t>(l3 + 4, id);
        store_be<uint16_t>(l3 + 6, wire::kDontFragmentWord);
        l3[8] = h.hop_limit;
        l3[9] = wire::kProtocolUdp;
        store_be<uint16_t>(l3 + 10, uint16_t{0});
        std::memcpy(l3 + 12, &h.source.bytes[12], 4);
        std::memcpy(l3 + 16, &h.dest.bytes[12], 4);
    } else {
        store_be<uint32_t>(l3, uint32_t{6} << 28 | uint32_t(h.traffic_class) << 20);
        store_be<uint16_t>(l3 + 4, datagram);
        l3[6] = wire::kProtocolUdp;
        l3[7] = h.hop_limit;
        std::memcpy(l3 + 8, h.source.bytes.data(), 16);
        std::memcpy(l3 + 24, h.dest.bytes.data(), 16);
    }
    uint8_t* eth = l3 - wire::kEthLength;
    std::memcpy(eth, mac_.bytes.data(), 6);
    std::memset(eth + 6, 0, 6);  // the socket does not report the sender's MAC address
    store_be<uint16_t>(eth + 12, h.ipv4 ? wire::kEtherIpv4 : wire::kEtherIpv6);
    return l3;
}

/// Called for a frame with a wrong ICRC. Returns true if the ICRC is right for source port 4791, which means that a NAT has
/// changed the source port. The receiver refuses such a frame too, because responses go to port 4791, for which the NAT has no
/// mapping.
bool UdpReceiver::natted(uint8_t* l3, const Header& h, uint32_t covered, uint32_t sent) {
    if (h.source_port == wire::kRoceUdpPort) return false;
    uint8_t* udp = l3 + (h.ipv4 ? wire::kIpv4Length : wire::kIpv6Length);
    store_be<uint16_t>(udp, wire::kRoceUdpPort);
    const uint32_t difference = sent ^ wire::icrc(l3, covered, !h.ipv4, wire::kIpv4Length);
    store_be<uint16_t>(udp, h.source_port);
    return difference == 0 || (h.ipv4 && shifts_.of(covered).identification_for(difference).has_value());
}

/// Returns true if the ICRC is right. For IPv4, first tries the identification `id`. If the ICRC is wrong with `id`, computes the
/// identification from the ICRC, and writes the result to the header. Accepts the computed identification only if
/// UdpPeers::believe() returns true.
bool UdpReceiver::check(uint8_t* l3, const Header& h, uint32_t length, uint16_t id, UdpPeers::Peer& peer) {
    const uint32_t covered = (h.ipv4 ? wire::kIpv4Length : wire::kIpv6Length) + wire::kUdpLength + length - wire::kIcrcLength;
    uint32_t sent;
    std::memcpy(&sent, l3 + covered, sizeof sent);
    const uint32_t difference = sent ^ wire::icrc(l3, covered, !h.ipv4, wire::kIpv4Length);
    if (difference == 0) return !h.ipv4 || UdpPeers::believe(peer, id);
    const auto refuse = [&] {
        if (natted(l3, h, covered, sent)) add(counters_.port_changed);
        return false;
    };
    if (!h.ipv4) return refuse();
    const wire::IcrcShift& shift = shifts_.of(covered);
    auto change = shift.identification_for(difference);
    const bool fragments = !change.has_value();  // true: the sender may permit fragmentation (no don't-fragment bit)
    if (fragments) change = shift.identification_for(difference ^ shift.of_flags(wire::kDontFragmentWord));
    if (!change.has_value()) return refuse();
    const auto found = uint16_t(id ^ *change);
    store_be<uint16_t>(l3 + 4, found);
    if (fragments) store_be<uint16_t>(l3 + 6, uint16_t{0});
    if (UdpPeers::believe(peer, found)) return true;
    add(counters_.unconfirmed);
    return false;
}

/// Rebuilds the headers and checks the ICRC of a frame. This happens just before the engine copies the payload, so that the
/// payload is still in the nearest cache.
void UdpReceiver::deliver(const Pending& p, io::RxFrame& f) {
    const Header& h = *p.header;
    UdpPeers::Peer& peer = peers_.of(hash_of(h.source, h.source_port));
    const uint16_t expected = p.index != 0 || !peer.known ? uint16_t(p.index) : peer.next;
    uint8_t* l3 = put_headers(p.slot, h, p.length, h.ipv4 ? expected : uint16_t{0});
    f.data = l3 - wire::kEthLength;
    f.length = uint32_t(p.slot + kBth - f.data) + p.length;
    f.cookie = p.slot;
    f.icrc = check(l3, h, p.length, expected, peer) ? wire::HeaderChecksum::right : wire::HeaderChecksum::wrong;
    if (h.ipv4) wire::fill_header_checksum(l3);
    f.ip_checksum = wire::HeaderChecksum::right;
}

unsigned UdpReceiver::burst(io::RxFrame* frames, unsigned max) {
    if (next_ == pending_.size()) {
        pending_.clear();
        next_ = 0;
        const auto all = sockets_.all();
        for (size_t i = 0; i < all.size() && pending_.empty(); ++i) receive(all[(turn_ + i) % all.size()]);
        turn_ = (turn_ + 1) % all.size();
    }
    const auto n = unsigned(std::min<size_t>(max, pending_.size() - next_));
    for (unsigned i = 0; i < n; ++i) deliver(pending_[next_++], frames[i]);
    return n;
}

}  // namespace roci::pmd
