// The part of `roci status` about connection management.
#include "host/rdma_cm/status.hpp"

#include "host/rdma_cm/service.hpp"
#include "wire/describe.hpp"

namespace roci::host::rdma_cm {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostListeners = 1024;  ///< largest number of listeners in the status

const char* space_name(cm::PortSpace s) {
    switch (s) {
        case cm::PortSpace::ipoib:
            return "ipoib";
        case cm::PortSpace::tcp:
            return "tcp";
        case cm::PortSpace::udp:
            return "udp";
        case cm::PortSpace::ib:
            return "ib";
    }
    return "?";
}

Json listeners_json(const CmService& cm) {
    Json rows = Json::array();
    for (const auto& [place, users] : cm.ports)
        for (const PortUser& u : users) {
            if (!u.listening || rows.size() == kMostListeners) continue;
            const CmId* id = cm.clients.at(u.session).ids.find(u.id);
            rows.push_back({{"space", space_name(place.first)},
                            {"port", place.second},
                            {"address", u.address.is_zero() ? std::string("any") : wire::to_text(u.address)},
                            {"session", u.session},
                            {"backlog", id->backlog},
                            {"waiting", id->pending}});
        }
    return rows;
}

Json messages_json(const cm::Manager::Counters& c) {
    Json rows = Json::array();
    for (size_t i = 0; i < std::size(c.sent); ++i) {
        const auto attribute = cm::Attribute(size_t(cm::Attribute::req) + i);
        rows.push_back({{"message", cm::attribute_name(attribute)}, {"sent", c.sent[i]}, {"received", c.received[i]}});
    }
    return rows;
}

}  // namespace

CmTotals cm_totals(const State& state) {
    CmTotals t;
    t.connections = state.cm->manager.connections();
    for (const auto& [session, client] : state.cm->clients) {
        t.ids += client.ids.count();
        t.channels += client.channels.count();
        t.groups += client.groups.count();
    }
    return t;
}

Json cm_json(const State& state) {
    const cm::Manager::Counters& c = state.cm->manager.counters();
    return {{"connections", state.cm->manager.connections()},
            {"repeated", c.repeated},
            {"duplicates", c.duplicates},
            {"timeouts", c.timeouts},
            {"stale", c.stale},
            {"unknown", c.unknown},
            {"malformed", c.malformed},
            {"refused_full", c.refused_full},
            {"refused_backlog", state.cm->refused_backlog},
            {"refused_no_listener", c.refused_no_listener},
            {"messages", messages_json(c)},
            {"listeners", listeners_json(*state.cm)}};
}

}  // namespace roci::host::rdma_cm
