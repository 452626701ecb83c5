// Counts the time of an engine's rounds. Publishes the engine's counters every 128 rounds.
#include "engine/impl.hpp"

namespace roci::engine {
namespace {

/// Sets a published counter. Only the engine writes the counter.
void set(uint64_t& value, uint64_t n) { std::atomic_ref(value).store(n, std::memory_order_relaxed); }

uint64_t sum(const auto& values) {
    uint64_t all = 0;
    for (const uint64_t v : values) all += v;
    return all;
}

void publish_device(qp::DeviceCounters& d, const qp::PortTally& t, const qp::Outbox& out) {
    using enum qp::Executed;
    set(d.tx_frames, out.sent());
    set(d.tx_octets, t.tx_octets - out.waiting_octets());
    set(d.rx_frames, t.rx_frames);
    set(d.rx_octets, t.rx_octets);
    set(d.tx_messages, t.tx_messages);
    set(d.rx_messages, sum(t.executed));
    set(d.write_requests, t.executed[size_t(write)]);
    set(d.read_requests, t.executed[size_t(read)]);
    set(d.atomic_requests, t.executed[size_t(atomic)]);
}

}  // namespace

/// Copies the counters of the reorder pool to the engine's table of counters. Other threads may read only this table.
void Engine::Impl::publish_reorder() {
    struct Row {
        Counter counter;
        uint64_t qp::ReorderCounters::*value;
    };
    using C = qp::ReorderCounters;
    static constexpr Row kRows[] = {
        {Counter::reorder_kept, &C::kept},
        {Counter::reorder_delivered, &C::delivered},
        {Counter::reorder_duplicates, &C::duplicates},
        {Counter::reorder_beyond, &C::beyond},
        {Counter::reorder_share, &C::share},
        {Counter::reorder_no_memory, &C::no_memory},
        {Counter::reorder_late, &C::late},
        {Counter::reorder_bad_icrc, &C::bad_icrc},
        {Counter::reorder_freed, &C::freed},
        {Counter::loss_inquiries, &C::inquiries},
        {Counter::loss_reports_sent, &C::reports_sent},
        {Counter::loss_reports_used, &C::reports_used},
        {Counter::loss_reports_refused, &C::reports_refused},
    };
    // Kept requests whose ICRC proved wrong since the last call count like frames whose ICRC was wrong on arrival.
    counters.add(wire::Verdict::bad_icrc, ctx.reorder->counters().bad_icrc - counters.get(Counter::reorder_bad_icrc));
    for (const Row& r : kRows) counters.set(r.counter, ctx.reorder->counters().*r.value);
    counters.set(Counter::reorder_held, ctx.reorder->in_use());
}

/// Called by a round or command that starts at least 1 ms after the last round or command. No round takes so long, so the kernel
/// has given the CPU to another thread meanwhile. Counts the time since the last round or command as lost, not as busy.
void Engine::Impl::count_lost(Nanos now) {
    if (now > ctx.now) counters.add(Counter::lost_ns, now - ctx.now);
    busy_from += now - ctx.now;
}

/// Counts the busy time and the busy rounds that are not counted yet, up to the start of the current round.
void Engine::Impl::count_busy() {
    counters.add(Counter::busy_ns, ctx.now - busy_from);
    counters.add(Counter::busy_polls, rounds() - busy_rounds_from);
    busy_from = ctx.now;
    busy_rounds_from = rounds();
}

/// Called if this round had work and the last round had none, or vice versa.
void Engine::Impl::change_busy(bool busy) {
    if (busy) {
        busy_from = ctx.now;
        busy_rounds_from = rounds();
    } else {
        count_busy();
    }
    was_busy = busy;
}

void Engine::Impl::count_sleep(Nanos from, Nanos to) {
    if (was_busy) change_busy(false);
    counters.add(Counter::sleeps);
    counters.add(Counter::asleep_ns, to - from);
    ctx.now = to;
}

/// Writes the published counters. The engine counts frames and messages in its own memory, which takes few instructions.
/// Counters that are sums of such counts are computed here.
void Engine::Impl::publish() {
    if constexpr (!kCounted) return;
    rounds_published = rounds();
    rounds_left = kPublishEvery;
    counters.set(Counter::polls, rounds_published);
    uint64_t sent = 0, received = 0;
    for (size_t port = 0; port < ports.size(); ++port) {
        publish_device(*ctx.devices[port], ctx.tallies[port], ctx.outbox[port]);
        sent += ctx.outbox[port].sent();
        received += ctx.tallies[port].rx_frames;
    }
    counters.set(Counter::tx_frames, sent);
    counters.set(Counter::rx_frames, received);
    counters.set(Counter::doorbells, doorbells - counters.get(Counter::stray_doorbells));
    const uint64_t refused = sum(counters.verdict) - counters.get(wire::Verdict::ok);
    set(counters.verdict[size_t(wire::Verdict::ok)], received - refused);  // each frame has one verdict, so the others are ok
    if (ctx.reorder != nullptr && ctx.reorder->take_counted()) publish_reorder();
    if (was_busy) count_busy();
}

uint32_t Engine::latest() const { return impl_->ctx.latest; }

}  // namespace roci::engine
