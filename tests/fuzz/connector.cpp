#include "connector.hpp"

#include <infiniband/verbs.h>

#include <algorithm>

#include "host/rdma_cm/service.hpp"

namespace roci::fuzz {

using abi::Op;
using host::rdma_cm::CmEventType;

namespace {

/// Waits for an event and skips others, which may belong to other connections.
abi::CmEventReply wait_for(Connector& c, CmEventType type) {
    abi::CmEventReply e = c.event();
    while (e.event != uint32_t(type)) e = c.event();
    return e;
}

}  // namespace

Connector::Connector(Client& client, std::function<void()> pass) : client_(client), pass_(std::move(pass)) {
    abi::HandleReply r{};
    require(client_.try_call(Op::cm_open_channel, abi::Empty{}, r) == 0, "an event channel can be opened");
    channel_ = r.handle;
}

uint32_t Connector::create_id(uint32_t space) {
    abi::HandleReply r{};
    const abi::CmCreateIdRequest request{channel_, space, uint32_t(space == kTcp ? IBV_QPT_RC : IBV_QPT_UD), 0};
    require(client_.try_call(Op::cm_create_id, request, r) == 0, "an id can be created");
    return r.handle;
}

uint32_t Connector::listen(const Gid& address, uint32_t space) {
    const uint32_t id = create_id(space);
    const abi::CmBindRequest at{id, 0, host::rdma_cm::to_address(address, kPort)};
    require(client_.try_call(Op::cm_bind, at) == 0, "an id can be bound");
    require(client_.try_call(Op::cm_listen, abi::CmListenRequest{id, 128}) == 0, "an id can listen");
    return id;
}

uint32_t Connector::resolve(const Gid& own, const sim::Peer& peer, uint32_t space) {
    abi::CmResolveRequest r{};
    r.id = create_id(space);
    r.timeout_ms = 1000;
    r.source = host::rdma_cm::to_address(own, 0);
    r.dest = host::rdma_cm::to_address(peer.gid, kPort);
    std::ranges::copy(peer.mac.bytes, r.mac);
    require(client_.try_call(Op::cm_resolve_addr, r) == 0, "an address can be resolved");
    wait_for(*this, CmEventType::addr_resolved);
    require(call(Op::cm_resolve_route, r.id) == 0, "a route can be resolved");
    wait_for(*this, CmEventType::route_resolved);
    return r.id;
}

int Connector::connect(Op op, uint32_t id, uint32_t qpn) {
    abi::CmConnectRequest r{};
    r.id = id;
    r.param.qpn = qpn;
    r.param.responder_resources = r.param.initiator_depth = 2;
    r.param.retry_count = r.param.rnr_retry_count = 7;
    r.param.private_length = 4;
    return client_.try_call(op, r);
}

abi::CmEventReply Connector::event() {
    abi::CmEventReply e{};
    for (int tries = 0; tries < 100; ++tries) {
        if (client_.try_call(Op::cm_get_event, abi::HandleRequest{channel_, 0}, e) == 0) return e;
        pass_();
    }
    fail("an event of rdma_cm comes");
}

std::pair<uint32_t, uint32_t> connect(Connector& caller, Connector& server, const sim::Qp& caller_qp, const sim::Qp& server_qp,
                                      uint32_t gid_index) {
    const Gid own = caller.client().self(caller_qp, gid_index).gid;
    const uint32_t id = caller.resolve(own, server.client().self(server_qp, gid_index));
    require(caller.connect(Op::cm_connect, id, caller_qp.qpn) == 0, "a REQ is sent");
    const uint32_t child = wait_for(server, CmEventType::connect_request).id;
    require(server.connect(Op::cm_accept, child, server_qp.qpn) == 0, "a REP is sent");
    wait_for(caller, CmEventType::connect_response);
    require(caller.call(Op::cm_establish, id) == 0, "an RTU is sent");
    wait_for(server, CmEventType::established);
    return {id, child};
}

}  // namespace roci::fuzz
