// Multicast memberships of datagram ids.
#include <cstring>

#include "id.hpp"

namespace roci::rdmacm {
namespace {

int join(rdma_cm_id* p, const sockaddr* address, uint16_t flags, void* context) {
    const socklen_t length = length_of(address);
    if (length == 0) return fail(EINVAL);
    Id& id = *Id::from(p);
    abi::CmJoinRequest request{id.handle, flags, {}};
    to_abi(address, request.address);
    auto group = std::make_unique<Group>();
    group->owner = &id;
    group->context = context;
    group->join_flags = flags;
    std::memcpy(&group->address, address, length);
    abi::HandleReply reply{};
    // This thread holds the lock until the handle is stored. So find_group() and a concurrent rdma_leave_multicast() find the
    // group.
    pthread_mutex_lock(&id.mutex);
    const int error = service().call(abi::Op::cm_join, request, reply);
    if (error == 0) {
        group->handle = reply.handle;
        group->next = id.groups;
        id.groups = group.release();
    }
    pthread_mutex_unlock(&id.mutex);
    return error != 0 ? fail(error) : complete(id);
}

}  // namespace
}  // namespace roci::rdmacm

using namespace roci::rdmacm;

int rdma_join_multicast(rdma_cm_id* id, sockaddr* address, void* context) {
    return join(id, address, RDMA_MC_JOIN_FLAG_FULLMEMBER, context);
}

int rdma_join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* attr, void* context) {
    if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED) return fail(ENOTSUP);
    if ((attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS) == 0) return fail(EINVAL);
    if ((attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS) == 0 || attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
        return fail(EINVAL);
    return join(id, attr->addr, uint16_t(attr->join_flags), context);
}

int rdma_leave_multicast(rdma_cm_id* p, sockaddr* address) {
    const socklen_t length = length_of(address);
    if (length == 0) return fail(EINVAL);
    Id& id = *Id::from(p);
    pthread_mutex_lock(&id.mutex);
    Group** at = &id.groups;
    while (*at != nullptr && std::memcmp(&(*at)->address, address, length) != 0) at = &(*at)->next;
    const std::unique_ptr<Group> group(*at);
    if (group) *at = group->next;
    pthread_mutex_unlock(&id.mutex);
    if (!group) return fail(EADDRNOTAVAIL);
    if (p->qp != nullptr && group->join_flags != RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER)
        ibv_detach_mcast(p->qp, &group->mgid, group->mlid);
    roci::abi::CmEventsReply reply{};
    if (const int error = service().call(roci::abi::Op::cm_leave, roci::abi::CmLeaveRequest{id.handle, group->handle}, reply);
        error != 0)
        return fail(error);
    pthread_mutex_lock(&id.mutex);
    while (group->events_completed < int(reply.events_reported)) pthread_cond_wait(&id.cond, &id.mutex);
    pthread_mutex_unlock(&id.mutex);
    return 0;
}
