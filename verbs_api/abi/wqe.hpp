// Layout of work queue entries and completion queue entries in shared memory.
//
// Plain data, native byte order (client and rocid share a machine). rocid copies an entry once, then validates the copy:
// nothing here is trusted. Numeric values of opcodes, flags and statuses are those of <infiniband/verbs.h>, so that the
// client library stores what the program gave it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace roci::abi {

/// One scatter/gather element. `length` 0 means 0 bytes (not 2^31).
struct Sge {
    uint64_t addr;
    uint32_t length;
    uint32_t lkey;
};
static_assert(sizeof(Sge) == 16);

/// Send work request opcodes: enum ibv_wr_opcode.
enum class WrOpcode : uint8_t {
    rdma_write = 0,
    rdma_write_imm = 1,
    send = 2,
    send_imm = 3,
    rdma_read = 4,
    atomic_cmp_swp = 5,
    atomic_fetch_add = 6,
    local_inv = 7,
    bind_mw = 8,
    send_inv = 9,
    tso = 10,
    driver1 = 11,
    flush = 14,
    atomic_write = 15,
};

/// Send flags: enum ibv_send_flags.
enum SendFlags : uint8_t {
    kSendFence = 1 << 0,
    kSendSignaled = 1 << 1,
    kSendSolicited = 1 << 2,
    kSendInline = 1 << 3,
    kSendIpCsum = 1 << 4,
};

/// Send WQE: a 48-byte head, then `num_sge` Sge, or (kSendInline) `inline_length` bytes of payload. Head plus the first Sge
/// fill one cache line. A slot is `sq_stride` bytes, a multiple of 64, fixed when the QP is created.
struct SendWqe {
    uint64_t wr_id;
    WrOpcode opcode;
    uint8_t send_flags;   ///< SendFlags
    uint8_t num_sge;      ///< 0 when inline
    uint8_t phase;        ///< written last, when the WQE is published: phase_of() its index
    uint32_t imm_or_inv;  ///< immediate data as the program gave it (big endian), or the rkey to invalidate
    union {
        uint64_t remote_addr;  ///< RDMA and atomics; bind_mw: start of the window
        struct {
            uint32_t ah;  ///< UD: address handle (control.hpp, CreateAh)
            uint32_t remote_qpn;
        } ud;
    };
    union {
        uint32_t rkey;         ///< RDMA and atomics; bind_mw: new rkey of the window
        uint32_t remote_qkey;  ///< UD
    };
    union {
        uint32_t inline_length;  ///< bytes of payload, only with kSendInline
        uint32_t bind_mr_lkey;   ///< bind_mw
        uint32_t atomic_srqn;    ///< XRC atomics: they use `swap` and are never inline
    };
    union {
        uint64_t compare_add;  ///< atomics; atomic_write: the 8 bytes
        uint64_t bind_length;  ///< bind_mw
    };
    union {
        uint64_t swap;         ///< atomics
        uint64_t remote_srqn;  ///< XRC, but atomics
        uint64_t bind_access;  ///< bind_mw: enum ibv_access_flags
    };
};
static_assert(sizeof(SendWqe) == 48);
inline constexpr uint32_t kSendWqeHead = sizeof(SendWqe);

/// Bytes of its slot that a WQE claims to use. A hostile client may claim more than the slot has.
constexpr uint64_t used_bytes(const SendWqe& w) {
    return kSendWqeHead + ((w.send_flags & kSendInline) != 0 ? uint64_t{w.inline_length} : w.num_sge * sizeof(Sge));
}

/// The phase of a published WQE at a free-running index. It changes each time the queue wraps around, so it differs from the
/// phase of the slot's previous WQE, and from 0 (never posted). `depth`: a power of two.
constexpr uint8_t phase_of(uint32_t index, uint32_t depth) { return (index & depth) == 0 ? 1 : 2; }

/// Receive WQE: a 16-byte head, then `num_sge` Sge. A slot is `rq_stride` bytes, a multiple of 32.
struct RecvWqe {
    uint64_t wr_id;
    uint32_t num_sge;
    uint32_t reserved;
};
static_assert(sizeof(RecvWqe) == 16);
inline constexpr uint32_t kRecvWqeHead = sizeof(RecvWqe);

/// Completion opcodes: enum ibv_wc_opcode.
enum class WcOpcode : uint8_t {
    send = 0,
    rdma_write = 1,
    rdma_read = 2,
    comp_swap = 3,
    fetch_add = 4,
    bind_mw = 5,
    local_inv = 6,
    tso = 7,
    flush = 8,
    atomic_write = 9,
    recv = 128,
    recv_rdma_with_imm = 129,
    tm_add = 130,
    tm_del = 131,
    tm_sync = 132,
    tm_recv = 133,
    tm_no_tag = 134,
};

/// Completion status: enum ibv_wc_status.
enum class WcStatus : uint8_t {
    success = 0,
    loc_len_err = 1,
    loc_qp_op_err = 2,
    loc_eec_op_err = 3,
    loc_prot_err = 4,
    wr_flush_err = 5,
    mw_bind_err = 6,
    bad_resp_err = 7,
    loc_access_err = 8,
    rem_inv_req_err = 9,
    rem_access_err = 10,
    rem_op_err = 11,
    retry_exc_err = 12,
    rnr_retry_exc_err = 13,
    loc_rdd_viol_err = 14,
    rem_inv_rd_req_err = 15,
    rem_abort_err = 16,
    inv_eecn_err = 17,
    inv_eec_state_err = 18,
    fatal_err = 19,
    resp_timeout_err = 20,
    general_err = 21,
    tm_err = 22,
    tm_rndv_incomplete = 23,
};

/// Completion flags: enum ibv_wc_flags.
enum WcFlags : uint8_t {
    kWcGrh = 1 << 0,
    kWcWithImm = 1 << 1,
    kWcIpCsumOk = 1 << 2,
    kWcWithInv = 1 << 3,
    kWcTmSyncReq = 1 << 4,
    kWcTmMatch = 1 << 5,
    kWcTmDataValid = 1 << 6,
};

/// The queue that the completed entry was on. kCqeTag: no queue of the QP, but a tagged buffer of an SRQ or an operation on the
/// SRQ's tag list.
enum CqeQueue : uint8_t { kCqeSend = 0, kCqeRecv = 1, kCqeSrq = 2, kCqeTag = 3 };

/// Completion queue entry: one cache line. rocid writes all but `seq`, then stores `seq` with release order.
/// The entry at free-running index i is valid once seq == uint32_t(i + 1).
struct alignas(64) Cqe {
    uint64_t wr_id;
    uint64_t timestamp;  ///< nanoseconds of rocid's monotonic clock when the entry was made
    uint64_t tag;        ///< tag matching: the message's tag
    uint32_t qpn;        ///< QP that the completion belongs to
    uint32_t byte_len;
    uint32_t imm_or_inv;  ///< immediate (big endian) or invalidated rkey, by wc_flags
    uint32_t src_qp;      ///< UD; tag matching: app_ctx of the message's TMH
    uint32_t wqe_index;   ///< send: free-running index of the WQE; frees that slot and all slots before it
    uint32_t vendor_err;
    WcStatus status;
    WcOpcode opcode;
    uint8_t wc_flags;  ///< WcFlags
    uint8_t queue;     ///< CqeQueue
    uint8_t sl;
    uint8_t reserved;
    uint16_t pkey_index;
    uint32_t srq_handle;  ///< kCqeSrq: the SRQ whose slot is free again
    uint32_t seq;
};
static_assert(sizeof(Cqe) == 64 && offsetof(Cqe, seq) == 60);

}  // namespace roci::abi
