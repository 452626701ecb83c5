#include "qp/slow_memory.hpp"

#include <cstring>

#include "qp/receive_source.hpp"
#include "qp/reorder.hpp"

namespace roci::qp {

// ---- blocks ---------------------------------------------------------------------------------------------------------

bool SlowMemory::has_done() const {
    for (const mem::SlowLane* lane : lanes_)
        if (!lane->done.empty()) return true;
    return false;
}

SlowJob* SlowMemory::take_frame(SlowRole role, const wire::Packet& p) {
    const size_t length = wire::frame_bytes(p);
    void* block = length <= wire::kMaxFrame ? frames_.take() : nullptr;
    if (block == nullptr) return nullptr;
    auto* job = new (block) SlowJob;
    auto* frame = reinterpret_cast<uint8_t*>(job->bytes());
    std::memcpy(frame, p.frame, length);
    job->role = role;
    job->packet = p;
    job->packet.frame = frame;
    job->packet.l3 = frame + (p.l3 - p.frame);
    job->packet.payload = frame + (p.payload - p.frame);
    return job;
}

SlowJob* SlowMemory::take_frame_behind(SlowRole role, const wire::Packet& p, const mem::SlowLane& lane) {
    SlowJob* job = behind_[lane.worker] < kMostBehind ? take_frame(role, p) : nullptr;
    if (job == nullptr) return nullptr;
    job->kept_for = int(lane.worker);
    ++behind_[lane.worker];
    return job;
}

SlowJob* SlowMemory::take_stage(SlowRole role) {
    void* block = stages_.take();
    if (block == nullptr) return nullptr;
    auto* job = new (block) SlowJob;
    job->role = role;
    return job;
}

SlowState* SlowMemory::take_state() {
    void* block = states_.take();
    return block != nullptr ? new (block) SlowState : nullptr;
}

void SlowMemory::give_back(SlowJob* job) noexcept {
    Slab& slab = is_frame(*job) ? frames_ : stages_;
    if (job->kept_for >= 0) --behind_[size_t(job->kept_for)];
    job->~SlowJob();
    slab.give_back(job);
}

bool SlowMemory::submit(SlowJob& job, uint32_t engine) {
    mem::SlowLane* lane = mem::submit(job, engine);
    if (lane == nullptr) return false;
    job.pending = true;
    job.lane = lane;
    if (lane->under_way == 1) lanes_.push_back(lane);
    return true;
}

size_t SlowMemory::collect(std::span<SlowJob*> out) {
    size_t n = 0;
    for (size_t i = 0; i < lanes_.size() && n < out.size();) {
        mem::SlowLane& lane = *lanes_[i];
        mem::SlowRequest* r;
        while (n < out.size() && lane.done.pop(r)) {
            out[n++] = static_cast<SlowJob*>(r);
            --lane.under_way;
        }
        if (lane.under_way != 0) {
            ++i;
        } else {
            lanes_[i] = lanes_.back();
            lanes_.pop_back();
        }
    }
    return n;
}

// ---- incoming -------------------------------------------------------------------------------------------------------

namespace {

SlowQueue& queue_of(SlowState& s, SlowRole role) { return role == SlowRole::request ? s.requests : s.responses; }
bool& flag_of(Qp& qp, SlowRole role) { return role == SlowRole::request ? qp.waits_requests : qp.waits_responses; }

SlowState* state_of(Context& ctx, Qp& qp) {
    if (qp.slow == nullptr) qp.slow = ctx.slow->take_state();
    return qp.slow;
}

SlowJob* job_for(Context& ctx, Qp& qp, SlowRole role, const wire::Packet& p, mem::SlowRequest::Kind kind) {
    SlowJob* job = state_of(ctx, qp) != nullptr ? ctx.slow->take_frame(role, p) : nullptr;
    if (job != nullptr) job->kind = kind;
    return job;
}

/// Submits the memory access of a packet to the worker thread. `described` is false if a part of the memory cannot be accessed.
/// If `described` is false or the worker cannot take the access, frees the job and returns `refused` or `lost`.
Placing begin(Context& ctx, Qp& qp, SlowJob* job, bool described) {
    const bool slow = described && job->count != 0;
    if (slow && ctx.slow->submit(*job, ctx.engine)) {
        job->qp = &qp;
        queue_of(*qp.slow, job->role).now = job;
        flag_of(qp, job->role) = true;
        if (job->role == SlowRole::request) message_waits(qp, true);
        return Placing::waits;
    }
    const bool full = slow && job->pieces[0].region->process->worker() != nullptr;
    ctx.slow->give_back(job);
    if (full) count(ctx, qp, &EventCounters::dropped);
    return full ? Placing::lost : Placing::refused;
}

Placing no_room(Context& ctx, Qp& qp) {
    if (qp.slow == nullptr) return Placing::refused;
    count(ctx, qp, &EventCounters::dropped);
    return Placing::lost;
}

void drop_behind(Context& ctx, SlowQueue& q) {
    while (q.first != nullptr) ctx.slow->give_back(std::exchange(q.first, q.first->next));
    q.last = nullptr;
    q.count = 0;
}

/// Executes the packets that were kept behind a packet whose memory access is done, until a packet must wait again.
void run_behind(Context& ctx, Qp& qp, SlowRole role) {
    SlowQueue& q = queue_of(*qp.slow, role);
    while (!flag_of(qp, role) && q.first != nullptr) {
        SlowJob* job = std::exchange(q.first, q.first->next);
        if (q.first == nullptr) q.last = nullptr;
        --q.count;
        if (qp.spec.type == Type::ud)
            receive_datagram(ctx, qp, job->packet);
        else
            role == SlowRole::request ? receive_request(ctx, qp, job->packet) : receive_response(ctx, qp, job->packet);
        ctx.slow->give_back(job);
    }
}

/// Completes a packet whose memory access is done. Then executes the packets that were kept behind this packet.
void go_on(Context& ctx, Qp& qp, SlowJob& job) {
    queue_of(*qp.slow, job.role).now = nullptr;
    if (job.role == SlowRole::request) message_waits(qp, false);
    if (qp.slow->closing) return;
    flag_of(qp, job.role) = false;
    if (qp.state == State::err) return activate(ctx, qp);  // the QP's queues may be flushed now
    if (job.role == SlowRole::response) {
        finish_response(ctx, qp, job.packet, job.good);
        if (qp.keeps_responses) hand_over_responses(ctx, qp);
    } else {
        finish_request(ctx, qp, job.packet, job.good, job.original);
        if (qp.keeps_requests) hand_over_requests(ctx, qp);
    }
    run_behind(ctx, qp, job.role);
}

void finish(Context& ctx, SlowJob* job) {
    job->pending = false;
    mem::release(*job);
    Qp* qp = job->qp;
    const bool is_stage = job->role == SlowRole::payload || job->role == SlowRole::answer;
    if (qp == nullptr || !is_stage) {
        mem::WindowUse over;
        job->window.pass_to(over);
        if (qp != nullptr) go_on(ctx, *qp, *job);
        ctx.slow->give_back(job);
    } else if (job->role == SlowRole::payload) {
        activate_requester(ctx, *qp);
    } else {
        activate_responder(ctx, *qp);
    }
}

}  // namespace

Placing place_slowly(Context& ctx, Qp& qp, SlowRole role, const wire::Packet& p, const Target& to, const uint8_t* payload,
                     uint32_t length) {
    SlowJob* job = job_for(ctx, qp, role, p, mem::SlowRequest::Kind::write);
    if (job == nullptr) return no_room(ctx, qp);
    auto* bytes = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(job->packet.payload + (payload - p.payload)));
    const bool described = to.sges != nullptr ? to.sges->describe(to.offset, length, mem::kLocalWrite, bytes, *job)
                                              : mem::add(*job, *to.region, to.va, bytes, length);
    if (to.window != nullptr) to.window->pass_to(job->window);
    return begin(ctx, qp, job, described);
}

Placing place_datagram_slowly(Context& ctx, Qp& qp, const wire::Packet& p, const SgeList& sges) {
    SlowJob* job = job_for(ctx, qp, SlowRole::request, p, mem::SlowRequest::Kind::write);
    if (job == nullptr) return no_room(ctx, qp);
    std::byte* grh = job->bytes() + wire::kMaxFrame;
    p.copy_grh(reinterpret_cast<uint8_t*>(grh));
    auto* bytes = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(job->packet.payload));
    const bool described = sges.describe(0, SlowMemory::kGrh, mem::kLocalWrite, grh, *job) &&
                           sges.describe(SlowMemory::kGrh, p.payload_length, mem::kLocalWrite, bytes, *job);
    return begin(ctx, qp, job, described);
}

Placing place_original_slowly(Context& ctx, Qp& qp, const wire::Packet& p, const SgeList& sges) {
    SlowJob* job = job_for(ctx, qp, SlowRole::response, p, mem::SlowRequest::Kind::write);
    if (job == nullptr) return no_room(ctx, qp);
    auto* bytes = reinterpret_cast<std::byte*>(&job->packet.atomic_original);
    return begin(ctx, qp, job, sges.describe(0, sizeof job->packet.atomic_original, mem::kLocalWrite, bytes, *job));
}

Placing exchange_slowly(Context& ctx, Qp& qp, const wire::Packet& p, const Target& at) {
    using Kind = mem::SlowRequest::Kind;
    const bool swap = wire::operation_of(p.opcode) == wire::Operation::cmp_swap;
    SlowJob* job = job_for(ctx, qp, SlowRole::request, p, swap ? Kind::compare_swap : Kind::fetch_add);
    if (job == nullptr) return no_room(ctx, qp);
    job->operand = p.swap_add;
    job->compare = p.compare;
    const bool described = mem::add(*job, *at.region, at.va, reinterpret_cast<std::byte*>(&job->original), 8);
    if (at.window != nullptr) at.window->pass_to(job->window);
    return begin(ctx, qp, job, described);
}

void keep_behind(Context& ctx, Qp& qp, SlowRole role, const wire::Packet& p) {
    SlowQueue& q = queue_of(*qp.slow, role);
    const bool takes = qp.state != State::err && !qp.slow->closing && q.count < SlowQueue::kMost;
    SlowJob* job = takes ? ctx.slow->take_frame_behind(role, p, *q.now->lane) : nullptr;
    if (job == nullptr) {
        count(ctx, qp, &EventCounters::dropped);
        return;
    }
    (q.first != nullptr ? q.last->next : q.first) = job;
    q.last = job;
    ++q.count;
}

// ---- outgoing -------------------------------------------------------------------------------------------------------

namespace {

/// Looks up the range in the fetched bytes. Returns false if a new fetch is needed. Otherwise sets `out` and returns true.
bool look_up(Context& ctx, SlowJob*& stage, uint64_t message, uint64_t offset, uint32_t length, Staged& out) {
    if (stage == nullptr) return false;
    out.result = Staged::Result::waits;
    if (stage->pending) return true;
    const bool holds = stage->message == message && offset >= stage->offset && offset + length <= stage->offset + stage->length;
    if (holds && stage->good) {
        out = {Staged::Result::ready, stage->bytes() + (offset - stage->offset),
               offset + length == stage->offset + stage->length};
        return true;
    }
    out.result = Staged::Result::refused;
    ctx.slow->give_back(std::exchange(stage, nullptr));
    return holds;
}

/// Begins to fetch kStage bytes, or the remaining bytes of the message if these are fewer. If a part of this memory cannot be
/// accessed, fetches only the bytes of the packet.
template <class Describe>
Staged fetch_ahead(Context& ctx, Qp& qp, SlowJob*& stage, SlowRole role, uint32_t packet, uint64_t rest, Describe describe) {
    using enum Staged::Result;
    SlowJob* job = ctx.slow->take_stage(role);
    if (job == nullptr) return {waits};
    for (const uint32_t length : {uint32_t(std::min<uint64_t>(SlowMemory::kStage, rest)), packet}) {
        job->count = 0;
        job->length = length;
        if (!describe(*job) || job->count == 0) continue;
        const bool served = job->pieces[0].region->process->worker() != nullptr;
        if (ctx.slow->submit(*job, ctx.engine)) {
            job->qp = &qp;
            stage = job;
            return {waits};
        }
        ctx.slow->give_back(job);
        return {served ? waits : refused};
    }
    ctx.slow->give_back(job);
    return {refused};
}

}  // namespace

Staged stage_payload(Context& ctx, Qp& qp, const SgeList& sges, uint64_t message, uint64_t offset, uint32_t length,
                     uint64_t total) {
    Staged out;
    if (state_of(ctx, qp) == nullptr) return {Staged::Result::waits};
    SlowJob*& stage = qp.slow->payload;
    if (look_up(ctx, stage, message, offset, length, out)) return out;
    return fetch_ahead(ctx, qp, stage, SlowRole::payload, length, total - offset, [&](SlowJob& job) {
        job.message = message;
        job.offset = offset;
        return sges.describe(offset, job.length, 0, job.bytes(), job);
    });
}

Staged stage_answer(Context& ctx, Qp& qp, const mem::MemoryRegion& region, const ResponderJob& read, uint64_t va, uint64_t offset,
                    uint32_t length) {
    Staged out;
    if (state_of(ctx, qp) == nullptr) return {Staged::Result::waits};
    SlowJob*& stage = qp.slow->answer;
    const uint64_t message = uint64_t{read.rkey.value} << 32 | read.first.value();
    if (look_up(ctx, stage, message, offset, length, out)) return out;
    return fetch_ahead(ctx, qp, stage, SlowRole::answer, length, read.length - offset, [&](SlowJob& job) {
        job.message = message;
        job.offset = offset;
        return mem::add(job, region, va, job.bytes(), job.length);
    });
}

// ---- both directions ------------------------------------------------------------------------------------------------

bool collect_slow(Context& ctx) {
    std::array<SlowJob*, 64> done;
    const size_t n = ctx.slow->collect(done);
    for (SlowJob* job : std::span(done.data(), n)) finish(ctx, job);
    return n != 0;
}

bool flush_waits(const Qp& qp) { return qp.waits_responses || (qp.waits_requests && qp.state == State::err); }

namespace {

void leave(Context& ctx, SlowJob*& job) {
    if (job == nullptr) return;
    if (job->pending)
        job->qp = nullptr;
    else
        ctx.slow->give_back(job);
    job = nullptr;
}

}  // namespace

void forget_slow(Context& ctx, Qp& qp) {
    if (qp.slow == nullptr) return;
    drop_behind(ctx, qp.slow->requests);
    drop_behind(ctx, qp.slow->responses);
    leave(ctx, qp.slow->payload);
    leave(ctx, qp.slow->answer);
}

bool close_slow(Context& ctx, Qp& qp) {
    if (qp.slow == nullptr) return true;
    forget_slow(ctx, qp);
    if (qp.slow->requests.now == nullptr && qp.slow->responses.now == nullptr) return true;
    qp.slow->closing = qp.waits_requests = qp.waits_responses = true;
    return false;
}

void drop_slow(Context& ctx, Qp& qp) {
    if (qp.slow == nullptr) return;
    forget_slow(ctx, qp);
    if (qp.slow->requests.now != nullptr) message_waits(qp, false);
    leave(ctx, qp.slow->requests.now);
    leave(ctx, qp.slow->responses.now);
    qp.waits_requests = qp.waits_responses = false;
    ctx.slow->give_back(std::exchange(qp.slow, nullptr));
}

}  // namespace roci::qp
