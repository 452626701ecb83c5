// Address handles, and the attributes of an address handle from a received datagram.
#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "context.hpp"

namespace roci::client {
namespace {

/// The IPv4 header of a RoCEv2 datagram. A UD receive has 40 bytes before the payload, and the last 20 of them are the IPv4
/// header (annex A17.4.5.2).
struct Ipv4Header {
    uint8_t version_ihl, tos;
    uint16_t total_length, id, fragment;
    uint8_t ttl, protocol;
    uint16_t checksum;
    uint8_t source[4], destination[4];
};
static_assert(sizeof(Ipv4Header) == 20 && sizeof(ibv_grh) == 40);

bool checksum_holds(const Ipv4Header& h) {
    std::array<uint16_t, 10> words;
    std::memcpy(words.data(), &h, sizeof h);
    uint32_t sum = 0;
    for (uint16_t w : words) sum += w;
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return sum == 0xffff;
}

/// Returns 4 or 6, or 0 if there is no IP header. The 20 bytes before an IPv4 header are undefined and may look like the start of
/// an IPv6 header, so the IPv4 checksum decides.
int ip_version(const ibv_grh& grh, const Ipv4Header& v4) {
    const bool looks_v6 = (ntohl(grh.version_tclass_flow) >> 28) == 6;
    if (!looks_v6) return v4.version_ihl >> 4 == 4 ? 4 : 0;
    return v4.version_ihl == 0x45 && checksum_holds(v4) ? 4 : 6;
}

ibv_gid mapped(const uint8_t (&address)[4]) {
    ibv_gid g{};
    g.raw[10] = g.raw[11] = 0xff;
    std::memcpy(&g.raw[12], address, sizeof address);
    return g;
}

/// Returns the index of `gid` in the GID table of the port, or -1 with errno.
int own_gid_index(ibv_context* context, uint8_t port, const ibv_gid& gid) {
    ibv_gid_entry entries[128];
    const ssize_t count = _ibv_query_gid_table(context, entries, std::size(entries), 0, sizeof entries[0]);
    for (ssize_t i = 0; i < count; ++i)
        if (entries[i].port_num == port && std::memcmp(entries[i].gid.raw, gid.raw, sizeof gid.raw) == 0)
            return int(entries[i].gid_index);
    errno = count < 0 ? int(-count) : ENOENT;
    return -1;
}

int fail_with(int err) {
    errno = err;
    return -1;
}

/// Fills in the address of a reply to a datagram. The datagram's source `from` becomes the destination of the reply. The
/// datagram's destination `to` becomes the source GID of the reply. Returns 0, or -1 with errno. If `to` is a multicast address,
/// errno is EINVAL, because the GID table has no multicast addresses.
int reply_address(ibv_context* context, uint8_t port, const ibv_gid& from, const ibv_gid& to, bool multicast, ibv_ah_attr& attr) {
    if (multicast) return fail_with(EINVAL);
    const int index = own_gid_index(context, port, to);
    if (index < 0) return -1;
    attr.grh.dgid = from;
    attr.grh.sgid_index = uint8_t(index);
    return 0;
}

/// Returns true if a request of the QP may still be in the send queue. Also returns true while a thread posts.
bool has_outstanding_sends(Qp& qp) {
    if (!qp.sq_lock.try_lock()) return true;
    const bool any = qp.sq.free_slots() != qp.sq.depth;
    qp.sq_lock.unlock();
    return any;
}

/// Sends the posted datagrams of all QPs of the protection domain, because they may use an address handle that is destroyed
/// next. A NIC copies the address at the post, but rocid reads the address when it sends the datagram. Waits for at most
/// kLongestSend, for example if a slow port is full.
void send_posted(Context& c, uint32_t pd) {
    using Clock = std::chrono::steady_clock;
    constexpr auto kLongestSend = std::chrono::seconds(1);
    constexpr auto kLongestPause = std::chrono::milliseconds(1);
    std::vector<uint32_t> senders;
    c.qp_events.any([&](Qp& qp) {
        const ibv_qp& p = *qp.base();
        if (p.qp_type == IBV_QPT_UD && p.pd->handle == pd && has_outstanding_sends(qp)) senders.push_back(p.handle);
        return false;
    });
    const auto end = Clock::now() + kLongestSend;
    for (const uint32_t qp : senders) {
        roci::abi::SendPostedReply reply{};
        for (auto pause = std::chrono::microseconds(50);; pause = std::min<std::chrono::microseconds>(2 * pause, kLongestPause)) {
            const int err = c.call(roci::abi::Op::send_posted, roci::abi::HandleRequest{qp, 0}, reply);
            if (err != 0 || reply.more == 0 || Clock::now() >= end) break;  // ENOENT: another thread has destroyed the QP
            std::this_thread::sleep_for(pause);
        }
    }
}

}  // namespace
}  // namespace roci::client

using namespace roci::client;

int ibv_init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* wc, ibv_grh* grh, ibv_ah_attr* attr) {
    *attr = {};
    attr->dlid = wc->slid;
    attr->sl = wc->sl;
    attr->src_path_bits = wc->dlid_path_bits;
    attr->port_num = port;
    if ((wc->wc_flags & IBV_WC_GRH) == 0) return 0;
    attr->is_global = 1;
    Ipv4Header v4;
    std::memcpy(&v4, reinterpret_cast<const uint8_t*>(grh) + 20, sizeof v4);
    const int version = ip_version(*grh, v4);
    if (version == 0) return fail_with(EPROTONOSUPPORT);
    if (version == 4) {
        attr->grh.hop_limit = v4.ttl;
        attr->grh.traffic_class = v4.tos;
        return reply_address(context, port, mapped(v4.source), mapped(v4.destination), (v4.destination[0] & 0xf0) == 0xe0, *attr);
    }
    if (grh->next_hdr != IPPROTO_UDP) return fail_with(EPROTONOSUPPORT);
    const uint32_t flow = ntohl(grh->version_tclass_flow);
    attr->grh.flow_label = flow & IB_GRH_FLOWLABEL_MASK;
    attr->grh.traffic_class = uint8_t(flow >> 20);
    attr->grh.hop_limit = grh->hop_limit;
    return reply_address(context, port, grh->sgid, grh->dgid, grh->dgid.raw[0] == 0xff, *attr);
}

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
    auto ah = std::unique_ptr<Ah>(new (std::nothrow) Ah{});
    if (!ah) return fail<ibv_ah>(ENOMEM);
    roci::abi::HandleReply reply{};
    const roci::abi::CreateAhRequest request{pd->handle, 0, to_abi(*attr)};
    if (const int err = Context::from(pd->context)->call(roci::abi::Op::create_ah, request, reply); err != 0)
        return fail<ibv_ah>(err);
    ah->ah = {pd->context, pd, reply.handle};
    return &ah.release()->ah;
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port) {
    ibv_ah_attr attr{};
    if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) != 0) return nullptr;
    return ibv_create_ah(pd, &attr);
}

int ibv_destroy_ah(ibv_ah* p) {
    Context& c = *Context::from(p->context);
    if (!c.inherited) send_posted(c, p->pd->handle);
    if (const int err = c.destroy(roci::abi::Op::destroy_ah, p->handle); err != 0) return err;
    delete Ah::from(p);
    return 0;
}
