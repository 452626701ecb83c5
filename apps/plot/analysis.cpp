#include "analysis.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "failure.hpp"

namespace roci::plot {
namespace {

bool has_qp(const Capture& c, const Connection& connection, uint32_t qpn) {
    for (const uint32_t flow : {connection.to_b, connection.to_a})
        if (flow != kNoFlow && (c.flows[flow].key.dest_qp.value == qpn || c.flows[flow].key.source_qp.value == qpn)) return true;
    return false;
}

Analysed analysed(const Capture& c, const Connection& connection, uint32_t number) {
    Analysed out{.number = number, .connection = connection};
    const uint32_t flows[2] = {connection.to_b, connection.to_a};
    for (int i = 0; i < 2; ++i)
        out.streams[i] = analyse(view_of(c, flows[i], false), view_of(c, flows[1 - i], true), connection.service);
    out.ladder = ladder_of(out.streams);
    bool any = false;
    for (const uint32_t flow : flows) {
        if (flow == kNoFlow || c.flows[flow].frames.empty()) continue;
        const int64_t first = c.frames[c.flows[flow].frames.front()].time, last = c.frames[c.flows[flow].frames.back()].time;
        out.begin = any ? std::min(out.begin, first) : first;
        out.end = any ? std::max(out.end, last) : last;
        any = true;
    }
    return out;
}

void note_connections(Analysis& a, size_t wanted) {
    if (wanted > a.drawn.size())
        a.notices.push_back(
            fmt::format("The capture has {} connections. The {} with the most packets are drawn; --flow N draws another one.",
                        wanted, a.drawn.size()));
    for (const Analysed& d : a.drawn) {
        const bool one_way = d.connection.to_a == kNoFlow || d.connection.to_b == kNoFlow;
        const bool needs_both = d.connection.service == wire::Service::rc || d.connection.service == wire::Service::xrc;
        if (one_way && needs_both)
            a.notices.push_back(
                fmt::format("Only one direction of connection {} ({} to {}) is in the capture: neither round trips nor the "
                            "window can be seen.",
                            d.number, d.connection.a, d.connection.b));
    }
}

}  // namespace

Analysis analyse_capture(Capture capture, const Choice& choice) {
    Analysis out;
    out.capture = std::move(capture);
    out.connections = find_connections(out.capture);
    out.notices = out.capture.notices;
    size_t wanted = 0;
    for (uint32_t i = 0; i < out.connections.size(); ++i) {
        if (choice.flow != 0 && choice.flow != i + 1) continue;
        if (choice.qpn != 0 && !has_qp(out.capture, out.connections[i], choice.qpn)) continue;
        ++wanted;
        if (out.drawn.size() < kMostDrawn) out.drawn.push_back(analysed(out.capture, out.connections[i], i + 1));
    }
    if (wanted == 0 && choice.flow != 0)
        throw Failure(Ending::failed, fmt::format("'{}' has no connection {}: they are numbered from 1 to {}", out.capture.name,
                                                  choice.flow, out.connections.size()));
    if (wanted == 0)
        throw Failure(Ending::silent, fmt::format("'{}' has no packet of queue pair {}{}{}", out.capture.name, choice.qpn,
                                                  out.capture.notices.empty() ? "" : ": ",
                                                  out.capture.notices.empty() ? "" : out.capture.notices.front()));
    note_connections(out, wanted);
    return out;
}

}  // namespace roci::plot
