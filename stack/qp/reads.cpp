// The responder's handling of READ, atomics, ATOMIC WRITE and FLUSH. This file checks and executes the requests; respond.cpp
// sends the responses.
#include <cstring>
#include <mutex>

#include "qp/requests.hpp"

namespace roci::qp {
namespace {

ResponderJob read_job(const Context& ctx, const Qp& qp, const wire::Packet& p) {
    ResponderJob job;
    job.first = p.psn;
    job.va = p.va;
    job.length = p.dma_length;
    job.rkey = p.rkey;
    job.pd = domain_of(ctx, qp, p);
    job.msn = qp.responder.sequence.msn().value & kMask24;
    return job;
}

/// Returns the number of READs, atomics, ATOMIC WRITEs and FLUSHes that are being answered for the first time.
uint32_t new_jobs(Responder& rs) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < rs.jobs.count; ++i) n += !rs.jobs.at(i).replay;
    return n;
}

void queue_job(Context& ctx, Qp& qp, const ResponderJob& job) {
    JobRing& jobs = qp.responder.jobs;
    jobs.at(jobs.count++) = job;
    activate_responder(ctx, qp);
}

}  // namespace

void execute_read(Context& ctx, Qp& qp, const wire::Packet& p) {
    Responder& rs = qp.responder;
    if (new_jobs(rs) >= qp.max_dest_rd_atomic) return fault(ctx, qp, RequestFault::too_many_reads);
    if (p.dma_length > kMaxMessage) return fault(ctx, qp, RequestFault::bad_length);
    Grant grant;
    if (!remote_memory(ctx, qp, p, p.rkey, p.va, p.dma_length, mem::kRemoteRead, grant))
        return fault(ctx, qp, RequestFault::access);
    rs.sequence.end_message();
    count_executed(ctx, qp, Executed::read);
    const ResponderJob job = read_job(ctx, qp, p);
    rs.sequence.executed(response_packets(qp, job));
    queue_job(ctx, qp, job);
}

namespace {

/// Executes an atomic on 8 bytes. If the bytes are aligned in the mapping, uses an atomic instruction. Otherwise copies the
/// bytes; the operation is then atomic only with respect to other atomics that copy.
bool exchange(const mem::MemoryRegion& region, uint64_t va, const wire::Packet& p, uint64_t& original) {
    const bool swap = wire::operation_of(p.opcode) == wire::Operation::cmp_swap;
    std::byte* direct = mem::direct(region, va, 8);
    if (direct != nullptr) {
        std::atomic_ref<uint64_t> word(*reinterpret_cast<uint64_t*>(direct));
        if (!swap) {
            original = word.fetch_add(p.swap_add);
            return true;
        }
        original = p.compare;
        word.compare_exchange_strong(original, p.swap_add);
        return true;
    }
    // Two engines may execute atomics on the same address, so a lock serialises them. Each engine holds the lock only while it
    // copies a few bytes.
    static std::mutex misaligned;
    const std::lock_guard guard(misaligned);
    std::byte bytes[8];
    if (!mem::copy_out(region, va, bytes, 8)) return false;
    std::memcpy(&original, bytes, 8);
    const uint64_t changed = swap ? (original == p.compare ? p.swap_add : original) : original + p.swap_add;
    std::memcpy(bytes, &changed, 8);
    return mem::copy_in(region, va, bytes, 8);
}

ResponderJob atomic_job(Psn psn, uint64_t original, Msn msn) {
    ResponderJob job;
    job.first = psn;
    job.atomic = true;
    job.va = original;
    job.msn = msn.value & kMask24;
    return job;
}

}  // namespace

void execute_atomic(Context& ctx, Qp& qp, const wire::Packet& p) {
    Responder& rs = qp.responder;
    if (new_jobs(rs) >= qp.max_dest_rd_atomic) return fault(ctx, qp, RequestFault::too_many_reads);
    if (p.va % 8 != 0) return fault(ctx, qp, RequestFault::misaligned);
    Grant grant;
    if (!remote_memory(ctx, qp, p, p.rkey, p.va, 8, mem::kRemoteAtomic, grant)) return fault(ctx, qp, RequestFault::access);
    uint64_t original = 0;
    if (exchange(*grant.region, grant.va, p, original)) return finish_atomic(ctx, qp, p, original);
    if (exchange_slowly(ctx, qp, p, grant.target()) == Placing::refused) fault(ctx, qp, RequestFault::unreachable);
}

void finish_atomic(Context& ctx, Qp& qp, const wire::Packet& p, uint64_t original) {
    Responder& rs = qp.responder;
    rs.sequence.end_message();
    rs.sequence.executed();
    count_executed(ctx, qp, Executed::atomic);
    rs.atomics.keep({original, p.psn, rs.sequence.msn()});
    queue_job(ctx, qp, atomic_job(p.psn, original, rs.sequence.msn()));
}

namespace {

/// Returns the job that answers an ATOMIC WRITE or a FLUSH. The response is an empty READ response.
ResponderJob empty_job(const Qp& qp, Psn psn) {
    ResponderJob job;
    job.first = psn;
    job.msn = qp.responder.sequence.msn().value & kMask24;
    return job;
}

bool store(const mem::MemoryRegion& region, uint64_t va, const uint8_t* bytes) {
    std::byte* direct = mem::direct(region, va, kAtomicWriteBytes);
    if (direct == nullptr) return mem::copy_in(region, va, reinterpret_cast<const std::byte*>(bytes), kAtomicWriteBytes);
    uint64_t value;
    std::memcpy(&value, bytes, sizeof value);
    std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(direct)).store(value);
    return true;
}

}  // namespace

void execute_atomic_write(Context& ctx, Qp& qp, const wire::Packet& p) {
    Responder& rs = qp.responder;
    if (new_jobs(rs) >= qp.max_dest_rd_atomic) return fault(ctx, qp, RequestFault::too_many_reads);
    if (p.payload_length != kAtomicWriteBytes || p.dma_length != kAtomicWriteBytes)
        return fault(ctx, qp, RequestFault::bad_length);
    if (p.va % kAtomicWriteBytes != 0) return fault(ctx, qp, RequestFault::misaligned);
    Grant grant;
    if (!remote_memory(ctx, qp, p, p.rkey, p.va, kAtomicWriteBytes, mem::kRemoteWrite, grant))
        return fault(ctx, qp, RequestFault::access);
    if (store(*grant.region, grant.va, p.payload)) return finish_atomic_write(ctx, qp, p);
    const Placing placing = place_slowly(ctx, qp, SlowRole::request, p, grant.target(), p.payload, kAtomicWriteBytes);
    if (placing == Placing::refused) fault(ctx, qp, RequestFault::unreachable);
}

void finish_atomic_write(Context& ctx, Qp& qp, const wire::Packet& p) {
    ReceiveSequence& sequence = qp.responder.sequence;
    sequence.end_message();
    sequence.executed();
    count_executed(ctx, qp, Executed::atomic);
    queue_job(ctx, qp, empty_job(qp, p.psn));
}

namespace {

/// Checks the R_Key of a FLUSH and, unless the FLUSH is of the whole region, the range. As with Soft-RoCE, a FLUSH of length 0
/// needs a valid R_Key; C9-88 exempts only READ and WRITE.
bool may_flush(Context& ctx, Qp& qp, const wire::Packet& p) {
    const uint32_t pd = domain_of(ctx, qp, p), rights = flush_rights(p.flush);
    const mem::MemoryRegion* region = nullptr;
    mem::WindowUse use;
    mem::Fault fault = mem::check_key(ctx.shared->keys, p.rkey, pd, qp.spec.qpn.value, rights, region, use);
    const bool whole = (p.flush & abi::kFlushRegion) != 0;
    if (fault == mem::Fault::ok && !whole && !mem::inside(*region, p.va, p.dma_length)) fault = mem::Fault::out_of_range;
    if (fault == mem::Fault::ok) return true;
    note_access(ctx, qp, {fault, p.rkey.value, pd, rights, p.va, p.dma_length}, true);
    return false;
}

}  // namespace

/// The engine has executed all earlier requests of the QP, so their data is in memory that all CPUs share. A fence therefore
/// makes the data globally visible. No region has the right for persistence (host/objects/memory.cpp).
void execute_flush(Context& ctx, Qp& qp, const wire::Packet& p) {
    Responder& rs = qp.responder;
    if (new_jobs(rs) >= qp.max_dest_rd_atomic) return fault(ctx, qp, RequestFault::too_many_reads);
    if (!abi::valid_flush(p.flush & abi::kFlushFields)) return fault(ctx, qp, RequestFault::bad_flush);
    if (p.dma_length > kMaxMessage) return fault(ctx, qp, RequestFault::bad_length);
    if (!may_flush(ctx, qp, p)) return fault(ctx, qp, RequestFault::access);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    rs.sequence.end_message();
    rs.sequence.executed();
    queue_job(ctx, qp, empty_job(qp, p.psn));
}

namespace {

void duplicate_read(Context& ctx, Qp& qp, const wire::Packet& p) {
    Responder& rs = qp.responder;
    Grant grant;
    const ResponderJob job = read_job(ctx, qp, p);
    // All PSNs of the responses to a repeated READ are before ePSN. A request that needs ePSN or a later PSN is invalid and is
    // dropped.
    if (p.dma_length > kMaxMessage || (job.first + response_packets(qp, job)).distance_from(rs.sequence.expected()) > 0) return;
    if (!(qp.access & mem::kRemoteRead) || !remote_memory(ctx, qp, p, p.rkey, p.va, p.dma_length, mem::kRemoteRead, grant))
        return;
    answer_again(ctx, qp, job);
}

void duplicate_atomic(Context& ctx, Qp& qp, const wire::Packet& p) {
    const AtomicResult* kept = qp.responder.atomics.find(p.psn);
    if (kept != nullptr) answer_again(ctx, qp, atomic_job(kept->psn, kept->original, kept->msn));
}

/// Repeats only the response of an ATOMIC WRITE or FLUSH, because the request was executed already. A second ATOMIC WRITE would
/// overwrite newer data.
void duplicate_empty(Context& ctx, Qp& qp, const wire::Packet& p) { answer_again(ctx, qp, empty_job(qp, p.psn)); }

}  // namespace

void duplicate(Context& ctx, Qp& qp, const wire::Packet& p) {
    count(ctx, qp, &EventCounters::duplicates);
    bump(ctx.device(qp).duplicate_requests);
    if (p.info->has(wire::kRead)) return duplicate_read(ctx, qp, p);
    if (p.info->has(wire::kAtomic)) return duplicate_atomic(ctx, qp, p);
    if (p.info->has(wire::kAtomicWrite | wire::kFlushEth)) return duplicate_empty(ctx, qp, p);
    qp.responder.sequence.owe_ack();
    activate_responder(ctx, qp);
}

}  // namespace roci::qp
