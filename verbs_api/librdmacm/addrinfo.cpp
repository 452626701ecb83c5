// rdma_getaddrinfo: resolves names by getaddrinfo(3) and converts the first result to struct rdma_addrinfo.
#include <netdb.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "id.hpp"

namespace {

using roci::rdmacm::fail;

bool copy_address(sockaddr*& to, socklen_t& to_length, const sockaddr* from, socklen_t length) {
    to = static_cast<sockaddr*>(std::malloc(length));
    if (to == nullptr) return false;
    std::memcpy(to, from, length);
    to_length = length;
    return true;
}

addrinfo to_system(const rdma_addrinfo& h) {
    addrinfo ai{};
    const bool passive = (h.ai_flags & RAI_PASSIVE) != 0;
    if (passive) ai.ai_flags |= AI_PASSIVE;
    if ((h.ai_flags & RAI_NUMERICHOST) != 0) ai.ai_flags |= AI_NUMERICHOST;
    if (h.ai_family == AF_INET || h.ai_family == AF_INET6) ai.ai_family = h.ai_family;
    switch (h.ai_qp_type) {
        case IBV_QPT_RC:
        case IBV_QPT_UC:
        case IBV_QPT_XRC_SEND:
        case IBV_QPT_XRC_RECV:
            ai.ai_socktype = SOCK_STREAM;
            break;
        case IBV_QPT_UD:
            ai.ai_socktype = SOCK_DGRAM;
            break;
        default:
            break;
    }
    switch (h.ai_port_space) {
        case RDMA_PS_TCP:
            ai.ai_protocol = IPPROTO_TCP;
            break;
        case RDMA_PS_IPOIB:
        case RDMA_PS_UDP:
            ai.ai_protocol = IPPROTO_UDP;
            break;
        case RDMA_PS_IB:
            ai.ai_protocol = ai.ai_socktype == SOCK_DGRAM ? IPPROTO_UDP : ai.ai_socktype == SOCK_STREAM ? IPPROTO_TCP : 0;
            break;
        default:
            break;
    }
    return ai;
}

int from_system(rdma_addrinfo& out, const rdma_addrinfo* hints, const addrinfo& ai, bool passive) {
    const bool datagram = ai.ai_socktype == SOCK_DGRAM;
    out.ai_qp_type = hints != nullptr && hints->ai_qp_type != 0 ? hints->ai_qp_type : datagram ? IBV_QPT_UD : IBV_QPT_RC;
    out.ai_port_space = hints != nullptr && hints->ai_port_space != 0 ? hints->ai_port_space
                        : ai.ai_protocol == IPPROTO_UDP               ? RDMA_PS_UDP
                                                                      : RDMA_PS_TCP;
    out.ai_family = ai.ai_family;
    out.ai_flags = passive ? RAI_PASSIVE : 0;
    char*& name = passive ? out.ai_src_canonname : out.ai_dst_canonname;
    if (ai.ai_canonname != nullptr) name = strdup(ai.ai_canonname);
    const bool copied = passive ? copy_address(out.ai_src_addr, out.ai_src_len, ai.ai_addr, ai.ai_addrlen)
                                : copy_address(out.ai_dst_addr, out.ai_dst_len, ai.ai_addr, ai.ai_addrlen);
    return copied ? 0 : fail(ENOMEM);
}

/// Resolves a name and stores the first result in `out`. Returns 0, an EAI_ number of getaddrinfo(3), or -1 with errno.
int resolve(const char* node, const char* port, const rdma_addrinfo* hints, rdma_addrinfo& out) {
    const addrinfo wanted = hints != nullptr ? to_system(*hints) : addrinfo{};
    addrinfo* found = nullptr;
    if (const int rc = getaddrinfo(node, port, hints != nullptr ? &wanted : nullptr, &found); rc != 0) return rc;
    const int rc = from_system(out, hints, *found, (wanted.ai_flags & AI_PASSIVE) != 0);
    freeaddrinfo(found);
    return rc;
}

int copy_hints(const rdma_addrinfo& h, rdma_addrinfo& out) {
    out.ai_flags = h.ai_flags;
    out.ai_family = h.ai_family;
    out.ai_qp_type = h.ai_qp_type;
    out.ai_port_space = h.ai_port_space;
    if (h.ai_dst_len != 0 && !copy_address(out.ai_dst_addr, out.ai_dst_len, h.ai_dst_addr, h.ai_dst_len)) return fail(ENOMEM);
    return 0;
}

}  // namespace

int rdma_getaddrinfo(const char* node, const char* port, const rdma_addrinfo* hints, rdma_addrinfo** res) {
    if (node == nullptr && port == nullptr && hints == nullptr) return fail(EINVAL);
    if (const int error = roci::rdmacm::service().open(); error != 0) return fail(error);
    // RAI_SA requests a query to InfiniBand's subnet administrator, which RoCE does not have.
    if (hints != nullptr && (hints->ai_flags & roci::rdmacm::kRaiSa) != 0) return fail(EOPNOTSUPP);
    struct Free {
        void operator()(rdma_addrinfo* list) const { rdma_freeaddrinfo(list); }
    };
    std::unique_ptr<rdma_addrinfo, Free> out(static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo))));
    if (out == nullptr) return fail(ENOMEM);
    int rc = node != nullptr || port != nullptr ? resolve(node, port, hints, *out) : copy_hints(*hints, *out);
    const bool wants_source = rc == 0 && out->ai_src_len == 0 && hints != nullptr && hints->ai_src_len != 0;
    if (wants_source && !copy_address(out->ai_src_addr, out->ai_src_len, hints->ai_src_addr, hints->ai_src_len))
        rc = fail(ENOMEM);
    if (rc != 0) return rc;
    *res = out.release();
    return 0;
}

void rdma_freeaddrinfo(rdma_addrinfo* res) {
    while (res != nullptr) {
        rdma_addrinfo* const next = res->ai_next;
        for (void* p : {res->ai_connect, res->ai_route, static_cast<void*>(res->ai_src_canonname),
                        static_cast<void*>(res->ai_dst_canonname), static_cast<void*>(res->ai_src_addr),
                        static_cast<void*>(res->ai_dst_addr)})
            std::free(p);
        std::free(res);
        res = next;
    }
}
