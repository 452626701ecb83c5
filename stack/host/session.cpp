// The end of a session: everything that it had goes back, in the order in which things use each other.
#include "host/cm.hpp"
#include "host/handlers.hpp"

namespace roci::host {
namespace {

/// XRC targets that other sessions have open go on with them. The newest handles go first: it is the oldest one's going that
/// costs.
void leave_shared(Host& host, Session& s) {
    std::vector<uint32_t> shared;
    s.qps.each([&](uint32_t handle, Qp& qp) {
        if (qp.holders.size() > 1) shared.push_back(handle);
    });
    for (auto it = shared.rbegin(); it != shared.rend(); ++it)
        if (leave(host, {s.id, *it, s.qps.generation(*it)}, *s.qps.find(*it))) s.qps.erase(*it);
}

/// Takes all that engines can find out of their reach; after the fence nobody looks at it.
void withdraw(Host& host, Session& s) {
    s.qps.each([&](uint32_t, Qp& qp) { retire(host, qp); });
    s.srqs.each([&](uint32_t, Srq& srq) { retire(host, srq); });
    s.mrs.each([&](uint32_t, Mr& mr) { host.shared.keys.clear(mr.region->key.index()); });
    s.mws.each([&](uint32_t, Mw& mw) { host.shared.keys.clear(mw.region->key.index()); });
    for (const auto& [number, ah] : s.ahs) host.shared.ahs.clear(number);
    host.fence_all();
}

}  // namespace

void reclaim(Host& host, Session& s) {
    if (s.captures) host.platform.stop_capture(s.id);
    cm_reclaim(host, s.id);
    leave_shared(host, s);
    withdraw(host, s);
    s.qps.each([&](uint32_t, Qp& qp) { bury(host, qp); });
    s.qps.clear();
    s.srqs.each([&](uint32_t, Srq& srq) { bury(host, srq); });
    s.srqs.clear();
    host.fence_all();  // an engine keeps a CQ that waits for room in its event ring until a fence finds it without QPs
    s.cqs.clear();
    s.mrs.each([&](uint32_t, Mr& mr) { host.keys.release(mr.region->key.index()); });
    s.mrs.clear();
    s.mws.each([&](uint32_t, Mw& mw) { bury(host, mw); });
    s.mws.clear();
    s.dms.clear();
    s.regions.clear();
    for (const auto& [number, ah] : s.ahs) host.ahs.release(number);
    s.ahs.clear();
    s.pds.each([&](uint32_t, Pd& pd) { host.pd_numbers.erase(pd.number); });
    s.pds.clear();
    s.xrcds.clear();
    s.channels.each([&](uint32_t handle, Channel&) { host.platform.close_event_pipe(s.id, handle); });
    s.channels.clear();
    close_device(host, s);
}

}  // namespace roci::host
