// Posting by ibv_wr_*. A program calls ibv_wr_start, then for each request the opcode, address and payload functions, then
// ibv_wr_complete or ibv_wr_abort.
#include "wqe_writer.hpp"

namespace roci::client {
namespace {

/// Begins the next request. Returns nullptr if the request cannot be posted; wr_complete then returns the error.
abi::SendWqe* begin(ibv_qp_ex* p, ibv_wr_opcode opcode) {
    Qp& qp = *Qp::from(p);
    qp.building = nullptr;
    if (qp.error != 0) return nullptr;
    if ((qp.send_opcodes >> opcode & 1) == 0 || (only_datagrams(p->wr_flags) && p->qp_base.qp_type != IBV_QPT_UD)) {
        qp.error = EINVAL;
        return nullptr;
    }
    if (send_queue_full(qp)) {
        qp.error = ENOMEM;
        return nullptr;
    }
    qp.building = begin_wqe(qp, p->wr_id, opcode, p->wr_flags);
    ++qp.sq.head;
    return qp.building;
}

abi::SendWqe* begin_remote(ibv_qp_ex* p, ibv_wr_opcode opcode, uint32_t rkey, uint64_t address) {
    abi::SendWqe* w = begin(p, opcode);
    if (w == nullptr) return nullptr;
    w->remote_addr = address;
    w->rkey = rkey;
    return w;
}

void begin_with(ibv_qp_ex* p, ibv_wr_opcode opcode, uint32_t imm_or_inv) {
    if (abi::SendWqe* w = begin(p, opcode)) w->imm_or_inv = imm_or_inv;
}

void wr_atomic_cmp_swp(ibv_qp_ex* p, uint32_t rkey, uint64_t address, uint64_t compare, uint64_t swap) {
    abi::SendWqe* w = begin_remote(p, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, address);
    if (w == nullptr) return;
    w->compare_add = compare;
    w->swap = swap;
}
void wr_atomic_fetch_add(ibv_qp_ex* p, uint32_t rkey, uint64_t address, uint64_t add) {
    if (abi::SendWqe* w = begin_remote(p, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, address)) w->compare_add = add;
}
void wr_atomic_write(ibv_qp_ex* p, uint32_t rkey, uint64_t address, const void* value) {
    if (abi::SendWqe* w = begin_remote(p, IBV_WR_ATOMIC_WRITE, rkey, address))
        std::memcpy(&w->compare_add, value, sizeof w->compare_add);
}
void wr_flush(ibv_qp_ex* p, uint32_t rkey, uint64_t address, size_t length, uint8_t type, uint8_t level) {
    const uint32_t flush = uint32_t{level} << abi::kFlushLevelShift | type;
    if (type >> abi::kFlushLevelShift != 0 || !abi::valid_flush(flush)) Qp::from(p)->error = EINVAL;
    abi::SendWqe* w = begin_remote(p, kWrFlush, rkey, address);
    if (w == nullptr) return;
    w->flush = flush;
    w->flush_length = length;
}
void wr_bind_mw(ibv_qp_ex* p, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info* info) {
    Qp& qp = *Qp::from(p);
    if (!can_bind(qp, mw)) qp.error = EINVAL;
    abi::SendWqe* w = begin(p, IBV_WR_BIND_MW);
    if (w == nullptr) return;
    qp.binds.push_back({mw, next_key(*Mw::from(mw), rkey)});
    fill_bind(w, qp.binds.back().rkey, *info);
}
void wr_local_inv(ibv_qp_ex* p, uint32_t rkey) { begin_with(p, IBV_WR_LOCAL_INV, rkey); }
void wr_rdma_read(ibv_qp_ex* p, uint32_t rkey, uint64_t address) { begin_remote(p, IBV_WR_RDMA_READ, rkey, address); }
void wr_rdma_write(ibv_qp_ex* p, uint32_t rkey, uint64_t address) { begin_remote(p, IBV_WR_RDMA_WRITE, rkey, address); }
void wr_rdma_write_imm(ibv_qp_ex* p, uint32_t rkey, uint64_t address, __be32 imm) {
    if (abi::SendWqe* w = begin_remote(p, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address)) w->imm_or_inv = imm;
}
void wr_send(ibv_qp_ex* p) { begin(p, IBV_WR_SEND); }
void wr_send_imm(ibv_qp_ex* p, __be32 imm) { begin_with(p, IBV_WR_SEND_WITH_IMM, imm); }
void wr_send_inv(ibv_qp_ex* p, uint32_t rkey) { begin_with(p, IBV_WR_SEND_WITH_INV, rkey); }

void wr_set_ud_addr(ibv_qp_ex* p, ibv_ah* ah, uint32_t remote_qpn, uint32_t remote_qkey) {
    Qp& qp = *Qp::from(p);
    if (qp.building == nullptr) return;
    qp.building->ud.ah = ah->handle;
    qp.building->ud.remote_qpn = remote_qpn;
    qp.building->remote_qkey = remote_qkey;
}
void wr_set_xrc_srqn(ibv_qp_ex* p, uint32_t remote_srqn) {
    if (abi::SendWqe* w = Qp::from(p)->building) set_xrc_srqn(w, remote_srqn);
}

void wr_set_inline_data_list(ibv_qp_ex* p, size_t count, const ibv_data_buf* buffers) {
    Qp& qp = *Qp::from(p);
    if (qp.building == nullptr) return;
    uint32_t used = 0;
    for (size_t i = 0; i < count; ++i) {
        if (append_inline(qp, qp.building, used, buffers[i].addr, buffers[i].length)) continue;
        qp.error = EINVAL;
        return;
    }
    finish_inline(qp.building, used);
}
void wr_set_inline_data(ibv_qp_ex* p, void* data, size_t length) {
    const ibv_data_buf one{data, length};
    wr_set_inline_data_list(p, 1, &one);
}
void wr_set_sge_list(ibv_qp_ex* p, size_t count, const ibv_sge* list) {
    Qp& qp = *Qp::from(p);
    if (qp.building == nullptr) return;
    if (count > qp.cap.max_send_sge) {
        qp.error = EINVAL;
        return;
    }
    qp.building->num_sge = uint8_t(count);
    if (count != 0) std::memcpy(abi::sges(qp.building), list, count * sizeof(abi::Sge));
}
void wr_set_sge(ibv_qp_ex* p, uint32_t lkey, uint64_t address, uint32_t length) {
    const ibv_sge one{address, length, lkey};
    wr_set_sge_list(p, 1, &one);
}

void wr_start(ibv_qp_ex* p) {
    Qp& qp = *Qp::from(p);
    qp.sq_lock.lock();
    qp.first = qp.sq.head;
    qp.building = nullptr;
    qp.binds.clear();
    qp.error = takes_sends(p->qp_base.state) ? 0 : refusal(p->qp_base.context, EINVAL);
}
void go_back(Qp& qp) { qp.sq.head = qp.first; }

/// Posts all requests since wr_start. If one of these requests had an error, posts no request and returns the first error.
int wr_complete(ibv_qp_ex* p) {
    Qp& qp = *Qp::from(p);
    const int err = qp.error;
    if (err != 0)
        go_back(qp);
    else if (qp.sq.head != qp.first)
        ring(qp);
    if (err == 0)
        for (const Bind& bind : qp.binds) bind.window->rkey = bind.rkey;
    qp.sq_lock.unlock();
    return err == 0 ? 0 : refuse(err);
}
void wr_abort(ibv_qp_ex* p) {
    Qp& qp = *Qp::from(p);
    go_back(qp);
    qp.sq_lock.unlock();
}

}  // namespace

uint64_t offered_send_ops(ibv_qp_type type) {
    // Bit n of the flags stands for opcode n, except the bits of atomic write and FLUSH.
    constexpr uint64_t kSameNumber = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
                                     IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                     IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
                                     IBV_QP_EX_WITH_SEND_WITH_INV;
    static_assert(IBV_QP_EX_WITH_SEND_WITH_INV == 1 << IBV_WR_SEND_WITH_INV && IBV_QP_EX_WITH_RDMA_READ == 1 << IBV_WR_RDMA_READ);
    const uint32_t opcodes = sendable_opcodes(type);
    const uint64_t atomic_write = (opcodes >> IBV_WR_ATOMIC_WRITE & 1) != 0 ? uint64_t(IBV_QP_EX_WITH_ATOMIC_WRITE) : 0;
    const uint64_t flush = (opcodes >> kWrFlush & 1) != 0 ? kQpExWithFlush : 0;
    return (opcodes & kSameNumber) | atomic_write | flush;
}

void set_qp_ex_functions(Qp& qp) {
    QpEx& f = qp.qp;
    f.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
    f.wr_atomic_fetch_add = wr_atomic_fetch_add;
    f.wr_atomic_write = wr_atomic_write;
    f.wr_bind_mw = wr_bind_mw;
    f.wr_flush = wr_flush;
    f.wr_local_inv = wr_local_inv;
    f.wr_rdma_read = wr_rdma_read;
    f.wr_rdma_write = wr_rdma_write;
    f.wr_rdma_write_imm = wr_rdma_write_imm;
    f.wr_send = wr_send;
    f.wr_send_imm = wr_send_imm;
    f.wr_send_inv = wr_send_inv;
    f.wr_set_ud_addr = wr_set_ud_addr;
    f.wr_set_xrc_srqn = wr_set_xrc_srqn;
    f.wr_set_inline_data = wr_set_inline_data;
    f.wr_set_inline_data_list = wr_set_inline_data_list;
    f.wr_set_sge = wr_set_sge;
    f.wr_set_sge_list = wr_set_sge_list;
    f.wr_start = wr_start;
    f.wr_complete = wr_complete;
    f.wr_abort = wr_abort;
}

}  // namespace roci::client
