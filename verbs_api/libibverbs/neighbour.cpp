// ibv_resolve_eth_l2_from_gid: finds the MAC address of a GID in the kernel's neighbour table. QPs and address handles of this
// library do not use this function, because rocid resolves their addresses.
#include <arpa/inet.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "context.hpp"

namespace roci::client {
namespace {

using Mac = std::array<uint8_t, ETHERNET_LL_SIZE>;

struct Address {
    int family;
    std::array<uint8_t, 16> bytes;
    size_t length() const { return family == AF_INET ? 4 : 16; }
};

Address address_of(const ibv_gid& gid) {
    static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    Address a{AF_INET6, {}};
    if (std::memcmp(gid.raw, kMapped, sizeof kMapped) == 0) {
        a.family = AF_INET;
        std::memcpy(a.bytes.data(), gid.raw + 12, 4);
    } else {
        std::memcpy(a.bytes.data(), gid.raw, 16);
    }
    return a;
}

/// Computes the MAC address of a multicast address (RFC 1112, RFC 2464). Returns false if the address is not multicast.
bool multicast_mac(const Address& a, Mac& mac) {
    const auto& b = a.bytes;
    if (a.family == AF_INET && (b[0] & 0xf0) == 0xe0) {
        mac = {0x01, 0x00, 0x5e, uint8_t(b[1] & 0x7f), b[2], b[3]};
        return true;
    }
    if (a.family == AF_INET6 && b[0] == 0xff) {
        mac = {0x33, 0x33, b[12], b[13], b[14], b[15]};
        return true;
    }
    return false;
}

/// If an entry of a neighbour dump is for `a` and has a usable MAC address, sets `mac` to the MAC address and returns true.
bool matches(const nlmsghdr* h, const Address& a, Mac& mac) {
    const auto* m = static_cast<const ndmsg*>(NLMSG_DATA(h));
    constexpr int kUsable = NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT | NUD_NOARP;
    if (m->ndm_family != a.family || (m->ndm_state & kUsable) == 0) return false;
    bool same = false, has_mac = false;
    int length = int(h->nlmsg_len - NLMSG_LENGTH(sizeof *m));
    const auto* attr = reinterpret_cast<const rtattr*>(reinterpret_cast<const char*>(m) + NLMSG_ALIGN(sizeof *m));
    for (; RTA_OK(attr, length); attr = RTA_NEXT(attr, length)) {
        if (attr->rta_type == NDA_DST)
            same = RTA_PAYLOAD(attr) == a.length() && std::memcmp(RTA_DATA(attr), a.bytes.data(), a.length()) == 0;
        if (attr->rta_type == NDA_LLADDR && RTA_PAYLOAD(attr) == mac.size()) {
            std::memcpy(mac.data(), RTA_DATA(attr), mac.size());
            has_mac = true;
        }
    }
    return same && has_mac;
}

bool ask_for_dump(int fd, int family) {
    struct {
        nlmsghdr header;
        ndmsg body;
    } request{};
    request.header.nlmsg_len = sizeof request;
    request.header.nlmsg_type = RTM_GETNEIGH;
    request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    request.body.ndm_family = uint8_t(family);
    return send(fd, &request, sizeof request, 0) == ssize_t(sizeof request);
}

bool look_up(const Address& a, Mac& mac) {
    const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0) return false;
    alignas(nlmsghdr) char buffer[32768];
    bool found = false, done = !ask_for_dump(fd, a.family);
    while (!done) {
        const ssize_t n = recv(fd, buffer, sizeof buffer, 0);
        if (n <= 0) break;
        size_t left = size_t(n);
        for (auto* h = reinterpret_cast<nlmsghdr*>(buffer); NLMSG_OK(h, left) && !done; h = NLMSG_NEXT(h, left)) {
            if (h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR) {
                done = true;
            } else if (matches(h, a, mac)) {
                found = done = true;
            }
        }
    }
    close(fd);
    return found;
}

/// Sends an empty UDP datagram to the discard port of `a`, so that the kernel resolves the MAC address.
void provoke(const Address& a) {
    const int fd = socket(a.family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(9);
    std::memcpy(&v4.sin_addr, a.bytes.data(), 4);
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(9);
    std::memcpy(&v6.sin6_addr, a.bytes.data(), 16);
    if (a.family == AF_INET)
        sendto(fd, nullptr, 0, MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&v4), sizeof v4);
    else
        sendto(fd, nullptr, 0, MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&v6), sizeof v6);
    close(fd);
}

}  // namespace
}  // namespace roci::client

using namespace roci::client;

int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr, uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t* vid) {
    constexpr int kTries = 30, kPauseMs = 100;  // 3 seconds in total, as in rdma-core
    constexpr uint16_t kNoVlan = 0xffff;
    ibv_gid own{};
    if (const int err = ibv_query_gid(context, attr->port_num, attr->grh.sgid_index, &own); err != 0) return err;
    const Address destination = address_of(attr->grh.dgid);
    Mac mac{};
    bool found = multicast_mac(destination, mac) || look_up(destination, mac);
    for (int i = 0; !found && i < kTries; ++i) {
        if (i == 0) provoke(destination);
        poll(nullptr, 0, kPauseMs);
        found = look_up(destination, mac);
    }
    if (!found) return -EHOSTUNREACH;
    std::memcpy(eth_mac, mac.data(), mac.size());
    if (vid != nullptr) *vid = kNoVlan;
    return 0;
}
