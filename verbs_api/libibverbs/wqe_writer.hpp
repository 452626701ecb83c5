// Writes send WQEs for ibv_post_send and the ibv_wr_* functions.
#pragma once

#include "context.hpp"

namespace roci::client {

inline bool send_queue_full(const Qp& qp) {
    const uint32_t tail = std::atomic_ref(const_cast<uint32_t&>(qp.sq.tail)).load(std::memory_order_acquire);
    return qp.sq.head - tail >= qp.send_limit;
}

/// Returns true if `flags` contains the flag for checksum offload, which this device offers only on UD QPs (ibv_post_send(3)).
inline bool only_datagrams(unsigned flags) { return (flags & IBV_SEND_IP_CSUM) != 0; }

/// Begins the WQE at sq.head: writes wr_id, opcode and flags, and sets the fields of the head from imm_or_inv on to zero.
/// publish() writes the phase.
inline abi::SendWqe* begin_wqe(Qp& qp, uint64_t wr_id, uint32_t opcode, unsigned flags) {
    qp.sq.claim();
    abi::SendWqe* w = qp.sq.slot(qp.sq.head);
    std::memset(&w->imm_or_inv, 0, sizeof *w - offsetof(abi::SendWqe, imm_or_inv));
    w->wr_id = wr_id;
    w->num_sge = 0;
    w->opcode = abi::WrOpcode(opcode);
    w->send_flags = uint8_t(flags & (abi::kSendFence | abi::kSendSignaled | abi::kSendSolicited | abi::kSendIpCsum));
    return w;
}

/// Appends `length` bytes to the inline payload, of which the WQE already contains `used` bytes. Returns false if the payload
/// would exceed the QP's limit.
inline bool append_inline(const Qp& qp, abi::SendWqe* w, uint32_t& used, const void* data, size_t length) {
    if (length > qp.cap.max_inline_data - used) return false;
    if (length != 0) std::memcpy(abi::inline_data(w) + used, data, length);
    used += uint32_t(length);
    return true;
}

/// Sets the inline flag and the length of the inline payload. If there is no payload, leaves the WQE unchanged.
inline void finish_inline(abi::SendWqe* w, uint32_t used) {
    if (used == 0) return;
    w->send_flags |= abi::kSendInline;
    w->inline_length = used;
}

/// Sets the SRQ number of an XRC request. An atomic has the number in `atomic_srqn`, because `swap` uses the memory of
/// `remote_srqn`. A bind has no SRQ number.
inline void set_xrc_srqn(abi::SendWqe* w, uint32_t srqn) {
    if (w->opcode == abi::WrOpcode::bind_mw) return;
    const bool atomic = w->opcode == abi::WrOpcode::atomic_cmp_swp || w->opcode == abi::WrOpcode::atomic_fetch_add;
    if (atomic)
        w->atomic_srqn = srqn;
    else
        w->remote_srqn = srqn;
}

/// Returns the rkey of a window after its next bind: the window's index, and the low 8 bits of `chosen` (IBA 10.6.7.2.2).
inline uint32_t next_key(const Mw& mw, uint32_t chosen) { return mw.index | (chosen & kConsumerKey); }

/// Returns false if `mw` is not a window of this device.
inline bool can_bind(const Qp& qp, const ibv_mw* mw) { return mw != nullptr && mw->context == qp.qp.qp_base.context; }

inline void fill_bind(abi::SendWqe* w, uint32_t rkey, const ibv_mw_bind_info& info) {
    w->remote_addr = info.addr;
    w->rkey = rkey;
    w->bind_mr_lkey = info.mr != nullptr ? info.mr->lkey : 0;
    w->bind_length = info.length;
    w->bind_access = info.mw_access_flags;
}

}  // namespace roci::client
