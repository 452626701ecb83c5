// Allocates and frees memory windows. A work request binds a window to a part of a memory region. Engines bind and invalidate
// windows (mem/window.cpp).
#include "host/objects/handlers.hpp"

namespace roci::host::objects {
namespace {

constexpr uint32_t kType1 = 1, kType2 = 2;  // values of enum ibv_mw_type

}  // namespace

Outcome alloc_mw(Call& c) {
    const auto in = c.in<abi::AllocMwRequest>();
    Session& s = c.session;
    Pd* pd;
    if (Outcome o = look_up(s.pds, in.pd, "PD", pd); o.failed()) return o;
    if (in.type != kType1 && in.type != kType2)
        return fail(EINVAL, "memory window of type {}: IBV_MW_TYPE_1 and IBV_MW_TYPE_2 exist", in.type);
    auto mw = std::make_unique<Mw>();
    mw->region = c.state.regions.make();
    mem::MemoryRegion& window = *mw->region;
    window.pd = pd->number;
    window.is_window = true;
    window.type2 = in.type == kType2;
    window.invalidated.store(true, std::memory_order_relaxed);  // the window is not bound yet
    mw->pd = Use(pd->uses);
    if (Outcome o = take_key(c.state, window); o.failed()) return o;
    const auto place = s.mws.next();
    c.answer(abi::AllocMwReply{place.handle, window.key.value});
    s.mws.put(std::move(mw));
    return done();
}

/// Frees a bound or unbound window. Afterwards the window's key is invalid.
Outcome dealloc_mw(Call& c) {
    const uint32_t handle = c.in<abi::HandleRequest>().handle;
    Mw* mw;
    if (Outcome o = look_up(c.session.mws, handle, "memory window", mw); o.failed()) return o;
    c.state.shared.keys.clear(mw->region->key.index());
    c.state.fence_all();
    if (in_use(*mw->region)) return wait_for_memory();
    free_resources(c.state, *mw);
    c.session.mws.erase(handle);
    return done();
}

void free_resources(State& state, Mw& mw) {
    mem::let_go(state.shared.keys, *mw.region);
    const Key last = mw.region->key;
    state.key_variant[last.index()] =
        uint8_t(last.value);  // a bind changes the key's low byte; the next key of this index must have a different low byte
    state.keys.release(last.index());
}

}  // namespace roci::host::objects
