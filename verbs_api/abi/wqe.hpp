// Layout of work queue entries and completion queue entries in shared memory.
//
// All structs are plain data in native byte order, because client and rocid run on one machine. rocid copies each work queue
// entry once and validates the copy, because a client may be hostile. Opcodes, flags and statuses have the numbers of
// <infiniband/verbs.h>, so the client library stores the program's values unchanged.
#pragma once

#include <cstddef>
#include <cstdint>

namespace roci::abi {

/// One scatter/gather element. `length` 0 means 0 bytes, not 2^31.
struct Sge {
    uint64_t addr;
    uint32_t length;
    uint32_t lkey;
};
static_assert(sizeof(Sge) == 16);

/// The opcodes of send work requests, with the numbers of enum ibv_wr_opcode.
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

/// The send flags, with the values of enum ibv_send_flags.
enum SendFlags : uint8_t {
    kSendFence = 1 << 0,
    kSendSignaled = 1 << 1,
    kSendSolicited = 1 << 2,
    kSendInline = 1 << 3,
    kSendIpCsum = 1 << 4,
};

/// The fields of a FLUSH's extended header (IBA 1.6, annex A19, FETH). The placement types have the values of enum
/// ibv_placement_type, the selectivity levels those of enum ibv_selectivity_level.
enum Flush : uint32_t {
    kFlushGlobal = 1 << 0,      ///< placement type: earlier data is visible to every reader of the memory
    kFlushPersistent = 1 << 1,  ///< placement type: earlier data is in persistent memory
    kFlushRegion = 1 << 4,      ///< selectivity level: the whole memory region; if clear, a range of the region
    kFlushFields = 0x3f,        ///< the bits of both fields; the other bits are reserved
};
inline constexpr uint32_t kFlushLevelShift = 4;
/// Returns true if `flush` has a placement type and no reserved value.
constexpr bool valid_flush(uint32_t flush) {
    constexpr uint32_t kTypes = kFlushGlobal | kFlushPersistent;
    return (flush & kTypes) != 0 && (flush & ~(kTypes | kFlushRegion)) == 0;
}

/// A send WQE: a 48-byte head, then either `num_sge` Sge or, with kSendInline, `inline_length` bytes of payload. The head and the
/// first Sge fill one cache line. A slot has `sq_stride` bytes, a multiple of 64, which is fixed when the QP is created.
struct SendWqe {
    uint64_t wr_id;
    WrOpcode opcode;
    uint8_t send_flags;   ///< SendFlags
    uint8_t num_sge;      ///< 0 for inline payload
    uint8_t phase;        ///< phase_of() for the WQE's index; SqProducer::publish() writes this field last
    uint32_t imm_or_inv;  ///< immediate data as the program gave it (big endian), or the rkey to invalidate
    union {
        uint64_t remote_addr;  ///< RDMA and atomics: remote address; bind_mw: start of the window
        struct {
            uint32_t ah;  ///< UD: address handle (control.hpp, CreateAhRequest)
            uint32_t remote_qpn;
        } ud;
    };
    union {
        uint32_t rkey;         ///< RDMA and atomics: rkey; bind_mw: new rkey of the window
        uint32_t remote_qkey;  ///< UD: Q_Key of the receiving QP
    };
    union {
        uint32_t inline_length;  ///< with kSendInline: bytes of payload
        uint32_t bind_mr_lkey;   ///< bind_mw: lkey of the memory region
        uint32_t atomic_srqn;    ///< XRC atomics: SRQ number, because `swap` uses the memory of `remote_srqn`
        uint32_t flush;          ///< flush: bits of enum Flush
    };
    union {
        uint64_t compare_add;   ///< atomics: compare or add operand; atomic_write: the 8 bytes
        uint64_t bind_length;   ///< bind_mw: length of the window
        uint64_t flush_length;  ///< flush: length of the range
    };
    union {
        uint64_t swap;         ///< compare and swap: swap operand
        uint64_t remote_srqn;  ///< XRC, except atomics
        uint64_t bind_access;  ///< bind_mw: enum ibv_access_flags
    };
};
static_assert(sizeof(SendWqe) == 48);
inline constexpr uint32_t kSendWqeHead = sizeof(SendWqe);

/// Returns the number of bytes that a WQE uses, computed from the WQE's fields. If the client is hostile, this number may be
/// larger than the WQE's slot.
constexpr uint64_t used_bytes(const SendWqe& w) {
    return kSendWqeHead + ((w.send_flags & kSendInline) != 0 ? uint64_t{w.inline_length} : w.num_sge * sizeof(Sge));
}

/// Returns the phase of a published WQE at a free-running index. The phase changes each time the queue wraps around. So the phase
/// of a WQE differs from the phase of the previous WQE in the same slot. The phase also differs from 0, the value before the
/// first WQE of the slot. `depth` is a power of two.
constexpr uint8_t phase_of(uint32_t index, uint32_t depth) { return (index & depth) == 0 ? 1 : 2; }

/// A receive WQE: a 16-byte head, then `num_sge` Sge. A slot has `rq_stride` bytes, a multiple of 32.
struct RecvWqe {
    uint64_t wr_id;
    uint32_t num_sge;
    uint32_t reserved;
};
static_assert(sizeof(RecvWqe) == 16);
inline constexpr uint32_t kRecvWqeHead = sizeof(RecvWqe);

/// The opcodes of completions, with the numbers of enum ibv_wc_opcode.
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

/// The statuses of completions, with the numbers of enum ibv_wc_status.
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

/// The flags of completions, with the values of enum ibv_wc_flags.
enum WcFlags : uint8_t {
    kWcGrh = 1 << 0,
    kWcWithImm = 1 << 1,
    kWcIpCsumOk = 1 << 2,
    kWcWithInv = 1 << 3,
    kWcTmSyncReq = 1 << 4,
    kWcTmMatch = 1 << 5,
    kWcTmDataValid = 1 << 6,
};

/// The kind of queue to which the completed WQE belongs. kCqeTag is the completion of a tagged buffer of an SRQ, or of an
/// operation on the SRQ's tag list.
enum CqeQueue : uint8_t { kCqeSend = 0, kCqeRecv = 1, kCqeSrq = 2, kCqeTag = 3 };

/// A completion queue entry of one cache line. rocid writes all other fields first, then stores `seq` with release order.
/// The entry at free-running index i is valid once seq == uint32_t(i + 1).
struct alignas(64) Cqe {
    uint64_t wr_id;
    uint64_t timestamp;  ///< time of the completion: nanoseconds of rocid's monotonic clock
    uint64_t tag;        ///< tag matching: tag of the message
    uint32_t qpn;        ///< QP that the completion belongs to
    uint32_t byte_len;
    uint32_t imm_or_inv;  ///< with kWcWithImm: immediate data (big endian); with kWcWithInv: invalidated rkey
    uint32_t src_qp;      ///< UD: QP number of the sender; tag matching: app_ctx of the message's TMH
    uint32_t wqe_index;   ///< send: free-running index of the WQE; the client frees this slot and all slots before it
    uint32_t vendor_err;
    WcStatus status;
    WcOpcode opcode;
    uint8_t wc_flags;  ///< WcFlags
    uint8_t queue;     ///< CqeQueue
    uint8_t sl;
    uint8_t reserved;
    uint16_t pkey_index;
    uint32_t srq_handle;  ///< kCqeSrq, kCqeTag: handle of the SRQ; for kCqeSrq the client frees one slot of this SRQ
    uint32_t seq;
};
static_assert(sizeof(Cqe) == 64 && offsetof(Cqe, seq) == 60);

}  // namespace roci::abi
