#include "connections.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "wire/describe.hpp"

namespace roci::plot {
namespace {

using wire::Service;

/// The PSNs of a flow's requests: the first request, the request with the highest PSN, and the last request so far.
struct Requests {
    std::optional<Psn> first;
    Psn highest, last;
};
// The limits of the distance between the PSN of a response and the highest PSN of the requests so far.
constexpr int32_t kRecent = 1 << 15;    ///< limit if the response has the lower PSN
constexpr int32_t kMostRead = 1 << 20;  ///< limit if the response has the higher PSN, as a response to a READ may have
constexpr size_t kMostCandidates = 256;

/// The source address and the destination address of flows. Two flows with swapped addresses may belong to the same connection.
using Addresses = std::pair<Gid, Gid>;

/// Finds pairs of flows. One flow of a pair contains requests, and the other flow contains the responses to these requests. A
/// response has a PSN of its request. So each response gives votes to the flows that have requests with about this PSN.
class Matcher {
public:
    explicit Matcher(const Capture& c) : c_(c), requests_(c.flows.size()) {
        for (uint32_t i = 0; i < c.flows.size(); ++i) between_[{c.flows[i].key.source, c.flows[i].key.dest}].push_back(i);
        for (const Frame& f : c.frames) f.request() ? request(f) : f.response() ? response(f) : void();
    }
    /// Returns pairs of flows with the numbers of their votes. The pair with the most votes is first.
    std::vector<std::pair<double, std::pair<uint32_t, uint32_t>>> best() const {
        std::vector<std::pair<double, std::pair<uint32_t, uint32_t>>> out;
        for (const auto& [pair, points] : votes_) out.emplace_back(points, pair);
        std::ranges::sort(
            out, [](const auto& x, const auto& y) { return x.first != y.first ? x.first > y.first : x.second < y.second; });
        return out;
    }

private:
    void request(const Frame& f) {
        Requests& r = requests_[f.flow];
        const Psn psn(f.psn);
        if (!r.first) {
            r.first = r.highest = psn;
        } else if (psn.distance_from(r.highest) > 0) {
            r.highest = psn;
        }
        r.last = psn;
    }
    void response(const Frame& f) {
        const FlowKey& key = c_.flows[f.flow].key;
        const auto found = between_.find({key.dest, key.source});
        if (found == between_.end()) return;
        const Psn psn(f.psn);
        std::vector<std::pair<uint32_t, bool>> fitting;  // flow; true if the response has the PSN of the flow's last request
        for (size_t i = 0; i < std::min(found->second.size(), kMostCandidates); ++i) {
            const uint32_t flow = found->second[i];
            const Requests& r = requests_[flow];
            if (!r.first || c_.flows[flow].service != c_.flows[f.flow].service) continue;
            const int32_t ahead = psn.distance_from(r.highest);
            if (psn.distance_from(*r.first) >= 0 && ahead >= -kRecent && ahead < kMostRead)
                fitting.emplace_back(flow, psn == r.last);
        }
        for (const auto& [flow, last] : fitting) votes_[std::minmax(flow, f.flow)] += (last ? 2.0 : 1.0) / double(fitting.size());
    }

    const Capture& c_;
    std::vector<Requests> requests_;
    std::map<Addresses, std::vector<uint32_t>> between_;
    std::map<std::pair<uint32_t, uint32_t>, double> votes_;
};

std::string end_text(const Gid& gid, uint32_t qpn) {
    std::string address = wire::to_text(gid);
    constexpr std::string_view kMapped = "::ffff:";
    if (gid.is_ipv4() && address.starts_with(kMapped)) address.erase(0, kMapped.size());
    return qpn == kNoFlow ? address + ", QP unknown" : fmt::format("{} QP {}", address, qpn);
}

class Pairing {
public:
    explicit Pairing(const Capture& c) : c_(c), peer_(c.flows.size(), kNoFlow) {}

    void pair(uint32_t a, uint32_t b) {
        if (a != b && peer_[a] == kNoFlow && peer_[b] == kNoFlow) peer_[a] = b, peer_[b] = a;
    }
    void by_responses() {
        for (const auto& [points, flows] : Matcher(c_).best()) pair(flows.first, flows.second);
    }
    /// Pairs flows of UD. A datagram contains the numbers of both QPs, so the keys of the two flows match exactly.
    void datagrams() {
        std::map<FlowKey, uint32_t> by_key;
        for (uint32_t i = 0; i < c_.flows.size(); ++i)
            if (c_.flows[i].service == Service::ud) by_key[c_.flows[i].key] = i;
        for (const auto& [key, flow] : by_key)
            if (const auto found = by_key.find({key.dest, key.source, key.source_qp, key.dest_qp}); found != by_key.end())
                pair(flow, found->second);
    }
    /// Pairs the remaining flows other than UD. Pairs two flows only if no other flow between the two addresses remains in either
    /// direction. Such flows belong to UC, contain only CNPs, or have no matching responses.
    void remaining() {
        std::map<Addresses, std::vector<uint32_t>> left;
        for (uint32_t i = 0; i < c_.flows.size(); ++i)
            if (peer_[i] == kNoFlow && c_.flows[i].service != Service::ud)
                left[{c_.flows[i].key.source, c_.flows[i].key.dest}].push_back(i);
        for (const auto& [between, flows] : left) {
            const auto back = left.find({between.second, between.first});
            if (flows.size() == 1 && back != left.end() && back->second.size() == 1 && fits(flows[0], back->second[0]))
                pair(flows[0], back->second[0]);
        }
    }
    std::vector<Connection> connections() const {
        std::vector<Connection> out;
        for (uint32_t i = 0; i < c_.flows.size(); ++i)
            if (peer_[i] == kNoFlow || i < peer_[i]) out.push_back(connection(i, peer_[i]));
        std::ranges::stable_sort(out, [](const Connection& x, const Connection& y) { return x.frames > y.frames; });
        return out;
    }

private:
    bool fits(uint32_t x, uint32_t y) const {
        const Flow &a = c_.flows[x], &b = c_.flows[y];
        return a.service == b.service || a.service == Service::cnp || b.service == Service::cnp;
    }
    uint32_t first_request(uint32_t flow) const {
        if (flow == kNoFlow) return kNoFlow;
        for (const uint32_t i : c_.flows[flow].frames)
            if (c_.frames[i].request()) return i;
        return kNoFlow;
    }
    Connection connection(uint32_t x, uint32_t y) const {
        if (first_request(y) < first_request(x)) std::swap(x, y);
        if (x != kNoFlow && y == kNoFlow && first_request(x) == kNoFlow) std::swap(x, y);
        Connection out{.to_b = x, .to_a = y};
        Gid a, b;
        uint32_t qp_a = kNoFlow, qp_b = kNoFlow;
        const auto take = [&](uint32_t flow, Gid& from, Gid& to, uint32_t& source, uint32_t& dest) {
            if (flow == kNoFlow) return;
            const Flow& f = c_.flows[flow];
            from = f.key.source;
            to = f.key.dest;
            dest = f.key.dest_qp.value;
            if (f.service == Service::ud) source = f.key.source_qp.value;
            if (f.service != Service::cnp) out.service = f.service;
            out.frames += f.frames.size();
        };
        take(x, a, b, qp_a, qp_b);
        take(y, b, a, qp_b, qp_a);
        out.a = end_text(a, qp_a);
        out.b = end_text(b, qp_b);
        return out;
    }

    const Capture& c_;
    std::vector<uint32_t> peer_;
};

}  // namespace

std::vector<Connection> find_connections(const Capture& capture) {
    Pairing pairing(capture);
    pairing.datagrams();
    pairing.by_responses();
    pairing.remaining();
    return pairing.connections();
}

const char* service_name(Service service) {
    static constexpr const char* kNames[] = {"RC", "UC", "RD", "UD", "CNP", "XRC"};
    return size_t(service) < std::size(kNames) ? kNames[size_t(service)] : "?";
}

}  // namespace roci::plot
