// Event channels and ids: create, bind, listen, migrate, destroy.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "id.hpp"

namespace roci::rdmacm {

using abi::Op;

Id* allocate_id(rdma_event_channel* channel, void* context, rdma_port_space space, ibv_qp_type type) {
    auto* id = static_cast<Id*>(std::calloc(1, sizeof(Id)));
    if (id == nullptr) return nullptr;
    id->id.context = context;
    id->id.ps = space;
    id->id.qp_type = type;
    id->handle = abi::kNoHandle;
    id->id.channel = channel;
    if (channel == nullptr) {
        id->id.channel = rdma_create_event_channel();
        if (id->id.channel == nullptr) return std::free(id), nullptr;
        id->sync = 1;
    }
    pthread_mutex_init(&id->mutex, nullptr);
    pthread_cond_init(&id->cond, nullptr);
    return id;
}

void free_id(Id* id) {
    service().remove(*id);
    while (id->groups != nullptr) delete std::exchange(id->groups, id->groups->next);
    pthread_cond_destroy(&id->cond);
    pthread_mutex_destroy(&id->mutex);
    std::free(id->id.route.path_rec);
    if (id->sync) rdma_destroy_event_channel(id->id.channel);
    std::free(id->connect);
    rdma_freeaddrinfo(id->resolved);
    std::free(id);
}

int create_id(rdma_event_channel* channel, rdma_cm_id** out, void* context, rdma_port_space space, ibv_qp_type type) {
    if (const int error = service().open(); error != 0) return fail(error);
    Id* id = allocate_id(channel, context, space, type);
    if (id == nullptr) return fail(ENOMEM);
    abi::HandleReply reply{};
    const abi::CmCreateIdRequest request{Channel::from(id->id.channel)->handle, uint32_t(space), uint32_t(type), 0};
    if (const int error = service().call(Op::cm_create_id, request, reply); error != 0) {
        free_id(id);
        return fail(error);
    }
    id->handle = reply.handle;
    service().insert(*id);
    *out = &id->id;
    return 0;
}

int destroy_handle(uint32_t handle) {
    abi::CmEventsReply reply{};
    if (const int error = service().call(Op::cm_destroy_id, abi::HandleRequest{handle, 0}, reply); error != 0) return fail(error);
    return int(reply.events_reported);
}

namespace {

void set_path(rdma_cm_id& id, const abi::CmQueryReply& q) {
    std::free(id.route.path_rec);
    id.route.num_paths = 0;
    id.route.path_rec = static_cast<ibv_sa_path_rec*>(std::calloc(1, sizeof(ibv_sa_path_rec)));
    if (id.route.path_rec == nullptr) return;
    ibv_sa_path_rec& p = *id.route.path_rec;
    std::memcpy(p.dgid.raw, q.dgid.raw, 16);
    std::memcpy(p.sgid.raw, q.sgid.raw, 16);
    p.hop_limit = q.hop_limit;
    p.traffic_class = q.traffic_class;
    p.reversible = 1;
    p.numb_path = 1;
    p.pkey = __be16(__builtin_bswap16(q.pkey));
    constexpr uint8_t kExactly = 2;
    p.mtu_selector = p.rate_selector = p.packet_life_time_selector = kExactly;
    p.mtu = uint8_t(q.mtu);
    p.packet_life_time = q.packet_life_time;
    id.route.num_paths = 1;
}

}  // namespace

int query_route(Id& id) {
    abi::CmQueryReply q{};
    if (const int error = service().call(Op::cm_query, abi::HandleRequest{id.handle, 0}, q); error != 0) return fail(error);
    return take_route(id, q);
}

void forget_attributes(Id& id) {
    pthread_mutex_lock(&id.mutex);
    for (abi::CmQpAttrReply& a : id.qp_attr) a.mask = 0;
    pthread_mutex_unlock(&id.mutex);
}

/// Copies the addresses, the device and the path from rocid's reply to the id. Opens the device if necessary. Returns 0, or -1 if
/// the device cannot be opened.
int take_route(Id& id, abi::CmQueryReply q) {
    rdma_addr& a = id.id.route.addr;
    from_abi(q.source, a.src_storage);
    if (q.dest.family != 0) from_abi(q.dest, a.dst_storage);
    if (q.device == abi::kNoHandle) return 0;
    std::memcpy(a.addr.ibaddr.sgid.raw, q.sgid.raw, 16);
    std::memcpy(a.addr.ibaddr.dgid.raw, q.dgid.raw, 16);
    a.addr.ibaddr.pkey = __be16(__builtin_bswap16(q.pkey));
    if (q.resolved) set_path(id.id, q);
    if (id.id.verbs != nullptr) return 0;
    q.device_name[sizeof q.device_name - 1] = '\0';
    const Device* device = service().device(q.device_name);
    if (device == nullptr) return -1;
    id.id.verbs = device->verbs;
    id.id.port_num = uint8_t(q.port_num);
    if (id.id.pd == nullptr) id.id.pd = device->pd;
    return 0;
}

}  // namespace roci::rdmacm

using namespace roci::rdmacm;
using roci::abi::Op;

rdma_event_channel* rdma_create_event_channel(void) {
    auto channel = std::unique_ptr<Channel>(new (std::nothrow) Channel{});
    if (!channel) return errno = ENOMEM, nullptr;
    roci::abi::HandleReply reply{};
    roci::client::ReplyFds fds;
    int error = service().call(Op::cm_open_channel, roci::abi::Empty{}, reply, &fds);
    if (error == 0 && fds.size() != 1) error = EPROTO;
    if (error != 0) return errno = error, nullptr;
    channel->handle = reply.handle;
    channel->epoch = service().epoch();
    channel->channel.fd = fds.take(0);
    fcntl(channel->channel.fd, F_SETFL, fcntl(channel->channel.fd, F_GETFL) & ~O_NONBLOCK);
    return &channel.release()->channel;
}

void rdma_destroy_event_channel(rdma_event_channel* p) {
    Channel* channel = Channel::from(p);
    if (channel->epoch == service().epoch()) service().tell(Op::cm_close_channel, roci::abi::HandleRequest{channel->handle, 0});
    close(channel->channel.fd);
    delete channel;
}

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space ps) {
    const bool ud = ps == RDMA_PS_IPOIB || ps == RDMA_PS_UDP;
    return create_id(channel, id, context, ps, ud ? IBV_QPT_UD : IBV_QPT_RC);
}

int rdma_destroy_id(rdma_cm_id* p) {
    Id* id = Id::from(p);
    if (!ours(*id)) return free_id(id), 0;
    const int reported = destroy_handle(id->handle);
    if (reported < 0 && errno != EIO) return -1;
    if (p->event != nullptr) rdma_ack_cm_event(p->event);
    pthread_mutex_lock(&id->mutex);
    while (id->events_completed < reported) pthread_cond_wait(&id->cond, &id->mutex);
    pthread_mutex_unlock(&id->mutex);
    free_id(id);
    return 0;
}

int rdma_bind_addr(rdma_cm_id* p, sockaddr* address) {
    if (length_of(address) == 0) return fail(EINVAL);
    Id& id = *Id::from(p);
    roci::abi::CmBindRequest request{id.handle, 0, {}};
    to_abi(address, request.address);
    if (const int error = service().tell(Op::cm_bind, request); error != 0) return fail(error);
    return query_route(id);
}

int rdma_listen(rdma_cm_id* p, int backlog) {
    Id& id = *Id::from(p);
    const roci::abi::CmListenRequest request{id.handle, backlog < 0 ? 0u : uint32_t(backlog)};
    if (const int error = service().tell(Op::cm_listen, request); error != 0) return fail(error);
    return query_route(id);
}

int rdma_set_option(rdma_cm_id* p, int level, int name, void* value, size_t length) {
    roci::abi::CmOptionRequest request{Id::from(p)->handle, level, name, uint32_t(length), {}};
    if (value == nullptr || length > sizeof request.value) return fail(level == RDMA_OPTION_ID ? EINVAL : ENOSYS);
    std::memcpy(request.value, value, length);
    forget_attributes(*Id::from(p));
    return result(service().tell(Op::cm_set_option, request));
}

int rdma_migrate_id(rdma_cm_id* p, rdma_event_channel* channel) {
    Id& id = *Id::from(p);
    if (id.sync && channel == nullptr) return fail(EINVAL);
    const bool sync = channel == nullptr;
    if (sync) channel = rdma_create_event_channel();
    if (channel == nullptr) return -1;
    roci::abi::CmEventsReply reply{};
    const roci::abi::CmMigrateRequest request{id.handle, Channel::from(channel)->handle};
    if (const int error = service().call(Op::cm_migrate, request, reply); error != 0) {
        if (sync) rdma_destroy_event_channel(channel);
        return fail(error);
    }
    if (id.sync) {
        if (p->event != nullptr) rdma_ack_cm_event(p->event);
        p->event = nullptr;
        rdma_destroy_event_channel(p->channel);
    }
    pthread_mutex_lock(&id.mutex);
    id.sync = sync ? 1 : 0;
    p->channel = channel;
    while (id.events_completed < int(reply.events_reported)) pthread_cond_wait(&id.cond, &id.mutex);
    pthread_mutex_unlock(&id.mutex);
    return 0;
}
