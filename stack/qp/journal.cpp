#include "qp/journal.hpp"

#include "qp/roles.hpp"

namespace roci::qp {
namespace {

using abi::Reason;
using abi::WcStatus;

Journal& journal_of(Context& ctx, Qp& qp) {
    if (qp.journal == nullptr) {
        qp.journal = std::make_unique<Journal>();
        qp.journal->add(ctx.now, Happening::state, uint8_t(qp.state), {}, Reason::none);
    }
    return *qp.journal;
}

Reason memory_reason(mem::Fault fault, bool remote) {
    using F = mem::Fault;
    switch (fault) {
        case F::bad_key:
            return remote ? Reason::rkey_unknown : Reason::lkey_unknown;
        case F::wrong_pd:
            return remote ? Reason::rkey_other_pd : Reason::lkey_other_pd;
        case F::no_permission:
            return remote ? Reason::rkey_no_right : Reason::lkey_no_right;
        case F::out_of_range:
            return remote ? Reason::rkey_range : Reason::lkey_range;
        default:
            return Reason::memory_gone;
    }
}

constexpr Reason kFaultReasons[] = {Reason::none,           Reason::invalid_succession, Reason::not_allowed,
                                    Reason::too_many_reads, Reason::bad_length,         Reason::receive_too_small,
                                    Reason::rkey_unknown,   Reason::lkey_unknown,       Reason::malformed_receive,
                                    Reason::memory_gone,    Reason::invalidation,       Reason::access_flags,
                                    Reason::misaligned,     Reason::bad_flush,          Reason::memory_gone,
                                    Reason::wrong_qkey};
static_assert(std::size(kFaultReasons) == size_t(RequestFault::count_));

/// Returns the reason why the first inaccessible SGE is refused, or memory_gone if all SGEs are accessible.
Reason sge_reason(Context& ctx, Qp& qp, uint32_t pd, std::span<const abi::Sge> sges, uint32_t needed) {
    for (const abi::Sge& s : sges) {
        const mem::MemoryRegion* region = nullptr;
        const mem::Fault fault =
            mem::check(ctx.shared->keys, Key{s.lkey}, pd, qp.spec.qpn.value, s.addr, s.length, needed, region);
        if (fault != mem::Fault::ok) return note_access(ctx, qp, {fault, s.lkey, pd, needed, s.addr, s.length}, false);
    }
    return Reason::memory_gone;
}

Reason request_memory_reason(Context& ctx, Qp& qp) {
    if (qp.requester.queue.empty()) return Reason::memory_gone;
    const SendRecord& r = *qp.requester.queue.oldest();
    const abi::SendWqe& w = wqe(r);
    const bool writes = r.kind == WorkKind::read || r.kind == WorkKind::atomic;
    const uint32_t needed = writes ? uint32_t{mem::kLocalWrite} : 0;
    return sge_reason(ctx, qp, qp.spec.pd, {reinterpret_cast<const abi::Sge*>(&w + 1), w.num_sge}, needed);
}

Reason operation_reason(Context& ctx, Qp& qp) {
    if (qp.spec.type != Type::ud || qp.requester.queue.empty()) return Reason::malformed_request;
    const SendRecord& r = *qp.requester.queue.oldest();
    wire::TransportHeaders h;
    const bool addressed = r.kind != WorkKind::send || address_datagram(ctx, qp, wqe(r), h) != nullptr;
    return addressed ? Reason::malformed_request : Reason::bad_address_handle;
}

}  // namespace

void Journal::add(Nanos now, Happening what, uint8_t code, Psn psn, abi::Reason reason) {
    if (written != 0) {
        JournalEntry& e = entries[(written - 1) % kEntries];
        if (e.what == what && e.reason == reason && (e.code == code || what == Happening::timeout)) {
            ++e.times;
            e.last = now;
            e.psn = psn;
            e.code = code;
            return;
        }
    }
    entries[written++ % kEntries] = {now, now, 1, psn, what, code, reason};
    if (written == 2 * kEntries) written = kEntries;  // keeps `written` from wrapping around
}

#ifndef ROCI_UNRECORDED
void note(Context& ctx, Qp& qp, Happening what, Psn psn, uint8_t code, abi::Reason reason) {
    journal_of(ctx, qp).add(ctx.now, what, code, psn, reason);
}
#endif

abi::Reason note_access(Context& ctx, Qp& qp, const RefusedAccess& refused, bool remote) {
    RefusedAccess& a = journal_of(ctx, qp).access;
    a = refused;
    const mem::MemoryRegion* named = ctx.shared->keys.find(Key{a.key});
    if (named != nullptr) {
        a.region_pd = named->pd;
        a.allowed = named->access;
        a.start = named->iova;
        a.size = named->length;
    }
    return memory_reason(a.fault, remote);
}

abi::Reason note_fault(Context& ctx, Qp& qp, RequestFault fault) {
    Reason reason = kFaultReasons[size_t(fault)];
    const RecvWork& work = qp.responder.recv;
    if (fault == RequestFault::access && journal_of(ctx, qp).access.fault != mem::Fault::ok)
        reason = memory_reason(qp.journal->access.fault, true);
    if (fault == RequestFault::recv_protection && work.held)
        reason = sge_reason(ctx, qp, work.pd, {qp.responder.recv.sges.get(), work.num_sge}, mem::kLocalWrite);
    note(ctx, qp, Happening::refused, qp.responder.sequence.expected(), 0, reason);
    return reason;
}

abi::Reason note_failure(Context& ctx, Qp& qp, WcStatus status) {
    struct Row {
        WcStatus status;
        Reason reason;
    };
    static constexpr Row kRows[] = {{WcStatus::rnr_retry_exc_err, Reason::no_receive_posted},
                                    {WcStatus::rem_access_err, Reason::peer_refused_access},
                                    {WcStatus::rem_inv_req_err, Reason::peer_refused_request},
                                    {WcStatus::rem_inv_rd_req_err, Reason::peer_refused_request},
                                    {WcStatus::rem_op_err, Reason::peer_failed},
                                    {WcStatus::bad_resp_err, Reason::bad_response},
                                    {WcStatus::mw_bind_err, Reason::bad_bind},
                                    {WcStatus::loc_len_err, Reason::message_too_long}};
    Reason reason = Reason::malformed_request;
    for (const Row& r : kRows)
        if (r.status == status) reason = r.reason;
    if (status == WcStatus::retry_exc_err)
        reason = qp.requester.timeouts_in_a_row != 0 ? Reason::peer_silent : Reason::packets_lost;
    if (status == WcStatus::loc_prot_err) reason = request_memory_reason(ctx, qp);
    if (status == WcStatus::loc_qp_op_err) reason = operation_reason(ctx, qp);
    note(ctx, qp, Happening::failed, qp.requester.window.acked(), uint8_t(status), reason);
    return reason;
}

}  // namespace roci::qp
