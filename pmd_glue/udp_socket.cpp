#include "udp_socket.hpp"

#include <fmt/format.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "eal.hpp"
#include "wire/describe.hpp"
#include "wire/packet.hpp"

namespace roci::pmd {
namespace {

void set(int fd, int level, int name, int value) {
    if (setsockopt(fd, level, name, &value, sizeof value) != 0)
        throw StartError(fmt::format("socket option {}/{}: {}", level, name, std::strerror(errno)));
}

/// Returns the size of a socket buffer that the kernel has granted. The kernel doubles the granted size for its overhead, and
/// getsockopt() returns the doubled size (socket(7)).
uint32_t buffer_of(int fd, int name) {
    int bytes = 0;
    socklen_t length = sizeof bytes;
    getsockopt(fd, SOL_SOCKET, name, &bytes, &length);
    return uint32_t(bytes) / 2;
}

/// Sets the IPv4 options of a socket. The engine computes the ICRC for identification 0 and a set don't-fragment bit. The kernel
/// sends these values only from unconnected sockets that discover the path MTU.
void set_ipv4(int fd) {
    set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
    set(fd, IPPROTO_IP, IP_PKTINFO, 1);
    set(fd, IPPROTO_IP, IP_RECVTOS, 1);
    set(fd, IPPROTO_IP, IP_RECVTTL, 1);
}

void set_ipv6(int fd) {
    set(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
    set(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
    set(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
    set(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
    set(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);  // RoCEv2 permits UDP checksum 0: the ICRC protects the packet (A17.3.2)
}

/// Selects the interface for multicast datagrams. Disables the kernel's loopback of multicast datagrams, because a
/// HairpinPort delivers sent multicast datagrams to the QPs of the device. Also disables the reception of groups that other
/// sockets of this host have joined (ip(7), IP_MULTICAST_ALL), because otherwise each engine would deliver a copy.
void set_multicast(int fd, bool ipv4, bool ipv6, int interface_index) {
    const int off = 0;
    ip_mreqn by{};
    by.imr_ifindex = interface_index;
    if (ipv4) {
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by);
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_LOOP, &off, sizeof off);
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof off);
    }
    if (ipv6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &interface_index, sizeof interface_index);
        setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, &off, sizeof off);
        setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, &off, sizeof off);
    }
}

/// Sets the size of a socket buffer. Only a process with CAP_NET_ADMIN may exceed net.core.rmem_max and net.core.wmem_max. For
/// other processes, the kernel reduces the size.
void set_buffer(int fd, int forced, int limited, int bytes) {
    if (setsockopt(fd, SOL_SOCKET, forced, &bytes, sizeof bytes) != 0) setsockopt(fd, SOL_SOCKET, limited, &bytes, sizeof bytes);
}

/// Distributes received datagrams over the engines' sockets by the lowest byte of the BTH's destination QP number. By default,
/// all datagrams of a peer would arrive at one socket, because they have the same addresses and ports.
void spread_by_qp(int fd, uint32_t engines) {
    constexpr uint32_t kLowestQpByte = 7;
    sock_filter code[] = {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kLowestQpByte), BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, engines),
                          BPF_STMT(BPF_RET | BPF_A, 0)};
    const sock_fprog program{3, code};
    // If the call fails, an engine passes frames for QPs of another engine to that engine.
    setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program);
}

[[noreturn]] void refuse_bind(const std::string& where) {
    if (errno == EADDRINUSE)
        throw StartError(
            fmt::format("UDP port {} is in use on {}: another rocid, a program, or the kernel's Soft-RoCE has it "
                        "(ss -ulpn 'sport = :{}'; rdma link; modprobe -r rdma_rxe)",
                        wire::kRoceUdpPort, where, wire::kRoceUdpPort));
    if (errno == EADDRNOTAVAIL)
        throw StartError(fmt::format("{} is no address of this host: ip addr add {} dev INTERFACE", where, where));
    throw StartError(fmt::format("UDP port {} on {}: {}", wire::kRoceUdpPort, where, std::strerror(errno)));
}

void bind_to(int fd, bool ipv6, const Gid& address, int interface_index) {
    if (!ipv6) {
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(wire::kRoceUdpPort);
        if (!address.is_zero()) std::memcpy(&to.sin_addr, &address.bytes[12], 4);
        if (bind(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
            refuse_bind(address.is_zero() ? "every address" : wire::to_text(address));
        return;
    }
    sockaddr_in6 to{};
    to.sin6_family = AF_INET6;
    to.sin6_port = htons(wire::kRoceUdpPort);
    std::memcpy(&to.sin6_addr, address.bytes.data(), 16);
    if (IN6_IS_ADDR_LINKLOCAL(&to.sin6_addr)) to.sin6_scope_id = uint32_t(interface_index);
    if (bind(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
        refuse_bind(address.is_zero() ? "every address" : wire::to_text(address));
}

}  // namespace

UdpSockets::UdpSockets(const UdpSetup& setup) : epoll_(epoll_create1(EPOLL_CLOEXEC)), interface_index_(setup.interface_index) {
    if (epoll_ < 0) throw StartError("no descriptor for UDP sockets");
    if (setup.addresses.empty()) open(setup, {});
    for (const Gid& address : setup.addresses) open(setup, address);
}

UdpSockets::~UdpSockets() {
    for (const Socket& s : sockets_) close(s.fd);
    if (epoll_ >= 0) close(epoll_);
}

void UdpSockets::open(const UdpSetup& setup, const Gid& address) {
    const bool any = address.is_zero();
    const int flags = SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    Socket s;
    s.address = address;
    s.ipv6 = any || !address.is_ipv4();
    s.fd = socket(s.ipv6 ? AF_INET6 : AF_INET, flags, 0);
    if (s.fd < 0 && any) {  // the kernel has no IPv6
        s.ipv6 = false;
        s.fd = socket(AF_INET, flags, 0);
    }
    if (s.fd < 0) throw StartError(fmt::format("no UDP socket: {}", std::strerror(errno)));
    sockets_.push_back(s);
    s.both = any && s.ipv6;
    sockets_.back().both = s.both;
    if (setup.engines > 1) set(s.fd, SOL_SOCKET, SO_REUSEPORT, 1);
    if (s.ipv6) set(s.fd, IPPROTO_IPV6, IPV6_V6ONLY, s.both ? 0 : 1);
    if (s.ipv6) set_ipv6(s.fd);
    if (!s.ipv6 || s.both) set_ipv4(s.fd);
    set_multicast(s.fd, !s.ipv6 || s.both, s.ipv6, setup.interface_index);
    const int bytes = int(setup.buffer_bytes);
    set_buffer(s.fd, SO_RCVBUFFORCE, SO_RCVBUF, bytes);
    set_buffer(s.fd, SO_SNDBUFFORCE, SO_SNDBUF, bytes);
    receive_buffer_ = buffer_of(s.fd, SO_RCVBUF);
    send_buffer_ = buffer_of(s.fd, SO_SNDBUF);
    int on = 1;
    setsockopt(s.fd, IPPROTO_UDP, UDP_GRO, &on, sizeof on);  // if the call fails, each frame is a separate datagram
    bind_to(s.fd, s.ipv6, address, setup.interface_index);
    if (setup.engines > 1) spread_by_qp(s.fd, setup.engines);
    epoll_event e{.events = EPOLLIN | EPOLLET, .data = {.fd = s.fd}};
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, s.fd, &e) != 0) throw StartError("a UDP socket cannot be watched");
}

int UdpSockets::follow_group(const Gid& group, bool joined) const {
    ip_mreqn four{};
    four.imr_ifindex = interface_index_;
    std::memcpy(&four.imr_multiaddr, &group.bytes[12], 4);
    ipv6_mreq six{};
    six.ipv6mr_interface = unsigned(interface_index_);
    std::memcpy(&six.ipv6mr_multiaddr, group.bytes.data(), group.bytes.size());
    for (const Socket& s : sockets_) {
        if (!s.address.is_zero()) continue;
        int result = 0;
        if (group.is_ipv4())
            result = setsockopt(s.fd, IPPROTO_IP, joined ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &four, sizeof four);
        else if (s.ipv6)
            result = setsockopt(s.fd, IPPROTO_IPV6, joined ? IPV6_JOIN_GROUP : IPV6_LEAVE_GROUP, &six, sizeof six);
        if (result != 0) return errno;
    }
    return 0;
}

const UdpSockets::Socket* UdpSockets::for_source(const Gid& source) const {
    for (const Socket& s : sockets_)
        if (s.address.is_zero() ? (s.both || s.ipv6 != source.is_ipv4()) : s.address == source) return &s;
    return nullptr;
}

}  // namespace roci::pmd
