// Address handles are destinations of UD messages. The WQE of a UD message contains the number of an address handle.
#include "host/objects/handlers.hpp"
#include "host/paths/resolve.hpp"

namespace roci::host::objects {

Outcome create_ah(Call& c) {
    const auto in = c.in<abi::CreateAhRequest>();
    Session& s = c.session;
    Pd* pd;
    if (Outcome o = look_up(s.pds, in.pd, "PD", pd); o.failed()) return o;
    paths::ResolvedPath path;
    if (Outcome o = paths::resolve_path(c.state, *s.device, in.attr, {}, path); o.failed()) return o;
    if (c.state.ahs.in_use() >= c.state.limits.max_ahs)
        return fail(ENOMEM, "all {} address handles are in use", c.state.limits.max_ahs);
    const auto number = c.state.ahs.allocate();
    if (!number) return fail(ENOMEM, "all {} address handles are in use", c.state.ahs.capacity());

    auto ah = std::make_unique<Ah>();
    ah->address.pd = pd->number;
    ah->address.port = *s.device;
    ah->address.path = wire::make_path(path.spec);
    if (neighbour::is_multicast(path.spec.dest_gid)) ah->address.group = path.spec.dest_gid;
    ah->pd = Use(pd->uses);
    c.state.shared.ahs.publish(*number, &ah->address);
    s.ahs.emplace(*number, std::move(ah));
    c.answer(abi::HandleReply{*number, 1});
    return done();
}

Outcome destroy_ah(Call& c) {
    const uint32_t number = c.in<abi::HandleRequest>().handle;
    const auto it = c.session.ahs.find(number);
    if (it == c.session.ahs.end()) return fail(EINVAL, "no address handle {} in this session", number);
    c.state.shared.ahs.clear(number);
    c.state.fence_all();
    c.session.ahs.erase(it);
    c.state.ahs.release(number);
    return done();
}

}  // namespace roci::host::objects
