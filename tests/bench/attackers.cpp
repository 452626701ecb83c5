// Attackers for isolation.py. They use verbs and rdma_cm in ways that perftest does not offer. One more program only
// computes. `attackers NAME` runs until it is killed. If rocid refuses a request, the attacker continues, because rocid
// may answer an attack with a limit.
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "verbs_rig.hpp"

namespace {

using namespace roci::bench;

/// Posts `count` SENDs or WRITEs of `bytes` bytes as one list. Every request is signalled. Returns the error of the
/// post.
int post(ibv_qp* qp, ibv_wr_opcode opcode, const Buffer& from, const Buffer& to, uint32_t bytes, uint32_t count) {
    ibv_sge sge{reinterpret_cast<uintptr_t>(from.data), bytes, from.mr->lkey};
    std::vector<ibv_send_wr> list(count);
    for (uint32_t i = 0; i < count; ++i) {
        list[i].next = i + 1 < count ? &list[i + 1] : nullptr;
        list[i].sg_list = &sge;
        list[i].num_sge = 1;
        list[i].opcode = opcode;
        list[i].send_flags = IBV_SEND_SIGNALED;
        list[i].wr.rdma = {reinterpret_cast<uintptr_t>(to.data), to.mr->rkey};
    }
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, list.data(), &bad);
}

/// The two devices, one buffer per device, and one CQ of the right device. Unlike a Rig, this struct has no QPs.
struct Ends {
    Device left{"roci0"}, right{"roci1"};
    Buffer source{left, 4096}, target{right, 4096};
    ibv_cq* cq = need(ibv_create_cq(right.context, 64, nullptr, nullptr, 0), "ibv_create_cq");
};

[[noreturn]] void compute() {
    for (volatile uint64_t n = 0;;) n = n + 1;
}

/// Registers and deregisters 1 MiB again and again.
[[noreturn]] void registrations() {
    const Device d("roci0");
    const size_t bytes = 1 << 20;
    uint8_t* data = Buffer::map(bytes);
    for (;;)
        if (ibv_mr* mr = ibv_reg_mr(d.pd, data, bytes, Buffer::kAccess); mr != nullptr) ibv_dereg_mr(mr);
}

/// Opens and closes sessions.
[[noreturn]] void sessions() {
    ibv_device** list = need(ibv_get_device_list(nullptr), "ibv_get_device_list");
    for (;;)
        if (ibv_context* context = ibv_open_device(list[0]); context != nullptr) ibv_close_device(context);
}

/// Eight QPs with 256 requests each overrun a CQ that has one entry. The attacker then replaces the CQ and the QPs,
/// which are in the error state, and starts again.
[[noreturn]] void cq_overrun() {
    constexpr uint32_t kQps = 8, kPosted = 256;
    Ends ends;
    const Ends* e = &ends;
    fcntl(e->left.context->async_fd, F_SETFL, O_NONBLOCK);
    for (;;) {
        ibv_cq* small = ibv_create_cq(e->left.context, 1, nullptr, nullptr, 0);
        if (small == nullptr) continue;
        std::vector<ibv_qp*> qps;
        for (uint32_t i = 0; i < kQps; ++i) {
            ibv_qp *from = create_qp(e->left, small, kPosted), *to = create_qp(e->right, e->cq, 1);
            to_rts(from, to->qp_num, e->right.gid);
            to_rts(to, from->qp_num, e->left.gid);
            qps.insert(qps.end(), {from, to});
            post(from, IBV_WR_RDMA_WRITE, e->source, e->target, 64, kPosted);
        }
        ibv_qp_attr attr{};
        ibv_qp_init_attr init{};
        do ibv_query_qp(qps.front(), &attr, IBV_QP_STATE, &init);
        while (attr.qp_state != IBV_QPS_ERR);
        for (ibv_async_event event; ibv_get_async_event(e->left.context, &event) == 0;) ibv_ack_async_event(&event);
        for (ibv_qp* qp : qps) ibv_destroy_qp(qp);
        ibv_destroy_cq(small);
    }
}

/// Posts SENDs for which the peer never has a receive. The peer answers with RNR NAKs with a timer of 0.01 ms, so the
/// sender repeats the SENDs forever.
[[noreturn]] void rnr() {
    constexpr uint32_t kQps = 64, kPosted = 256;
    const Rig rig(kQps, kPosted, 4096);
    for (const Rig::Pair& p : rig.pairs) need0(post(p.left, IBV_WR_SEND, rig.source, rig.target, 4096, kPosted), "ibv_post_send");
    for (;;) pause();
}

/// Repeatedly creates and connects a pair of QPs, posts requests to it, and destroys it.
[[noreturn]] void qps() {
    Ends ends;
    const Ends* e = &ends;
    ibv_cq* cq = need(ibv_create_cq(e->left.context, 64, nullptr, nullptr, 0), "ibv_create_cq");
    for (;;) {
        ibv_qp *from = create_qp(e->left, cq, 16), *to = create_qp(e->right, e->cq, 16);
        to_rts(from, to->qp_num, e->right.gid);
        to_rts(to, from->qp_num, e->left.gid);
        post(from, IBV_WR_RDMA_WRITE, e->source, e->target, 4096, 16);
        ibv_destroy_qp(from);
        ibv_destroy_qp(to);
    }
}

/// Two threads call ibv_query_qp, which needs a reply of rocid.
[[noreturn]] void calls() {
    const auto ask = [] {
        const Device d("roci0");
        ibv_cq* cq = need(ibv_create_cq(d.context, 16, nullptr, nullptr, 0), "ibv_create_cq");
        ibv_qp* qp = create_qp(d, cq, 16);
        ibv_qp_attr attr{};
        ibv_qp_init_attr init{};
        for (;;) ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
    };
    std::thread other(ask);
    ask();
    std::abort();
}

ibv_ah* address_of(const Device& from, const ibv_gid& gid) {
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = gid;
    attr.grh.sgid_index = Device::kGidIndex;
    attr.grh.hop_limit = 64;
    return need(ibv_create_ah(from.pd, &attr), "ibv_create_ah");
}

ibv_qp* datagram_qp(const Device& d, ibv_cq* cq, uint32_t depth) {
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_UD;
    init.send_cq = init.recv_cq = cq;
    init.cap = {depth, 1, 1, 1, 0};
    ibv_qp* qp = need(ibv_create_qp(d.pd, &init), "ibv_create_qp");
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qkey = 0x1234;
    need0(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "to INIT");
    a.qp_state = IBV_QPS_RTR;
    need0(ibv_modify_qp(qp, &a, IBV_QP_STATE), "to RTR");
    a.qp_state = IBV_QPS_RTS;
    need0(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN), "to RTS");
    return qp;
}

/// Sends datagrams to a multicast group with 64 members. The members have posted no receives.
[[noreturn]] void multicast() {
    constexpr uint32_t kMembers = 64, kSenders = 4, kPosted = 64;
    const Rig rig(1, 4, 4096);
    ibv_gid group{};
    const uint8_t ipv4[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3};
    std::copy(std::begin(ipv4), std::end(ipv4), group.raw);
    for (uint32_t i = 0; i < kMembers; ++i)
        need0(ibv_attach_mcast(datagram_qp(rig.right, rig.right_cq, 1), &group, 0), "ibv_attach_mcast");
    ibv_ah* ah = address_of(rig.left, group);
    ibv_cq* cq = need(ibv_create_cq(rig.left.context, kSenders * kPosted, nullptr, nullptr, 0), "ibv_create_cq");
    std::vector<ibv_qp*> senders;
    for (uint32_t i = 0; i < kSenders; ++i) senders.push_back(datagram_qp(rig.left, cq, kPosted));
    ibv_sge sge{reinterpret_cast<uintptr_t>(rig.source.data), 64, rig.source.mr->lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud = {ah, 0xffffff, 0x1234};
    for (;;) {
        for (ibv_qp* qp : senders)
            while (ibv_post_send(qp, &wr, &bad) == 0) {
            }
        while (drain(cq, [](const ibv_wc&) {}) == 0) {
        }
    }
}

constexpr uint16_t kCmPort = 18975;
sockaddr_in loopback() {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(kCmPort);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

/// Rejects every connection request.
void reject_all() {
    rdma_event_channel* channel = need(rdma_create_event_channel(), "rdma_create_event_channel");
    rdma_cm_id* listener = nullptr;
    sockaddr_in at = loopback();
    need0(rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP) ? errno : 0, "rdma_create_id");
    need0(rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&at)) ? errno : 0, "rdma_bind_addr");
    need0(rdma_listen(listener, 1024) ? errno : 0, "rdma_listen");
    for (rdma_cm_event* event = nullptr; rdma_get_cm_event(channel, &event) == 0;) {
        rdma_cm_id* id = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id : nullptr;
        rdma_ack_cm_event(event);
        if (id == nullptr) continue;
        rdma_reject(id, nullptr, 0);
        rdma_destroy_id(id);
    }
}

/// Connects by rdma_cm, again and again without a pause, to a listener that rejects every request.
[[noreturn]] void connections() {
    std::thread(reject_all).detach();
    usleep(100'000);
    sockaddr_in to = loopback();
    for (;;) {
        rdma_cm_id* id = nullptr;
        if (rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP) != 0) continue;  // without a channel the calls of rdma_cm block
        ibv_qp_init_attr init{};
        init.qp_type = IBV_QPT_RC;
        init.cap = {1, 1, 1, 1, 0};
        rdma_conn_param param{};
        const bool created = rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 1000) == 0 &&
                             rdma_resolve_route(id, 1000) == 0 && rdma_create_qp(id, nullptr, &init) == 0;
        if (created) {
            rdma_connect(id, &param);
            rdma_destroy_qp(id);
        }
        rdma_destroy_id(id);
    }
}

struct {
    const char* name;
    void (*run)();
} const kAttackers[] = {
    {"compute", compute},
    {"registrations", registrations},
    {"sessions", sessions},
    {"cq-overrun", cq_overrun},
    {"rnr", rnr},
    {"qps", qps},
    {"calls", calls},
    {"multicast", multicast},
    {"connections", connections},
};

}  // namespace

int main(int argc, char** argv) {
    for (const auto& a : kAttackers)
        if (argc == 2 && std::strcmp(argv[1], a.name) == 0) a.run();
    std::fprintf(stderr, "usage: attackers NAME; the names are");
    for (const auto& a : kAttackers) std::fprintf(stderr, " %s", a.name);
    std::fprintf(stderr, "\n");
    return 2;
}
