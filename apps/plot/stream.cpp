#include "stream.hpp"

#include <algorithm>
#include <bit>

#include "tracker.hpp"

namespace roci::plot {
namespace {

/// Returns the path MTU: the largest payload of a First or Middle packet, rounded up to a valid MTU. Returns 0 if there is no
/// such packet.
uint32_t path_mtu(const View& a, const View& b) {
    uint32_t most = 0;
    for (const View* view : {&a, &b})
        for (const Sighting& s : view->packets)
            if (s.frame->info().has(wire::kFirst | wire::kMiddle)) most = std::max(most, s.frame->payload);
    return most == 0 ? 0 : std::clamp(std::bit_ceil(most), 256u, 4096u);
}

constexpr const char* kKindNames[] = {"sent", "resent",       "late",    "missing",   "response", "response again",
                                      "ack",  "sequence NAK", "RNR NAK", "error NAK", "CNP"};
static_assert(std::size(kKindNames) == size_t(Kind::count_));

}  // namespace

const char* kind_name(Kind kind) { return kind < Kind::count_ ? kKindNames[size_t(kind)] : "?"; }

Stream analyse(const View& requests, const View& responses, wire::Service service) {
    const bool reliable = service == wire::Service::rc || service == wire::Service::xrc;
    Tracker tracker(reliable, path_mtu(requests, responses), requests.both_ends, responses.both_ends);
    size_t a = 0, b = 0;
    while (a < requests.packets.size() || b < responses.packets.size()) {
        const bool take_a = b == responses.packets.size() ||
                            (a < requests.packets.size() && requests.packets[a].frame->time <= responses.packets[b].frame->time);
        const Sighting& s = take_a ? requests.packets[a++] : responses.packets[b++];
        if (take_a && s.frame->request()) tracker.request(s);
        if (!take_a && s.frame->response()) tracker.response(s);
        if (!take_a && s.frame->cnp()) tracker.cnp(s);
    }
    return tracker.finish();
}

}  // namespace roci::plot
