// Events: fetches them from rocid and converts them to the structs of rdma_cma.h.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "context.hpp"
#include "event.hpp"

namespace roci::rdmacm {
namespace {

using abi::Op;

ibv_ah_attr to_verbs(const abi::AhAttr& a) {
    abi::QpAttr wrapped{};
    wrapped.ah = a;
    ibv_qp_attr out;
    client::from_abi(wrapped, out);
    return out.ah_attr;
}

void set_parameters(Event& e, const abi::CmEventReply& r) {
    const abi::CmParam& p = r.param;
    const uint8_t length = p.private_length <= sizeof e.private_data ? p.private_length : uint8_t(sizeof e.private_data);
    std::memcpy(e.private_data, p.private_data, length);
    const void* data = length != 0 ? e.private_data : nullptr;
    if (r.event >= kAddrinfoResolved) {  // sets the member `arg` of the union; older headers do not declare `arg`
        std::memcpy(static_cast<void*>(&e.event.param), p.private_data, sizeof(uint64_t));
        return;
    }
    if (datagram(*e.event.id)) {
        e.event.param.ud = {data, length, to_verbs(r.ah), p.qpn, p.qkey};
        return;
    }
    e.event.param.conn = {
        data, length, p.responder_resources, p.initiator_depth, p.flow_control, p.retry_count, p.rnr_retry_count, p.srq, p.qpn};
}

void keep_attributes(Id& id, const abi::CmEventReply& r) {
    pthread_mutex_lock(&id.mutex);
    std::memcpy(id.qp_attr, r.qp, sizeof id.qp_attr);
    pthread_mutex_unlock(&id.mutex);
}

int new_connection(Event& e, const abi::CmEventReply& r) {
    Id& listener = *e.counted;
    Id* child = allocate_id(listener.id.channel, listener.id.context, listener.id.ps, listener.id.qp_type);
    if (child == nullptr) {
        destroy_handle(r.id);
        return -1;
    }
    child->handle = r.id;
    keep_attributes(*child, r);
    service().insert(*child);
    e.event.listen_id = &listener.id;
    e.event.id = &child->id;
    child->initiator_depth = e.event.param.conn.initiator_depth;
    child->responder_resources = e.event.param.conn.responder_resources;
    if ((listener.sync && rdma_migrate_id(&child->id, nullptr) != 0) || take_route(*child, r.route) != 0) {
        rdma_destroy_id(&child->id);
        return -1;
    }
    return 0;
}

/// Called for CONNECT_RESPONSE. If the id has a QP, completes the connection and changes the event to ESTABLISHED or
/// CONNECT_ERROR. Otherwise the program gets CONNECT_RESPONSE and completes the connection itself.
void answer_response(Event& e, const abi::CmEventReply& r) {
    Id& id = *e.counted;
    rdma_cm_event& out = e.event;
    if (id.id.qp == nullptr) return;
    keep_attributes(id, r);
    out.event = RDMA_CM_EVENT_ESTABLISHED;
    if (confirm_response(id) == 0) return;
    out.event = RDMA_CM_EVENT_CONNECT_ERROR;
    out.status = -errno;
    id.connect_error = 1;
}

/// Updates the library's objects before the program gets the event. Returns false if the program must not get the event.
bool process(Event& e, const abi::CmEventReply& r) {
    Id& id = *e.counted;
    rdma_cm_event& out = e.event;
    switch (out.event) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
            keep_attributes(id, r);
            if (take_route(id, r.route) != 0) {
                out.event = RDMA_CM_EVENT_ADDR_ERROR;
                out.status = -errno;
            }
            return true;
        case RDMA_CM_EVENT_ROUTE_RESOLVED:
            if (take_route(id, r.route) != 0) {
                out.event = RDMA_CM_EVENT_ROUTE_ERROR;
                out.status = -errno;
            }
            return true;
        case RDMA_CM_EVENT_CONNECT_REQUEST:
            return new_connection(e, r) == 0;
        case RDMA_CM_EVENT_CONNECT_RESPONSE:
            answer_response(e, r);
            return true;
        case RDMA_CM_EVENT_REJECTED:
            if (id.connect_error) return false;
            modify_to_error(id.id);
            return true;
        case RDMA_CM_EVENT_DISCONNECTED:
            return !id.connect_error;
        case RDMA_CM_EVENT_MULTICAST_JOIN:
            if (e.group == nullptr) return false;
            out.param.ud.private_data = e.group->context;
            if (joined(*e.group, out.param.ud.ah_attr) != 0) {
                out.event = RDMA_CM_EVENT_MULTICAST_ERROR;
                out.status = -errno;
            }
            return true;
        case RDMA_CM_EVENT_MULTICAST_ERROR:
            if (e.group == nullptr) return false;
            out.param.ud.private_data = e.group->context;
            return true;
        default:
            return true;
    }
}

/// Returns the id's group with this handle, or nullptr. rocid may report an event before the rdma_join_multicast() call that
/// caused the event has stored the group. That call holds the id's mutex until it has stored the group. So this function takes
/// the mutex before it searches for the group.
Group* find_group(Id& id, uint32_t handle) {
    pthread_mutex_lock(&id.mutex);
    Group* g = id.groups;
    while (g != nullptr && g->handle != handle) g = g->next;
    pthread_mutex_unlock(&id.mutex);
    return g;
}

/// Called at the end of file of the channel's socket, or if the channel does not exist any more. If rocid has ended, returns -1
/// with EIO. Otherwise another thread has destroyed the channel. In this case the function never returns, because a read from a
/// destroyed channel of the kernel does not return either, and programs depend on this behaviour. To distinguish the two cases,
/// the function sends the request list_devices. This request fails with EIO only if rocid has ended. A request with the handle of
/// the destroyed channel would log an error.
int ended() {
    abi::ListDevicesReply unused{};
    if (service().call(Op::list_devices, abi::Empty{}, unused) == EIO) return fail(EIO);
    for (;;) pause();
}

/// Reads a signal from the channel's socket and fetches the event. Blocks unless the descriptor has O_NONBLOCK. Returns 0, EAGAIN
/// if the event no longer exists, or -1 with errno.
int fetch(rdma_event_channel* channel, abi::CmEventReply& reply) {
    const uint32_t handle = Channel::from(channel)->handle;  // the channel may be destroyed when read() returns
    abi::EventSignal signal{};
    const ssize_t n = read(channel->fd, &signal, sizeof signal);
    if (n < 0) return -1;
    if (n == 0) return ended();
    const int error = service().call(Op::cm_get_event, abi::HandleRequest{handle, 0}, reply);
    if (error == 0 || error == EAGAIN) return error;
    if (error == ENOENT) return ended();  // another thread has destroyed the channel since read() returned
    return fail(error);
}

/// Called after rocid has ended, because rocid's devices then no longer exist. Each call returns a DEVICE_REMOVAL event for
/// another id that has a device. When each id with a device has had its event, the call fails with EIO.
int fetch_removal(rdma_event_channel* channel, rdma_cm_event** event) {
    Id* id = service().next_removed(channel);
    if (id == nullptr) return fail(EIO);
    auto* e = static_cast<Event*>(std::calloc(1, sizeof(Event)));
    if (e == nullptr) return fail(ENOMEM);
    e->counted = id;
    e->event.id = &id->id;
    e->event.event = RDMA_CM_EVENT_DEVICE_REMOVAL;
    *event = &e->event;
    return 0;
}

}  // namespace

int complete(Id& id) {
    if (!id.sync) return 0;
    if (id.id.event != nullptr) {
        rdma_ack_cm_event(id.id.event);
        id.id.event = nullptr;
    }
    if (rdma_get_cm_event(id.id.channel, &id.id.event) != 0) return -1;
    const rdma_cm_event& e = *id.id.event;
    if (e.event == RDMA_CM_EVENT_DEVICE_REMOVAL) return fail(ENODEV);
    if (e.status == 0) return 0;
    if (e.event == RDMA_CM_EVENT_REJECTED) return fail(ECONNREFUSED);
    return fail(e.status < 0 ? -e.status : e.status);
}

}  // namespace roci::rdmacm

using namespace roci::rdmacm;

int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
    if (event == nullptr) return fail(EINVAL);
    if (Channel::from(channel)->epoch != service().epoch()) return fail(EIO);
    for (;;) {
        roci::abi::CmEventReply reply{};
        const int fetched = fetch(channel, reply);
        if (fetched < 0) return errno == EIO ? fetch_removal(channel, event) : -1;
        if (fetched == EAGAIN) continue;
        const bool request = reply.listener != roci::abi::kNoHandle;
        Id* id = service().find(request ? reply.listener : reply.id);
        if (id == nullptr) {
            if (request) destroy_handle(reply.id);
            continue;
        }
        auto* e = static_cast<Event*>(std::calloc(1, sizeof(Event)));
        if (e == nullptr) return count_event(*id), fail(ENOMEM);
        e->counted = id;
        if (reply.group != roci::abi::kNoHandle) e->group = find_group(*id, reply.group);
        e->event.id = &id->id;
        e->event.event = rdma_cm_event_type(reply.event);
        e->event.status = reply.status;
        set_parameters(*e, reply);
        if (!process(*e, reply)) {
            if (e->group != nullptr) count_group(*e->group);
            count_event(*id);
            std::free(e);
            continue;
        }
        *event = &e->event;
        return 0;
    }
}

const char* rdma_event_str(rdma_cm_event_type event) {
    static constexpr const char* kNames[] = {
        "RDMA_CM_EVENT_ADDR_RESOLVED",  "RDMA_CM_EVENT_ADDR_ERROR",        "RDMA_CM_EVENT_ROUTE_RESOLVED",
        "RDMA_CM_EVENT_ROUTE_ERROR",    "RDMA_CM_EVENT_CONNECT_REQUEST",   "RDMA_CM_EVENT_CONNECT_RESPONSE",
        "RDMA_CM_EVENT_CONNECT_ERROR",  "RDMA_CM_EVENT_UNREACHABLE",       "RDMA_CM_EVENT_REJECTED",
        "RDMA_CM_EVENT_ESTABLISHED",    "RDMA_CM_EVENT_DISCONNECTED",      "RDMA_CM_EVENT_DEVICE_REMOVAL",
        "RDMA_CM_EVENT_MULTICAST_JOIN", "RDMA_CM_EVENT_MULTICAST_ERROR",   "RDMA_CM_EVENT_ADDR_CHANGE",
        "RDMA_CM_EVENT_TIMEWAIT_EXIT",  "RDMA_CM_EVENT_ADDRINFO_RESOLVED", "RDMA_CM_EVENT_ADDRINFO_ERROR",
        "RDMA_CM_EVENT_USER",
    };
    return size_t(event) < std::size(kNames) ? kNames[event] : "UNKNOWN EVENT";
}
