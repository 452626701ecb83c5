// XRC targets that several sessions have opened (ibv_open_qp(3)). Each session has its own handle of the QP. Closing the last
// handle destroys the QP.
#include <algorithm>

#include "host/objects/handlers.hpp"
#include "host/objects/tag_matching.hpp"

namespace roci::host::objects {
namespace {

constexpr auto kTarget = uint32_t(qp::Type::xrc_recv);
constexpr size_t kMostHolders = 1024;  ///< limits the time of the linear search in leave()

/// Changes the owner of a QP in the engine, which stores only one owner per QP. Called when the owner closes its handle.
void move_to(State& state, Qp& qp, const qp::Owner& owner) {
    state.execute(qp.spec().engine, engine::MoveQp{.qp = qp.engine_side.get(), .owner = &owner});
}

}  // namespace

void share(Xrcd& xrcd, const std::shared_ptr<Qp>& target) {
    target->holders.push_back({qp::owner_of(*target->engine_side), Use(xrcd.uses)});
    auto& targets = xrcd.domain->targets;
    targets[target->spec().qpn.value] = target;
    if (targets.size() < xrcd.domain->sweep_at) return;
    std::erase_if(targets, [](const auto& entry) { return entry.second.expired(); });
    xrcd.domain->sweep_at = 2 * targets.size() + 16;
}

bool leave(State& state, const qp::Owner& owner, Qp& qp) {
    if (qp.holders.size() < 2) return false;
    const bool oldest = qp.holders.front().owner == owner;
    std::erase_if(qp.holders, [&](const Holder& h) { return h.owner == owner; });
    if (oldest) move_to(state, qp, qp.holders.front().owner);
    return true;
}

Outcome open_qp(Call& c) {
    const auto in = c.in<abi::OpenQpRequest>();
    Session& s = c.session;
    Xrcd* xrcd;
    if (Outcome o = look_up(s.xrcds, in.xrcd, "XRC domain", xrcd); o.failed()) return o;
    if (in.type != kTarget) return fail(EINVAL, "QP type {}: only IBV_QPT_XRC_RECV can be opened", in.type);
    const auto found = xrcd->domain->targets.find(in.qpn);
    const std::shared_ptr<Qp> target = found != xrcd->domain->targets.end() ? found->second.lock() : nullptr;
    if (target == nullptr) return fail(EINVAL, "no XRC target {} in this domain", in.qpn);
    if (Outcome o = has_room(s.qps, kQpSlots, "QP"); o.failed()) return o;
    if (target->holders.size() >= kMostHolders)
        return fail(ENOMEM, "XRC target {} is open {} times, the limit", in.qpn, kMostHolders);
    const auto place = s.qps.next();
    target->holders.push_back({{s.id, place.handle, place.generation}, Use(xrcd->uses)});
    c.answer(abi::HandleReply{place.handle, place.generation});
    s.qps.put(target);
    return done();
}

}  // namespace roci::host::objects
