// Classifies requests: sent, sent again, late, missing.
#include "tracker.hpp"

#include <algorithm>

namespace roci::plot {
namespace {

constexpr int64_t kCircle = int64_t{1} << 24;
constexpr int64_t kWindow = 1 << 16;       ///< in PSNs; a larger step means a new connection with the same QP numbers
constexpr size_t kMostRequests = 1 << 17;  ///< limit of entries in each of the containers that prune() shortens
constexpr uint64_t kReorderPackets = 16;   ///< if more packets overtake a packet, an earlier copy of the packet was lost
constexpr int64_t kReorderTime = 100'000;  ///< in ns; if a packet is late by this time and by a round trip, a copy was lost

}  // namespace

Tracker::Tracker(bool reliable, uint32_t mtu, bool requests_known, bool responses_known)
    : reliable_(reliable), requests_known_(requests_known), responses_known_(responses_known), mtu_(mtu) {
    out_.reliable = reliable;
    out_.lost_known = requests_known;
}

/// Extends a 24-bit PSN to a number that never wraps. The result is the extended PSN that is closest to `near`. If this number is
/// far below the acknowledged PSNs, the PSN belongs to the next cycle of 2^24. A number far above `near` is accepted, because it
/// may be the PSN after a long READ.
int64_t Tracker::unwrap(uint32_t psn, int64_t near) const {
    const int64_t out = near + Psn(psn).distance_from(Psn(uint32_t(near & int64_t{kMask24})));
    const int64_t oldest = (reliable_ ? acked_ : next_) - kWindow;
    return out < oldest ? out + kCircle : out;
}

uint32_t Tracker::span_of(const Frame& f) const {
    if (!f.request() || !f.info().has(wire::kRead) || mtu_ == 0) return 1;
    return std::max<uint32_t>(1, (f.dma_length + mtu_ - 1) / mtu_);
}

Event& Tracker::add(const Sighting& s, Kind kind, int64_t psn) {
    Event e{.time = s.frame->time, .psn = psn, .bytes = s.frame->payload, .kind = kind};
    e.opcode = s.frame->opcode;
    e.syndrome = s.frame->syndrome;
    e.marked = s.marked;
    e.lost = s.lost;
    e.of_responder = kind >= Kind::response;
    out_.counts.marked += s.marked;
    out_.counts.lost += s.lost;
    return out_.events.emplace_back(e);
}

void Tracker::mark_lost(Event& event) {
    if (event.lost) return;
    event.lost = true;
    ++out_.counts.lost;
}

/// Adds an event for a packet that was lost before the place of the capture and is therefore not in the capture.
void Tracker::missing(int64_t time, int64_t psn, bool response) {
    Event e{.time = time, .psn = psn, .kind = Kind::missing};
    e.lost = true;
    e.of_responder = response;
    out_.events.push_back(e);
    ++out_.counts.lost;
    out_.counts.lost_responses += response;
}

std::map<int64_t, Tracker::Hole>::iterator Tracker::hole_with(int64_t psn) {
    auto at = holes_.upper_bound(psn);
    if (at == holes_.begin()) return holes_.end();
    --at;
    return psn < at->second.end ? at : holes_.end();
}

std::map<int64_t, Tracker::Request>::iterator Tracker::read_with(int64_t psn) {
    auto at = requests_.upper_bound(psn);
    if (at == requests_.begin()) return requests_.end();
    --at;
    return at->second.reads && psn < at->first + int64_t{at->second.span} ? at : requests_.end();
}

void Tracker::restart(int64_t psn) {
    begun_ = true;
    next_ = psn;
    acked_ = psn - 1;
    holes_.clear();
    requests_.clear();
    responses_.clear();
    waiting_.clear();
    reported_.clear();
    owed_.clear();
    owed_bytes_ = 0;
    response_next_ = psn;
    back_to_ = -1;
}

void Tracker::request(const Sighting& s) {
    const Frame& f = *s.frame;
    const int64_t psn = begun_ ? unwrap(f.psn, next_ - 1) : kFirstCircle + f.psn;
    if (!begun_ || psn > next_ + kWindow) restart(psn);
    ++out_.counts.packets;
    ++requests_seen_;
    const uint32_t span = span_of(f);
    const bool datagram = wire::service_of(f.opcode) == wire::Service::ud;
    bool repeats = false;
    if (const auto known = requests_.find(psn); known != requests_.end() && !datagram) {
        again(s, psn, known->second);
        repeats = true;
    } else if (const auto read = read_with(psn); psn < next_ && read != requests_.end()) {
        again(s, psn, read->second);  // the request repeats a part of a READ, because responses are missing
        repeats = true;
    } else {
        const bool behind = psn < next_ && !datagram;
        if (behind) repeats = fill_hole(s, psn);
        if (!behind) first_sight(s, psn, span);
        if (!s.lost) first_sights_.push_back({f.time, f.payload});
        Request r{.info = uint32_t(infos_.size()), .event = uint32_t(out_.events.size() - 1), .span = span};
        r.copies = repeats ? 2 : 1;
        r.reads = f.info().has(wire::kRead);
        requests_[psn] = r;
        infos_.push_back({psn, f.time, f.payload, f.dma_length, span, repeats ? 1u : 0u, f.opcode});
        owe(s, psn, span);
    }
    last_was_again_ = repeats;
    last_psn_ = psn + span - 1;
    prune();
}

void Tracker::first_sight(const Sighting& s, int64_t psn, uint32_t span) {
    const bool holes_count = wire::service_of(s.frame->opcode) != wire::Service::ud && !span_unknown_;
    if (psn > next_ && holes_count) holes_[next_] = {psn, s.frame->time, requests_seen_, false};
    span_unknown_ = s.frame->info().has(wire::kRead) && mtu_ == 0 && s.frame->dma_length > 256;
    if (reliable_ && owed_.empty()) progress_ = s.frame->time;
    next_ = psn + span;
    ++out_.counts.sent;
    add(s, Kind::sent, psn);
}

/// Handles a request that is captured for the first time, after requests with later PSNs. Returns true if an earlier copy of the
/// request was lost before the place of the capture.
bool Tracker::fill_hole(const Sighting& s, int64_t psn) {
    ++out_.counts.sent;
    const auto at = hole_with(psn);
    bool lost = last_was_again_ && psn == last_psn_ + 1;
    int64_t since = s.frame->time;
    if (at != holes_.end()) {
        const auto [begin, hole] = *at;
        since = hole.time;
        const bool quick = s.frame->time - hole.time < std::max(kReorderTime, least_rtt_.value_or(0)) &&
                           requests_seen_ - hole.requests <= kReorderPackets;
        lost = lost || hole.reported || !quick;
        holes_.erase(at);
        if (begin < psn) holes_[begin] = {psn, hole.time, hole.requests, hole.reported};
        if (psn + 1 < hole.end) holes_[psn + 1] = {hole.end, hole.time, hole.requests, false};
    }
    lost = lost && reliable_ && !requests_known_;
    if (lost) missing(since, psn, false);
    ++(lost ? out_.counts.resent : out_.counts.late);
    add(s, lost ? Kind::resent : Kind::late, psn);
    return lost;
}

void Tracker::again(const Sighting& s, int64_t psn, Request& r) {
    Counts& c = out_.counts;
    ++c.resent;
    ++c.again;
    ++r.copies;
    ++infos_[r.info].resent;
    const bool needless = psn + int64_t{r.reads ? 1u : r.span} - 1 <= acked_;
    c.needless += needless;
    const bool back = (last_was_again_ && psn == last_psn_ + 1) || (psn >= back_from_ && psn <= back_to_);
    // If a response to a READ was captured, the READ is repeated because other responses are missing. So the request was not
    // lost.
    const auto answer = responses_.lower_bound(psn - int64_t{r.reads ? r.span : 0u});
    const bool answered = r.reads && answer != responses_.end() && answer->first < psn + int64_t{r.span};
    if (!requests_known_ && !needless && !back && !answered) mark_lost(out_.events[r.event]);
    r.event = uint32_t(out_.events.size());
    add(s, Kind::resent, psn);
}

void Tracker::owe(const Sighting& s, int64_t psn, uint32_t span) {
    if (!reliable_) return;
    const bool reads = s.frame->info().has(wire::kRead);
    const uint64_t bytes = reads ? s.frame->dma_length : s.frame->payload;
    if (psn + int64_t{span} - 1 > acked_ && owed_.try_emplace(psn + int64_t{span} - 1, Owed{bytes, reads}).second)
        owed_bytes_ += bytes;
    note_flight(s.frame->time);
}

void Tracker::note_flight(int64_t time) {
    const int64_t packets = std::max<int64_t>(0, next_ - 1 - acked_);
    out_.in_flight.push_back({time, uint64_t(packets), owed_bytes_});
}

void Tracker::prune() {
    while (requests_.size() > kMostRequests) requests_.erase(requests_.begin());
    while (responses_.size() > kMostRequests) responses_.erase(responses_.begin());
    while (holes_.size() > kMostRequests) holes_.erase(holes_.begin());
    while (waiting_.size() > kMostRequests) waiting_.erase(waiting_.begin());
    while (reported_.size() > kMostRequests) reported_.erase(reported_.begin());
    for (; owed_.size() > kMostRequests; owed_.erase(owed_.begin())) owed_bytes_ -= owed_.begin()->second.bytes;
}

/// Classifies the PSNs that are not in the capture. PSNs of an unreliable requester count as lost. For a reliable requester, the
/// packets of a hole have arrived if no NAK reported the hole or if they are acknowledged. Such packets count as not captured,
/// and the other packets count as lost.
void Tracker::finish_holes() {
    for (const auto& [begin, hole] : holes_) {
        const int64_t overlooked = !reliable_ ? begin : hole.reported ? std::clamp(acked_ + 1, begin, hole.end) : hole.end;
        out_.counts.not_captured += uint64_t(overlooked - begin);
        const int64_t shown = std::min(hole.end - overlooked, missing_left_);
        for (int64_t psn = overlooked; psn < overlooked + shown; ++psn) missing(hole.time, psn, false);
        out_.counts.lost += uint64_t(hole.end - overlooked - shown);
        missing_left_ -= shown;
    }
}

Stream Tracker::finish() {
    finish_holes();
    make_messages();
    const Counts& c = out_.counts;
    out_.answered = c.acks + c.responses + c.sequence_naks + c.rnr_naks + c.error_naks != 0;
    if (!reliable_ || !out_.answered) {
        out_.delivered = std::move(first_sights_);
        out_.in_flight.clear();
        out_.longest_gap = {};
    }
    out_.counts.payload = 0;
    for (const Delivered& d : out_.delivered) out_.counts.payload += d.bytes;
    std::ranges::stable_sort(out_.events, [](const Event& a, const Event& b) { return a.time < b.time; });
    return std::move(out_);
}

}  // namespace roci::plot
