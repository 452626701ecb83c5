// Unreliable datagrams: addresses of outgoing datagrams and checks of incoming datagrams (IBA 9.8.3, 10.2.5, 11.4.2.1).
#include "qp/roles.hpp"

namespace roci::qp {
namespace {

using abi::WcStatus;

constexpr uint32_t kGrhLength = 40;
/// If the top bit of the WQE's Q_Key is set, the QP's own Q_Key is used (IBA 10.2.5, controlled Q_Keys).
constexpr uint32_t kControlledQkey = 0x80000000;

/// Stores a datagram. The first 40 bytes of the receive buffer are reserved for a GRH, whether the packet has one or not.
bool place(const SgeList& sges, const wire::Packet& p) {
    uint8_t grh[kGrhLength];
    p.copy_grh(grh);
    return sges.scatter(0, grh, kGrhLength) && sges.scatter(kGrhLength, p.payload, p.payload_length);
}

void place_datagram(Context& ctx, Qp& qp, const wire::Packet& p) {
    RecvWork& work = qp.responder.recv;
    const SgeList sges(ctx, work.pd, {work.sges.get(), work.num_sge});
    if (!place(sges, p)) [[unlikely]] {
        if (place_datagram_slowly(ctx, qp, p, sges) == Placing::refused) finish_datagram(ctx, qp, p, false);
        return;
    }
    finish_datagram(ctx, qp, p, true);
}

/// Takes a receive with a capacity of at least `bytes`. The QP may still hold the receive of a datagram that was dropped
/// because it could not be kept (Placing::lost). The next datagram uses that receive.
TakeRecv hold_receive(Context& ctx, Qp& qp, const wire::Packet& p, uint32_t bytes) {
    const RecvWork& work = qp.responder.recv;
    if (work.held) [[unlikely]]
        return work.capacity >= bytes ? TakeRecv::ok : TakeRecv::too_short;
    return take_recv(ctx, qp, &p, bytes);
}

/// Called for a fault of the QP's owner (IBA 9.9.3.2, class E). Completes the receive with an error. If the QP holds no
/// receive, raises QP_FATAL instead. Moves the QP to ERR.
void fail_receive(Context& ctx, Qp& qp, RequestFault f, WcStatus status) {
    count(ctx, qp, f);
    const abi::Reason reason = note_fault(ctx, qp, f);
    if (qp.responder.recv.held)
        complete_recv(ctx, qp, nullptr, status, 0, reason);
    else
        raise(ctx, qp, abi::AsyncEvent::qp_fatal);
    enter_error(ctx, qp);
}

}  // namespace

const wire::PathTemplate* address_datagram(Context& ctx, const Qp& qp, const abi::SendWqe& w, wire::TransportHeaders& h) {
    const io::AddressHandle* ah = ctx.shared->ahs.find(w.ud.ah);
    if (ah == nullptr || ah->pd != qp.spec.pd || ah->port != qp.spec.port) return nullptr;
    h.dest_qp = Qpn{w.ud.remote_qpn & kMask24};
    h.qkey = (w.remote_qkey & kControlledQkey) != 0 ? qp.qkey : w.remote_qkey;
    h.src_qp = qp.spec.qpn;
    return &ah->path;
}

void count_copies(Context& ctx, const abi::SendWqe& w) {
    const io::AddressHandle* ah = ctx.shared->ahs.find(w.ud.ah);
    const io::MulticastTable* table = ctx.shared->multicast.load(std::memory_order_acquire);
    if (ah != nullptr && table != nullptr && !ah->group.is_zero()) ctx.copies += table->members(ah->group);
}

void receive_datagram(Context& ctx, Qp& qp, const wire::Packet& p) {
    ROCI_STAGE(responder);
    if ((p.qkey ^ qp.qkey) | uint32_t{qp.waits_requests}) [[unlikely]] {
        if (p.qkey == qp.qkey) return keep_behind(ctx, qp, SlowRole::request, p);
        count(ctx, qp, RequestFault::wrong_qkey);  // the datagram is silently dropped (IBA 9.6.1.5.1)
        note_fault(ctx, qp, RequestFault::wrong_qkey);
        return;
    }
    // A datagram that does not fit into the next receive is dropped and consumes no receive (IBA 9.9.3.2, class D). Any host
    // that has the Q_Key may send datagrams, so no length may fail the QP.
    const TakeRecv taken = hold_receive(ctx, qp, p, kGrhLength + p.payload_length);
    if (taken != TakeRecv::ok) [[unlikely]] {
        if (taken == TakeRecv::malformed) return fail_receive(ctx, qp, RequestFault::malformed_recv, WcStatus::loc_qp_op_err);
        count(ctx, qp, &EventCounters::dropped);
        note(ctx, qp, Happening::refused, p.psn, 0, abi::Reason::datagram_dropped);
        return;
    }
    place_datagram(ctx, qp, p);
}

void finish_datagram(Context& ctx, Qp& qp, const wire::Packet& p, bool good) {
    if (!good) return fail_receive(ctx, qp, RequestFault::recv_protection, WcStatus::loc_prot_err);
    count_executed(ctx, qp, Executed::send);
    complete_recv(ctx, qp, &p, WcStatus::success, kGrhLength + p.payload_length);
}

}  // namespace roci::qp
