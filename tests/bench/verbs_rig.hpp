// Connected QPs on two devices, made by the public verbs. One thread of one process uses both ends.
#pragma once

#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace roci::bench {

[[noreturn]] inline void die(const char* what) {
    std::fprintf(stderr, "verbs_bench: %s failed: %s\n", what, std::strerror(errno));
    std::exit(1);
}
template <class T>
T* need(T* p, const char* what) {
    return p != nullptr ? p : (die(what), nullptr);
}
inline void need0(int err, const char* what) {
    if (err != 0) errno = err, die(what);
}

/// An open device with a PD.
struct Device {
    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    ibv_gid gid{};
    static constexpr uint8_t kGidIndex = 1;

    explicit Device(const char* name) {
        int count = 0;
        ibv_device** list = need(ibv_get_device_list(&count), "ibv_get_device_list");
        for (int i = 0; i < count; ++i)
            if (std::strcmp(ibv_get_device_name(list[i]), name) == 0) context = ibv_open_device(list[i]);
        need(context, name);
        ibv_free_device_list(list);
        pd = need(ibv_alloc_pd(context), "ibv_alloc_pd");
        need0(ibv_query_gid(context, 1, kGidIndex, &gid), "ibv_query_gid");
    }
    ~Device() {
        ibv_dealloc_pd(pd);
        ibv_close_device(context);
    }
    Device(const Device&) = delete;
};

/// Registered anonymous memory. Every page was written.
struct Buffer {
    uint8_t* data = nullptr;
    size_t bytes = 0;
    ibv_mr* mr = nullptr;
    static constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

    static uint8_t* map(size_t bytes) {
        void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) die("mmap");
        std::memset(p, 0x5a, bytes);
        return static_cast<uint8_t*>(p);
    }
    Buffer(const Device& d, size_t n) : data(map(n)), bytes(n), mr(need(ibv_reg_mr(d.pd, data, n, kAccess), "ibv_reg_mr")) {}
    ~Buffer() {
        ibv_dereg_mr(mr);
        munmap(data, bytes);
    }
    Buffer(const Buffer&) = delete;
};

inline ibv_qp* create_qp(const Device& d, ibv_cq* cq, uint32_t depth, uint32_t inline_bytes = 0) {
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_RC;
    init.send_cq = init.recv_cq = cq;
    // A receive slot is in use until its completion is polled. So the queue has twice as many receives as sends.
    init.cap = {depth, 2 * depth, 1, 1, inline_bytes};
    return need(ibv_create_qp(d.pd, &init), "ibv_create_qp");
}

inline void to_rts(ibv_qp* qp, uint32_t peer_qpn, const ibv_gid& peer_gid) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    need0(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "to INIT");
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_4096;
    a.dest_qp_num = peer_qpn;
    a.max_dest_rd_atomic = 4;
    a.min_rnr_timer = 1;
    a.ah_attr.is_global = 1;
    a.ah_attr.port_num = 1;
    a.ah_attr.grh.dgid = peer_gid;
    a.ah_attr.grh.sgid_index = Device::kGidIndex;
    a.ah_attr.grh.hop_limit = 64;
    need0(ibv_modify_qp(qp, &a,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                            IBV_QP_MIN_RNR_TIMER),
          "to RTR");
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 17;
    a.retry_cnt = a.rnr_retry = 7;
    a.max_rd_atomic = 4;
    need0(ibv_modify_qp(
              qp, &a,
              IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
          "to RTS");
}

/// `qps` connected pairs of QPs. All QPs of one side use the same CQ and the same buffer.
struct Rig {
    struct Pair {
        ibv_qp *left, *right;
    };
    Device left, right;
    Buffer source, target;
    ibv_cq *left_cq, *right_cq;
    std::vector<Pair> pairs;

    Rig(uint32_t qps, uint32_t depth, size_t bytes, uint32_t inline_bytes = 0)
        : left("roci0"), right("roci1"), source(left, bytes), target(right, bytes) {
        const int entries = int(std::min<uint64_t>(uint64_t{qps} * depth * 3, 1u << 20));
        left_cq = need(ibv_create_cq(left.context, entries, nullptr, nullptr, 0), "ibv_create_cq");
        right_cq = need(ibv_create_cq(right.context, entries, nullptr, nullptr, 0), "ibv_create_cq");
        for (uint32_t i = 0; i < qps; ++i) {
            Pair p{create_qp(left, left_cq, depth, inline_bytes), create_qp(right, right_cq, depth, inline_bytes)};
            to_rts(p.left, p.right->qp_num, right.gid);
            to_rts(p.right, p.left->qp_num, left.gid);
            pairs.push_back(p);
        }
    }
    ~Rig() {
        for (const Pair& p : pairs) ibv_destroy_qp(p.left), ibv_destroy_qp(p.right);
        ibv_destroy_cq(left_cq);
        ibv_destroy_cq(right_cq);
    }
    Rig(const Rig&) = delete;
};

/// Polls at most 32 completions and calls done(wc) for each. Returns their number. A failed completion ends the
/// program.
template <class Done>
int drain(ibv_cq* cq, Done&& done) {
    ibv_wc wc[32];
    const int n = ibv_poll_cq(cq, 32, wc);
    if (n < 0) die("ibv_poll_cq");
    for (int i = 0; i < n; ++i) {
        if (wc[i].status != IBV_WC_SUCCESS)
            std::fprintf(stderr, "verbs_bench: %s\n", ibv_wc_status_str(wc[i].status)), std::exit(1);
        done(wc[i]);
    }
    return n;
}

}  // namespace roci::bench
