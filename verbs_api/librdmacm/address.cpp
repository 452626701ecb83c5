// Conversions between struct sockaddr and the addresses in control messages (abi::CmAddress).
#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "id.hpp"

namespace roci::rdmacm {
namespace {
constexpr size_t kIpv4At = 12;
constexpr uint8_t kMapped[kIpv4At] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
}  // namespace

socklen_t length_of(const sockaddr* address) {
    if (address == nullptr) return 0;
    if (address->sa_family == AF_INET) return sizeof(sockaddr_in);
    return address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : 0;
}

int to_abi(const sockaddr* address, abi::CmAddress& out) {
    out = {};
    out.family = address->sa_family;
    if (address->sa_family == AF_INET) {
        sockaddr_in a;
        std::memcpy(&a, address, sizeof a);
        out.port = ntohs(a.sin_port);
        std::memcpy(out.ip.raw, kMapped, sizeof kMapped);
        std::memcpy(out.ip.raw + kIpv4At, &a.sin_addr, 4);
        return 0;
    }
    if (address->sa_family != AF_INET6) return EAFNOSUPPORT;
    sockaddr_in6 a;
    std::memcpy(&a, address, sizeof a);
    out.port = ntohs(a.sin6_port);
    out.scope = a.sin6_scope_id;
    std::memcpy(out.ip.raw, &a.sin6_addr, 16);
    return 0;
}

void from_abi(const abi::CmAddress& address, sockaddr_storage& out) {
    out = {};
    if (address.family == AF_INET) {
        sockaddr_in a{};
        a.sin_family = AF_INET;
        a.sin_port = htons(address.port);
        std::memcpy(&a.sin_addr, address.ip.raw + kIpv4At, 4);
        std::memcpy(&out, &a, sizeof a);
    } else if (address.family == AF_INET6) {
        sockaddr_in6 a{};
        a.sin6_family = AF_INET6;
        a.sin6_port = htons(address.port);
        a.sin6_scope_id = address.scope;
        std::memcpy(&a.sin6_addr, address.ip.raw, 16);
        std::memcpy(&out, &a, sizeof a);
    }
}

}  // namespace roci::rdmacm

namespace {
__be16 port_of(const sockaddr_storage& a) {
    if (a.ss_family == AF_INET) return reinterpret_cast<const sockaddr_in&>(a).sin_port;
    return a.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(a).sin6_port : __be16(0);
}
}  // namespace

__be16 rdma_get_src_port(rdma_cm_id* id) { return port_of(id->route.addr.src_storage); }
__be16 rdma_get_dst_port(rdma_cm_id* id) { return port_of(id->route.addr.dst_storage); }
