// Wrong arguments of posting: the requests that ibv_post_send, ibv_post_recv and ibv_post_srq_recv refuse at once.
#include "arguments.hpp"

namespace verbs_test {
namespace {

using enum Way;

/// Posts a send of 8 bytes to `qp`. If the call fails, *bad_wr must point to the posted request.
template <class F>
Got send(ibv_qp* qp, Stage& s, F spoil) {
    static ibv_sge sges[4096];
    std::fill(std::begin(sges), std::end(sges), s.a.sge(0, 8));
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = sges;
    wr.num_sge = 1;
    spoil(wr);
    const int error = ibv_post_send(qp, &wr, &bad);
    const int left = errno;
    EXPECT_EQ(bad, error != 0 ? &wr : nullptr) << "*bad_wr";
    return {error, left};
}
template <class F>
Got send(Stage& s, F spoil) {
    return send(s.a.qp, s, spoil);
}

template <class Post, class F>
Got receive(Stage& s, Post post, F spoil) {
    ibv_sge sge = s.a.sge(0, 8);
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    spoil(wr);
    const int error = post(&wr, &bad);
    const int left = errno;
    EXPECT_EQ(bad, error != 0 ? &wr : nullptr) << "*bad_wr";
    return {error, left};
}
template <class F>
Got recv(ibv_qp* qp, Stage& s, F spoil) {
    return receive(
        s, [&](auto* wr, auto** bad) { return ibv_post_recv(qp, wr, bad); }, spoil);
}
template <class F>
Got srq_recv(Stage& s, F spoil) {
    return receive(
        s, [&](auto* wr, auto** bad) { return ibv_post_srq_recv(s.srq, wr, bad); }, spoil);
}

template <class F>
Got bind2(Stage& s, F spoil) {
    return send(s, [&](ibv_send_wr& wr) {
        wr.opcode = IBV_WR_BIND_MW;
        wr.num_sge = 0;
        wr.bind_mw.mw = s.mw2;
        wr.bind_mw.rkey = ibv_inc_rkey(s.mw2->rkey);
        wr.bind_mw.bind_info = {s.a.mr, s.a.address(), 64, IBV_ACCESS_REMOTE_WRITE};
        spoil(s, wr);
    });
}
constexpr auto kAsIs = [](auto&&...) {};

constexpr const char *kOwnRing = "its library writes to the ring without looking at the state",
                     *kLibrary = "its library does not check it; the request fails later";

const Row kRows[] = {
    // ---- the state ----
    {"post_send", "in RESET", value, EINVAL, [](Stage& s) { return send(s.reset, s, kAsIs); }, kSkip, kOwnRing},
    {"post_send", "in INIT", value, EINVAL, [](Stage& s) { return send(s.init, s, kAsIs); }, kSkip, kOwnRing},
    {"post_send", "in RTR", value, EINVAL, [](Stage& s) { return send(s.rtr, s, kAsIs); }, kSkip, kOwnRing},
    {"post_recv", "in RESET", value, EINVAL, [](Stage& s) { return recv(s.reset, s, kAsIs); }, kSkip, kOwnRing},
    {"post_recv", "a QP with an SRQ", value, EINVAL, [](Stage& s) { return recv(s.on_srq, s, kAsIs); }, kSkip, kOwnRing},
    // ---- the request ----
    {"post_send", "an unknown opcode", value, EINVAL,
     [](Stage& s) { return send(s, [](auto& wr) { wr.opcode = number<ibv_wr_opcode>(77); }); }, kSkip, kLibrary},
    {"post_send", "TSO", value, EINVAL, [](Stage& s) { return send(s, [](auto& wr) { wr.opcode = IBV_WR_TSO; }); }, kSkip,
     kLibrary},
    {"post_send", "too many SGEs", value, EINVAL, [](Stage& s) { return send(s, [](auto& wr) { wr.num_sge = 4096; }); }},
    {"post_send", "a negative number of SGEs", value, EINVAL, [](Stage& s) { return send(s, [](auto& wr) { wr.num_sge = -1; }); },
     kSkip, kLibrary},
    {"post_send", "too much inline data", value, EINVAL,
     [](Stage& s) {
         return send(s, [&](auto& wr) {
             wr.send_flags |= IBV_SEND_INLINE;
             wr.sg_list[0].length = 60000;
         });
     }},
    {"post_send", "an inline READ", value, EINVAL,
     [](Stage& s) {
         return send(s, [&](auto& wr) {
             wr.opcode = IBV_WR_RDMA_READ;
             wr.send_flags |= IBV_SEND_INLINE;
         });
     },
     kSkip, kLibrary},
    {"post_send", "an atomic write of 4 bytes", value, EINVAL,
     [](Stage& s) {
         return send(s, [&](auto& wr) {
             wr.opcode = IBV_WR_ATOMIC_WRITE;
             wr.sg_list[0].length = 4;
         });
     },
     kSkip, "the guest's kernel has no atomic write"},
    {"post_send", "IP checksums of an RC QP", value, EINVAL,
     [](Stage& s) { return send(s, [](auto& wr) { wr.send_flags |= IBV_SEND_IP_CSUM; }); }, kSkip, kLibrary},
    {"post_send", "UD: no address handle", value, EINVAL,
     [](Stage& s) { return send(s.ud, s, [](auto& wr) { wr.wr.ud.ah = nullptr; }); }, kSkip, "its library reads it"},
    {"post_send", "UD: an RDMA WRITE", value, EINVAL,
     [](Stage& s) {
         return send(s.ud, s, [&](auto& wr) {
             wr.opcode = IBV_WR_RDMA_WRITE;
             wr.wr.ud.ah = s.ah;
         });
     },
     kSkip, kLibrary},
    {"post_send", "bind: no window", value, EINVAL,
     [](Stage& s) { return bind2(s, [](Stage&, auto& wr) { wr.bind_mw.mw = nullptr; }); }, kSkip, "its library reads it"},
    {"post_recv", "too many SGEs", value, EINVAL, [](Stage& s) { return recv(s.init, s, [](auto& wr) { wr.num_sge = 4096; }); }},
    {"post_recv", "a negative number of SGEs", value, EINVAL,
     [](Stage& s) { return recv(s.init, s, [](auto& wr) { wr.num_sge = -1; }); }, kSkip, kLibrary},
    {"post_srq_recv", "too many SGEs", value, EINVAL, [](Stage& s) { return srq_recv(s, [](auto& wr) { wr.num_sge = 4096; }); }},
    {"post_srq_recv", "a negative number of SGEs", value, EINVAL,
     [](Stage& s) { return srq_recv(s, [](auto& wr) { wr.num_sge = -1; }); }, kSkip, kLibrary},
    {"post_srq_recv", "a full queue", value, ENOMEM,
     [](Stage& s) {
         ibv_srq_init_attr attr{};
         attr.attr = {4, 1, 0};
         ibv_srq* full = ibv_create_srq(s.a.pd, &attr);
         if (full == nullptr) return Got{-errno, errno};
         Got got{};
         for (uint32_t i = 0; i <= attr.attr.max_wr && got.error == 0; ++i)
             got = receive(
                 s, [&](auto* wr, auto** bad) { return ibv_post_srq_recv(full, wr, bad); }, kAsIs);
         ibv_destroy_srq(full);
         errno = got.left;
         return got;
     },
     0, "its queue has more places than it reports"},
    {"post_recv", "a full queue", value, ENOMEM,
     [](Stage& s) {
         ibv_qp_init_attr attr{};
         attr.send_cq = attr.recv_cq = s.a.cq;
         attr.qp_type = IBV_QPT_RC;
         attr.cap = {1, 4, 1, 1, 0};
         ibv_qp* full = ibv_create_qp(s.a.pd, &attr);
         if (full == nullptr) return Got{-errno, errno};
         Got got{s.a.to_init(full), errno};
         for (uint32_t i = 0; i <= attr.cap.max_recv_wr && got.error == 0; ++i) got = recv(full, s, kAsIs);
         ibv_destroy_qp(full);
         return got;
     },
     0, "its queue has more places than it reports"},
    {"post_send", "a key that is none, in RTS of no peer", value, 0,
     [](Stage& s) {
         ibv_qp_init_attr attr{};
         attr.send_cq = attr.recv_cq = s.a.cq;
         attr.qp_type = IBV_QPT_RC;
         attr.cap = {1, 1, 1, 1, 0};
         ibv_qp* lone = ibv_create_qp(s.a.pd, &attr);
         if (lone == nullptr) return Got{-errno, errno};
         Got got{s.a.to_init(lone), errno};
         if (got.error == 0) got.error = s.a.to_rtr(s.b, 0xfffffe, 1, lone);
         if (got.error == 0) got.error = s.a.to_rts(1, lone);
         if (got.error == 0) got = send(lone, s, [](auto& wr) { wr.sg_list[0].lkey = 0xdead00; });
         // Soft-RoCE reports each fault of local memory as a fault of the QP.
         EXPECT_EQ(s.a.poll().status, elsewhere() ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_LOC_PROT_ERR);
         ibv_destroy_qp(lone);
         return got;
     }},
};

}  // namespace

std::span<const Row> work_rows() { return kRows; }

}  // namespace verbs_test
