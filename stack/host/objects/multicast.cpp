// Multicast groups, and the UD QPs that are attached to the groups. Each change replaces the whole table that the engines read.
#include <algorithm>
#include <cstring>

#include "host/objects/handlers.hpp"
#include "wire/describe.hpp"

namespace roci::host::objects {
namespace {

using io::MulticastTable;
using wire::to_text;

Gid to_gid(const abi::GidValue& value) {
    Gid gid;
    std::copy(std::begin(value.raw), std::end(value.raw), gid.bytes.begin());
    return gid;
}

/// Replaces the table that the engines read by `next`. Frees the old table after a fence.
void replace(State& state, std::unique_ptr<MulticastTable> next) {
    state.shared.multicast.store(next.get(), std::memory_order_release);
    state.fence_all();
    state.multicast = std::move(next);
}

std::unique_ptr<MulticastTable> copy_table(const State& state) {
    return state.multicast ? std::make_unique<MulticastTable>(*state.multicast) : std::make_unique<MulticastTable>();
}

void remove(Platform& platform, MulticastTable& table, uint32_t port, const Gid& gid, uint32_t qpn) {
    for (MulticastTable::Group& g : table.groups)
        if (g.port == port && g.gid == gid) std::erase(g.qpns, qpn);
    if (std::erase_if(table.groups, [](const MulticastTable::Group& g) { return g.qpns.empty(); }) != 0)
        platform.follow_group(port, gid, false);
}

Outcome add(Platform& platform, const Capabilities& caps, MulticastTable& table, uint32_t port, const Gid& gid, uint32_t qpn) {
    for (MulticastTable::Group& g : table.groups) {
        if (g.port != port || g.gid != gid) continue;
        if (g.qpns.size() >= caps.max_mcast_attach)
            return fail(ENOMEM, "group {} has {} QPs, the limit", to_text(gid), g.qpns.size());
        g.qpns.push_back(qpn);
        return done();
    }
    if (table.groups.size() >= caps.max_mcast_groups)
        return fail(ENOMEM, "there are {} multicast groups, the limit", table.groups.size());
    if (const int error = platform.follow_group(port, gid, true); error != 0)
        return fail(error, "the kernel does not join {}: {} (ENOBUFS: raise net.ipv4.igmp_max_memberships)", to_text(gid),
                    std::strerror(error));
    table.groups.insert(table.first(gid, port), {port, gid, {qpn}});
    return done();
}

Outcome find_parts(Call& c, const abi::McastRequest& in, Qp*& qp, Gid& gid) {
    if (Outcome o = look_up(c.session.qps, in.qp, "QP", qp); o.failed()) return o;
    gid = to_gid(in.gid);
    if (qp->spec().type != qp::Type::ud) return fail(EINVAL, "only UD QPs can be attached to a multicast group");
    if (!neighbour::is_multicast(gid)) return fail(EINVAL, "{} is not a multicast address", to_text(gid));
    return done();
}

}  // namespace

/// Attaches a QP to a group. Attaching a QP again has no effect, as with the kernel's uverbs.
Outcome attach_mcast(Call& c) {
    const auto in = c.in<abi::McastRequest>();
    Qp* qp;
    Gid gid;
    if (Outcome o = find_parts(c, in, qp, gid); o.failed()) return o;
    if (std::find(qp->groups.begin(), qp->groups.end(), gid) != qp->groups.end()) return done();
    auto next = copy_table(c.state);
    if (Outcome o = add(c.state.platform, c.state.caps, *next, qp->spec().port, gid, qp->spec().qpn.value); o.failed()) return o;
    qp->groups.push_back(gid);
    replace(c.state, std::move(next));
    return done();
}

Outcome detach_mcast(Call& c) {
    const auto in = c.in<abi::McastRequest>();
    Qp* qp;
    Gid gid;
    if (Outcome o = find_parts(c, in, qp, gid); o.failed()) return o;
    const auto it = std::find(qp->groups.begin(), qp->groups.end(), gid);
    if (it == qp->groups.end()) return fail(EINVAL, "the QP is not attached to {}", to_text(gid));
    qp->groups.erase(it);
    auto next = copy_table(c.state);
    remove(c.state.platform, *next, qp->spec().port, gid, qp->spec().qpn.value);
    replace(c.state, std::move(next));
    return done();
}

void leave_groups(State& state, Qp& qp) {
    if (qp.groups.empty()) return;
    auto next = copy_table(state);
    for (const Gid& gid : qp.groups) remove(state.platform, *next, qp.spec().port, gid, qp.spec().qpn.value);
    qp.groups.clear();
    replace(state, std::move(next));
}

}  // namespace roci::host::objects
