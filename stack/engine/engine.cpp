// One round of the engine: doorbells, completed accesses to slow memory (mem/slow_memory.hpp), transmission, reception, timers
// and notifications. In a round, QPs have turns. A turn is one call of a QP's requester or responder (qp/run_queue.hpp).
#include "engine/engine.hpp"

#include <bit>

#include "engine/impl.hpp"
#include "qp/reorder.hpp"
#include "rings/doorbell.hpp"

namespace roci::engine {
namespace {

/// Number of rounds for which a QP without work remains on the run queue. During this time a busy client need not ring the
/// doorbell. The number does not apply while many QPs are active (crowded).
constexpr uint8_t kLinger = 32;
/// Limits per round: frames to send, and QPs to visit per run queue.
constexpr uint32_t kRoundFrames = 64, kRoundVisits = 256;
/// Limit of frames of a round after the detection of a loss (qp::loss_detected). The next round is long again, so that frequent
/// losses do not make all rounds short.
constexpr uint32_t kShortRoundFrames = 8;
/// Limit of a round's cost if QPs of several users had turns within kSharedFor. A message of a user waits for the round in
/// which frames of another user are sent and received. Therefore these rounds are shorter: 16 full packets, or kRoundFrames
/// short packets.
constexpr uint64_t kSharedRoundCost = 2 * qp::kShareQuantum;
/// Time for which rounds remain short after the turn of another user, ns. A QP of a user who waits for each message has a turn
/// at least this often, unless the scheduler stops the user's program.
constexpr Nanos kSharedFor = 10'000'000;
/// Limit of bursts that a round receives from a port. A round receives another burst only after a full burst.
constexpr uint32_t kRoundBursts = 8;
/// Limit of consecutive rounds in which timers wait for frames that a port still holds. This number of rounds receives the 1024
/// frames that a port usually holds while the engine has no CPU.
constexpr uint8_t kMostDeferrals = 4;
constexpr uint32_t kFrameCopies = 64;
/// Number of rounds for which the ACK of a QP waits for the program's answer.
constexpr uint8_t kHeldRounds = 8;
/// Number of rounds between two calls of settle_sleepers(). Each call executes a full fence.
constexpr uint32_t kSettleEvery = 64;

/// Returns the cost that a turn subtracts from the credit of the session and user. The cost is never 0, because a turn without
/// a packet costs time too, for example if the port is full. For a multicast packet, run_requesters() adds the cost of one
/// packet per QP that will receive a copy.
uint64_t cost(uint32_t packets, uint64_t bytes) { return uint64_t{packets + 1} * qp::kPacketCost + bytes; }

qp::TurnEnd turn_end(uint32_t worked, bool more) {
    if (worked == 0) return qp::TurnEnd::without_work;
    return more ? qp::TurnEnd::interrupted : qp::TurnEnd::finished;
}

/// Returns true if the requester has a fetched request to send, or a lost packet to send again. The congestion controller may
/// delay both.
bool has_unsent(const qp::Qp& qp) { return qp.requester.queue.current() != nullptr || qp.requester.window.repair_due(); }

bool flushing(const qp::Qp& qp) { return qp.state == qp::State::err || qp.state == qp::State::sqe; }

/// Called when a QP becomes idle. Cancels the QP's timer if the QP has no deadline any more, because the timer would only wake
/// a sleeping engine.
void forget_timer(qp::Context& ctx, qp::Qp& qp) {
    const bool keeps = qp.keeps_requests || qp.keeps_responses;  // the QP keeps frames for a limited time only
    if (qp.state != qp::State::err && !keeps && qp.requester.deadlines.earliest() == kNever) ctx.wheel.cancel(qp.timer);
}

}  // namespace

Engine::Impl::Impl(const Config& c, qp::Shared& s, std::span<io::Port* const> p, const CounterPlaces& places)
    : config(c),
      shared(s),
      ports(p.begin(), p.end()),
      events(c.event_ring),
      own_devices(places.devices.empty() ? p.size() : 0),
      counters(places.engine != nullptr ? *places.engine : own_counters),
      copies(s.handover != nullptr ? kFrameCopies : 0),
      pipeline(s.keys) {
    config.rx_burst = std::clamp<uint32_t>(config.rx_burst, 1, kMaxBurst);
    config.qp_quantum = std::max<uint32_t>(config.qp_quantum, 1);
    ctx.engine = c.index;
    config.congestion.max_window = c.max_inflight;
    for (size_t port = 0; port < ports.size(); ++port) {
        ctx.congestion.push_back(config.congestion);
        if (!c.targets.empty()) ctx.congestion[port].target = c.targets[port];
    }
    ctx.ack_every = c.ack_every;
    ctx.selective_repeat = c.selective_repeat;
    ctx.loss_reports = c.loss_reports;
    ctx.shared = &shared;
    ctx.events = &events;
    ctx.dirty.reserve(4096);
    ctx.unsettled.reserve(4096);
    ctx.sleepers.reserve(4096);
    ctx.slow = std::make_unique<qp::SlowMemory>(s.chunks);
    if (c.reorder_frames != 0)
        ctx.reorder =
            std::make_unique<qp::ReorderPool>(s.chunks, qp::ReorderLimits{std::bit_ceil(c.reorder_frames), c.reorder_bytes}, p);
    resting.reserve(kRoundVisits);
    if (shared.gsi[c.index] == nullptr) shared.gsi[c.index] = std::make_unique<io::GsiRing>(io::kGsiRingSize);
    if (shared.frames[c.index] == nullptr) shared.frames[c.index] = std::make_unique<io::FrameRing>(io::kFrameRingSize);
    for (io::Port* port : ports) ctx.outbox.emplace_back(port, config.tx_burst);
    ctx.devices.assign(places.devices.begin(), places.devices.end());
    for (OwnDevice& d : own_devices) ctx.devices.push_back(&d.counters);
}

Engine::Impl::~Impl() {
    for (qp::Outbox& out : ctx.outbox) out.drop_all();
}

// ---- doorbells ------------------------------------------------------------------------------------------------------

/// Handles a doorbell that belongs to no QP. If the doorbell belongs to a tag matching SRQ, executes the SRQ's operations. If
/// operations remain, sets the doorbell again.
[[gnu::cold, gnu::noinline]] void Engine::Impl::ring_tags(Session& s, uint32_t slot) {
    const uint32_t index = slot - abi::kFirstTagSlot;
    qp::Srq* srq = index < s.tag_srqs.size() ? s.tag_srqs[index] : nullptr;
    if (srq == nullptr) {
        counters.add(Counter::stray_doorbells);
        return;
    }
    if (!qp::take_tag_operations(ctx, *srq)) return;
    std::atomic_ref(s.page->words[slot / 64]).fetch_or(uint64_t{1} << (slot % 64), std::memory_order_seq_cst);
    std::atomic_ref(s.page->summary[slot / 64 / 64]).fetch_or(uint64_t{1} << (slot / 64 % 64), std::memory_order_seq_cst);
}

void Engine::Impl::ring(Session& s, uint32_t slot) {
    qp::Qp* qp = slot < s.slots.size() ? s.slots[slot] : nullptr;
    if (qp == nullptr) return ring_tags(s, slot);
    qp::activate_requester(ctx, *qp);
}

bool Engine::Impl::look_for_doorbells() {
    ROCI_STAGE(doorbells);
    return sessions.look_around(
        [this](Session& s, uint32_t most) { return rings::any_doorbell(*s.page) ? collect_doorbells(s, most) : 0; });
}

uint32_t Engine::Impl::collect_doorbells(Session& s, uint32_t most) {
    std::array<uint32_t, 64> rung;  // slots with a doorbell; their QPs are prefetched, then activated
    uint32_t count = 0;
    const auto ring_all = [&] {
        if (count == 0) return;
        for (uint32_t i = 0; i < count; ++i) ring(s, rung[i]);
        bump(doorbells, count);
        count = 0;
    };
    const uint32_t all = rings::collect_doorbells(*s.page, s.next_word, most, [&](uint32_t slot) {
        if (const qp::Qp* qp = slot < s.slots.size() ? s.slots[slot] : nullptr) qp::prefetch_basics(*qp);
        rung[count++] = slot;
        if (count == rung.size()) ring_all();
    });
    ring_all();
    return all;
}

/// Runs the timers that are due. If a port holds more frames than a round receives, the timers wait, because one of these frames
/// may be the response that a timer would report as missing. The number of such rounds is limited.
bool Engine::Impl::run_timers(bool all_received) {
    if (!all_received && deferrals < kMostDeferrals) {
        ++deferrals;
        return false;
    }
    deferrals = 0;
    ROCI_STAGE(timers);
    const unsigned fired = ctx.wheel.advance(ctx.now, [&](Timer& t) { qp::on_timer(ctx, *static_cast<qp::Qp*>(t.owner)); });
    if (fired != 0) counters.add(Counter::timers, fired);
    return fired != 0;
}

/// Receives frames from every port. Sets `all_received` to false if a port may hold more frames. Returns true if any frame was
/// received.
[[gnu::always_inline]] inline bool Engine::Impl::receive_all(bool& all_received) {
    bool any = false;
    ctx.unseen = uint32_t(std::min<Nanos>(ctx.now - received_at, UINT32_MAX));
    all_received = true;
    for (uint32_t port = 0; port < ports.size(); ++port) {
        unsigned got = receive(port);
        any |= got != 0;
        for (uint32_t i = 1; i < kRoundBursts && got == config.rx_burst; ++i) got = receive(port);
        all_received &= got != config.rx_burst;
    }
    if (all_received) received_at = ctx.now;
    return any;
}

// ---- transmitting ---------------------------------------------------------------------------------------------------

/// The number of frames that a round may still send, and the cost that the round may still spend. Each turn of a QP reduces
/// both. A flushed work request counts as a frame.
struct Engine::Impl::Budget {
    uint32_t left;
    uint64_t cost_left;
    uint32_t per_turn = UINT32_MAX;  ///< limit of frames per turn of a requester
    bool spent = false;
    void spend(uint32_t sent, uint64_t costs) {
        left -= std::min(left, sent);
        cost_left -= std::min(cost_left, costs);
        spent = spent || sent != 0;
    }
    bool exceeds(const Budget& kept) const { return left > kept.left && cost_left > kept.cost_left; }
};

/// Records the user whose QP has its turn. If QPs of different users have turns within kSharedFor, the next rounds are short.
/// Ignores user 0, which stands for the QPs without a session.
inline void Engine::Impl::note_user(uint16_t user) {
    if (user == 0) return;
    if (user != last_user) {
        if (last_user != 0 && ctx.now < last_turn + kSharedFor) shared_until = ctx.now + kSharedFor;
        last_user = user;
    }
    last_turn = ctx.now;
}

/// Returns true if the pending ACK of a QP should wait for the program's answer, so that both leave in one burst. On a port with
/// expensive bursts, this saves a burst, and the program gets the message before the engine spends time on the ACK. An ACK waits
/// for at most kHeldRounds rounds, and only if the QP has sent a request since the last wait.
bool Engine::Impl::holds_ack(qp::Qp& qp) {
    if (!qp.answers || ctx.out(qp).best_burst() == 1) return false;
    const bool waits = qp::owes_only_ack(qp) && qp.held_rounds < kHeldRounds && !qp::has_requests(ctx, qp);
    if (waits) return ++qp.held_rounds, true;
    qp.answers = false;
    qp.held_rounds = 0;
    return false;
}

/// Called if an ACK of the QP is still pending when its requester is about to send. Sends the ACK first. If the request passed
/// the ACK, the peer's receive would complete before its send. Returns the number of sent frames.
uint32_t Engine::Impl::send_ack_first(qp::Qp& qp) {
    const uint32_t sent = qp::send_responses(ctx, qp, 1);
    qp.held_rounds = 0;
    if (!qp::has_responses(qp)) ctx.responders.remove(qp);
    return sent;
}

/// Sends the responses of the responders in the run queue. Responders are served before requesters, because the QPs that
/// received requests in the previous round are still in the caches. While requesters wait, responders get at most half of the
/// frames and half of the cost of a round. Otherwise the long responses to one user's READs would leave little time for the
/// short messages of another user.
[[gnu::always_inline]] inline void Engine::Impl::run_responders(Budget& budget) {
    const Budget kept = ctx.requesters.empty() ? Budget{} : Budget{budget.left / 2, budget.cost_left / 2};
    for (uint32_t n = std::min(ctx.responders.count(), kRoundVisits); n != 0 && budget.exceeds(kept) && !ctx.responders.empty();
         --n) {
        qp::Qp& qp = ctx.responders.take();
        note_user(ctx.responders.user());
        const uint64_t bytes = qp.counters.tx_bytes;
        uint32_t sent = 0;
        const bool silent = flushing(qp);
        if (!silent && holds_ack(qp)) [[unlikely]] {
            ctx.responders.add(qp);
        } else if (!silent) {
            sent = qp::send_responses(ctx, qp, std::min(quantum(qp, ctx.responders.contended()), budget.left - kept.left));
            budget.spend(sent, cost(sent, qp.counters.tx_bytes - bytes));
            if (sent != 0) {
                qp.linger = kLinger;
                bump(ctx.tally(qp).tx_octets, qp.counters.tx_bytes - bytes);
            }
            if (qp::has_responses(qp)) ctx.responders.add(qp);
        }
        ctx.responders.done(cost(sent, qp.counters.tx_bytes - bytes), turn_end(sent, true));
        if (ctx.responders.limits()) [[unlikely]]
            ctx.responders.charge(qp, ctx.now, sent, qp.counters.tx_bytes - bytes);
    }
}

/// Executes the turn of one requester, which sends at most `most` frames. Returns the number of frames that the requester sent,
/// or of work requests that were flushed.
uint32_t Engine::Impl::serve(qp::Qp& qp, uint32_t most) {
    if (flushing(qp)) {
        const uint32_t before = qp.requester.queue.tail() + qp.rq_cursor.consumed;
        qp::flush_queues(ctx, qp);
        return qp.requester.queue.tail() + qp.rq_cursor.consumed - before;
    }
    const bool works = qp.has_work && !qp::all_requests_sent(qp);
    const bool owes = works && qp.answering.listed() && qp::owes_only_ack(qp) && qp::has_requests(ctx, qp);
    uint32_t sent = owes ? send_ack_first(qp) : 0;
    if (works) sent += qp::send_requests(ctx, qp, most);
    qp::report_drained(ctx, qp);
    return sent;
}

/// Returns true if a QP that is to be removed can send a posted request now. Returns false for a QP of a tag matching SRQ. Such a
/// QP sends the READs of rendezvous, whose responses would arrive after the removal of the QP.
/// The congestion controller does not delay last requests.
bool Engine::Impl::has_last_requests(const qp::Qp& qp) const { return qp.tags == nullptr && qp::has_requests_unpaced(ctx, qp); }

/// Sends the posted requests of a QP that is to be removed. A program may post a last message and then destroy the QP or end. A
/// NIC would still send this message, because posting passes the message to the NIC. Between two rounds, all removed QPs together
/// send at most kRoundFrames frames, and at most kSharedRoundCost while several users have turns. If other removals have used up
/// this budget, the QP sends one frame. The frames reduce the user's credit and count for the user's rate, like the frames of a
/// turn.
void Engine::Impl::send_last_requests(qp::Qp& qp) {
    qp.requester.congestion.not_before = 0;  // the QP cannot send later
    if (lent || !has_last_requests(qp)) return;
    note_user(ctx.requesters.user_of(qp));
    const uint64_t most = shared_by_users() ? kSharedRoundCost : UINT64_MAX;
    Budget budget{kRoundFrames - std::min(last_frames, kRoundFrames - 1), most - std::min(last_cost, most - 1)};
    while (budget.exceeds({}) && has_last_requests(qp) && !ctx.requesters.over_limit(qp, ctx.now)) {
        const uint64_t bytes_before = qp.counters.tx_bytes, copies_before = ctx.copies;
        const uint32_t sent = qp::send_requests(ctx, qp, std::min(budget.left, kContendedQuantum));
        qp.requester.congestion.not_before = 0;
        if (sent == 0) break;
        const uint64_t bytes = qp.counters.tx_bytes - bytes_before;
        const uint64_t spent = cost(sent, bytes) + (ctx.copies - copies_before) * qp::kPacketCost;
        budget.spend(sent, spent);
        last_frames += sent;
        last_cost += spent;
        bump(ctx.tally(qp).tx_octets, bytes);
        ctx.requesters.spend(qp, spent);
        ctx.requesters.charge(qp, ctx.now, sent, bytes);
    }
}

/// Called for a requester that leaves the run queue. If all posted requests are fetched, the client must ring the doorbell for
/// the next post. Otherwise the QP returns to the run queue at once if it can send, or later at an event such as an ACK or a
/// timer.
void Engine::Impl::rest(qp::Qp& qp) {
    if (!qp.has_work && !flushing(qp)) return;
    if (qp::posted(qp)) return look_again(qp);
    if (qp::arm_doorbell(qp)) {
        resting.push_back(&qp);
        forget_timer(ctx, qp);
    } else {
        qp.has_work = has_unsent(qp);
    }
}
void Engine::Impl::look_again(qp::Qp& qp) {
    if (flushing(qp) ? !qp::flush_waits(qp) : qp::has_requests(ctx, qp)) qp::activate(ctx, qp);
}

/// Checks once more the send queues of all QPs that became idle in this round. A single fence precedes all these checks,
/// because a fence waits until all earlier stores have reached the cache.
void Engine::Impl::settle() {
    if (resting.empty()) return;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (qp::Qp* qp : resting) {
        if (qp::recheck_doorbell(*qp)) {
            qp->has_work = has_unsent(*qp);
        } else {
            look_again(*qp);
        }
    }
    resting.clear();
}

void Engine::Impl::settle_sleepers() {
    rounds_unsettled = 0;
    qp::settle_sleepers(ctx);
}

/// Serves the requesters in the run queue until the round's budget of frames or cost is spent, or until kRoundVisits requesters
/// were served. The next round continues with the next QP. Without a limit per round, thousands of QPs would fill rings and
/// pools, and frames would leave the caches before their receiver reads them.
[[gnu::always_inline]] inline void Engine::Impl::run_requesters(Budget& budget) {
    const bool prefetches = crowded();
    if (!prefetches) pipeline.forget();
    for (uint32_t n = std::min(ctx.requesters.count(), kRoundVisits); n != 0 && budget.exceeds({}) && !ctx.requesters.empty();
         --n) {
        if (prefetches) pipeline.turn(ctx.requesters.peek());
        qp::Qp& qp = ctx.requesters.take();
        note_user(ctx.requesters.user());
        const uint64_t bytes = qp.counters.tx_bytes, copies_before = ctx.copies;
        const uint32_t worked = serve(qp, std::min(quantum(qp, ctx.requesters.contended()), budget.per_turn));
        const uint64_t spent = cost(worked, qp.counters.tx_bytes - bytes) + (ctx.copies - copies_before) * qp::kPacketCost;
        budget.spend(worked, spent);
        if (worked != 0) {
            qp.linger = kLinger;
            qp.answers = true;
            bump(ctx.tally(qp).tx_octets, qp.counters.tx_bytes - bytes);
        }
        const bool held = qp::hold_back(ctx, qp);
        const bool more = !held && has_more(qp, worked);
        if (more || (!held && lingers(qp))) {
            qp::activate(ctx, qp);
        } else {
            rest(qp);
        }
        ctx.requesters.done(spent, turn_end(worked, more));
        if (ctx.requesters.limits()) [[unlikely]]
            ctx.requesters.charge(qp, ctx.now, worked, qp.counters.tx_bytes - bytes);
    }
    settle();
}

/// Returns true if a requester whose turn has ended has work for another turn at once.
bool Engine::Impl::has_more(const qp::Qp& qp, uint32_t worked) const {
    return flushing(qp) ? worked != 0 : qp.has_work && !qp::all_requests_sent(qp) && qp::has_requests(ctx, qp);
}

/// Returns true if a requester without requests remains on the run queue.
bool Engine::Impl::lingers(qp::Qp& qp) const {
    if (qp.linger == 0 || !qp.has_work || crowded()) return false;
    --qp.linger;
    return true;
}

[[gnu::always_inline]] inline bool Engine::Impl::run_turns() {
    was_short = std::exchange(ctx.short_round, false) && !was_short;
    Budget budget{was_short ? kShortRoundFrames : kRoundFrames, shared_by_users() ? kSharedRoundCost : UINT64_MAX};
    if (was_short) [[unlikely]]
        budget.per_turn = kShortRoundFrames;
    if (ctx.requesters.limits()) [[unlikely]] {
        ctx.requesters.release(ctx.now);
        ctx.responders.release(ctx.now);
    }
    run_responders(budget);
    run_requesters(budget);
    return budget.spent;
}

// ---- public functions -----------------------------------------------------------------------------------------------

Engine::Engine(const Config& config, qp::Shared& shared, std::span<io::Port* const> ports, const CounterPlaces& counters)
    : impl_(std::make_unique<Impl>(config, shared, ports, counters)) {}
Engine::~Engine() = default;

bool Engine::poll(Nanos now) {
    ROCI_STAGE(round);
    Impl& e = *impl_;
    if (!e.started) {
        e.ctx.wheel.start(now);
        e.started = true;
        e.ctx.now = e.received_at = now;
    }
    e.note_gap(now);
    e.ctx.now = now;
    e.last_frames = 0;
    e.last_cost = 0;
    bool any = e.look_for_doorbells();
    if (e.ctx.slow->awaits()) [[unlikely]]
        any |= qp::collect_slow(e.ctx);
    any |= e.run_turns();
    for (qp::Outbox& out : e.ctx.outbox) any |= out.flush() != 0;
    // On the ports of the kernel, sending takes long. ACKs may arrive meanwhile. Without the current time, their round trips
    // would be too short, or zero.
    if (any && e.config.clock != nullptr) [[unlikely]] {
        const Nanos sent = e.config.clock->now();
        e.note_gap(sent);
        e.ctx.now = sent;
    }
    // The engine receives after it has sent, so that frames to the same device or to its loopback peer are received in the same
    // round. Timers run after reception. If the thread had no CPU for some time, the responses have arrived meanwhile, and a
    // timer that ran first would take them for missing.
    bool all_received;
    any |= e.receive_all(all_received);
    any |= e.receive_handed_over();
    any |= e.run_timers(all_received);
    qp::notify_all(e.ctx);
    if (!e.ctx.unsettled.empty() && ++e.rounds_unsettled == kSettleEvery) e.settle_sleepers();
    e.end_round(any);
    return any;
}

const char* Engine::check() const {
    const char* first = nullptr;
    impl_->sessions.for_each([&](const Session& s) {
        for (const qp::Qp* qp : s.slots) {
            if (qp == nullptr || first != nullptr) continue;
            first = qp::check(*qp);
            if (first == nullptr) first = qp::check_kept(impl_->ctx, *qp);
        }
    });
    return first;
}

Nanos Engine::next_deadline(Nanos now) const {
    const Impl& e = *impl_;
    if (!e.ctx.requesters.empty() || !e.ctx.responders.empty() || !e.ctx.late_events.empty() || e.inbox_waits()) return now;
    for (const qp::Outbox& out : e.ctx.outbox)
        if (out.waiting() != 0) return now;
    Nanos next = std::min({e.ctx.wheel.next_deadline(), e.ctx.requesters.next_release(), e.ctx.responders.next_release()});
    for (const rings::Cq* cq : e.ctx.dirty)  // CQs whose event is moderated or waits for a free slot of the event ring
        next = std::min<Nanos>(next, std::max<Nanos>(rings::event_due(*cq, cq->lanes[e.config.index]), now));
    for (const io::Port* port : e.ports) next = std::min<Nanos>(next, port->next_event());
    return next;
}

bool Engine::doorbell_pending() const {
    return impl_->sessions.doorbell_pending() || impl_->inbox_waits() || impl_->ctx.slow->has_done();
}

LineVector<rings::Sleeper>& Engine::sleepers() { return impl_->ctx.sleepers; }

void Engine::settle_sleepers() {
    impl_->settle_sleepers();
    impl_->publish();
}

void Engine::stop_lingering() {
    if (impl_->crowded()) return;  // while many QPs are active, no QP without work remains on the run queue
    impl_->ctx.requesters.for_each([](qp::Qp& qp) { qp.linger = 0; });
}

void Engine::slept(Nanos from, Nanos to, bool contested) {
    impl_->count_sleep(from, to);
    if (!contested) impl_->received_at = to;
}

uint32_t Engine::take_wake_mask() { return std::exchange(impl_->wake_mask, 0); }

io::EventRing& Engine::events() { return impl_->events; }
const Counters& Engine::counters() const { return impl_->counters; }
const qp::DeviceCounters& Engine::device_counters(uint32_t device) const { return *impl_->ctx.devices[device]; }

}  // namespace roci::engine
