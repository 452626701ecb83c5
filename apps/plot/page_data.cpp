// Creates the data of the page as JSON. Long series are shortened. Items that show an error or a retransmission are kept if
// possible.
#include <nlohmann/json.hpp>

#include <algorithm>

#include "page.hpp"
#include "words.hpp"

namespace roci::plot {
namespace {

using json = nlohmann::ordered_json;

constexpr size_t kMostEvents = 20'000;  ///< events per direction
constexpr size_t kMostSamples = 4'000;  ///< samples per series
constexpr size_t kMostMessages = 2'000;
constexpr size_t kBins = 300;

bool problem(const Event& e) {
    return e.lost || e.marked || (e.kind != Kind::sent && e.kind != Kind::ack && e.kind != Kind::response);
}

/// Chooses about `most` items. If at most half of `most` items are important (`matter` returns true), keeps all important items.
/// Otherwise keeps every n-th important item. Keeps every m-th of the other items.
template <class Item, class Matters>
std::vector<const Item*> thinned(const std::vector<Item>& items, size_t most, Matters matter) {
    std::vector<const Item*> out;
    const size_t important = size_t(std::ranges::count_if(items, matter));
    const auto step = [](size_t n, size_t room) { return n <= room ? size_t{1} : (n + room - 1) / std::max<size_t>(room, 1); };
    const size_t of_important = step(important, most / 2);
    const size_t of_rest = step(items.size() - important, most - important / of_important);
    size_t seen[2] = {0, 0};
    for (const Item& i : items) {
        const bool m = matter(i);
        if (seen[m]++ % (m ? of_important : of_rest) == 0) out.push_back(&i);
    }
    return out;
}

/// Divides the items into at most `most` groups of adjacent items. Keeps the item with the largest value of each group, so that
/// peaks remain visible.
template <class Item, class Value>
std::vector<const Item*> peaks(const std::vector<Item>& items, size_t most, Value value) {
    std::vector<const Item*> out;
    const size_t step = std::max<size_t>(1, (items.size() + most - 1) / most);
    for (size_t i = 0; i < items.size(); i += step) {
        const Item* best = &items[i];
        for (size_t j = i; j < std::min(i + step, items.size()); ++j)
            if (value(items[j]) > value(*best)) best = &items[j];
        out.push_back(best);
    }
    return out;
}

json events_json(const Stream& s, int64_t begin, json& names) {
    json t = json::array(), p = t, k = t, b = t, o = t, f = t;
    for (const Event* e : thinned(s.events, kMostEvents, problem)) {
        t.push_back(e->time - begin);
        p.push_back(e->psn);
        k.push_back(int(e->kind));
        b.push_back(e->bytes);
        o.push_back(e->opcode);
        f.push_back(int(e->lost) | int(e->marked) << 1 | int(e->of_responder) << 2);
        if (const char* name = wire::opcode_info(e->opcode).name; name != nullptr) names[std::to_string(e->opcode)] = name;
    }
    return {{"t", t}, {"p", p}, {"k", k}, {"b", b}, {"o", o}, {"f", f}, {"of", s.events.size()}};
}

json counts_json(const Counts& c) {
    return {{"packets", c.packets},
            {"sent", c.sent},
            {"resent", c.resent},
            {"again", c.again},
            {"needless", c.needless},
            {"lost", c.lost},
            {"lost_responses", c.lost_responses},
            {"late", c.late},
            {"not_captured", c.not_captured},
            {"responses", c.responses},
            {"responses_again", c.responses_again},
            {"acks", c.acks},
            {"sequence_naks", c.sequence_naks},
            {"rnr_naks", c.rnr_naks},
            {"error_naks", c.error_naks},
            {"marked", c.marked},
            {"cnps", c.cnps},
            {"payload", c.payload}};
}

json goodput_json(const Stream& s, int64_t begin, int64_t end) {
    const int64_t step = std::max<int64_t>(1, (end - begin) / int64_t(kBins) + 1);
    std::vector<uint64_t> bins(size_t((end - begin) / step) + 1);
    for (const Delivered& d : s.delivered)
        bins[std::min(bins.size() - 1, size_t(std::max<int64_t>(0, d.time - begin) / step))] += d.bytes;
    return {{"step", step}, {"bytes", bins}};
}

json messages_json(const Stream& s, int64_t begin) {
    json out = json::array();
    for (const Message* m : thinned(s.messages, kMostMessages, [](const Message& x) { return x.resent != 0; }))
        out.push_back(
            {m->begin - begin, m->end < 0 ? json() : json(m->end - begin), m->first, m->last, m->bytes, m->resent, m->name});
    return out;
}

json stream_json(const Stream& s, const Analysed& a, const std::string& from, const std::string& to, json& names) {
    json acked = json::array(), rtt = acked, flight = acked;
    for (const Acked* x : peaks(s.acked, kMostSamples, [](const Acked& i) { return i.psn; }))
        acked.push_back({x->time - a.begin, x->psn});
    for (const RttSample* x : peaks(s.rtt, kMostSamples, [](const RttSample& i) { return i.rtt; }))
        rtt.push_back({x->time - a.begin, x->rtt, x->psn});
    for (const InFlight* x : peaks(s.in_flight, kMostSamples, [](const InFlight& i) { return i.packets; }))
        flight.push_back({x->time - a.begin, x->packets, x->bytes});
    json out{
        {"from", from}, {"to", to}, {"reliable", s.reliable}, {"lost_known", s.lost_known}, {"counts", counts_json(s.counts)}};
    out["gap"] = {
        {"nanoseconds", s.longest_gap.length}, {"begin", s.longest_gap.begin - a.begin}, {"psn", wire_psn(s.longest_gap.psn)}};
    if (s.longest_gap.length == 0) out["gap"] = nullptr;
    out["events"] = events_json(s, a.begin, names);
    out["acked"] = std::move(acked);
    out["rtt"] = std::move(rtt);
    out["in_flight"] = std::move(flight);
    out["goodput"] = goodput_json(s, a.begin, a.end);
    out["messages"] = messages_json(s, a.begin);
    return out;
}

json ladder_json(const Analysed& a) {
    json out = json::array();
    for (const LadderRow& r : a.ladder)
        out.push_back({r.time - a.begin, int(r.to_a), int(r.kind), int(r.lost), r.text, r.left_out});
    return out;
}

json connection_json(const Analysed& a, json& names) {
    json out{{"number", a.number},
             {"service", service_name(a.connection.service)},
             {"a", a.connection.a},
             {"b", a.connection.b},
             {"frames", a.connection.frames},
             {"begin", a.begin},
             {"length", a.end - a.begin}};
    out["sentences"] = sentences(a);
    out["streams"] = {stream_json(a.streams[0], a, a.connection.a, a.connection.b, names),
                      stream_json(a.streams[1], a, a.connection.b, a.connection.a, names)};
    out["ladder"] = ladder_json(a);
    return out;
}

}  // namespace

std::string page_data(const Analysis& a) {
    const ReadCounts& n = a.capture.counts;
    json names = json::object(), kinds = json::array(), drawn = json::array();
    for (size_t i = 0; i < size_t(Kind::count_); ++i) kinds.push_back(kind_name(Kind(i)));
    for (const Analysed& d : a.drawn) drawn.push_back(connection_json(d, names));
    json out{{"capture", a.capture.name}, {"version", 1}};
    out["frames"] = {{"all", n.frames},
                     {"roce", n.roce},
                     {"other", n.other},
                     {"malformed", n.malformed},
                     {"headers_cut", n.headers_cut},
                     {"payload_cut", n.payload_cut},
                     {"icrc_good", n.icrc_good},
                     {"icrc_wrong", n.icrc_wrong}};
    out["cut"] = a.capture.cut;
    out["notices"] = a.notices;
    out["connections_found"] = a.connections.size();
    out["kinds"] = std::move(kinds);
    out["connections"] = std::move(drawn);
    out["opcodes"] = std::move(names);
    return out.dump(-1, ' ', true, json::error_handler_t::replace);
}

}  // namespace roci::plot
