// What an engine lends to the roles of a QP while they work: the time, the tables, the way out, the list of work.
#pragma once

#include <deque>
#include <map>
#include <span>
#include <vector>

#include "base/timer_wheel.hpp"
#include "io/event.hpp"
#include "io/shared.hpp"
#include "qp/outbox.hpp"
#include "qp/state.hpp"

namespace roci::qp {

struct Context {
    Nanos now = 0;
    uint32_t engine = 0;
    uint32_t max_inflight = 256;
    uint32_t ack_every = 32;
    engine::Shared* shared = nullptr;
    engine::EventRing* events = nullptr;
    std::vector<Outbox> outbox;  ///< by port
    engine::TimerWheel wheel;
    std::vector<rings::Cq*> dirty;          ///< CQs that got entries in this poll
    std::deque<engine::Event> late_events;  ///< that the event ring had no room for
    Qp* first_active = nullptr;             ///< list of QPs with work, FIFO
    Qp* last_active = nullptr;
    uint32_t active_count = 0;
    std::map<uint32_t, Slab> records;  ///< by bytes of a block: what the QPs have fetched and not completed

    Outbox& out(const Qp& qp) { return outbox[qp.spec.port]; }
};

/// Puts the QP at the end of the list of QPs with work, unless it is there.
inline void activate(Context& ctx, Qp& qp) {
    if (qp.active) return;
    qp.active = true;
    qp.next_active = nullptr;
    qp.prev_active = ctx.last_active;
    (ctx.last_active != nullptr ? ctx.last_active->next_active : ctx.first_active) = &qp;
    ctx.last_active = &qp;
    ++ctx.active_count;
}
/// … because the requester, or the responder, has something to do.
inline void activate_requester(Context& ctx, Qp& qp) {
    qp.asks = true;
    activate(ctx, qp);
}
inline void activate_responder(Context& ctx, Qp& qp) {
    qp.answers = true;
    activate(ctx, qp);
}
inline void deactivate(Context& ctx, Qp& qp) {
    if (!qp.active) return;
    (qp.prev_active != nullptr ? qp.prev_active->next_active : ctx.first_active) = qp.next_active;
    (qp.next_active != nullptr ? qp.next_active->prev_active : ctx.last_active) = qp.prev_active;
    qp.next_active = qp.prev_active = nullptr;
    qp.active = false;
    --ctx.active_count;
}

/// The QP's one timer follows the earliest of its deadlines. Moving a deadline later costs nothing: the timer fires early and is
/// re-armed.
inline void update_timer(Context& ctx, Qp& qp) {
    const Nanos due = std::min(qp.requester.ack_deadline, qp.requester.rnr_deadline);
    if (due == kNever || (qp.timer.armed() && qp.timer.deadline <= due)) return;
    ctx.wheel.arm(qp.timer, due);
}

/// Reading or writing the memory that a list of SGEs names, as if it were one stretch.
class SgeList {
public:
    SgeList(const Context& ctx, uint32_t pd, std::span<const abi::Sge> sges) : keys_(ctx.shared->keys), pd_(pd), sges_(sges) {}
    /// Copies `length` bytes from position `offset` of the list. False: a key, right or range is wrong (local protection error).
    bool gather(uint64_t offset, uint8_t* out, uint32_t length) const;
    bool scatter(uint64_t offset, const uint8_t* in, uint32_t length) const;

private:
    template <class Copy>
    bool walk(uint64_t offset, uint32_t length, uint32_t needed, Copy&& copy) const;
    const mem::KeyTable& keys_;
    uint32_t pd_;
    std::span<const abi::Sge> sges_;
};

}  // namespace roci::qp
