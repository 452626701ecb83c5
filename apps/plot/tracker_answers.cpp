// Handles packets of the responder: ACKs, NAKs, responses and congestion notifications.
#include <algorithm>
#include <string_view>

#include "tracker.hpp"

namespace roci::plot {
namespace {

// The values of bits 6..5 of the syndrome (IBA 9.7.5.1.2). The value 0 is an ACK. Bits 4..0 are the code of a NAK.
constexpr uint8_t kRnr = 1, kNak = 3;
constexpr uint8_t kind_of(uint8_t syndrome) { return syndrome >> 5 & 3; }
constexpr uint8_t kSequenceError = 0;

}  // namespace

void Tracker::response(const Sighting& s) {
    const Frame& f = *s.frame;
    if (!begun_) restart(kFirstCircle + f.psn);
    const int64_t psn = unwrap(f.psn, acked_ + 1);
    if (f.info().has(wire::kRead)) return read_response(s, psn);
    const uint8_t kind = kind_of(f.syndrome);
    if (kind == kRnr || kind == kNak) return nak(s, psn);
    acknowledgement(s, psn);
}

void Tracker::acknowledgement(const Sighting& s, int64_t psn) {
    const bool atomic = s.frame->info().has(wire::kAtomic);
    add(s, atomic ? Kind::response : Kind::ack, psn);
    ++(atomic ? out_.counts.responses : out_.counts.acks);
    if (s.lost) return;
    measure(s.frame->time, psn);
    advance(s.frame->time, psn);
}

void Tracker::nak(const Sighting& s, int64_t psn) {
    Counts& c = out_.counts;
    const bool rnr = kind_of(s.frame->syndrome) == kRnr;
    const bool sequence = !rnr && (s.frame->syndrome & 0x1f) == kSequenceError;
    ++(rnr ? c.rnr_naks : sequence ? c.sequence_naks : c.error_naks);
    add(s, rnr ? Kind::nak_rnr : sequence ? Kind::nak_sequence : Kind::nak_error, psn);
    if (s.lost) return;
    advance(s.frame->time, psn - 1);
    if (rnr || sequence) {
        back_from_ = rnr ? psn : psn + 1;
        back_to_ = next_ - 1;
    }
    if (!sequence) return;
    if (const auto hole = hole_with(psn); hole != holes_.end()) hole->second.reported = true;
    const auto known = requests_.find(psn);
    if (known == requests_.end() || requests_known_) return;
    // If the requester sent the packet again while the NAK was in flight, the NAK reports the old copy, and the new copy is not
    // lost.
    Event& copy = out_.events[known->second.event];
    if (known->second.copies == 1 || s.frame->time - copy.time >= least_rtt_.value_or(0)) {
        mark_lost(copy);
        reported_[psn] = known->second.event;
    }
}

/// Called after the acknowledgement of all PSNs up to `psn`. Corrects the losses that NAKs reported: if no newer copy of a
/// reported packet was captured, the reported copy was not lost. The NAK was slow and had reported an older copy.
void Tracker::correct_reported(int64_t psn) {
    for (; !reported_.empty() && reported_.begin()->first <= psn; reported_.erase(reported_.begin())) {
        const auto [reported, event] = *reported_.begin();
        const auto known = requests_.find(reported);
        if (known == requests_.end() || known->second.event != event) continue;
        out_.events[event].lost = false;
        --out_.counts.lost;
    }
}

void Tracker::read_response(const Sighting& s, int64_t psn) {
    Counts& c = out_.counts;
    const auto read = read_with(psn);
    const auto earlier = responses_.find(psn);
    if (earlier != responses_.end()) {
        repeated_response(s, psn, earlier->second);
        return;
    }
    ++c.responses;
    // If a READ was repeated, and a response is captured after later responses, the first copy of the response was lost before
    // the place of the capture.
    if (!responses_known_ && psn < response_next_ && read != requests_.end() && read->second.copies > 1)
        missing(s.frame->time, psn, true);
    c.lost_responses += s.lost;
    responses_[psn] = uint32_t(out_.events.size());
    add(s, Kind::response, psn);
    response_next_ = std::max(response_next_, psn + 1);
    last_response_ = psn;
    last_response_again_ = false;
    if (s.lost) return;
    deliver(s.frame->time, s.frame->payload);
    measure(s.frame->time, psn);
    const bool in_order = read == requests_.end() || psn == read->first || psn - 1 <= acked_;
    if (!in_order) {
        waiting_.insert(psn);
        return;
    }
    int64_t upto = psn;
    while (!waiting_.empty() && *waiting_.begin() <= upto + 1) {
        upto = std::max(upto, *waiting_.begin());
        waiting_.erase(waiting_.begin());
    }
    advance(s.frame->time, upto);
}

void Tracker::repeated_response(const Sighting& s, int64_t psn, uint32_t earlier) {
    ++out_.counts.responses_again;
    Event& copy = out_.events[earlier];
    const bool back = last_response_again_ && psn == last_response_ + 1;
    if (copy.lost && !s.lost) {  // both ends are in the capture, and the first copy did not arrive
        deliver(s.frame->time, s.frame->payload);
        advance(s.frame->time, psn);
    } else if (!responses_known_ && !back && !copy.lost) {
        mark_lost(copy);
        ++out_.counts.lost_responses;
    }
    responses_[psn] = uint32_t(out_.events.size());
    add(s, Kind::response_again, psn);
    out_.counts.lost_responses += s.lost;
    last_response_ = psn;
    last_response_again_ = true;
}

void Tracker::cnp(const Sighting& s) {
    ++out_.counts.cnps;
    add(s, Kind::cnp, std::max(acked_ + 1, next_ - 1));
}

/// Measures the round trip from a request to the packet that acknowledges the request's PSN. Ignores requests that were sent more
/// than once.
void Tracker::measure(int64_t time, int64_t psn) {
    const auto known = requests_.find(psn);
    if (psn <= acked_ || known == requests_.end() || known->second.copies != 1) return;
    const Event& sent = out_.events[known->second.event];
    if (sent.kind != Kind::sent || sent.lost || time < sent.time) return;
    out_.rtt.push_back({time, psn, time - sent.time});
    least_rtt_ = std::min(least_rtt_.value_or(time - sent.time), time - sent.time);
}

void Tracker::advance(int64_t time, int64_t psn) {
    if (psn <= acked_) return;
    if (reliable_ && !owed_.empty() && time - progress_ > out_.longest_gap.length)
        out_.longest_gap = {time - progress_, progress_, acked_ + 1};
    progress_ = time;
    acked_ = psn;
    out_.acked.push_back({time, psn});
    correct_reported(psn);
    uint64_t bytes = 0;
    while (!owed_.empty() && owed_.begin()->first <= psn) {
        const Owed& o = owed_.begin()->second;
        owed_bytes_ -= o.bytes;
        if (!o.reads) bytes += o.bytes;
        owed_.erase(owed_.begin());
    }
    if (bytes != 0) deliver(time, bytes);
    note_flight(time);
}

void Tracker::deliver(int64_t time, uint64_t bytes) { out_.delivered.push_back({time, bytes}); }

int64_t Tracker::acked_at(int64_t psn) const {
    const auto at = std::ranges::lower_bound(out_.acked, psn, {}, &Acked::psn);
    return at == out_.acked.end() ? -1 : at->time;
}

/// Returns the name of a message from the opcode of its last packet. For example, "RC WRITE Last with Immediate" gives "WRITE
/// with Immediate".
static std::string message_name(uint8_t opcode) {
    const char* text = wire::opcode_info(opcode).name;
    std::string name = text != nullptr ? text : "?";
    name.erase(0, name.find(' ') + 1);
    for (const std::string_view part : {" First", " Middle", " Last", " Only", " Request"})
        if (const size_t at = name.find(part); at != std::string::npos) name.erase(at, part.size());
    return name;
}

void Tracker::make_messages() {
    std::ranges::sort(infos_, {}, &Info::psn);
    const Info* before = nullptr;
    for (const Info& i : infos_) {
        const wire::OpcodeInfo& info = wire::opcode_info(i.opcode);
        const bool goes_on = !info.has(wire::kFirst | wire::kOnly) && before != nullptr && before->psn + 1 == i.psn &&
                             !wire::opcode_info(before->opcode).has(wire::kLast | wire::kOnly);
        if (!goes_on) out_.messages.push_back({.first = i.psn, .last = i.psn, .begin = i.time});
        Message& m = out_.messages.back();
        m.name = message_name(i.opcode);
        m.last = i.psn + i.span - 1;
        m.begin = std::min(m.begin, i.time);
        m.bytes += info.has(wire::kRead) ? i.dma_length : i.payload;
        m.resent += i.resent;
        m.end = reliable_ ? acked_at(m.last) : std::max(m.end, i.time);
        before = &i;
    }
}

}  // namespace roci::plot
