#include "netdev.hpp"

#include <dirent.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "wire/packet.hpp"

namespace roci::rocid {

Netdev query_netdev(const std::string& name) {
    Netdev out;
    if (name.empty() || name.size() >= IFNAMSIZ) return out;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return out;
    ifreq r{};
    std::copy(name.begin(), name.end(), r.ifr_name);
    if (ioctl(fd, SIOCGIFINDEX, &r) == 0) out.index = r.ifr_ifindex;
    if (ioctl(fd, SIOCGIFHWADDR, &r) == 0) std::copy_n(r.ifr_hwaddr.sa_data, out.mac.bytes.size(), out.mac.bytes.begin());
    if (ioctl(fd, SIOCGIFMTU, &r) == 0) out.mtu = uint32_t(r.ifr_mtu);
    if (ioctl(fd, SIOCGIFFLAGS, &r) == 0) {
        out.up = (r.ifr_flags & IFF_UP) != 0;
        out.running = (r.ifr_flags & IFF_RUNNING) != 0;
    }
    close(fd);
    return out;
}

bool kernel_has_address(const Gid& address) {
    ifaddrs* all = nullptr;
    if (getifaddrs(&all) != 0) return false;
    bool found = false;
    for (const ifaddrs* a = all; a != nullptr && !found; a = a->ifa_next) {
        if (a->ifa_addr == nullptr) continue;
        Gid g;
        if (a->ifa_addr->sa_family == AF_INET)
            g = Gid::from_ipv4(reinterpret_cast<const uint8_t*>(&reinterpret_cast<const sockaddr_in*>(a->ifa_addr)->sin_addr));
        else if (a->ifa_addr->sa_family == AF_INET6)
            std::copy_n(reinterpret_cast<const sockaddr_in6*>(a->ifa_addr)->sin6_addr.s6_addr, g.bytes.size(), g.bytes.begin());
        found = !g.is_zero() && g == address;
    }
    freeifaddrs(all);
    return found;
}

uint32_t receive_queues(const std::string& name) {
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return 1;
    ethtool_channels channels{.cmd = ETHTOOL_GCHANNELS};
    ifreq r{};
    std::copy_n(name.begin(), std::min<size_t>(name.size(), IFNAMSIZ - 1), r.ifr_name);
    r.ifr_data = reinterpret_cast<char*>(&channels);
    const bool known = ioctl(fd, SIOCETHTOOL, &r) == 0;
    close(fd);
    return known ? std::max(channels.combined_count + channels.rx_count, 1u) : 1;
}

bool may_open_packet_socket() {
    const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    close(fd);
    return true;
}

int may_open_xdp_socket() {
    const int fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    close(fd);
    return 0;
}

std::vector<int> frame_sockets() {
    std::vector<int> out;
    DIR* list = opendir("/proc/self/fd");
    if (list == nullptr) return out;
    while (const dirent* entry = readdir(list)) {
        const int fd = std::atoi(entry->d_name);
        int family = 0;
        socklen_t length = sizeof family;
        if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length) != 0) continue;
        if (family == AF_PACKET || family == AF_XDP) out.push_back(fd);
    }
    closedir(list);
    std::ranges::sort(out);
    return out;
}

QuietUdpPort::QuietUdpPort() : fd_(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    const bool only_ipv4 = fd_ < 0;  // the kernel has no IPv6
    if (only_ipv4) fd_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd_ < 0) return;
    sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
    const sock_fprog program{1, &nothing};
    setsockopt(fd_, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(wire::kRoceUdpPort);
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(wire::kRoceUdpPort);
    const int off = 0;
    if (!only_ipv4) setsockopt(fd_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    // If bind() fails, another socket uses the port. The kernel then sends no "port unreachable" either.
    [[maybe_unused]] const int e = only_ipv4 ? bind(fd_, reinterpret_cast<const sockaddr*>(&four), sizeof four)
                                             : bind(fd_, reinterpret_cast<const sockaddr*>(&six), sizeof six);
}

QuietUdpPort::~QuietUdpPort() {
    if (fd_ >= 0) close(fd_);
}

}  // namespace roci::rocid
