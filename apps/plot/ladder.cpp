// Creates the rows of the ladder, which shows the packets of a connection as arrows between its two ends.
#include <fmt/format.h>

#include <algorithm>

#include "analysis.hpp"
#include "words.hpp"

namespace roci::plot {
namespace {

constexpr size_t kFirstRows = 200, kLastRows = 50, kMostRows = 1500, kAround = 2;

/// The packets that one row shows: consecutive packets of the same kind and message.
struct Group {
    Event first;
    int64_t last = 0;
    uint64_t packets = 1, bytes = 0;
    const Message* message = nullptr;
    bool to_a = false;
};

const Message* message_with(const Stream& s, int64_t psn) {
    const auto at = std::ranges::upper_bound(s.messages, psn, {}, &Message::first);
    if (at == s.messages.begin()) return nullptr;
    const Message& m = *(at - 1);
    return psn <= m.last ? &m : nullptr;
}

bool joins(const Group& g, const Event& e, const Message* m, bool to_a) {
    return g.first.kind == e.kind && g.first.lost == e.lost && g.to_a == to_a && g.message == m && e.psn == g.last + 1 &&
           (e.kind == Kind::sent || e.kind == Kind::resent || e.kind == Kind::response || e.kind == Kind::response_again);
}

bool shows_problem(const Group& g) {
    const Kind k = g.first.kind;
    return g.first.lost || g.first.marked || (k != Kind::sent && k != Kind::ack && k != Kind::response);
}

std::string psn_text(const Group& g) {
    return g.packets == 1 ? fmt::format("PSN {}", wire_psn(g.first.psn))
                          : fmt::format("PSN {} to {}", wire_psn(g.first.psn), wire_psn(g.last));
}

/// Returns the name of the packet's opcode without the service and the position in the message, such as "READ Request" or "SEND".
std::string own_name(const Event& e) {
    const char* text = wire::opcode_info(e.opcode).name;
    std::string name = text != nullptr ? text : "?";
    name.erase(0, name.find(' ') + 1);
    for (const std::string_view part : {" First", " Middle", " Last", " Only"})
        if (const size_t at = name.find(part); at != std::string::npos) name.erase(at, part.size());
    return name;
}

std::string request_text(const Group& g) {
    const Message* m = g.message;
    std::string what = m != nullptr ? m->name : own_name(g.first);
    const int64_t whole = m != nullptr ? m->last - m->first + 1 : 1;
    if (wire::opcode_info(g.first.opcode).has(wire::kRead)) {
        what += m != nullptr ? fmt::format(" of {}", count_of(m->bytes, "byte")) : "";
    } else if (m != nullptr && int64_t(g.packets) < whole) {
        what += fmt::format(" packet{} {}{} of {}", g.packets == 1 ? "" : "s", g.first.psn - m->first + 1,
                            g.packets == 1 ? "" : fmt::format(" to {}", g.last - m->first + 1), whole);
    } else if (wire::opcode_info(g.first.opcode).has(wire::kPayload)) {
        what += ", " + count_of(g.bytes, "byte");
    }
    return what + ", " + psn_text(g);
}

std::string error_code(uint8_t syndrome) {
    static constexpr const char* kCodes[] = {"sequence error", "invalid request", "remote access error",
                                             "remote operational error", "invalid RD request"};
    const size_t code = syndrome & 0x1f;
    return code < std::size(kCodes) ? kCodes[code] : fmt::format("code {}", code);
}

std::string text_of(const Group& g) {
    switch (g.first.kind) {
        case Kind::sent:
            return request_text(g);
        case Kind::resent:
            return "again: " + request_text(g);
        case Kind::late:
            return "overtaken: " + request_text(g);
        case Kind::missing:
            return fmt::format("{}{}, {}", g.first.of_responder ? "response of " : "",
                               g.message != nullptr ? g.message->name : "packet", psn_text(g));
        case Kind::response:
        case Kind::response_again:
            return fmt::format("{}{}{}, {}", g.first.kind == Kind::response_again ? "again: " : "", own_name(g.first),
                               g.bytes != 0 ? ", " + count_of(g.bytes, "byte") : "", psn_text(g));
        case Kind::ack:
            return fmt::format("ACK up to PSN {}", wire_psn(g.first.psn));
        case Kind::nak_sequence:
            return fmt::format("NAK: PSN {} is missing", wire_psn(g.first.psn));
        case Kind::nak_rnr:
            return fmt::format("RNR NAK: no receive for PSN {}", wire_psn(g.first.psn));
        case Kind::nak_error:
            return fmt::format("NAK: {}, PSN {}", error_code(g.first.syndrome), wire_psn(g.first.psn));
        default:
            return "CNP: congestion";
    }
}

std::vector<Group> groups_of(const Stream (&streams)[2]) {
    std::vector<Group> out;
    size_t at[2] = {0, 0};
    for (;;) {
        const bool first = at[0] < streams[0].events.size(), second = at[1] < streams[1].events.size();
        if (!first && !second) return out;
        const int i = first && (!second || streams[0].events[at[0]].time <= streams[1].events[at[1]].time) ? 0 : 1;
        const Event& e = streams[i].events[at[i]++];
        const Message* m = message_with(streams[i], e.psn);
        const bool to_a = (i == 0) == e.of_responder;
        if (!out.empty() && joins(out.back(), e, m, to_a)) {
            Group& g = out.back();
            g.last = e.psn;
            ++g.packets;
            g.bytes += e.bytes;
            g.first.marked = g.first.marked || e.marked;
        } else {
            out.push_back({e, e.psn, 1, e.bytes, m, to_a});
        }
    }
}

/// Chooses the rows of the ladder to keep. If there are at most kMostRows rows, keeps all rows. Otherwise keeps the first rows,
/// the last rows, and the rows around losses, repetitions, overtaken packets, NAKs, CNPs and marked packets, up to kMostRows rows
/// in total.
std::vector<bool> kept(const std::vector<Group>& groups) {
    std::vector<bool> keep(groups.size(), groups.size() <= kMostRows);
    if (groups.size() <= kMostRows) return keep;
    size_t room = kMostRows;
    const auto take = [&](size_t i) {
        if (i < groups.size() && !keep[i] && room != 0) keep[i] = true, --room;
    };
    for (size_t i = 0; i < kFirstRows; ++i) take(i);
    for (size_t i = 0; i < kLastRows; ++i) take(groups.size() - 1 - i);
    for (size_t i = 0; i < groups.size(); ++i)
        if (shows_problem(groups[i]))
            for (size_t j = i - std::min(i, kAround); j <= i + kAround; ++j) take(j);
    return keep;
}

}  // namespace

std::vector<LadderRow> ladder_of(const Stream (&streams)[2]) {
    const std::vector<Group> groups = groups_of(streams);
    const std::vector<bool> keep = kept(groups);
    std::vector<LadderRow> out;
    uint64_t left_out = 0;
    for (size_t i = 0; i < groups.size(); ++i) {
        const Group& g = groups[i];
        if (!keep[i]) {
            ++left_out;
            continue;
        }
        out.push_back(
            {g.first.time, g.to_a, g.first.kind, g.first.lost, text_of(g) + (g.first.marked ? ", marked" : ""), left_out});
        left_out = 0;
    }
    return out;
}

}  // namespace roci::plot
