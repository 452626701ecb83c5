// Tests of XRC domains, memory windows, device memory, null MRs and multicast groups: sharing between sessions,
// refused destruction of objects in use, wrong handles, and the end of a session.
#include <fcntl.h>

#include "fixture.hpp"

namespace roci::host::test {
namespace {

using abi::Op;

class CompleteVerbs : public ConductorTest {
protected:
    Result open_xrcd(uint32_t s, uint32_t oflags, int fd) {
        return call_as(s, Op::open_xrcd, abi::OpenXrcdRequest{oflags, 1}, {fd});
    }
    abi::CreateSrqRequest xrc_srq(uint32_t xrcd, uint32_t cq_handle) {
        abi::CreateSrqRequest r{};
        r.pd = pd();
        r.type = IBV_SRQT_XRC;
        r.max_wr = 8;
        r.max_sge = 1;
        r.xrcd = xrcd;
        r.cq = cq_handle;
        return r;
    }
    static abi::McastRequest group(uint32_t qp_handle, uint8_t first = 0xff) {
        abi::McastRequest m{};
        m.qp = qp_handle;
        m.gid.raw[0] = first;
        m.gid.raw[15] = 9;
        return m;
    }
};

TEST_F(CompleteVerbs, XrcDomainsAreSharedByFileAndDevice) {
    const uint32_t other = open(), elsewhere = open(1);
    EXPECT_EQ(open_xrcd(session, 0, 1001).error, EAGAIN) << "nobody made it";
    ASSERT_EQ(open_xrcd(session, O_CREAT, 2001).error, 0);
    EXPECT_EQ(open_xrcd(other, 0, 3001).error, 0);
    EXPECT_EQ(open_xrcd(other, O_CREAT | O_EXCL, 4001).error, EINVAL);
    EXPECT_EQ(open_xrcd(elsewhere, 0, 5001).error, EAGAIN) << "another device";
    EXPECT_EQ(open_xrcd(session, O_RDWR, 6001).error, EINVAL);
    EXPECT_EQ(call(Op::open_xrcd, abi::OpenXrcdRequest{O_CREAT, 1}).error, EBADF) << "no descriptor came";
    EXPECT_EQ(call(Op::open_xrcd, abi::OpenXrcdRequest{O_CREAT, 0}, {7001}).error, EBADF) << "one too many";
    close(session);
    EXPECT_EQ(open_xrcd(other, 0, 8001).error, 0) << "it lives on with the other session";
    close(other);
    EXPECT_EQ(open_xrcd(elsewhere, 0, 9001).error, EAGAIN);
}

TEST_F(CompleteVerbs, WhatIsInAnXrcDomainKeepsItAndItsCq) {
    const uint32_t xrcd = handle_of(open_xrcd(session, O_CREAT, 1001));
    const uint32_t completions = cq();
    const Result srq = call(Op::create_srq, xrc_srq(xrcd, completions));
    ASSERT_EQ(srq.error, 0) << srq.reason;
    EXPECT_NE(shared.srqs.find(srq.as<abi::CreateSrqReply>().srqn), nullptr);
    abi::CreateQpRequest target = qp_request(abi::kNoHandle, abi::kNoHandle, IBV_QPT_XRC_RECV);
    target.xrcd = xrcd;
    const Result qp = call(Op::create_qp, target);
    ASSERT_EQ(qp.error, 0) << qp.reason;
    EXPECT_EQ(on(Op::close_xrcd, xrcd).error, EBUSY);
    EXPECT_EQ(on(Op::destroy_cq, completions).error, EBUSY);
    EXPECT_EQ(on(Op::destroy_qp, qp.as<abi::CreateQpReply>().handle).error, 0);
    EXPECT_EQ(on(Op::close_xrcd, xrcd).error, EBUSY);
    EXPECT_EQ(on(Op::destroy_srq, srq.as<abi::CreateSrqReply>().handle).error, 0);
    EXPECT_EQ(shared.srqs.find(srq.as<abi::CreateSrqReply>().srqn), nullptr);
    EXPECT_EQ(on(Op::destroy_cq, completions).error, 0);
    EXPECT_EQ(on(Op::close_xrcd, xrcd).error, 0);
    EXPECT_EQ(on(Op::close_xrcd, xrcd).error, ENOENT);
}

/// One session has created an XRC target QP. Another session opens this QP by its number.
class OpenedTarget : public CompleteVerbs {
protected:
    void SetUp() override {
        CompleteVerbs::SetUp();
        other = open();
        abi::CreateQpRequest target = qp_request(abi::kNoHandle, abi::kNoHandle, IBV_QPT_XRC_RECV);
        target.xrcd = handle_of(open_xrcd(session, O_CREAT, 1001));
        own = call(Op::create_qp, target).as<abi::CreateQpReply>();
        domain = handle_of(open_xrcd(other, 0, 2001));
    }
    Result open_target(uint32_t s, uint32_t xrcd, uint32_t type = IBV_QPT_XRC_RECV) {
        return call_as(s, Op::open_qp, abi::OpenQpRequest{xrcd, own.qpn, type, 0});
    }
    bool lives() { return shared.qps.find(own.qpn) != nullptr; }
    int close_target(uint32_t s, uint32_t handle) { return call_as(s, Op::destroy_qp, abi::HandleRequest{handle, 0}).error; }
    uint32_t other = 0, domain = 0;
    abi::CreateQpReply own{};
};

TEST_F(OpenedTarget, EndsWithItsLastHandle) {
    const uint32_t first = handle_of(open_target(other, domain)), second = handle_of(open_target(other, domain));
    EXPECT_NE(first, second);
    EXPECT_EQ(call_as(other, Op::query_qp, abi::HandleRequest{first, 0}).error, 0);
    EXPECT_EQ(call_as(other, Op::close_xrcd, abi::HandleRequest{domain, 0}).error, EBUSY);
    EXPECT_EQ(close_target(other, first), 0);
    EXPECT_EQ(close_target(other, first), ENOENT);
    EXPECT_EQ(port.count(kind_of<engine::MoveQp>), 0u);
    EXPECT_EQ(close_target(session, own.handle), 0);
    EXPECT_EQ(port.count(kind_of<engine::MoveQp>), 1u) << "its events go elsewhere now";
    EXPECT_TRUE(lives());
    EXPECT_EQ(call_as(other, Op::query_qp, abi::HandleRequest{second, 0}).error, 0);
    EXPECT_EQ(close_target(other, second), 0);
    EXPECT_FALSE(lives());
    EXPECT_EQ(port.count(kind_of<engine::RemoveQp>), 1u);
    EXPECT_EQ(open_target(other, domain).error, EINVAL) << "there is none any more";
    EXPECT_EQ(call_as(other, Op::close_xrcd, abi::HandleRequest{domain, 0}).error, 0);
}

TEST_F(OpenedTarget, OutlivesTheSessionsThatLeave) {
    const uint32_t third = open();
    const uint32_t third_domain = handle_of(open_xrcd(third, 0, 3001));
    ASSERT_EQ(open_target(other, domain).error, 0);
    ASSERT_EQ(open_target(third, third_domain).error, 0);
    ASSERT_EQ(open_target(third, third_domain).error, 0);
    close(session);
    EXPECT_TRUE(lives());
    close(other);
    EXPECT_TRUE(lives());
    close(third);
    EXPECT_FALSE(lives());
    EXPECT_EQ(conductor.totals().qps, 0u);
}

TEST_F(OpenedTarget, HasALimitOfHandlesAndGoesOnlyOnce) {
    int error = 0;
    uint32_t opened = 0;
    while (opened < 10000 && (error = open_target(other, domain).error) == 0) ++opened;
    EXPECT_EQ(error, ENOMEM);
    EXPECT_EQ(opened, 1023u);
    close(session);
    close(other);
    EXPECT_EQ(port.count(kind_of<engine::MoveQp>), 1u);
    EXPECT_EQ(port.count(kind_of<engine::RemoveQp>), 1u);
    EXPECT_FALSE(lives());
}

TEST_F(OpenedTarget, IsFoundInItsDomainOnly) {
    EXPECT_EQ(open_target(other, domain, IBV_QPT_RC).error, EINVAL);
    EXPECT_EQ(open_target(other, domain + 1).error, ENOENT);
    const uint32_t another = handle_of(open_xrcd(other, O_CREAT, 4002));
    EXPECT_EQ(open_target(other, another).error, EINVAL);
    ++own.qpn;
    EXPECT_EQ(open_target(other, domain).error, EINVAL);
}

TEST_F(CompleteVerbs, XrcPartsAreChecked) {
    const uint32_t xrcd = handle_of(open_xrcd(session, O_CREAT, 1001));
    EXPECT_EQ(call(Op::create_srq, xrc_srq(xrcd + 1, cq())).error, ENOENT);
    EXPECT_EQ(call(Op::create_srq, xrc_srq(xrcd, 12345)).error, ENOENT);
    abi::CreateQpRequest target = qp_request(abi::kNoHandle, abi::kNoHandle, IBV_QPT_XRC_RECV);
    EXPECT_EQ(call(Op::create_qp, target).error, ENOENT) << "no domain";
    const uint32_t srq = call(Op::create_srq, xrc_srq(xrcd, cq())).as<abi::CreateSrqReply>().handle;
    abi::CreateQpRequest rc = qp_request(pd(), cq());
    rc.srq = srq;
    EXPECT_EQ(call(Op::create_qp, rc).error, EINVAL) << "an RC QP cannot have an XRC SRQ";
}

TEST_F(CompleteVerbs, WindowsBeginUnboundAndHoldTheirPd) {
    const uint32_t domain = pd();
    EXPECT_EQ(call(Op::alloc_mw, abi::AllocMwRequest{domain, 3}).error, EINVAL);
    EXPECT_EQ(call(Op::alloc_mw, abi::AllocMwRequest{domain + 50, 1}).error, ENOENT);
    const auto mw = call(Op::alloc_mw, abi::AllocMwRequest{domain, 2}).as<abi::AllocMwReply>();
    const mem::MemoryRegion* window = std::as_const(shared.keys).find(Key{mw.rkey});
    ASSERT_NE(window, nullptr);
    EXPECT_TRUE(window->is_window && window->type2 && window->invalidated.load());
    EXPECT_EQ(conductor.totals().mws, 1u);
    EXPECT_EQ(on(Op::dealloc_pd, domain).error, EBUSY);
    EXPECT_EQ(on(Op::dealloc_mw, mw.handle).error, 0);
    EXPECT_EQ(std::as_const(shared.keys).find(Key{mw.rkey}), nullptr);
    EXPECT_EQ(on(Op::dealloc_mw, mw.handle).error, ENOENT);
    EXPECT_EQ(on(Op::dealloc_pd, domain).error, 0);
}

TEST_F(CompleteVerbs, DeviceMemoryIsBoundedAndHeldByItsMrs) {
    const uint32_t domain = pd();
    const uint32_t access = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE;
    EXPECT_EQ(call(Op::alloc_dm, abi::AllocDmRequest{0, 0, 0}).error, EINVAL);
    EXPECT_EQ(call(Op::alloc_dm, abi::AllocDmRequest{~uint64_t{0}, 0, 0}).error, ENOMEM);
    EXPECT_EQ(call(Op::alloc_dm, abi::AllocDmRequest{64, 40, 0}).error, EINVAL);
    const Result dm = call(Op::alloc_dm, abi::AllocDmRequest{4096, 0, 0});
    ASSERT_EQ(dm.error, 0) << dm.reason;
    const uint32_t handle = dm.as<abi::AllocDmReply>().handle;
    const auto reg = [&](uint32_t flags, uint64_t offset, uint64_t length) {
        return call(Op::reg_dm_mr, abi::RegDmMrRequest{domain, handle, flags, 0, offset, length});
    };
    EXPECT_EQ(reg(access, 4096, 1).error, EINVAL);
    EXPECT_EQ(reg(access, ~uint64_t{0}, 4).error, EINVAL);
    EXPECT_EQ(reg(IBV_ACCESS_LOCAL_WRITE, 0, 64).error, EINVAL);
    const Result mr = reg(access, 1024, 3072);
    ASSERT_EQ(mr.error, 0) << mr.reason;
    EXPECT_EQ(on(Op::free_dm, handle).error, EBUSY);
    EXPECT_EQ(on(Op::dereg_mr, mr.as<abi::RegMrReply>().handle).error, 0);
    EXPECT_EQ(on(Op::free_dm, handle).error, 0);
    EXPECT_EQ(on(Op::free_dm, handle).error, ENOENT);
}

TEST_F(CompleteVerbs, NullRegionsReadZerosAndSwallow) {
    const Result mr = on(Op::alloc_null_mr, pd());
    ASSERT_EQ(mr.error, 0) << mr.reason;
    const mem::MemoryRegion* null = std::as_const(shared.keys).find(Key{mr.as<abi::RegMrReply>().lkey});
    ASSERT_NE(null, nullptr);
    std::byte bytes[100];
    std::fill(std::begin(bytes), std::end(bytes), std::byte{7});
    EXPECT_TRUE(mem::copy_in(*null, 0x1234, bytes, sizeof bytes));
    EXPECT_TRUE(mem::copy_out(*null, 0x1234, bytes, sizeof bytes));
    EXPECT_TRUE(std::all_of(std::begin(bytes), std::end(bytes), [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(CompleteVerbs, GroupsFollowTheirQps) {
    const uint32_t ud = qp(IBV_QPT_UD).handle, rc = qp().handle;
    EXPECT_EQ(call(Op::attach_mcast, group(rc)).error, EINVAL);
    EXPECT_EQ(call(Op::attach_mcast, group(ud, 0xfe)).error, EINVAL) << "no multicast address";
    EXPECT_EQ(call(Op::detach_mcast, group(ud)).error, EINVAL);
    ASSERT_EQ(call(Op::attach_mcast, group(ud)).error, 0);
    ASSERT_EQ(call(Op::attach_mcast, group(ud)).error, 0) << "twice is once";
    ASSERT_EQ(shared.multicast.load()->groups.size(), 1u);
    EXPECT_EQ(shared.multicast.load()->groups[0].qpns.size(), 1u);
    EXPECT_EQ(on(Op::destroy_qp, ud).error, EBUSY);
    const uint32_t second = qp(IBV_QPT_UD).handle;
    ASSERT_EQ(call(Op::attach_mcast, group(second)).error, 0);
    EXPECT_EQ(call(Op::detach_mcast, group(second)).error, 0);
    using Followed = std::vector<std::pair<uint32_t, bool>>;
    EXPECT_EQ(platform.followed, (Followed{{0, true}})) << "the network is told of the first QP, not of each";
    EXPECT_EQ(call(Op::detach_mcast, group(ud)).error, 0);
    EXPECT_EQ(platform.followed, (Followed{{0, true}, {0, false}}));
    EXPECT_TRUE(shared.multicast.load()->groups.empty());
    ASSERT_EQ(call(Op::attach_mcast, group(ud)).error, 0);
    close(session);
    EXPECT_TRUE(shared.multicast.load()->groups.empty());
    EXPECT_EQ(platform.followed.back(), std::pair(0u, false));
}

TEST_F(CompleteVerbs, AGroupThatThePortCannotJoinIsRefused) {
    const uint32_t ud = qp(IBV_QPT_UD).handle;
    platform.refuse_group = ENOBUFS;
    const Result refused = call(Op::attach_mcast, group(ud));
    EXPECT_EQ(refused.error, ENOBUFS);
    EXPECT_NE(refused.reason.find("igmp_max_memberships"), std::string::npos) << refused.reason;
    EXPECT_TRUE(shared.multicast.load() == nullptr || shared.multicast.load()->groups.empty());
    platform.refuse_group = 0;
    EXPECT_EQ(call(Op::attach_mcast, group(ud)).error, 0);
    EXPECT_EQ(shared.multicast.load()->groups.size(), 1u);
}

TEST_F(CompleteVerbs, ASessionThatEndsLeavesNothing) {
    const uint32_t xrcd = handle_of(open_xrcd(session, O_CREAT, 1001));
    ASSERT_EQ(call(Op::create_srq, xrc_srq(xrcd, cq())).error, 0);
    ASSERT_EQ(call(Op::alloc_mw, abi::AllocMwRequest{pd(), 1}).error, 0);
    ASSERT_EQ(call(Op::alloc_dm, abi::AllocDmRequest{4096, 0, 0}).error, 0);
    ASSERT_EQ(on(Op::alloc_null_mr, pd()).error, 0);
    ASSERT_EQ(call(Op::attach_mcast, group(qp(IBV_QPT_UD).handle)).error, 0);
}  // TearDown() checks that no object is left

}  // namespace
}  // namespace roci::host::test
