#include "sim/load.hpp"

#include <infiniband/verbs.h>

#include <cstring>

namespace roci::sim {

void paint(uint8_t* p, uint64_t n, uint64_t tag) {
    for (uint64_t i = 0; i < n; ++i) p[i] = payload_byte(tag, i);
}

int64_t first_wrong_byte(const uint8_t* p, uint64_t n, uint64_t tag) {
    for (uint64_t i = 0; i < n; ++i)
        if (p[i] != payload_byte(tag, i)) return int64_t(i);
    return -1;
}

namespace {

/// Calls good(byte, index) for each byte until a call returns false. Returns the index of this byte, or -1 if all
/// calls return true.
template <class F>
int64_t first_not(const std::vector<Sge>& sges, F&& good) {
    uint64_t i = 0;
    for (const Sge& s : sges)
        for (uint32_t k = 0; k < s.length; ++k, ++i)
            if (!good(reinterpret_cast<uint8_t*>(s.addr)[k], i)) return int64_t(i);
    return -1;
}

}  // namespace

void write_sges(const std::vector<Sge>& sges, uint64_t tag) {
    first_not(sges, [&](uint8_t& byte, uint64_t i) {
        byte = payload_byte(tag, i);
        return true;
    });
}

int64_t wrong_in_sges(const std::vector<Sge>& sges, uint64_t skip, uint64_t length, uint64_t tag) {
    return first_not(
        sges, [&](uint8_t byte, uint64_t i) { return i < skip || i >= skip + length || byte == payload_byte(tag, i - skip); });
}

bool untouched(const std::vector<Sge>& sges, uint64_t from) {
    return first_not(sges, [&](uint8_t byte, uint64_t i) { return i < from || byte == kEmptyByte; }) == -1;
}

void empty_sges(const std::vector<Sge>& sges) {
    for (const Sge& s : sges) std::memset(reinterpret_cast<void*>(s.addr), kEmptyByte, s.length);
}

void Sealed::add(const std::vector<Sge>& sges) {
    empty_sges(sges);
    all_.push_back(sges);
    if (all_.size() <= kMost) return;
    check();
    all_.pop_front();
}

void Sealed::check() const {
    for (const auto& sges : all_)
        if (!untouched(sges, 0)) broken("something was placed for a request that is complete");
}

uint64_t Pool::take(uint64_t length) {
    if (cursor + length > mr->length - reserved) cursor = 0;
    const uint64_t at = cursor;
    cursor += (length + 15) / 8 * 8;
    return at;
}

std::vector<Sge> Pool::carve(uint64_t length, uint32_t pieces) {
    std::vector<Sge> out;
    const uint64_t at = take(length);
    for (uint32_t i = 0; i < pieces; ++i) {
        const uint64_t from = length * i / pieces, to = length * (i + 1) / pieces;
        out.push_back({mr->address() + at + from, uint32_t(to - from), mr->lkey});
    }
    return out;
}

// At most 24 buffers of a pool are in use: at most 16 posted receives, and at most 8 buffers of completed requests
// (sealed buffers).
uint64_t pool_bytes(const Plan& plan) { return uint64_t{plan.largest + 128} * 40 + 4096; }

MrOptions memory_options(Rng& rng, uint32_t access) {
    MrOptions o;
    o.access = access;
    o.segments = uint32_t(rng.pick(1, 1, 3, 17));
    o.slow = rng.chance(0.05);
    if (o.slow && (access & IBV_ACCESS_REMOTE_ATOMIC) != 0) o.segments = 1;
    return o;
}

void Inbox::fill(Rng& rng) {
    if (starving > 0) {
        --starving;
        return;
    }
    if (rng.chance(0.02)) {
        starving = uint32_t(rng.below(60));
        return;
    }
    while (posted.size() < window && rng.chance(0.8)) {
        Posted r;
        r.id = next_id++;
        r.capacity = capacity + uint32_t(rng.below(32));
        r.sges = pool.carve(r.capacity, uint32_t(rng.between(1, 4)));
        empty_sges(r.sges);
        const bool ok = srq != nullptr ? client->post_srq_recv(*srq, r.id, r.sges) : client->post_recv(*qp, r.id, r.sges);
        if (!ok) return;
        posted.push_back(r);
    }
}

Posted Inbox::take(uint64_t id) {
    if (posted.empty()) broken("receive completion %llu, but none is posted", ull(id));
    const Posted r = posted.front();
    posted.pop_front();
    if (id != r.id) broken("receive %llu completed, %llu was due", ull(id), ull(r.id));
    return r;
}

void Inbox::watch_limit(Rng& rng, Host& host) {
    if (srq == nullptr) return;
    auto& events = host.platform().asyncs[client->session()];
    for (size_t n = events.size(); n > 0; --n) {
        const auto e = events.front();
        events.pop_front();
        if (e.event_type != IBV_EVENT_SRQ_LIMIT_REACHED) continue;
        if (e.handle != srq->handle) {  // the event is for another inbox of this client
            events.push_back(e);
            continue;
        }
        if (limit == 0) broken("SRQ limit event, but none is armed");
        // `posted` also contains buffers whose completions were not polled yet. So the size of `posted` does not show
        // whether the event came at the right time.
        limit = 0;
        ++limits_hit;
    }
    if (limit == 0 && posted.size() >= 8 && rng.chance(0.05)) {
        limit = uint32_t(rng.between(1, 4));
        client->set_srq_limit(*srq, limit);
    }
    // If all receives were used, the limit event must have come with the last receive. Or the event is still inside the
    // host, because a request of a client makes the host run rounds without passing events on.
    if (limit != 0 && posted.empty() && !host.has_events()) broken("all of the SRQ was used, and no limit event came");
}

void resize_by_chance(Rng& rng, Client& client, Cq& cq) {
    if (!rng.chance(0.01)) return;
    // Each of the new sizes holds all entries that can be outstanding. An overrun would end the CQ.
    if (client.try_resize(cq, uint32_t(rng.pick(128, 300, 600, 1024, 3000))) != 0)
        broken("resize of a CQ: %s", client.reason().c_str());
}

void Inbox::resize_by_chance() {
    if (srq == nullptr || !sizes.chance(0.01)) return;
    // rocid refuses a size below the number of queued receives. So the new size is at least the maximum number of
    // posted receives.
    if (client->try_resize(*srq, uint32_t(sizes.pick(window, 64u, 100u, 1000u))) != 0)
        broken("resize of an SRQ: %s", client->reason().c_str());
}

std::unique_ptr<Load> make_load(LoadKind kind, const Seats& seats, const Plan& plan, Rng& rng) {
    switch (kind) {
        case LoadKind::rc:
            return make_connected(seats, plan, rng, false);
        case LoadKind::xrc:
            return make_connected(seats, plan, rng, true);
        case LoadKind::uc:
            return make_uc(seats, plan, rng);
        case LoadKind::datagrams:
            return make_datagrams(seats, plan, rng);
        case LoadKind::windows:
            return make_windows(seats, plan, rng);
        case LoadKind::tags:
            return make_tags(seats, plan, rng);
        case LoadKind::endings:
            return make_endings(seats, plan, rng);
        case LoadKind::connections:
            return make_connections(seats, plan, rng);
    }
    return nullptr;
}

}  // namespace roci::sim
