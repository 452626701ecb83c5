// Frees all objects of a session that ends. Each object is freed before the objects to which it refers.
#include <deque>

#include "host/objects/handlers.hpp"
#include "host/rdma_cm/service.hpp"
#include "host/sessions/handlers.hpp"

namespace roci::host::sessions {
namespace {

/// Closes the session's handles of XRC targets that have further handles, usually of other sessions. Closes the highest handles
/// first, because high handles are usually new, and closing the oldest handle of a target is more expensive.
void leave_shared(State& state, Session& s) {
    std::vector<uint32_t> shared;
    s.qps.each([&](uint32_t handle, Qp& qp) {
        if (qp.holders.size() > 1) shared.push_back(handle);
    });
    for (auto it = shared.rbegin(); it != shared.rend(); ++it)
        if (objects::leave(state, {s.id, *it, s.qps.generation(*it)}, *s.qps.find(*it))) s.qps.erase(*it);
}

/// Removes the session's QPs from their engines. Does not wait until accesses of the QPs to slow memory (mem/slow_memory.hpp)
/// have ended.
void remove_qps(State& state, Session& s) {
    std::deque<engine::RemoveQp> removals;
    engine::Batch batch(state.engines);
    s.qps.each([&](uint32_t, Qp& qp) {
        state.shared.qps.clear(qp.spec().qpn.value);
        batch.submit(qp.spec().engine, &removals.emplace_back(engine::RemoveQp{.qp = qp.engine_side.get(), .force = true}));
    });
}

/// Removes the session's objects from the tables of the engines. After the fence, no engine uses these objects.
void withdraw(State& state, Session& s) {
    remove_qps(state, s);
    s.srqs.each([&](uint32_t, Srq& srq) { objects::retire(state, srq); });
    s.mrs.each([&](uint32_t, Mr& mr) { state.shared.keys.clear(mr.region->key.index()); });
    s.mws.each([&](uint32_t, Mw& mw) { state.shared.keys.clear(mw.region->key.index()); });
    for (const auto& [number, ah] : s.ahs) state.shared.ahs.clear(number);
    state.fence_all();
}

}  // namespace

void reclaim(State& state, Session& s) {
    if (s.captures) state.platform.stop_capture(s.id);
    rdma_cm::reclaim(state, s.id);
    leave_shared(state, s);
    withdraw(state, s);
    s.qps.each([&](uint32_t, Qp& qp) { objects::free_resources(state, qp); });
    s.qps.clear();
    s.srqs.each([&](uint32_t, Srq& srq) { objects::free_resources(state, srq); });
    s.srqs.clear();
    state.fence_all();  // engines drop their last references to a CQ at a fence after the removal of the CQ's QPs
    s.cqs.clear();
    s.mrs.each([&](uint32_t, Mr& mr) {
        state.keys.release(mr.region->key.index());
        state.memory_waits.free_later(std::move(mr.region), s.process);
    });
    s.mrs.clear();
    s.mws.each([&](uint32_t, Mw& mw) {
        objects::free_resources(state, mw);
        state.memory_waits.free_later(std::move(mw.region), nullptr);
    });
    s.mws.clear();
    s.dms.clear();
    s.regions.clear();
    for (const auto& [number, ah] : s.ahs) state.ahs.release(number);
    s.ahs.clear();
    s.pds.each([&](uint32_t, Pd& pd) { state.pd_numbers.erase(pd.number); });
    s.pds.clear();
    s.xrcds.clear();
    s.channels.each([&](uint32_t handle, Channel&) { state.platform.close_event_pipe(s.id, handle); });
    s.channels.clear();
    close_device(state, s);
}

}  // namespace roci::host::sessions
