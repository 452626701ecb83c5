// Programs that use the client's end of the rings as libibverbs does.
#include <cstring>

#include "rig.hpp"

namespace roci::sharing {
namespace {

using abi::WrOpcode;

/// Copies an entry of a completion queue and frees its slot, as ibv_poll_cq does.
bool poll(abi::CqConsumer& cq, abi::Cqe& out) {
    const abi::Cqe* e = cq.peek();
    if (e == nullptr) return false;
    out = *e;
    cq.pop();
    return true;
}

void post_receive(End& e, uint32_t message) {
    abi::RecvWqe* w = e.rq.slot(e.rq.head++);
    *w = {uint64_t{e.index} * kMessages + message, 1, 0};
    *abi::sges(w) = {reinterpret_cast<uint64_t>(e.buffer + message * kBytes), kBytes, e.lkey};
}
void publish_receives(End& e) { (void)e.rq.publish(); }

abi::SendWqe* begin_send(End& from, const End& to, WrOpcode opcode, uint32_t message, uint64_t id) {
    abi::SendWqe* w = from.sq.slot(from.sq.head++);
    std::memset(&w->imm_or_inv, 0, sizeof *w - offsetof(abi::SendWqe, imm_or_inv));
    w->wr_id = id;
    w->opcode = opcode;
    w->send_flags = ++from.posted % kSignalEvery == 0 ? abi::kSendSignaled : 0;
    if (opcode != WrOpcode::send) {
        w->remote_addr = reinterpret_cast<uint64_t>(to.buffer + message * kBytes);
        w->rkey = to.rkey;
    }
    return w;
}
void publish_sends(End& e) {
    if (e.sq.publish()) (void)abi::ring_doorbell(e.bell, e.slot);
}

/// Sends a short message inline, as programs do that need a low latency.
void send_inline(End& from, const End& to, WrOpcode opcode, uint8_t content) {
    std::byte payload[kBytes];
    std::memset(payload, content, sizeof payload);
    abi::SendWqe* w = begin_send(from, to, opcode, 0, 0);
    w->num_sge = 0;
    w->send_flags |= abi::kSendInline;
    w->inline_length = kBytes;
    std::memcpy(abi::inline_data(w), payload, kBytes);
    publish_sends(from);
}

/// Polls one completion of this end. Returns 1 if a message has arrived, -1 if a request has failed, and 0 otherwise.
int take(End& e) {
    abi::Cqe c;
    if (!poll(*e.cq, c)) return 0;
    if (c.status != abi::WcStatus::success) return -1;
    if (c.queue == abi::kCqeSend) return e.sq.free_send(c.wqe_index), 0;
    e.rq.free_recv();
    return 1;
}

/// Waits until a message arrives, or until all messages of the measurement are counted (Account::over). Then reads
/// the message buffer. Returns false if a request has failed.
bool receive(End& e, WrOpcode opcode, uint8_t content, const Account& account) {
    int got = 0;
    while (got == 0 && !account.over()) {
        got = take(e);
        if (opcode == WrOpcode::rdma_write && got == 0)  // the target of a WRITE gets no completion, so it reads the last byte
            got = std::atomic_ref(e.buffer[kBytes - 1]).load(std::memory_order_acquire) == std::byte{content} ? 1 : 0;
    }
    std::byte copy[kBytes];
    std::memcpy(copy, e.buffer, kBytes);
    if (opcode == WrOpcode::send) post_receive(e, 0), publish_receives(e);
    return got >= 0;
}

void fill_batch(End& a, End& b, WrOpcode opcode, uint64_t id) {
    const uint32_t first = a.posted % kMessages;
    for (uint32_t i = 0; i < kBatch && opcode == WrOpcode::send; ++i) post_receive(b, first + i);
    if (opcode == WrOpcode::send) publish_receives(b);
    for (uint32_t i = 0; i < kBatch; ++i) {
        std::byte* payload = a.buffer + (first + i) * kBytes;
        if (opcode != WrOpcode::rdma_read) std::memset(payload, int(id + i), kBytes);
        abi::SendWqe* w = begin_send(a, b, opcode, first + i, id);
        w->num_sge = 1;
        *abi::sges(w) = {reinterpret_cast<uint64_t>(payload), kBytes, a.lkey};
    }
    publish_sends(a);
}

}  // namespace

bool ping_pong(Program& p, WrOpcode opcode, Account& account) {
    End &a = p.a[0], &b = p.b[0];
    for (uint32_t i = 0; i < kReceivesAhead && opcode == WrOpcode::send; ++i) post_receive(a, 0), post_receive(b, 0);
    publish_receives(a), publish_receives(b);
    for (uint8_t content = 1; !account.over(); ++content) {
        send_inline(a, b, opcode, content);
        if (!receive(b, opcode, content, account)) return false;
        account.completed();
        send_inline(b, a, opcode, content);
        if (!receive(a, opcode, content, account)) return false;
        account.completed();
    }
    return true;
}

bool stream(Program& p, WrOpcode opcode, Account& account) {
    for (uint32_t n = 0; n < kBatches; ++n)
        for (uint32_t q = 0; q < p.a.size(); ++q) fill_batch(p.a[q], p.b[q], opcode, q);
    while (!account.over()) {
        abi::Cqe e;
        while (poll(p.right, e)) {
            if (e.status != abi::WcStatus::success) return false;
            std::byte copy[kBytes];
            End& b = p.b[e.wr_id / kMessages];
            std::memcpy(copy, b.buffer + e.wr_id % kMessages * kBytes, kBytes);
            b.rq.free_recv();
        }
        while (poll(p.left, e)) {
            if (e.status != abi::WcStatus::success) return false;
            End& a = p.a[e.wr_id];
            a.sq.free_send(e.wqe_index);
            for (uint32_t i = 0; i < kBatch; ++i) account.completed();
            fill_batch(a, p.b[e.wr_id], opcode, e.wr_id);
        }
    }
    return true;
}

}  // namespace roci::sharing
