#include "kernel_net.hpp"

#include <libmnl/libmnl.h>
#include <linux/if_addr.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "pmd_glue/eal.hpp"

namespace roci::rocid {
namespace {

constexpr size_t kBuffer = 32768;
constexpr int kUsable = NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT;

uint8_t family_of(const Gid& g) { return g.is_ipv4() ? AF_INET : AF_INET6; }
size_t length_of(uint8_t family) { return family == AF_INET ? 4 : 16; }
const uint8_t* ip_of(const Gid& g) { return g.is_ipv4() ? &g.bytes[12] : g.bytes.data(); }

bool read_gid(const nlattr* a, uint8_t family, Gid& out) {
    if (a == nullptr || mnl_attr_get_payload_len(a) != length_of(family)) return false;
    const auto* p = static_cast<const uint8_t*>(mnl_attr_get_payload(a));
    if (family == AF_INET)
        out = Gid::from_ipv4(p);
    else
        std::memcpy(out.bytes.data(), p, out.bytes.size());
    return true;
}

/// Returns the attribute of type `type`, or nullptr. The attributes follow the `fixed` bytes of the message's fixed part.
const nlattr* find(const nlmsghdr* h, size_t fixed, uint16_t type) {
    const auto* a = static_cast<const nlattr*>(mnl_nlmsg_get_payload_offset(h, fixed));
    const auto* end = static_cast<const char*>(mnl_nlmsg_get_payload_tail(h));
    for (; mnl_attr_ok(a, int(end - reinterpret_cast<const char*>(a))); a = mnl_attr_next(a))
        if (mnl_attr_get_type(a) == type) return a;
    return nullptr;
}

struct AddressList {
    int index;
    std::vector<host::DeviceAddress> found;
};
int take_address(const nlmsghdr* h, void* data) {
    auto& list = *static_cast<AddressList*>(data);
    const auto* m = static_cast<const ifaddrmsg*>(mnl_nlmsg_get_payload(h));
    if (h->nlmsg_type != RTM_NEWADDR || int(m->ifa_index) != list.index) return MNL_CB_OK;
    if (m->ifa_family != AF_INET && m->ifa_family != AF_INET6) return MNL_CB_OK;
    uint32_t flags = m->ifa_flags;
    if (const nlattr* a = find(h, sizeof *m, IFA_FLAGS)) flags = mnl_attr_get_u32(a);
    const bool probing = (flags & IFA_F_TENTATIVE) != 0 && (flags & IFA_F_OPTIMISTIC) == 0;
    if (probing || (flags & IFA_F_DADFAILED) != 0) return MNL_CB_OK;
    const nlattr* local = find(h, sizeof *m, IFA_LOCAL);
    host::DeviceAddress address;
    if (!read_gid(local != nullptr ? local : find(h, sizeof *m, IFA_ADDRESS), m->ifa_family, address.gid)) return MNL_CB_OK;
    address.prefix = uint8_t(m->ifa_prefixlen + (m->ifa_family == AF_INET ? 96 : 0));
    list.found.push_back(address);
    return MNL_CB_OK;
}

struct Route {
    uint8_t family;
    bool found = false;
    Gid gateway;
};
int take_route(const nlmsghdr* h, void* data) {
    auto& route = *static_cast<Route*>(data);
    const auto* m = static_cast<const rtmsg*>(mnl_nlmsg_get_payload(h));
    if (h->nlmsg_type != RTM_NEWROUTE) return MNL_CB_OK;
    route.found = m->rtm_type == RTN_UNICAST || m->rtm_type == RTN_LOCAL;
    (void)read_gid(find(h, sizeof *m, RTA_GATEWAY), route.family, route.gateway);
    // The next hop of an IPv4 route may be an IPv6 address (RFC 5549).
    if (const nlattr* via = find(h, sizeof *m, RTA_VIA); via != nullptr && mnl_attr_get_payload_len(via) == 18)
        std::memcpy(route.gateway.bytes.data(), static_cast<const uint8_t*>(mnl_attr_get_payload(via)) + 2, 16);
    return MNL_CB_OK;
}

struct Neighbour {
    int index = 0;
    Gid address;
    MacAddress mac;
    uint16_t state = 0;
};
bool read_neighbour(const nlmsghdr* h, Neighbour& n) {
    const auto* m = static_cast<const ndmsg*>(mnl_nlmsg_get_payload(h));
    if (h->nlmsg_type != RTM_NEWNEIGH || (m->ndm_family != AF_INET && m->ndm_family != AF_INET6)) return false;
    n.index = m->ndm_ifindex;
    n.state = m->ndm_state;
    if (const nlattr* a = find(h, sizeof *m, NDA_LLADDR); a != nullptr && mnl_attr_get_payload_len(a) == n.mac.bytes.size())
        std::memcpy(n.mac.bytes.data(), mnl_attr_get_payload(a), n.mac.bytes.size());
    return read_gid(find(h, sizeof *m, NDA_DST), m->ndm_family, n.address);
}
int take_neighbour(const nlmsghdr* h, void* data) {
    (void)read_neighbour(h, *static_cast<Neighbour*>(data));
    return MNL_CB_OK;
}

/// Sends an empty datagram to the discard port of the address, so that the kernel resolves the address.
void provoke(int index, const Gid& address) {
    constexpr uint16_t kDiscard = 9;
    const uint8_t family = family_of(address);
    const int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    if (family == AF_INET) {
        const uint32_t by = htonl(uint32_t(index));
        setsockopt(fd, IPPROTO_IP, IP_UNICAST_IF, &by, sizeof by);
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(kDiscard);
        std::memcpy(&to.sin_addr, ip_of(address), 4);
        (void)sendto(fd, nullptr, 0, MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    } else {
        sockaddr_in6 to{};
        to.sin6_family = AF_INET6;
        to.sin6_port = htons(kDiscard);
        to.sin6_scope_id = uint32_t(index);
        std::memcpy(&to.sin6_addr, ip_of(address), 16);
        (void)sendto(fd, nullptr, 0, MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    }
    close(fd);
}

mnl_socket* open_socket(unsigned groups) {
    mnl_socket* s = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
    if (s == nullptr || mnl_socket_bind(s, groups, MNL_SOCKET_AUTOPID) < 0)
        throw pmd::StartError(std::string("no netlink socket: ") + std::strerror(errno));
    return s;
}

}  // namespace

KernelNet::KernelNet(Handler handler) : handler_(std::move(handler)), buffer_(kBuffer) {
    changes_ = open_socket(RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_NEIGH);
    questions_ = open_socket(0);
}

KernelNet::~KernelNet() {
    mnl_socket_close(changes_);
    mnl_socket_close(questions_);
}

int KernelNet::fd() const { return mnl_socket_get_fd(changes_); }

int KernelNet::change_callback(const nlmsghdr* h, void* self) {
    static_cast<KernelNet*>(self)->on_change(h);
    return MNL_CB_OK;
}

void KernelNet::on_change(const nlmsghdr* h) {
    if (h->nlmsg_type == RTM_NEWADDR || h->nlmsg_type == RTM_DELADDR) {
        handler_.addresses(int(static_cast<const ifaddrmsg*>(mnl_nlmsg_get_payload(h))->ifa_index));
        return;
    }
    if (h->nlmsg_type == RTM_NEWLINK || h->nlmsg_type == RTM_DELLINK) return handler_.links();
    Neighbour n;
    if (!read_neighbour(h, n)) return;
    if ((n.state & kUsable) != 0) handler_.neighbour(n.index, n.address, n.mac);
    if ((n.state & NUD_FAILED) != 0) handler_.neighbour(n.index, n.address, {});
}

void KernelNet::read_changes() {
    std::vector<char> buffer(kBuffer);  // not buffer_, because the handlers use buffer_ for requests
    for (;;) {
        const ssize_t n = recv(fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (n < 0 && errno == ENOBUFS) {  // messages were lost: query the state again
            handler_.addresses(0);
            handler_.links();
            continue;
        }
        if (n <= 0) return;
        mnl_cb_run(buffer.data(), size_t(n), 0, 0, change_callback, this);
    }
}

/// Sends a request and passes the replies to `take`. Returns false, with errno set, if the kernel refuses the request.
bool KernelNet::ask(nlmsghdr* request, int (*take)(const nlmsghdr*, void*), void* data) {
    request->nlmsg_seq = ++sequence_;
    if (mnl_socket_sendto(questions_, request, request->nlmsg_len) < 0) return false;
    const bool dump = (request->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
    std::vector<char> buffer(kBuffer);
    for (int more = MNL_CB_OK; more > MNL_CB_STOP;) {
        const ssize_t n = mnl_socket_recvfrom(questions_, buffer.data(), buffer.size());
        if (n < 0) return false;
        more = mnl_cb_run(buffer.data(), size_t(n), sequence_, mnl_socket_get_portid(questions_), take, data);
        if (more < 0) return false;
        if (!dump) return true;
    }
    return true;
}

std::vector<host::DeviceAddress> KernelNet::addresses(int index) {
    nlmsghdr* h = mnl_nlmsg_put_header(buffer_.data());
    h->nlmsg_type = RTM_GETADDR;
    h->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    static_cast<ifaddrmsg*>(mnl_nlmsg_put_extra_header(h, sizeof(ifaddrmsg)))->ifa_family = AF_UNSPEC;
    AddressList list{index, {}};
    (void)ask(h, take_address, &list);
    std::stable_partition(list.found.begin(), list.found.end(), [](const auto& a) { return a.gid.is_ipv4(); });
    return std::move(list.found);
}

int KernelNet::route(int index, const Gid& source, const Gid& dest, Gid& next) {
    nlmsghdr* h = mnl_nlmsg_put_header(buffer_.data());
    h->nlmsg_type = RTM_GETROUTE;
    h->nlmsg_flags = NLM_F_REQUEST;
    auto* m = static_cast<rtmsg*>(mnl_nlmsg_put_extra_header(h, sizeof(rtmsg)));
    m->rtm_family = family_of(dest);
    const size_t length = length_of(m->rtm_family);
    m->rtm_dst_len = uint8_t(length * 8);
    mnl_attr_put(h, RTA_DST, length, ip_of(dest));
    if (!source.is_zero() && source.is_ipv4() == dest.is_ipv4()) {
        m->rtm_src_len = uint8_t(length * 8);
        mnl_attr_put(h, RTA_SRC, length, ip_of(source));
    }
    mnl_attr_put_u32(h, RTA_OIF, uint32_t(index));
    Route route{m->rtm_family, false, {}};
    if (!ask(h, take_route, &route) || !route.found) return ENETUNREACH;
    if (!route.gateway.is_zero()) next = route.gateway;
    return 0;
}

void KernelNet::solicit(int index, const Gid& address) {
    nlmsghdr* h = mnl_nlmsg_put_header(buffer_.data());
    h->nlmsg_type = RTM_GETNEIGH;
    h->nlmsg_flags = NLM_F_REQUEST;
    auto* m = static_cast<ndmsg*>(mnl_nlmsg_put_extra_header(h, sizeof(ndmsg)));
    m->ndm_family = family_of(address);
    m->ndm_ifindex = index;
    mnl_attr_put(h, NDA_DST, length_of(m->ndm_family), ip_of(address));
    Neighbour n;
    const bool known = ask(h, take_neighbour, &n) && (n.state & kUsable) != 0;
    if (known) return handler_.neighbour(index, address, n.mac);
    provoke(index, address);
}

}  // namespace roci::rocid
