#include "udp_sender.hpp"

#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bytes.hpp"
#include "wire/packet.hpp"

namespace roci::pmd {
namespace {

/// Offset of the IP header in a frame. Frames of UDP ports have no VLAN tag.
constexpr uint32_t kL3 = wire::kEthLength;

struct Layout {
    bool ipv4;
    uint32_t bth;    ///< offset of the BTH in the frame
    uint32_t bytes;  ///< number of bytes from the BTH to the end of the ICRC
};

Layout layout_of(const io::TxFrame& f) {
    const bool ipv4 = f.data[kL3] >> 4 == 4;
    const uint32_t bth = kL3 + (ipv4 ? wire::kIpv4Length : wire::kIpv6Length) + wire::kUdpLength;
    return {ipv4, bth, f.length - bth};
}

/// Returns true if the frame contains UDP over IPv6, or UDP over IPv4 without options. A UDP socket can send only such frames.
bool is_udp(const io::TxFrame& f) {
    constexpr uint32_t kShortest = kL3 + wire::kIpv4Length + wire::kUdpLength + wire::kBthLength + wire::kIcrcLength;
    if (f.length < kShortest) return false;
    const uint8_t* l3 = f.data + kL3;
    if (l3[0] == 0x45) return l3[9] == wire::kProtocolUdp;
    return l3[0] >> 4 == 6 && l3[6] == wire::kProtocolUdp && f.length >= kShortest + wire::kIpv6Length - wire::kIpv4Length;
}

/// Returns true if two IP headers have equal traffic class, hop limit and addresses and, for IPv6, equal flow labels.
bool same_flow(const uint8_t* a, const uint8_t* b, bool ipv4) {
    if (ipv4) return a[1] == b[1] && a[8] == b[8] && std::memcmp(a + 12, b + 12, 8) == 0;
    return std::memcmp(a, b, 4) == 0 && a[7] == b[7] && std::memcmp(a + 8, b + 8, 32) == 0;
}

Gid source_of(const uint8_t* l3, bool ipv4) {
    if (ipv4) return Gid::from_ipv4(l3 + 12);
    Gid g;
    std::memcpy(g.bytes.data(), l3 + 8, g.bytes.size());
    return g;
}

/// Appends control messages to a buffer. The buffer must be large enough for all control messages.
class Control {
public:
    Control(msghdr& m, void* buffer) : m_(m), at_(static_cast<uint8_t*>(buffer)) {
        m.msg_control = buffer;
        m.msg_controllen = 0;
    }
    template <class T>
    void put(int level, int type, const T& value) {
        cmsghdr h{};
        h.cmsg_level = level;
        h.cmsg_type = type;
        h.cmsg_len = CMSG_LEN(sizeof value);
        std::memset(at_, 0, CMSG_SPACE(sizeof value));
        std::memcpy(at_, &h, sizeof h);
        std::memcpy(at_ + CMSG_LEN(0), &value, sizeof value);
        at_ += CMSG_SPACE(sizeof value);
        m_.msg_controllen += CMSG_SPACE(sizeof value);
    }

private:
    msghdr& m_;
    uint8_t* at_;
};

void add(std::atomic<uint64_t>& counter, uint64_t n) {
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

void put_ipv4_fields(Control& control, const uint8_t* l3) {
    in_pktinfo from{};
    std::memcpy(&from.ipi_spec_dst, l3 + 12, 4);
    control.put(IPPROTO_IP, IP_PKTINFO, from);
    control.put(IPPROTO_IP, IP_TOS, int(l3[1]));
    control.put(IPPROTO_IP, IP_TTL, std::max(int(l3[8]), 1));
}

void put_ipv6_fields(Control& control, const uint8_t* l3, int interface_index) {
    in6_pktinfo from{};
    std::memcpy(&from.ipi6_addr, l3 + 8, 16);
    if (IN6_IS_ADDR_LINKLOCAL(&from.ipi6_addr)) from.ipi6_ifindex = unsigned(interface_index);
    control.put(IPPROTO_IPV6, IPV6_PKTINFO, from);
    control.put(IPPROTO_IPV6, IPV6_TCLASS, int(load_be<uint16_t>(l3) >> 4 & 0xff));
    control.put(IPPROTO_IPV6, IPV6_HOPLIMIT, std::max(int(l3[7]), 1));
}

}  // namespace

bool UdpSender::open_group(const io::TxFrame& frame, unsigned index, Group& g) {
    g = {index, 1};
    if (!is_udp(frame)) return false;
    const Layout at = layout_of(frame);
    g = {index, 1, at.bytes, at.ipv4, false, sockets_.for_source(source_of(frame.data + kL3, at.ipv4))};
    return g.socket != nullptr;
}

/// Returns the largest number of segments of a datagram.
unsigned UdpSender::most_segments(const Group& g) { return std::min(kSegments, (g.ipv4 ? kIpv4Bytes : kIpv6Bytes) / g.bytes); }

/// Returns true if the frame `next`, which is shorter than the frames of the group, should be the last frame of the group. If
/// further frames have the same length as `next`, they can share the next datagram with `next`. For example, Middle packets are
/// shorter than a WRITE First, which has a RETH. The function then returns true only if this saves a datagram: the number of
/// frames of this length is one more than a multiple of the number that fits into a datagram.
bool UdpSender::closes(const io::TxFrame* frames, unsigned next, unsigned count, bool ipv4) {
    unsigned end = next + 1;
    while (end < count && frames[end].length == frames[next].length) ++end;
    return (end - next) % most_segments({next, 1, layout_of(frames[next]).bytes, ipv4}) == 1;
}

/// Returns true if the next frame should be added to the group. A frame that is shorter than the first frame can only be the last
/// frame of the datagram.
bool UdpSender::joins(const Group& g, const io::TxFrame* frames, unsigned next, unsigned count) const {
    if (!segments_ || g.closed || g.count == most_segments(g)) return false;
    const io::TxFrame& frame = frames[next];
    if (!is_udp(frame)) return false;
    const Layout at = layout_of(frame);
    if (at.ipv4 != g.ipv4 || at.bytes > g.bytes) return false;
    if (at.bytes < g.bytes && !closes(frames, next, count, g.ipv4)) return false;
    return same_flow(frames[g.first].data + kL3, frame.data + kL3, g.ipv4);
}

/// Changes the ICRCs of the frames for the identifications of the segments. In the segments of an IPv4 datagram, the kernel sets
/// the identifications 0, 1, 2 …, and the ICRC covers the identification. A second call reverses the changes.
void UdpSender::number_segments(const Group& g, io::TxFrame* frames) {
    if (!g.ipv4) return;
    for (unsigned i = 1; i < g.count; ++i) {
        io::TxFrame& f = frames[g.first + i];
        uint8_t* icrc = f.data + f.length - wire::kIcrcLength;
        uint32_t value;
        std::memcpy(&value, icrc, sizeof value);
        value ^= shifts_.of(f.length - wire::kIcrcLength - kL3).of_identification(uint16_t(i));
        std::memcpy(icrc, &value, sizeof value);
    }
}

void UdpSender::address(const Group& g, const io::TxFrame& frame, unsigned message) {
    msghdr& m = headers_[message].msg_hdr;
    Message& own = messages_[message];
    const uint8_t* l3 = frame.data + kL3;
    Control control(m, own.control.data());
    if (g.ipv4 && !g.socket->ipv6) {
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(wire::kRoceUdpPort);
        std::memcpy(&to.sin_addr, l3 + 16, 4);
        std::memcpy(&own.to, &to, sizeof to);
        m.msg_namelen = sizeof to;
    } else {
        sockaddr_in6 to{};
        to.sin6_family = AF_INET6;
        to.sin6_port = htons(wire::kRoceUdpPort);
        const Gid dest = g.ipv4 ? Gid::from_ipv4(l3 + 16) : Gid{};
        std::memcpy(&to.sin6_addr, g.ipv4 ? dest.bytes.data() : l3 + 24, 16);
        if (IN6_IS_ADDR_LINKLOCAL(&to.sin6_addr)) to.sin6_scope_id = uint32_t(sockets_.interface_index());
        std::memcpy(&own.to, &to, sizeof to);
        m.msg_namelen = sizeof to;
    }
    m.msg_name = &own.to;
    if (g.ipv4)
        put_ipv4_fields(control, l3);
    else
        put_ipv6_fields(control, l3, sockets_.interface_index());
    if (g.count > 1) control.put(IPPROTO_UDP, UDP_SEGMENT, uint16_t(g.bytes));
}

void UdpSender::dropped(const Group& g, int error) {
    // Before Linux 6.13, the error for segments that are too long is EINVAL.
    const bool length = error == EMSGSIZE || (error == EINVAL && g.count > 1);
    add(length ? counters_.too_long : counters_.unreachable, g.count);
    counters_.last_error.store(error, std::memory_order_relaxed);
}

/// Sends groups that all use the same socket. `end` is the index behind the last frame of the groups. Returns the index of the
/// first frame that was neither sent nor dropped, or `end`.
unsigned UdpSender::submit(io::TxFrame* frames, unsigned groups, unsigned end) {
    unsigned piece = 0;
    for (unsigned i = 0; i < groups; ++i) {
        const Group& g = groups_[i];
        number_segments(g, frames);
        address(g, frames[g.first], i);
        headers_[i].msg_hdr.msg_iov = &pieces_[piece];
        headers_[i].msg_hdr.msg_iovlen = g.count;
        for (unsigned k = 0; k < g.count; ++k) {
            const io::TxFrame& f = frames[g.first + k];
            const uint32_t skip = layout_of(f).bth;
            pieces_[piece++] = {f.data + skip, f.length - skip};
        }
    }
    for (unsigned done = 0; done < groups;) {
        const int n = sendmmsg(groups_[done].socket->fd, &headers_[done], groups - done, MSG_DONTWAIT);
        if (n > 0) {
            add(counters_.calls, 1);
            done += unsigned(n);
            continue;
        }
        const Group& g = groups_[done];
        const int error = errno;
        const bool full = error == EAGAIN || error == ENOBUFS || error == EINTR;
        const bool refused = g.count > 1 && (error == EIO || error == EOPNOTSUPP || error == ENOPROTOOPT);
        if (full || refused) {
            if (refused) segments_ = false;  // refused for example over IPsec; then each frame is a separate datagram
            for (unsigned i = done; i < groups; ++i) number_segments(groups_[i], frames);
            return g.first;
        }
        dropped(g, error);
        ++done;
    }
    return end;
}

unsigned UdpSender::send(io::TxFrame* frames, unsigned count) {
    count = std::min(count, kFrames);
    unsigned groups = 0;
    for (unsigned i = 0; i < count; ++i) {
        if (groups != 0 && joins(groups_[groups - 1], frames, i, count)) {
            Group& g = groups_[groups - 1];
            ++g.count;
            g.closed = layout_of(frames[i]).bytes < g.bytes;
            continue;
        }
        Group next;
        const bool known = open_group(frames[i], i, next);
        const bool other = groups != 0 && known && next.socket != groups_[0].socket;
        if (groups == kMessages || other || (!known && groups != 0)) return submit(frames, groups, i);
        if (!known) {
            add(counters_.no_address, 1);
            counters_.last_error.store(EADDRNOTAVAIL, std::memory_order_relaxed);
            return i + 1;
        }
        groups_[groups++] = next;
    }
    return groups == 0 ? 0 : submit(frames, groups, count);
}

}  // namespace roci::pmd
