#include "view.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "connections.hpp"

namespace roci::plot {
namespace {

struct Ends {
    std::optional<Place> sender, receiver;
};

/// Returns the places at which the flow was captured at the sender and at the receiver. If the flow has only one place, `sender`
/// is this place and `receiver` is empty.
Ends ends_of(const Capture& c, const Flow& flow) {
    struct Seen {
        uint64_t count = 0;
        int64_t first = 0;
    };
    std::map<Place, Seen> seen;
    for (const uint32_t i : flow.frames) {
        auto [at, fresh] = seen.try_emplace(c.frames[i].place, Seen{0, c.frames[i].time});
        ++at->second.count;
    }
    std::vector<std::pair<Place, Seen>> places(seen.begin(), seen.end());
    std::ranges::stable_sort(places, [](const auto& x, const auto& y) { return x.second.count > y.second.count; });
    Ends ends{.sender = places[0].first};
    const auto most = [&](Direction d) -> std::optional<Place> {
        for (const auto& [place, s] : places)
            if (place.direction == d) return place;
        return std::nullopt;
    };
    const auto out = most(Direction::out), in = most(Direction::in);
    if (out && in) return {out, in};
    if (out || in || places.size() < 2) return ends;
    // The file contains no directions. Of the two places, the place that captured its first frame of the flow earlier is closer
    // to the sender.
    const bool first_earlier = places[0].second.first <= places[1].second.first;
    return {places[first_earlier ? 0 : 1].first, places[first_earlier ? 1 : 0].first};
}

/// The key by which match() compares packets. All copies of a packet have the same key at both ends.
using Identity = std::tuple<uint8_t, uint32_t, uint8_t, uint32_t>;
Identity identity_of(const Frame& f) { return {f.opcode, f.psn, f.syndrome, f.payload}; }

/// Matches each received packet to a sent packet. If several sent packets have the same key, the function chooses the newest of
/// them, because a packet is sent again only when its earlier copy should have arrived. Returns the index of the received frame
/// per frame of the flow, or -1. Sets `last_received` to the send time of the newest packet that was received.
std::vector<int64_t> match(const Capture& c, const Flow& flow, const Ends& ends, int64_t& last_received) {
    std::map<Identity, std::vector<size_t>> waiting;  // positions in flow.frames
    std::vector<int64_t> received(flow.frames.size(), -1);
    for (size_t at = 0; at < flow.frames.size(); ++at) {
        const Frame& f = c.frames[flow.frames[at]];
        auto& queue = waiting[identity_of(f)];
        if (f.place == *ends.sender) queue.push_back(at);
        if (f.place != *ends.receiver || queue.empty()) continue;
        received[queue.back()] = int64_t(flow.frames[at]);
        last_received = std::max(last_received, c.frames[flow.frames[queue.back()]].time);
        queue.pop_back();
    }
    return received;
}

}  // namespace

View view_of(const Capture& c, uint32_t index, bool at_receiver) {
    View view;
    if (index == kNoFlow) return view;
    const Flow& flow = c.flows[index];
    const Ends ends = ends_of(c, flow);
    view.both_ends = ends.receiver.has_value();
    int64_t last_received = 0;
    std::vector<int64_t> received;
    if (view.both_ends) received = match(c, flow, ends, last_received);
    for (size_t at = 0; at < flow.frames.size(); ++at) {
        const Frame& f = c.frames[flow.frames[at]];
        if (f.place != *ends.sender) continue;
        Sighting s{&f, false, f.marked};
        if (view.both_ends && received[at] >= 0) {
            const Frame& there = c.frames[size_t(received[at])];
            s.marked = s.marked || there.marked;
            if (at_receiver) s.frame = &there;
        } else if (view.both_ends) {
            s.lost = f.time < last_received;  // packets that were sent after the newest received packet may still be in flight
        }
        view.packets.push_back(s);
    }
    std::ranges::stable_sort(view.packets, [](const Sighting& x, const Sighting& y) { return x.frame->time < y.frame->time; });
    return view;
}

}  // namespace roci::plot
