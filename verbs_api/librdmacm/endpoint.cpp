// Endpoints. rdma_create_ep creates an id, and binds or resolves its address. If the program passes QP attributes, rdma_create_ep
// creates the QP of an active id. For a passive id, it stores the attributes, and rdma_get_request creates a QP per connection
// request.
#include <cstdlib>
#include <cstring>
#include <utility>

#include "id.hpp"

namespace {

using namespace roci::rdmacm;

int make_passive(rdma_cm_id* id, rdma_addrinfo* res, ibv_pd* pd, ibv_qp_init_attr* attr) {
    if (rdma_bind_addr(id, res->ai_src_addr) != 0) return -1;
    if (pd != nullptr) id->pd = pd;
    if (attr == nullptr) return 0;
    auto* copy = static_cast<ibv_qp_init_attr*>(std::malloc(sizeof *attr));
    if (copy == nullptr) return fail(ENOMEM);
    *copy = *attr;
    copy->qp_type = ibv_qp_type(res->ai_qp_type);
    Id::from(id)->qp_init_attr = copy;
    return 0;
}

int make_active(rdma_cm_id* id, rdma_addrinfo* res, ibv_pd* pd, ibv_qp_init_attr* attr) {
    constexpr int kPatienceMs = 2000;
    if (rdma_resolve_addr(id, res->ai_src_addr, res->ai_dst_addr, kPatienceMs) != 0) return -1;
    if (rdma_resolve_route(id, kPatienceMs) != 0) return -1;
    if (attr != nullptr) {
        attr->qp_type = ibv_qp_type(res->ai_qp_type);
        if (rdma_create_qp(id, pd, attr) != 0) return -1;
    }
    if (res->ai_connect_len == 0) return 0;
    Id& own = *Id::from(id);
    own.connect = std::malloc(res->ai_connect_len);
    if (own.connect == nullptr) return fail(ENOMEM);
    std::memcpy(own.connect, res->ai_connect, res->ai_connect_len);
    own.connect_length = res->ai_connect_len;
    return 0;
}

}  // namespace

int rdma_create_ep(rdma_cm_id** out, rdma_addrinfo* res, ibv_pd* pd, ibv_qp_init_attr* attr) {
    rdma_cm_id* id = nullptr;
    if (create_id(nullptr, &id, nullptr, rdma_port_space(res->ai_port_space), ibv_qp_type(res->ai_qp_type)) != 0) return -1;
    const bool passive = (res->ai_flags & RAI_PASSIVE) != 0;
    if ((passive ? make_passive(id, res, pd, attr) : make_active(id, res, pd, attr)) != 0) {
        const int saved = errno;
        rdma_destroy_ep(id);
        return fail(saved);
    }
    *out = id;
    return 0;
}

void rdma_destroy_ep(rdma_cm_id* id) {
    if (id->qp != nullptr) rdma_destroy_qp(id);
    if (id->srq != nullptr) rdma_destroy_srq(id);
    std::free(std::exchange(Id::from(id)->qp_init_attr, nullptr));
    rdma_destroy_id(id);
}

int rdma_get_request(rdma_cm_id* listen, rdma_cm_id** id) {
    Id& listener = *Id::from(listen);
    if (!listener.sync) return fail(EINVAL);
    if (listen->event != nullptr) {
        rdma_ack_cm_event(listen->event);
        listen->event = nullptr;
    }
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(listen->channel, &event) != 0) return -1;
    const auto keep = [&](int error) {
        listen->event = event;
        return fail(error);
    };
    if (event->event == RDMA_CM_EVENT_REJECTED) return keep(ECONNREFUSED);
    if (event->status != 0) return keep(std::abs(event->status));
    if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) return keep(EINVAL);
    if (listener.qp_init_attr != nullptr) {
        ibv_qp_init_attr attr = *listener.qp_init_attr;
        if (rdma_create_qp(event->id, listen->pd, &attr) != 0) return keep(errno);
    }
    *id = event->id;
    (*id)->event = event;
    return 0;
}
