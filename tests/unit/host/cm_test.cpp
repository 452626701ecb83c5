// Tests of rdma_cm in the conductor (rocid's control thread): ids, addresses, ports, connections, multicast groups and events.
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "abi/op_names.hpp"
#include "cm_fixture.hpp"

namespace roci::host::test {
namespace {

TEST_F(CmTest, ConnectionFromRequestToDisconnect) {
    const uint32_t listener = listening(7174);
    const uint32_t id = resolved(7174);
    ASSERT_EQ(call(Op::cm_connect, with(id, 0x21, "hello")).error, 0);
    const auto req = cm::decode<cm::Req>(port.mads.at(0).mad);
    carry();
    const auto request = event(peer, peer_channel, CmEventType::connect_request);
    EXPECT_EQ(request.listener, listener);
    EXPECT_EQ(request.param.qpn, 0x21u);
    EXPECT_EQ(request.param.responder_resources, 2) << "the peer's initiator depth";
    EXPECT_EQ(request.param.initiator_depth, 4);
    EXPECT_EQ(request.param.private_length, cm::kReqRoom);
    EXPECT_EQ(std::memcmp(request.param.private_data, "hello", 6), 0);
    const auto route = call_as(peer, Op::cm_query, abi::HandleRequest{request.id, 0}).as<abi::CmQueryReply>();
    EXPECT_EQ(route.device, 1u);
    EXPECT_EQ(route.source.port, 7174);
    EXPECT_EQ(to_gid(route.source), kOtherGid4);
    EXPECT_EQ(to_gid(route.dest), kGid4);
    EXPECT_GE(route.dest.port, 32768);

    ASSERT_EQ(call_as(peer, Op::cm_accept, with(request.id, 0x31, "welcome")).error, 0);
    const auto rep = cm::decode<cm::Rep>(port.mads.at(0).mad);
    carry();
    const auto response = event(session, channel, CmEventType::connect_response);
    EXPECT_EQ(response.param.qpn, 0x31u);
    EXPECT_EQ(std::memcmp(response.param.private_data, "welcome", 8), 0);

    const auto a_rtr = attributes(session, id, IBV_QPS_RTR), b_rtr = attributes(peer, request.id, IBV_QPS_RTR);
    const auto a_rts = attributes(session, id, IBV_QPS_RTS), b_rts = attributes(peer, request.id, IBV_QPS_RTS);
    EXPECT_EQ(a_rtr.attr.dest_qp_num, 0x31u);
    EXPECT_EQ(b_rtr.attr.dest_qp_num, 0x21u);
    EXPECT_EQ(a_rtr.attr.rq_psn, req.psn) << "a message tells from where its sender receives, as the kernel's rdma_cm has it";
    EXPECT_EQ(b_rtr.attr.rq_psn, rep.psn);
    EXPECT_EQ(a_rtr.attr.rq_psn, b_rts.attr.sq_psn);
    EXPECT_EQ(b_rtr.attr.rq_psn, a_rts.attr.sq_psn);
    EXPECT_EQ(a_rtr.attr.path_mtu, uint32_t(IBV_MTU_1024)) << "the smaller of both";
    EXPECT_EQ(b_rtr.attr.path_mtu, uint32_t(IBV_MTU_1024));
    EXPECT_EQ(a_rts.attr.retry_cnt, 6);
    EXPECT_EQ(b_rts.attr.retry_cnt, 6);
    EXPECT_EQ(a_rtr.attr.ah.sgid_index, 2);

    ASSERT_EQ(tell(session, Op::cm_establish, id), 0);
    carry();
    event(peer, peer_channel, CmEventType::established);
    ASSERT_EQ(tell(session, Op::cm_disconnect, id), 0);
    carry();
    event(peer, peer_channel, CmEventType::disconnected);
    EXPECT_TRUE(no_event(session, channel)) << "not before the peer has answered";
    ASSERT_EQ(tell(peer, Op::cm_disconnect, request.id), 0);
    carry();
    event(session, channel, CmEventType::disconnected);
    conductor.service(now += Nanos{60'000'000'000});
    event(session, channel, CmEventType::timewait_exit);
    EXPECT_EQ(call(Op::cm_destroy_id, abi::HandleRequest{id, 0}).as<abi::CmEventsReply>().events_reported, 5u);
}

TEST_F(CmTest, DatagramsResolveToAQp) {
    listening(7175, kUdp);
    const uint32_t id = resolved(7175, kUdp);
    ASSERT_EQ(call(Op::cm_connect, with(id, 0, "who")).error, 0);
    carry();
    const auto request = event(peer, peer_channel, CmEventType::connect_request);
    EXPECT_EQ(std::memcmp(request.param.private_data, "who", 4), 0);
    ASSERT_EQ(call_as(peer, Op::cm_accept, with(request.id, 0x77, "me")).error, 0);
    carry();
    const auto answer = event(session, channel, CmEventType::established);
    EXPECT_EQ(answer.param.qpn, 0x77u);
    EXPECT_EQ(answer.param.qkey, 0x01234567u);
    EXPECT_EQ(std::memcmp(answer.ah.dgid.raw, kOtherGid4.bytes.data(), 16), 0);
}

TEST_F(CmTest, PortsAreGivenOnceAndComeBackAtOnce) {
    const uint32_t first = listening(7000);
    const uint32_t second = make_id(session, channel);
    EXPECT_EQ(bind(session, second, any(7000)), EADDRINUSE);
    EXPECT_EQ(bind(session, second, address(kGid4, 7000)), EADDRINUSE) << "any address covers it";
    EXPECT_EQ(bind(session, make_id(session, channel, kUdp), any(7000)), 0) << "another port space";
    EXPECT_EQ(tell(peer, Op::cm_destroy_id, first), 0);
    EXPECT_EQ(bind(session, second, address(kGid4, 7000)), 0);
    EXPECT_EQ(bind(session, second, address(kGid4, 7001)), EINVAL) << "bound already";
    EXPECT_EQ(bind(peer, make_id(peer, peer_channel), address(kOtherGid4, 7000)), 0) << "another address";
    EXPECT_EQ(bind(peer, make_id(peer, peer_channel), any(7000)), EADDRINUSE);
    close(session);
    EXPECT_EQ(bind(peer, make_id(peer, peer_channel), address(kGid4, 7000)), 0) << "the program that had it is gone";
}

// As on Linux, the RNR timer depends on the retries of the peer. A peer that repeats without limit waits 0.64 ms (code 12)
// after an RNR NAK. Any other peer waits 655 ms (code 0).
TEST_F(CmTest, RnrTimerFollowsThePeersRetries) {
    constexpr uint8_t kShort = 12, kLongest = 0;
    listening(7174);
    for (const uint8_t retries : std::initializer_list<uint8_t>{0, 6, 7}) {
        const uint8_t wanted = retries == 7 ? kShort : kLongest;
        const uint32_t id = resolved(7174);
        auto request = with(id, 0x20u + retries, "");
        request.param.rnr_retry_count = retries;
        ASSERT_EQ(call(Op::cm_connect, request).error, 0);
        carry();
        const uint32_t child = event(peer, peer_channel, CmEventType::connect_request).id;
        EXPECT_EQ(attributes(peer, child, IBV_QPS_RTR).attr.min_rnr_timer, kLongest) << "the REP will tell the retries";
        request = with(child, 0x30u + retries, "");
        request.param.rnr_retry_count = retries;
        ASSERT_EQ(call_as(peer, Op::cm_accept, request).error, 0);
        carry();
        const auto response = event(session, channel, CmEventType::connect_response);
        EXPECT_EQ(response.qp[1].attr.min_rnr_timer, wanted) << int(retries);
        EXPECT_EQ(attributes(session, id, IBV_QPS_RTR).attr.min_rnr_timer, wanted) << int(retries);
        EXPECT_EQ(attributes(peer, child, IBV_QPS_RTR).attr.min_rnr_timer, wanted) << int(retries);
    }
}

// If no device has a kernel interface, the conductor treats 127.0.0.1 as the address of the first device. So a
// program that listens on 127.0.0.1 can send its address to a peer.
TEST_F(CmTest, LoopbackAddressIsTheFirstDevices) {
    constexpr uint8_t kLoopback[4] = {127, 0, 0, 1};
    const uint32_t id = make_id(session, channel);
    ASSERT_EQ(bind(session, id, address(Gid::from_ipv4(kLoopback), 7000)), 0);
    const auto q = call(Op::cm_query, abi::HandleRequest{id, 0}).as<abi::CmQueryReply>();
    EXPECT_EQ(q.device, 0u);
    EXPECT_EQ(to_gid(q.source), kGid4);
    EXPECT_EQ(q.source.port, 7000);
    EXPECT_EQ(bind(peer, make_id(peer, peer_channel), address(kGid4, 7000)), EADDRINUSE) << "it is the same";
}
TEST_F(CmTest, ReusedAddressesButOneListener) {
    uint32_t ids[2];
    for (uint32_t& id : ids) {
        id = make_id(session, channel);
        abi::CmOptionRequest o{id, 0, 1, 4, {1}};
        EXPECT_EQ(call(Op::cm_set_option, o).error, 0);
        EXPECT_EQ(bind(session, id, any(7100)), 0);
    }
    EXPECT_EQ(listen(session, ids[0]), 0);
    EXPECT_EQ(listen(session, ids[1]), EADDRINUSE);
    EXPECT_EQ(listen(session, ids[0]), EINVAL);
}

TEST_F(CmTest, WhatIsWrongGetsItsErrno) {
    const uint32_t id = make_id(session, channel);
    constexpr Gid kStranger{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 168, 0, 9}};
    EXPECT_EQ(bind(session, id, address(kStranger, 1)), ENODEV);
    abi::CmAddress odd = any(1);
    odd.family = 27;
    EXPECT_EQ(bind(session, id, odd), EAFNOSUPPORT);
    EXPECT_EQ(tell(session, Op::cm_resolve_route, id), EINVAL);
    EXPECT_EQ(call(Op::cm_connect, with(id, 1, "")).error, EINVAL);
    EXPECT_EQ(call(Op::cm_accept, with(id, 1, "")).error, EINVAL);
    EXPECT_EQ(tell(session, Op::cm_disconnect, id), EINVAL);
    EXPECT_EQ(tell(session, Op::cm_establish, id), EINVAL);
    EXPECT_EQ(call(Op::cm_reject, abi::CmRejectRequest{id, 0, {}}).error, EINVAL);
    EXPECT_EQ(call(Op::cm_qp_attr, abi::CmQpAttrRequest{id, IBV_QPS_INIT}).error, EINVAL);
    EXPECT_EQ(tell(session, Op::cm_close_channel, channel), EBUSY);
    EXPECT_EQ(tell(session, Op::cm_destroy_id, 4711), ENOENT);
    EXPECT_EQ(call(Op::cm_create_id, abi::CmCreateIdRequest{channel, 0x999, IBV_QPT_RC, 0}).error, EPROTONOSUPPORT);
    EXPECT_EQ(call(Op::cm_create_id, abi::CmCreateIdRequest{channel, kTcp, IBV_QPT_UD, 0}).error, EINVAL);
    const uint32_t good = resolved(7174);
    EXPECT_EQ(call(Op::cm_connect, with(good, 1, std::string(cm::kReqRoom + 1, 'x'))).error, EINVAL);
    abi::CmResolveRequest far{};
    far.id = make_id(session, channel);
    far.dest = address(kStranger, 5);
    EXPECT_EQ(call(Op::cm_resolve_addr, far).error, 0);
    EXPECT_EQ(event(session, channel, CmEventType::addr_error).status, -EHOSTUNREACH);
}

TEST_F(CmTest, NobodyListensAndProgramsRefuse) {
    const uint32_t id = resolved(9999);
    EXPECT_EQ(call(Op::cm_connect, with(id, 1, "")).error, 0);
    carry();
    EXPECT_EQ(event(session, channel, CmEventType::rejected).status, int32_t(cm::Reason::invalid_service_id));
    listening(7174);
    const uint32_t other = resolved(7174);
    EXPECT_EQ(call(Op::cm_connect, with(other, 2, "")).error, 0);
    carry();
    abi::CmRejectRequest no{event(peer, peer_channel, CmEventType::connect_request).id, 0, with(0, 0, "no").param};
    EXPECT_EQ(call_as(peer, Op::cm_reject, no).error, 0);
    carry();
    const auto e = event(session, channel, CmEventType::rejected);
    EXPECT_EQ(e.status, int32_t(cm::Reason::consumer));
    EXPECT_EQ(std::memcmp(e.param.private_data, "no", 3), 0);
}

TEST_F(CmTest, BacklogBoundsWhatWaits) {
    const uint32_t listener = listening(7174, kTcp, 2);
    for (uint32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(call(Op::cm_connect, with(resolved(7174), 100 + i, "")).error, 0);
        carry();
    }
    EXPECT_EQ(event(session, channel, CmEventType::rejected).status, int32_t(cm::Reason::consumer));
    event(peer, peer_channel, CmEventType::connect_request);  // removes one request from the full backlog
    EXPECT_EQ(call(Op::cm_connect, with(resolved(7174), 200, "")).error, 0);
    carry();
    EXPECT_EQ(tell(peer, Op::cm_destroy_id, listener), 0);
    EXPECT_TRUE(no_event(peer, peer_channel)) << "requests that nobody fetched go with their listener";
    carry();
    for (int i = 0; i < 2; ++i) event(session, channel, CmEventType::rejected);
    EXPECT_TRUE(no_event(session, channel));
}

TEST_F(CmTest, AProgramThatDiesIsDisconnected) {
    const auto [id, child] = connected(7174);
    close(session);
    carry();
    EXPECT_EQ(event(peer, peer_channel, CmEventType::disconnected).id, child);
    (void)id;
}

// The conductor may have executed nothing for a long time when a program dies.
TEST_F(CmTest, TheDreqOfAProgramThatDiesLateIsRepeated) {
    constexpr Nanos kSecond = 1'000'000'000;
    const auto [id, child] = connected(7174);
    conductor.service(now += 100 * kSecond);
    now += 100 * kSecond;
    close(session);
    ASSERT_EQ(port.mads.size(), 1u);
    port.mads.clear();
    conductor.service(++now);
    EXPECT_TRUE(port.mads.empty()) << "the peer has time to answer";
    conductor.service(now += kSecond);
    ASSERT_EQ(port.mads.size(), 1u) << "the DREQ is repeated";
    carry();
    EXPECT_EQ(event(peer, peer_channel, CmEventType::disconnected).id, child);
    (void)id;
}

TEST_F(CmTest, TheQpOfAnotherUserIsNotConnected) {
    const uint32_t other = open(0, 1001);
    const uint32_t p = handle_of(send(conductor, other, packet(Op::alloc_pd, {})));
    const uint32_t q =
        call_as(other, Op::create_cq, abi::CreateCqRequest{16, abi::kNoHandle, 0, 0}).as<abi::CreateCqReply>().handle;
    const uint32_t theirs = call_as(other, Op::create_qp, qp_request(p, q)).as<abi::CreateQpReply>().qpn;
    ASSERT_NE(theirs, 0u);
    listening(7180);
    const Result r = call(Op::cm_connect, with(resolved(7180), theirs, ""));
    EXPECT_EQ(r.error, EACCES);
    EXPECT_TRUE(r.says("of another user")) << r.reason;
    carry();
    EXPECT_TRUE(no_event(peer, peer_channel)) << "nothing was sent";
}

TEST_F(CmTest, EventsOfFailedResolutionsDoNotGrowWithoutEnd) {
    const uint32_t id = make_id(session, channel);
    abi::CmResolveRequest r{};
    r.id = id;
    r.source = address(kGid4, 0);
    r.dest = address(Gid::from_ipv4(std::array<uint8_t, 4>{10, 0, 0, 99}.data()), 7000);
    Result last;
    int made = 0;
    for (; made < 100 && (last = call(Op::cm_resolve_addr, r)).error == 0; ++made) {
    }
    EXPECT_EQ(made, 64);
    EXPECT_EQ(last.error, ENOMEM);
    EXPECT_TRUE(last.says("64 events")) << last.reason;
    event(session, channel, CmEventType::addr_error);
    EXPECT_EQ(call(Op::cm_resolve_addr, r).error, 0) << "the program fetched one";
}

TEST_F(CmTest, EventsMoveWithTheirId) {
    const auto [id, child] = connected(7174);
    EXPECT_EQ(tell(session, Op::cm_disconnect, id), 0);
    carry();
    const uint32_t other = open_channel(peer);
    EXPECT_EQ(call_as(peer, Op::cm_migrate, abi::CmMigrateRequest{child, other}).error, 0);
    EXPECT_TRUE(no_event(peer, peer_channel));
    EXPECT_EQ((platform.signals[{peer, kCmChannelBase + other}]), 1u);
    event(peer, other, CmEventType::disconnected);
}

// A program may migrate a listener before it has fetched a connection request. The id of this request must then use
// the listener's new channel.
TEST_F(CmTest, RequestsMoveWithTheirListener) {
    const uint32_t listener = listening(7174);
    ASSERT_EQ(call(Op::cm_connect, with(resolved(7174), 0x21, "")).error, 0);
    carry();
    const uint32_t left = resolved(7174);
    ASSERT_EQ(call(Op::cm_connect, with(left, 0x22, "")).error, 0);
    carry();
    // Withdraws the second connection request before the peer has fetched it. The peer gets a further event, `rejected`.
    EXPECT_EQ(tell(session, Op::cm_destroy_id, left), 0);
    carry();
    const uint32_t other = open_channel(peer);
    EXPECT_EQ(call_as(peer, Op::cm_migrate, abi::CmMigrateRequest{listener, other}).error, 0);
    EXPECT_TRUE(no_event(peer, peer_channel));
    EXPECT_EQ(tell(peer, Op::cm_close_channel, peer_channel), 0) << "no id uses the old channel";
    const auto request = event(peer, other, CmEventType::connect_request);
    const auto second = event(peer, other, CmEventType::connect_request);
    EXPECT_EQ(request.listener, listener);
    EXPECT_EQ(event(peer, other, CmEventType::rejected).id, second.id);
    ASSERT_EQ(call_as(peer, Op::cm_reject, abi::CmRejectRequest{request.id, 0, {}}).error, 0);
    for (const uint32_t id : {listener, request.id, second.id}) EXPECT_EQ(tell(peer, Op::cm_destroy_id, id), 0);
    EXPECT_EQ(tell(peer, Op::cm_close_channel, other), 0);
}

/// Tests of multicast groups. A group ends with the id that has joined it, as in the kernel.
class CmGroups : public CmTest {
protected:
    abi::HandleReply joined(uint32_t id) {
        const Result r = call(Op::cm_join, abi::CmJoinRequest{id, 1, address(group, 0)});
        EXPECT_EQ(r.error, 0) << r.reason;
        return r.as<abi::HandleReply>();
    }
    uint32_t bound() {
        const uint32_t id = make_id(session, channel, kUdp);
        EXPECT_EQ(bind(session, id, address(kGid4, 0)), 0);
        return id;
    }
    size_t groups() {
        EXPECT_EQ(send(conductor, root, packet(Op::status, {})).error, 0);
        return nlohmann::json::parse(platform.status)["totals"]["cm_groups"];
    }
    const uint32_t root = open(0, 0);
    const Gid group = Gid::from_ipv4(std::array<uint8_t, 4>{239, 0, 0, 1}.data());
};

TEST_F(CmGroups, EndWithTheirId) {
    const uint32_t staying = bound(), going = bound();
    const uint32_t stays = joined(staying).handle;
    for (int i = 0; i < 3; ++i) joined(going);
    const uint32_t leaves = joined(going).handle;
    EXPECT_EQ(call(Op::cm_leave, abi::CmLeaveRequest{going, leaves}).error, 0);
    EXPECT_EQ(groups(), 4u);
    EXPECT_EQ(tell(session, Op::cm_destroy_id, going), 0);
    EXPECT_EQ(groups(), 1u);
    EXPECT_EQ(call(Op::cm_leave, abi::CmLeaveRequest{staying, stays}).error, 0);
    EXPECT_EQ(groups(), 0u);
}

// The test destroys an id whose group has an unfetched event. A later group may get the handle of the destroyed
// group.
TEST_F(CmGroups, LeavingAGroupKeepsTheNumberOfWaitingEvents) {
    const uint32_t first = bound();
    const uint32_t stale = joined(first).handle;
    EXPECT_EQ(tell(session, Op::cm_destroy_id, first), 0);
    const uint32_t id = bound();
    bool again = false;
    for (int i = 0; i < 1000 && !again; ++i) {
        const uint32_t handle = joined(id).handle;
        EXPECT_EQ(call(Op::cm_leave, abi::CmLeaveRequest{id, handle}).error, 0);
        again = handle == stale;
    }
    ASSERT_TRUE(again);
    abi::CmResolveRequest r{};
    r.id = id;
    r.dest = address(kOtherGid4, 7000);
    const Result resolved = call(Op::cm_resolve_addr, r);
    EXPECT_EQ(resolved.error, 0) << resolved.reason;
}

// Events of destroyed ids must not be delivered, even if a new id has the same handle. If few events in the queue
// belong to destroyed ids, rocid skips these events when the program fetches events. If most of them do, rocid
// removes them.
TEST_F(CmTest, EventsEndWithTheirId) {
    constexpr uint32_t kIds = 200;
    for (const uint32_t ending : {90u, 150u}) {
        std::vector<uint32_t> ids;
        for (uint32_t i = 0; i < kIds; ++i) {
            ids.push_back(make_id(session, channel));
            abi::CmResolveRequest r{};
            r.id = ids.back();
            r.dest = address(kOtherGid4, 7000);
            EXPECT_EQ(call(Op::cm_resolve_addr, r).error, 0);
        }
        for (uint32_t i = 0; i < ending; ++i) EXPECT_EQ(tell(session, Op::cm_destroy_id, ids[i]), 0);
        const uint32_t another = make_id(session, channel);
        EXPECT_LE(another, ids[ending - 1]) << "a handle is used again";
        std::vector<uint32_t> heard;
        for (uint32_t i = 0; i < kIds; ++i) {
            const Result r = call(Op::cm_get_event, abi::HandleRequest{channel, 0});
            if (r.error == 0) heard.push_back(r.as<abi::CmEventReply>().id);
        }
        EXPECT_EQ(heard, std::vector<uint32_t>(ids.begin() + ending, ids.end()));
        EXPECT_TRUE(no_event(session, channel));
        EXPECT_EQ(tell(session, Op::cm_destroy_id, another), 0);
        for (uint32_t i = ending; i < kIds; ++i) EXPECT_EQ(tell(session, Op::cm_destroy_id, ids[i]), 0);
    }
}

TEST_F(CmTest, EventsThatTheProgramWritesArriveInOrder) {
    const uint32_t id = make_id(session, channel), other = make_id(session, channel);
    const auto write = [&](uint32_t to, CmEventType type, int32_t status, uint64_t arg) {
        return call(Op::cm_write_event, abi::CmWriteEventRequest{to, uint32_t(type), status, 0, arg}).error;
    };
    ASSERT_EQ(write(id, CmEventType::user, -5, 0x1122334455667788), 0);
    ASSERT_EQ(write(other, CmEventType::addrinfo_error, -2, 0), 0);
    const auto user = event(session, channel, CmEventType::user);
    EXPECT_EQ(user.id, id);
    EXPECT_EQ(user.status, -5);
    uint64_t arg = 0;
    std::memcpy(&arg, user.param.private_data, sizeof arg);
    EXPECT_EQ(arg, 0x1122334455667788u);
    EXPECT_EQ(event(session, channel, CmEventType::addrinfo_error).id, other);
    EXPECT_EQ(write(id, CmEventType::established, 0, 0), EINVAL) << "such an event would be forged";
    EXPECT_EQ(write(id, CmEventType(19), 0, 0), EINVAL);
    EXPECT_EQ(write(99, CmEventType::user, 0, 0), ENOENT);
}

TEST_F(CmTest, WaitingEventsOfASessionAreLimited) {
    const uint32_t id = make_id(session, channel), doomed = make_id(session, channel);
    const auto write = [&](uint32_t to) {
        return call(Op::cm_write_event, abi::CmWriteEventRequest{to, uint32_t(CmEventType::user), 0, 0, 0}).error;
    };
    for (uint32_t i = 0; i < kMaxWrittenEvents; ++i) ASSERT_EQ(write(i % 2 == 0 ? id : doomed), 0);
    EXPECT_EQ(write(id), ENOBUFS);
    event(session, channel, CmEventType::user);
    EXPECT_EQ(write(id), 0);
    EXPECT_EQ(write(id), ENOBUFS);
    ASSERT_EQ(tell(session, Op::cm_destroy_id, doomed), 0);
    while (!no_event(session, channel) || !no_event(session, channel)) {
    }
    for (uint32_t i = 0; i < kMaxWrittenEvents; ++i) ASSERT_EQ(write(id), 0);
    EXPECT_EQ(write(id), ENOBUFS);
    ASSERT_EQ(tell(session, Op::cm_destroy_id, id), 0);
    ASSERT_EQ(tell(session, Op::cm_close_channel, channel), 0);
    channel = open_channel(session);
    EXPECT_EQ(write(make_id(session, channel)), 0);
}

/// The conductor must execute a request with random content, or refuse it with a reason (send_once() checks the
/// replies). No request may close a session. The sessions must leave no objects behind, and other sessions must still
/// be able to connect.
TEST_F(CmTest, AnyBytesAreHarmless) {
    connected(7174);
    std::mt19937 rng(7);
    std::uniform_int_distribution<int> byte(0, 255);
    std::map<Op, uint32_t> refused;
    uint32_t executed = 0;
    for (int i = 0; i < 20000; ++i) {
        const auto op = Op(int(Op::cm_open_channel) + 2 + i % (int(Op::cm_write_event) - int(Op::cm_open_channel) - 1));
        std::vector<std::byte> body(size_t(byte(rng)) + 8);
        for (std::byte& b : body) b = std::byte(byte(rng) < 200 ? 0 : byte(rng));
        body[0] = std::byte(byte(rng) % 4);
        const Result r = send(conductor, i % 2 == 0 ? session : peer, packet(op, body));
        ASSERT_FALSE(r.closed);
        ++(r.error != 0 ? refused[op] : executed);
        if (i % 16 == 0) carry();
    }
    EXPECT_GT(executed, 0u);
    for (auto op = Op(int(Op::cm_open_channel) + 2); op != Op::cm_write_event; op = Op(int(op) + 1))
        EXPECT_GT(refused[op], 0u) << abi::op_name(op);

    for (const uint32_t s : {session, peer}) close(s);
    for (int i = 0; i < 600; ++i) {  // until the last retry and the last time wait have ended
        carry();
        conductor.service(now += Nanos{1'000'000'000});
    }
    const auto status = nlohmann::json::parse(conductor.status_json());
    for (const char* kind : {"cm_ids", "cm_channels", "cm_groups"}) EXPECT_EQ(status["totals"].at(kind), 0) << kind;
    EXPECT_EQ(status["rdma_cm"].at("connections"), 0);
    EXPECT_TRUE(status["rdma_cm"].at("listeners").empty());

    session = open();
    peer = connect();
    EXPECT_EQ(call_as(peer, Op::hello, good_hello()).error, 0);
    channel = open_channel(session);
    peer_channel = open_channel(peer);
    connected(7174);
}

}  // namespace
}  // namespace roci::host::test
