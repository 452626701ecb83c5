// QPs, SRQs and CQs of ids, and the state transitions of a QP during connection setup.
#include <fcntl.h>

#include <cstring>

#include "context.hpp"
#include "id.hpp"

namespace roci::rdmacm {
namespace {

void destroy_cqs(rdma_cm_id& id) {
    if (id.qp_type == IBV_QPT_XRC_RECV && id.srq != nullptr) return;
    if (id.send_cq != nullptr && id.send_cq != id.recv_cq) ibv_destroy_cq(id.send_cq);
    if (id.recv_cq != nullptr) ibv_destroy_cq(id.recv_cq);
    if (id.send_cq_channel != nullptr && id.send_cq_channel != id.recv_cq_channel) ibv_destroy_comp_channel(id.send_cq_channel);
    if (id.recv_cq_channel != nullptr) ibv_destroy_comp_channel(id.recv_cq_channel);
    id.send_cq = id.recv_cq = nullptr;
    id.send_cq_channel = id.recv_cq_channel = nullptr;
}

int create_cq(rdma_cm_id& id, uint32_t entries, ibv_comp_channel*& channel, ibv_cq*& cq) {
    if (entries == 0) return 0;
    channel = ibv_create_comp_channel(id.verbs);
    if (channel == nullptr) return -1;
    cq = ibv_create_cq(id.verbs, int(entries), &id, channel, 0);
    return cq == nullptr ? -1 : 0;
}

/// Creates the CQs of the id. `send` and `receive` are the numbers of entries. If a number is 0, the function creates no such CQ.
int create_cqs(rdma_cm_id& id, uint32_t send, uint32_t receive) {
    if (create_cq(id, receive, id.recv_cq_channel, id.recv_cq) == 0 && create_cq(id, send, id.send_cq_channel, id.send_cq) == 0)
        return 0;
    const int saved = errno;
    destroy_cqs(id);
    return fail(saved);
}

ibv_xrcd* xrc_domain(const rdma_cm_id& id) {
    Device* device = service().device(id.verbs);
    if (device == nullptr) return nullptr;
    if (device->xrcd == nullptr) {
        ibv_xrcd_init_attr attr{};
        attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        attr.fd = -1;
        attr.oflags = O_CREAT;
        device->xrcd = ibv_open_xrcd(id.verbs, &attr);
    }
    return device->xrcd;
}

/// Sets `attr` and `mask` to the attributes for the transition of the id's QP to `state`. If an event of the id had these
/// attributes, uses the attributes of the event. Otherwise requests the attributes from rocid.
int known_attributes(rdma_cm_id& p, ibv_qp_state state, ibv_qp_attr& attr, int& mask) {
    Id& id = *Id::from(&p);
    pthread_mutex_lock(&id.mutex);
    const abi::CmQpAttrReply known = id.qp_attr[state - IBV_QPS_INIT];
    pthread_mutex_unlock(&id.mutex);
    if (known.mask == 0) return attributes(p, state, attr, mask);
    client::from_abi(known.attr, attr);
    mask = int(known.mask);
    return 0;
}

/// Moves the QP to `state` with the attributes of known_attributes().
int take_to(rdma_cm_id& id, ibv_qp* qp, ibv_qp_state state) {
    ibv_qp_attr attr{};
    int mask = 0;
    if (known_attributes(id, state, attr, mask) != 0) return -1;
    return result(ibv_modify_qp(qp, &attr, mask));
}

int start(rdma_cm_id& id, ibv_qp* qp) {
    if (take_to(id, qp, IBV_QPS_INIT) != 0) return -1;
    if (!datagram(id)) return 0;
    return take_to(id, qp, IBV_QPS_RTR) == 0 ? take_to(id, qp, IBV_QPS_RTS) : -1;
}

}  // namespace

int attributes(rdma_cm_id& id, ibv_qp_state state, ibv_qp_attr& attr, int& mask) {
    abi::CmQpAttrReply reply{};
    const abi::CmQpAttrRequest request{Id::from(&id)->handle, uint32_t(state)};
    if (const int error = service().call(abi::Op::cm_qp_attr, request, reply); error != 0) return fail(error);
    client::from_abi(reply.attr, attr);
    mask = int(reply.mask);
    return 0;
}

/// Moves the id's QP to RTR and then to RTS by one request. If the QP is not in INIT, the request first moves the QP to INIT.
/// Does nothing if the id has no QP.
int connect_qp(rdma_cm_id& id, const OwnAttributes& own) {
    if (id.qp == nullptr) return 0;
    ibv_qp_attr init{}, rtr{}, rts{};
    int init_mask = 0, rtr_mask = 0, rts_mask = 0;
    const bool known = known_attributes(id, IBV_QPS_INIT, init, init_mask) == 0 &&
                       known_attributes(id, IBV_QPS_RTR, rtr, rtr_mask) == 0 &&
                       known_attributes(id, IBV_QPS_RTS, rts, rts_mask) == 0;
    if (!known) return -1;
    if (own.responder_resources != RDMA_MAX_RESP_RES) rtr.max_dest_rd_atomic = own.responder_resources;
    if (own.initiator_depth != RDMA_MAX_INIT_DEPTH) rts.max_rd_atomic = own.initiator_depth;
    rtr.min_rnr_timer = own.min_rnr_timer.value_or(rtr.min_rnr_timer);
    std::vector<abi::ModifyQpRequest> steps;
    const auto step = [&](const ibv_qp_attr& attr, int mask) {
        steps.push_back({id.qp->handle, uint32_t(mask), client::to_abi(attr)});
    };
    if (id.qp->state == IBV_QPS_INIT) {  // the transition to RTR sets the access flags of this connection (IBA table 96)
        rtr.qp_access_flags = init.qp_access_flags;
        rtr_mask |= init_mask & IBV_QP_ACCESS_FLAGS;
    } else {
        step(init, init_mask);
    }
    step(rtr, rtr_mask);
    step(rts, rts_mask);
    client::Context& c = *client::Context::from(id.qp->context);
    if (c.inherited) return fail(EIO);
    abi::ModifyQpReply reply{};
    const client::Outgoing request{abi::Op::modify_qp, std::as_bytes(std::span(steps))};
    if (const int error = c.link.request(request, std::as_writable_bytes(std::span(&reply, 1))); error != 0) return fail(error);
    id.qp->state = IBV_QPS_RTS;
    return 0;
}
int modify_to_error(rdma_cm_id& id) {
    if (id.qp == nullptr) return 0;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    return result(ibv_modify_qp(id.qp, &attr, IBV_QP_STATE));
}

int confirm_response(Id& id) {
    if (connect_qp(id.id, {}) == 0) {
        const int error = service().tell(abi::Op::cm_establish, abi::HandleRequest{id.handle, 0});
        if (error == 0) return 0;
        errno = error;
    }
    const int saved = errno;
    modify_to_error(id.id);
    return fail(saved);
}

int joined(Group& group, const ibv_ah_attr& address) {
    group.mgid = address.grh.dgid;
    group.mlid = address.dlid;
    ibv_qp* qp = group.owner->id.qp;
    if (qp == nullptr || group.join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER) return 0;
    return result(ibv_attach_mcast(qp, &group.mgid, group.mlid));
}

}  // namespace roci::rdmacm

using namespace roci::rdmacm;

int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attr, int* mask) { return attributes(*id, attr->qp_state, *attr, *mask); }

int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attr) {
    if (id->qp != nullptr || id->verbs == nullptr) return fail(EINVAL);
    if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr->pd == nullptr) {
        attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
        attr->pd = id->pd;
    } else if (attr->pd->context != id->verbs) {
        return fail(EINVAL);
    }
    const auto differs = [](const ibv_cq* a, const ibv_cq* b) { return a != nullptr && b != nullptr && a != b; };
    if (differs(id->recv_cq, attr->recv_cq) || differs(id->send_cq, attr->send_cq)) return fail(EINVAL);
    if (id->qp_type == IBV_QPT_XRC_RECV && ((attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0 || attr->xrcd == nullptr)) {
        attr->xrcd = xrc_domain(*id);
        if (attr->xrcd == nullptr) return -1;
        attr->comp_mask |= IBV_QP_INIT_ATTR_XRCD;
    }
    const bool has_send = attr->send_cq != nullptr || id->send_cq != nullptr,
               has_receive = attr->recv_cq != nullptr || id->recv_cq != nullptr;
    if (create_cqs(*id, has_send ? 0 : attr->cap.max_send_wr, has_receive ? 0 : attr->cap.max_recv_wr) != 0) return -1;
    if (attr->send_cq == nullptr) attr->send_cq = id->send_cq;
    if (attr->recv_cq == nullptr) attr->recv_cq = id->recv_cq;
    if (attr->srq == nullptr) attr->srq = id->srq;
    ibv_qp* qp = ibv_create_qp_ex(id->verbs, attr);
    if (qp == nullptr || start(*id, qp) != 0) {
        const int saved = errno;
        if (qp != nullptr) ibv_destroy_qp(qp);
        destroy_cqs(*id);
        return fail(saved);
    }
    if (qp->pd != nullptr) id->pd = qp->pd;
    id->qp = qp;
    return 0;
}

int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) {
    ibv_qp_init_attr_ex full{};
    std::memcpy(&full, attr, sizeof *attr);
    full.comp_mask = IBV_QP_INIT_ATTR_PD;
    full.pd = pd != nullptr ? pd : id->pd;
    const int rc = rdma_create_qp_ex(id, &full);
    std::memcpy(attr, &full, sizeof *attr);
    return rc;
}

void rdma_destroy_qp(rdma_cm_id* id) {
    ibv_destroy_qp(id->qp);
    id->qp = nullptr;
    destroy_cqs(*id);
}

int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attr) {
    if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0 || id->verbs == nullptr) return fail(EINVAL);
    if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attr->pd == nullptr) {
        attr->pd = id->pd;
        attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
    }
    if (attr->srq_type == IBV_SRQT_XRC) {
        if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) == 0 || attr->xrcd == nullptr) attr->xrcd = xrc_domain(*id);
        if (attr->xrcd == nullptr) return -1;
        if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) == 0 || attr->cq == nullptr) {
            if (create_cqs(*id, 0, attr->attr.max_wr) != 0) return -1;
            attr->cq = id->recv_cq;
        }
        attr->comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    }
    ibv_srq* srq = ibv_create_srq_ex(id->verbs, attr);
    if (srq == nullptr) {
        const int saved = errno;
        destroy_cqs(*id);
        return fail(saved);
    }
    if (id->pd == nullptr) id->pd = attr->pd;
    id->srq = srq;
    return 0;
}

int rdma_create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attr) {
    ibv_srq_init_attr_ex full{};
    std::memcpy(&full, attr, sizeof *attr);
    full.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    full.srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
    full.pd = pd;
    const int rc = rdma_create_srq_ex(id, &full);
    std::memcpy(attr, &full, sizeof *attr);
    return rc;
}

void rdma_destroy_srq(rdma_cm_id* id) {
    ibv_destroy_srq(id->srq);
    id->srq = nullptr;
    destroy_cqs(*id);
}
