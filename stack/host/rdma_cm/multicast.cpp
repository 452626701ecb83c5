// Multicast groups of datagram ids. RoCE has no subnet administration that manages groups: the IP address identifies the group.
#include <algorithm>

#include "host/rdma_cm/service.hpp"

namespace roci::host::rdma_cm {
namespace {

constexpr uint32_t kMulticastQpn = 0xffffff;

}  // namespace

Outcome join(Call& c) {
    const auto in = c.in<abi::CmJoinRequest>();
    CmClient& client = c.state.cm->client(c.session.id);
    CmId* id;
    if (Outcome o = find_id(c, in.id, id); o.failed()) return o;
    if (!id->device) return fail(EINVAL, "the id is not bound to a device");
    if (!id->datagram()) return fail(EINVAL, "only ids of datagrams can join a group");
    const Gid gid = to_gid(in.address);
    if (!neighbour::is_multicast(gid)) return fail(EINVAL, "that is not a multicast address");
    if (Outcome o = has_room(client.groups, kMaxCmIds, "multicast group"); o.failed()) return o;
    const auto place = client.groups.next();
    client.groups.put(std::make_unique<CmGroup>()).id = in.id;
    id->groups.push_back(place.handle);
    CmEvent event;
    event.type = CmEventType::multicast_join;
    event.group = place.handle;
    CmId target = *id;
    target.remote = gid;
    target.remote_mac = {};
    event.ah = path_to_peer(c.state, target);
    event.param.qpn = kMulticastQpn;
    event.param.qkey = kUdpQkey;
    push_event(c.state, c.session.id, *id, event);
    c.answer(abi::HandleReply{place.handle, place.generation});
    return done();
}

Outcome leave(Call& c) {
    const auto in = c.in<abi::CmLeaveRequest>();
    CmClient& client = c.state.cm->client(c.session.id);
    CmGroup* group;
    if (Outcome o = look_up(client.groups, in.group, "multicast group", group); o.failed()) return o;
    if (group->id != in.id) return fail(EINVAL, "the group belongs to another id");
    CmId& id = *client.ids.find(in.id);
    const uint32_t generation = client.ids.generation(in.id);
    // The generation must match too, because an event of a destroyed id may have the same handles of group and id.
    const auto leaves = [&](const CmEvent& e) { return e.group == in.group && e.id == in.id && e.id_generation == generation; };
    if (CmChannel* channel = client.channels.find(id.channel))
        id.events_waiting -= uint32_t(std::erase_if(channel->events, leaves));
    c.answer(abi::CmEventsReply{group->events_reported, 0});
    std::erase(id.groups, in.group);
    client.groups.erase(in.group);
    return done();
}

}  // namespace roci::host::rdma_cm
