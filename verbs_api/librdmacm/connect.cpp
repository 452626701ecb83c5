// Functions for connection setup and teardown, from rdma_connect to rdma_disconnect, and the functions for ECE.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "id.hpp"

namespace roci::rdmacm {
namespace {

using abi::Op;

int check_parameters(const Id& id, const rdma_conn_param* p) {
    if (id.id.ps != RDMA_PS_TCP) return 0;
    if (id.id.qp == nullptr && p == nullptr) return EINVAL;
    const Device* device = service().device(id.id.verbs);
    if (p == nullptr || device == nullptr) return 0;
    if (p->responder_resources != RDMA_MAX_RESP_RES && p->responder_resources > device->max_responder_resources) return EINVAL;
    if (p->initiator_depth != RDMA_MAX_INIT_DEPTH && p->initiator_depth > device->max_initiator_depth) return EINVAL;
    return 0;
}

int append(abi::CmParam& to, const void* data, size_t length) {
    if (data == nullptr || length == 0) return 0;
    if (to.private_length + length > sizeof to.private_data) return EINVAL;
    std::memcpy(to.private_data + to.private_length, data, length);
    to.private_length = uint8_t(to.private_length + length);
    return 0;
}

constexpr uint8_t kMostRetries = 7;

/// Fills in the parameters of a connection for cm_connect or cm_accept. Returns 0 or an errno.
int fill(const Id& id, const rdma_conn_param* p, abi::CmParam& out) {
    out.qpn = id.id.qp != nullptr ? id.id.qp->qp_num : p != nullptr ? p->qp_num : 0;
    out.srq = id.id.qp != nullptr ? uint8_t(id.id.qp->srq != nullptr) : p != nullptr ? p->srq : uint8_t{0};
    out.responder_resources = id.responder_resources;
    out.initiator_depth = id.initiator_depth;
    out.retry_count = p != nullptr ? p->retry_count : kMostRetries;
    out.rnr_retry_count = p != nullptr ? p->rnr_retry_count : kMostRetries;
    out.flow_control = p != nullptr ? p->flow_control : uint8_t{0};
    if (const int error = append(out, id.connect, id.connect_length); error != 0) return error;
    return p != nullptr ? append(out, p->private_data, p->private_data_len) : 0;
}

int reject(rdma_cm_id* id, const void* data, uint8_t length, uint32_t reason) {
    abi::CmRejectRequest request{};
    request.id = Id::from(id)->handle;
    request.reason = reason;
    if (append(request.param, data, length) != 0) return fail(EINVAL);
    return result(service().tell(Op::cm_reject, request));
}

}  // namespace
}  // namespace roci::rdmacm

using namespace roci::rdmacm;
using roci::abi::Op;

int rdma_connect(rdma_cm_id* p, rdma_conn_param* param) {
    Id& id = *Id::from(p);
    if (const int error = check_parameters(id, param); error != 0) return fail(error);
    const Device* device = service().device(p->verbs);
    if (device == nullptr) return fail(EINVAL);
    const bool own_depth = param != nullptr && param->initiator_depth != RDMA_MAX_INIT_DEPTH;
    const bool own_resources = param != nullptr && param->responder_resources != RDMA_MAX_RESP_RES;
    id.initiator_depth = own_depth ? param->initiator_depth : device->max_initiator_depth;
    id.responder_resources = own_resources ? param->responder_resources : device->max_responder_resources;
    roci::abi::CmConnectRequest request{};
    request.id = id.handle;
    if (const int error = fill(id, param, request.param); error != 0) return fail(error);
    if (const int error = service().tell(Op::cm_connect, request); error != 0) return fail(error);
    std::free(id.connect);
    id.connect = nullptr;
    id.connect_length = 0;
    return complete(id);
}

int rdma_accept(rdma_cm_id* p, rdma_conn_param* param) {
    Id& id = *Id::from(p);
    if (p->qp == nullptr && param == nullptr) return fail(EINVAL);
    if (const int error = check_parameters(id, param); error != 0) return fail(error);
    const Device* device = service().device(p->verbs);
    if (device == nullptr) return fail(EINVAL);
    const bool own_depth = param != nullptr && param->initiator_depth != RDMA_MAX_INIT_DEPTH;
    const bool own_resources = param != nullptr && param->responder_resources != RDMA_MAX_RESP_RES;
    id.initiator_depth = own_depth ? param->initiator_depth : std::min(id.initiator_depth, device->max_initiator_depth);
    id.responder_resources =
        own_resources ? param->responder_resources : std::min(id.responder_resources, device->max_responder_resources);
    const OwnAttributes own{id.responder_resources, id.initiator_depth,
                            roci::abi::min_rnr_timer(param != nullptr ? param->rnr_retry_count : kMostRetries)};
    if (!datagram(*p) && connect_qp(*p, own) != 0) return -1;
    roci::abi::CmConnectRequest request{};
    request.id = id.handle;
    int error = fill(id, param, request.param);
    if (error == 0) error = service().tell(Op::cm_accept, request);
    if (error != 0) {
        modify_to_error(*p);
        return fail(error);
    }
    return datagram(*p) ? 0 : complete(id);
}

int rdma_establish(rdma_cm_id* p) {
    if (p->qp != nullptr) return fail(EINVAL);  // for an id with a QP, the library has sent cm_establish (confirm_response)
    return result(service().tell(Op::cm_establish, roci::abi::HandleRequest{Id::from(p)->handle, 0}));
}

int rdma_reject(rdma_cm_id* id, const void* data, uint8_t length) { return reject(id, data, length, 0); }
int rdma_reject_ece(rdma_cm_id* id, const void* data, uint8_t length) {
    constexpr uint32_t kVendorOptionNotSupported = 35;
    return reject(id, data, length, kVendorOptionNotSupported);
}

int rdma_notify(rdma_cm_id* id, ibv_event_type event) {
    return result(service().tell(Op::cm_notify, roci::abi::CmNotifyRequest{Id::from(id)->handle, uint32_t(event)}));
}

int rdma_disconnect(rdma_cm_id* p) {
    if (p->verbs == nullptr) return fail(EINVAL);
    if (modify_to_error(*p) != 0) return -1;
    Id& id = *Id::from(p);
    if (const int error = service().tell(Op::cm_disconnect, roci::abi::HandleRequest{id.handle, 0}); error != 0)
        return fail(error);
    return complete(id);
}

// rocid's devices support no vendor-specific options of enhanced connection establishment (ECE). So rdma_set_local_ece() only
// checks its arguments, and rdma_get_remote_ece() returns zeros.
int rdma_set_local_ece(rdma_cm_id* id, ibv_ece* ece) {
    if (id == nullptr || id->qp != nullptr || ece == nullptr || ece->vendor_id == 0 || ece->comp_mask != 0) return fail(EINVAL);
    return 0;
}
int rdma_get_remote_ece(rdma_cm_id* id, ibv_ece* ece) {
    if (id == nullptr || id->qp != nullptr || ece == nullptr) return fail(EINVAL);
    *ece = {};
    return 0;
}
