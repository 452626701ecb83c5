// Tests of the text of `roci why --cm` and of the journals of rdma_cm ids from which the text is made.
#include "cm_fixture.hpp"

namespace roci::host::test {
namespace {

/// A fixture that reads the text of `roci why --cm` for a session.
class CmWhyTest : public CmTest {
protected:
    std::string why(uint32_t s) {
        EXPECT_EQ(call_as(s, Op::why, abi::WhyRequest{0, 1}).error, 0);
        return platform.status;
    }
    void expect_said(const std::vector<const char*>& words) {
        const std::string text = why(session);
        for (const char* w : words) EXPECT_NE(text.find(w), std::string::npos) << w << "\n" << text;
    }
};

TEST_F(CmWhyTest, NobodyListensAlsoOfAnIdThatIsGone) {
    const uint32_t id = resolved(9999);
    EXPECT_EQ(call(Op::cm_connect, with(id, 33, "")).error, 0);
    carry();
    expect_said({"TCP to ::ffff:10.0.0.2 port 9999", "QP 33", "cause: nobody listens on that port at the peer",
                 "look at: start the server first", "asked for the connection (REQ)", "the peer rejected it (REJ, reason 8)"});
    EXPECT_EQ(why(session).find(": destroyed"), std::string::npos);
    EXPECT_EQ(tell(session, Op::cm_destroy_id, id), 0);
    expect_said({": destroyed", "cause: nobody listens on that port at the peer"});
}

/// If there are many ids, the text describes only the newest ids.
TEST_F(CmWhyTest, OfManyIdsTheNewestAreTold) {
    constexpr uint32_t kIds = 1000;
    constexpr uint8_t kNowhere[4] = {10, 9, 9, 9};
    const Gid nobodys = Gid::from_ipv4(kNowhere);
    std::vector<uint32_t> ids;
    for (uint32_t i = 0; i < kIds; ++i) {
        ids.push_back(make_id(session, channel));
        conductor.service(now += 1'000'000);
        EXPECT_NE(bind(session, ids.back(), address(nobodys, 7000)), 0);
    }
    const std::string text = why(session);
    const auto place = [&](uint32_t id) { return text.find("id " + std::to_string(id) + " of "); };
    EXPECT_EQ(text.find("(" + std::to_string(kIds - kMostTold) + " older ones are left out)\n\n"), 0u) << text.substr(0, 100);
    EXPECT_EQ(place(ids[kIds - kMostTold - 1]), std::string::npos);
    for (size_t i = kIds - kMostTold + 1; i < kIds; ++i) EXPECT_LT(place(ids[i - 1]), place(ids[i])) << "the newest is the last";
    EXPECT_NE(place(ids.back()), std::string::npos);
}

TEST_F(CmWhyTest, ASilentPeer) {
    EXPECT_EQ(call(Op::cm_connect, with(resolved(7174), 33, "")).error, 0);
    for (int i = 0; i < 100; ++i) {
        port.mads.clear();  // the network loses all MADs
        conductor.service(now += 5'000'000'000);
    }
    event(session, channel, CmEventType::unreachable);
    expect_said({"cause: the peer is silent", "the peer did not answer any of the repeated messages", "UDP port 4791"});
}

TEST_F(CmWhyTest, TooMuchPrivateDataAndOtherRefusals) {
    const uint32_t id = resolved(7174);
    EXPECT_EQ(call(Op::cm_connect, with(id, 33, std::string(57, 'x'))).error, EINVAL);
    expect_said({"cause: a call of the program was refused: rdma_connect: private data of 57 bytes; 56 fit"});
    const uint32_t other = make_id(session, channel);
    const Gid elsewhere = Gid::from_ipv4(std::array<uint8_t, 4>{192, 0, 2, 1}.data());
    EXPECT_NE(bind(session, other, address(elsewhere, 1)), 0);
    expect_said({"rdma_bind: ::ffff:192.0.2.1 is not an address of a device of this rocid"});
    abi::CmResolveRequest r{};
    r.id = make_id(session, channel);
    r.dest = address(elsewhere, 1);
    r.source = address(kGid4, 0);
    EXPECT_EQ(call(Op::cm_resolve_addr, r).error, 0);
    expect_said({"did not find the peer's address on the network"});
}

TEST_F(CmWhyTest, BothEndsOfAConnectionAndItsQp) {
    connected(7174);
    expect_said({"is established", "QP 33", "a peer asked for a connection", "the program accepted it", "QP 49"});
}

TEST_F(CmWhyTest, AQpKnowsItsConnection) {
    const auto made = qp();
    EXPECT_EQ(call(Op::cm_connect, with(resolved(9999), made.qpn, "")).error, 0);
    carry();
    EXPECT_EQ(call(Op::why, abi::WhyRequest{made.qpn, 0}).error, 0);
    EXPECT_NE(platform.status.find("its connection (rdma_cm):\nid "), std::string::npos) << platform.status;
    EXPECT_NE(platform.status.find("nobody listens"), std::string::npos) << platform.status;
}

TEST_F(CmWhyTest, ARejectionByTheProgramAndAFullBacklog) {
    listening(7174, kTcp, 1);
    for (uint32_t i = 0; i < 2; ++i) {
        EXPECT_EQ(call(Op::cm_connect, with(resolved(7174), 100 + i, "")).error, 0);
        carry();
    }
    expect_said({"cause: the listener's backlog was full", "raise the backlog", "cause: the peer's program rejected it"});
    const abi::CmRejectRequest no{event(peer, peer_channel, CmEventType::connect_request).id, 0, with(0, 0, "no").param};
    EXPECT_EQ(call_as(peer, Op::cm_reject, no).error, 0);
    expect_said({"cause: the program rejected the request with rdma_reject"});
}

TEST_F(CmWhyTest, OtherUsersSeeNothing) {
    connected(7174);
    const std::string text = why(open(0, 1001));
    EXPECT_EQ(text.find("port 7174"), std::string::npos) << text;
}

TEST(CmArchive, IsBoundedByUserAndKeepsFailuresLonger) {
    CmArchive archive;
    CmStory failed, good;
    failed.uid = good.uid = 7;
    failed.journal.add(1, CmHappening::rejected, 8);
    good.journal.add(1, CmHappening::established);
    archive.keep(failed);
    for (uint32_t i = 0; i < 1000; ++i) archive.keep(good);
    EXPECT_EQ(archive.all().size(), 1 + CmArchive::kOtherOfUser);
    for (uint32_t i = 0; i < 1000; ++i) archive.keep(failed);
    EXPECT_EQ(archive.all().size(), CmArchive::kFailedOfUser + CmArchive::kOtherOfUser);
    for (uint32_t uid = 100; uid < 1000; ++uid) {
        failed.uid = uid;
        archive.keep(failed);
    }
    EXPECT_EQ(archive.all().size(), CmArchive::kMost);
}

TEST(CmJournal, KeepsTheFirstAndTheLast) {
    CmJournal j;
    for (int32_t i = 0; i < 100; ++i) j.add(Nanos(i), CmHappening::asked, i);
    EXPECT_EQ(j.entries().size(), CmJournal::kMost);
    EXPECT_EQ(j.entries().front().code, 0);
    EXPECT_EQ(j.entries().back().code, 99);
}

}  // namespace
}  // namespace roci::host::test
