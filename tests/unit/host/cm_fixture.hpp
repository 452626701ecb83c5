// Two sessions of a conductor (rocid's control thread) that use rdma_cm. The test carries the MADs between the two devices.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "abi/cm_control.hpp"
#include "fixture.hpp"
#include "host/rdma_cm/service.hpp"

namespace roci::host::test {

using namespace rdma_cm;
using abi::Op;

inline constexpr uint32_t kTcp = 0x106, kUdp = 0x111;

inline abi::CmAddress address(const Gid& gid, uint16_t port) { return to_address(gid, port); }
inline abi::CmAddress any(uint16_t port) {
    constexpr uint8_t zeros[4] = {};
    return to_address(Gid::from_ipv4(zeros), port);
}

class CmTest : public ConductorTest {
protected:
    CmTest() {
        now = 1;
        shared.gsi[0] = std::make_unique<io::GsiRing>(64);
        peer = connect();
        EXPECT_EQ(call_as(peer, Op::hello, good_hello()).error, 0);
        channel = open_channel(session);
        peer_channel = open_channel(peer);
    }
    uint32_t open_channel(uint32_t s) { return handle_of(send(conductor, s, packet(Op::cm_open_channel, {}))); }
    uint32_t make_id(uint32_t s, uint32_t ch, uint32_t space = kTcp) {
        return handle_of(
            call_as(s, Op::cm_create_id, abi::CmCreateIdRequest{ch, space, space == kTcp ? IBV_QPT_RC : IBV_QPT_UD, 0}));
    }
    int bind(uint32_t s, uint32_t id, const abi::CmAddress& a) {
        return call_as(s, Op::cm_bind, abi::CmBindRequest{id, 0, a}).error;
    }
    int tell(uint32_t s, Op op, uint32_t id) { return call_as(s, op, abi::HandleRequest{id, 0}).error; }
    int listen(uint32_t s, uint32_t id, uint32_t backlog = 10) {
        return call_as(s, Op::cm_listen, abi::CmListenRequest{id, backlog}).error;
    }
    abi::CmEventReply event(uint32_t s, uint32_t ch, CmEventType type) {
        const Result r = call_as(s, Op::cm_get_event, abi::HandleRequest{ch, 0});
        EXPECT_EQ(r.error, 0) << r.reason;
        const auto e = r.as<abi::CmEventReply>();
        EXPECT_EQ(e.event, uint32_t(type));
        return e;
    }
    bool no_event(uint32_t s, uint32_t ch) { return tell(s, Op::cm_get_event, ch) == EAGAIN; }

    /// Delivers MADs from each device to the other until none are left.
    void carry() {
        while (!port.mads.empty()) {
            const auto mads = std::exchange(port.mads, {});
            for (const io::GsiSend& m : mads) {
                io::GsiFrame f;
                f.port = m.port ^ 1;
                const uint8_t* l3 = m.path.bytes + m.path.l3_offset;
                f.remote = Gid::from_ipv4(l3 + 12);
                f.local = Gid::from_ipv4(l3 + 16);
                f.source = io::kGsiQpn;
                f.mad = m.mad;
                ASSERT_TRUE(shared.gsi[0]->push(f));
            }
            conductor.service(++now);
        }
    }
    /// Returns an id of `session`. The id has the address 10.0.0.1 and a resolved route to 10.0.0.2:`to_port`.
    uint32_t resolved(uint16_t to_port, uint32_t space = kTcp) {
        const uint32_t id = make_id(session, channel, space);
        abi::CmResolveRequest r{};
        r.id = id;
        r.source = address(kGid4, 0);
        r.dest = address(kOtherGid4, to_port);
        EXPECT_EQ(call(Op::cm_resolve_addr, r).error, 0);
        event(session, channel, CmEventType::addr_resolved);
        EXPECT_EQ(tell(session, Op::cm_resolve_route, id), 0);
        event(session, channel, CmEventType::route_resolved);
        return id;
    }
    uint32_t listening(uint16_t at, uint32_t space = kTcp, uint32_t backlog = 10) {
        const uint32_t id = make_id(peer, peer_channel, space);
        EXPECT_EQ(bind(peer, id, any(at)), 0);
        EXPECT_EQ(listen(peer, id, backlog), 0);
        return id;
    }
    static abi::CmConnectRequest with(uint32_t id, uint32_t qpn, const std::string& data) {
        abi::CmConnectRequest r{};
        r.id = id;
        r.param.qpn = qpn;
        r.param.responder_resources = 4;
        r.param.initiator_depth = 2;
        r.param.retry_count = 6;
        r.param.rnr_retry_count = 5;
        r.param.private_length = uint8_t(data.size());
        std::memcpy(r.param.private_data, data.data(), data.size());
        return r;
    }
    abi::CmQpAttrReply attributes(uint32_t s, uint32_t id, uint32_t state) {
        const Result r = call_as(s, Op::cm_qp_attr, abi::CmQpAttrRequest{id, state});
        EXPECT_EQ(r.error, 0) << r.reason;
        return r.as<abi::CmQpAttrReply>();
    }
    std::pair<uint32_t, uint32_t> connected(uint16_t at) {
        listening(at);
        const uint32_t id = resolved(at);
        EXPECT_EQ(call(Op::cm_connect, with(id, 0x21, "")).error, 0);
        carry();
        const uint32_t child = event(peer, peer_channel, CmEventType::connect_request).id;
        EXPECT_EQ(call_as(peer, Op::cm_accept, with(child, 0x31, "")).error, 0);
        carry();
        event(session, channel, CmEventType::connect_response);
        EXPECT_EQ(tell(session, Op::cm_establish, id), 0);
        carry();
        event(peer, peer_channel, CmEventType::established);
        return {id, child};
    }

    uint32_t peer = 0, channel = 0, peer_channel = 0;
};

}  // namespace roci::host::test
