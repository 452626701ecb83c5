// Tests of the isolation of users. A user must not see or affect objects of other users, and must not use more than
// its share of resources.
#include <nlohmann/json.hpp>

#include "fixture.hpp"

namespace roci::host::test {
namespace {

using abi::Op;

class Strangers : public ConductorTest {
protected:
    static constexpr uint32_t kOther = 1001;
};

TEST_F(Strangers, ACaptureIsOfOnesOwnQueuePair) {
    const uint32_t qpn = qp().qpn;
    const uint32_t other = open(0, kOther);
    EXPECT_EQ(call_as(other, Op::start_capture, abi::StartCaptureRequest{0, qpn, 0, 0}).error, EPERM);
    EXPECT_EQ(call_as(other, Op::start_capture, abi::StartCaptureRequest{0, 0, 0, 0}).error, EPERM) << "a whole port";
    EXPECT_EQ(call(Op::start_capture, abi::StartCaptureRequest{1, qpn, 0, 0}).error, 0);
    EXPECT_EQ(platform.last_capture.qpn, qpn);
    EXPECT_EQ(platform.last_capture.device, 0u) << "that of the queue pair, whatever was named";
}

TEST_F(Strangers, AUserHasSomeCapturesAndLeavesPlacesForOthers) {
    const uint32_t qpn = qp().qpn;
    const abi::StartCaptureRequest request{0, qpn, 0, 0};
    const uint32_t second = open(), third = open();
    EXPECT_EQ(call(Op::start_capture, request).error, 0);
    EXPECT_EQ(call_as(second, Op::start_capture, request).error, 0);
    const Result r = call_as(third, Op::start_capture, request);
    EXPECT_EQ(r.error, EBUSY);
    EXPECT_TRUE(r.says("user 1000 has 2 captures")) << r.reason;
    EXPECT_EQ(call_as(open(0, 0), Op::start_capture, abi::StartCaptureRequest{0, 0, 0, 0}).error, 0) << "root looks on";
    EXPECT_EQ(call(Op::stop_capture).error, 0);
    EXPECT_EQ(call_as(third, Op::start_capture, request).error, 0);
}

TEST_F(Strangers, StatusShowsAUserItsOwnOnly) {
    const uint32_t qpn = qp().qpn;
    const uint32_t other = open(0, kOther);
    ASSERT_EQ(send(conductor, other, packet(Op::status, {})).error, 0);
    const auto theirs = nlohmann::json::parse(platform.status);
    ASSERT_EQ(theirs["sessions"].size(), 1u);
    EXPECT_EQ(theirs["sessions"][0]["uid"], kOther);
    EXPECT_FALSE(theirs.contains("rdma_cm") || theirs.contains("host") || theirs.contains("totals"));
    EXPECT_EQ(platform.status.find("\"qpn\": " + std::to_string(qpn)), std::string::npos);
    for (const auto& row : theirs["limits"]) EXPECT_EQ(row["user"], kOther);
    ASSERT_EQ(send(conductor, open(0, 0), packet(Op::status, {})).error, 0);
    EXPECT_EQ(nlohmann::json::parse(platform.status)["sessions"].size(), 3u) << "root sees all";
}

TEST_F(Strangers, NumbersAndKeysFollowNoCount) {
    const uint32_t a = qp().qpn, b = qp().qpn, c = qp().qpn;
    EXPECT_FALSE(b == a + 1 && c == b + 1);
    const uint32_t p = pd();
    const auto key = [&] { return call(Op::alloc_mw, abi::AllocMwRequest{p, 1}).as<abi::AllocMwReply>().rkey; };
    const uint32_t k = key(), l = key(), m = key();
    EXPECT_FALSE((k & 255) == (l & 255) && (l & 255) == (m & 255));
    EXPECT_FALSE(l >> 8 == (k >> 8) + 1 && m >> 8 == (l >> 8) + 1);
}

TEST_F(Strangers, APeerOfAnotherUsersConnectionIsNotConnectedTo) {
    const auto connect_to = [&](uint32_t s, uint32_t dest) {
        const uint32_t p = handle_of(send(conductor, s, packet(Op::alloc_pd, {})));
        const uint32_t q =
            call_as(s, Op::create_cq, abi::CreateCqRequest{16, abi::kNoHandle, 0, 0}).as<abi::CreateCqReply>().handle;
        const uint32_t h = call_as(s, Op::create_qp, qp_request(p, q)).as<abi::CreateQpReply>().handle;
        abi::QpAttr a{};
        a.qp_state = uint32_t(qp::State::init);
        a.port_num = 1;
        EXPECT_EQ(call_as(s, Op::modify_qp,
                          abi::ModifyQpRequest{h, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, a})
                      .error,
                  0);
        a.qp_state = uint32_t(qp::State::rtr);
        a.path_mtu = 3;
        a.dest_qp_num = dest;
        a.max_dest_rd_atomic = a.min_rnr_timer = 1;
        a.ah.is_global = a.ah.port_num = 1;
        a.ah.sgid_index = 2;
        std::copy_n(kGid4.bytes.begin(), 16, a.ah.dgid.raw);
        constexpr uint32_t kToRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        const Result r = call_as(s, Op::modify_qp, abi::ModifyQpRequest{h, kToRtr, a});
        return std::pair(h, r);
    };
    const uint32_t other = open(0, kOther);
    const auto [mine, first] = connect_to(session, 99);
    EXPECT_EQ(first.error, 0) << first.reason;
    const auto [theirs, second] = connect_to(other, 99);
    EXPECT_EQ(second.error, EADDRINUSE);
    EXPECT_TRUE(second.says("another user's QP")) << second.reason;
    const auto [again, third] = connect_to(session, 99);
    EXPECT_EQ(third.error, 0) << "one's own is one's own matter";
    EXPECT_EQ(connect_to(other, 100).second.error, 0);
    abi::QpAttr broken{};
    broken.qp_state = uint32_t(qp::State::err);
    for (const uint32_t h : {mine, again}) {
        EXPECT_EQ(connect_to(other, 99).second.error, EADDRINUSE);
        EXPECT_EQ(call_as(session, Op::modify_qp, abi::ModifyQpRequest{h, IBV_QP_STATE, broken}).error, 0);
    }
    EXPECT_EQ(connect_to(other, 99).second.error, 0) << "no QP of the first user sends to that peer any more";
}

TEST_F(Strangers, AControlledQKeyIsForThePrivileged) {
    const auto set_qkey = [&](uint32_t s, uint32_t qkey) {
        const uint32_t p = handle_of(send(conductor, s, packet(Op::alloc_pd, {})));
        const uint32_t q =
            call_as(s, Op::create_cq, abi::CreateCqRequest{16, abi::kNoHandle, 0, 0}).as<abi::CreateCqReply>().handle;
        const uint32_t h = call_as(s, Op::create_qp, qp_request(p, q, IBV_QPT_UD)).as<abi::CreateQpReply>().handle;
        abi::QpAttr a{};
        a.qp_state = uint32_t(qp::State::init);
        a.port_num = 1;
        a.qkey = qkey;
        return call_as(s, Op::modify_qp, abi::ModifyQpRequest{h, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, a})
            .error;
    };
    constexpr uint32_t kManagement = 0x80010000;
    EXPECT_EQ(set_qkey(session, kManagement), EPERM);
    EXPECT_EQ(set_qkey(session, 0x11111111), 0);
    EXPECT_EQ(set_qkey(open(0, 0), kManagement), 0);
}

class SmallShares : public ConductorTest {
protected:
    static Limits limits() {
        Limits l = small_limits();
        l.user.sessions = 3;
        l.user.qps = l.user.cqs = l.user.pds = l.user.address_handles = l.user.channels = l.user.cm_ids = l.user.srqs =
            l.user.keys = 2;
        l.user.cq_entries = 100;
        l.user.mappings = 6;
        l.user.mapped_bytes = 10000;
        l.max_mappings = 12;
        return l;
    }
    SmallShares() : ConductorTest(limits()) {}
};

TEST_F(SmallShares, EachLimitNamesItselfAndLeavesOthersTheirs) {
    const uint32_t p = pd(), q = cq();
    pd();
    EXPECT_TRUE(call(Op::alloc_pd).says("limit pds: user 1000 has 2 of 2"));
    EXPECT_EQ(call(Op::create_qp, qp_request(p, q)).error + call(Op::create_qp, qp_request(p, q)).error, 0);
    const Result r = call(Op::create_qp, qp_request(p, q));
    EXPECT_EQ(r.error, ENOMEM);
    EXPECT_TRUE(r.says("limit qps: user 1000 has 2 of 2")) << r.reason;
    EXPECT_TRUE(call(Op::create_cq, abi::CreateCqRequest{90, abi::kNoHandle, 0, 0}).says("limit cq_entries"));
    cq(16);
    EXPECT_TRUE(call(Op::create_cq, abi::CreateCqRequest{16, abi::kNoHandle, 0, 0}).says("limit cqs"));
    const auto window = [&] { return call(Op::alloc_mw, abi::AllocMwRequest{p, 1}); };
    EXPECT_EQ(window().error + window().error, 0);
    EXPECT_TRUE(window().says("limit keys"));
    EXPECT_EQ(call(Op::create_channel).error + call(Op::cm_open_channel).error, 0);
    EXPECT_TRUE(call(Op::create_channel).says("limit channels"));
    EXPECT_TRUE(call(Op::cm_open_channel).says("limit channels"));

    const uint32_t second = open();
    EXPECT_EQ(send(conductor, second, packet(Op::alloc_pd, {})).error, ENOMEM) << "another session of the same user";
    const uint32_t other = open(0, 1001);
    EXPECT_EQ(send(conductor, other, packet(Op::alloc_pd, {})).error, 0);
    ASSERT_EQ(send(conductor, session, packet(Op::status, {})).error, 0);
    bool found = false;
    const auto status = nlohmann::json::parse(platform.status);
    for (const auto& row : status["limits"])
        if (row["resource"] == "qps") found = row["used"] == 2 && row["limit"] == 2 && row["refused"] == 1;
    EXPECT_TRUE(found) << platform.status;
}

TEST_F(SmallShares, EntriesOfACqCountUntilItIsResizedOrDestroyed) {
    const auto create = [&](uint32_t n) { return call(Op::create_cq, abi::CreateCqRequest{n, abi::kNoHandle, 0, 0}); };
    const uint32_t q = create(64).as<abi::CreateCqReply>().handle;
    EXPECT_TRUE(create(64).says("limit cq_entries: user 1000 has 64 of 100"));
    EXPECT_EQ(call(Op::resize_cq, abi::ResizeCqRequest{q, 16, {}}).error, 0);
    EXPECT_EQ(create(64).error, 0);
    EXPECT_EQ(call(Op::destroy_cq, abi::HandleRequest{q}).error, 0);
    EXPECT_TRUE(create(64).says("limit cq_entries: user 1000 has 64 of 100"));
}

// The number of entries of a CQ is a power of two, so a CQ may have more entries than requested.
TEST_F(SmallShares, EntriesOfACqAreCheckedAsTheyAreCounted) {
    const auto create = [&](uint32_t n) { return call(Op::create_cq, abi::CreateCqRequest{n, abi::kNoHandle, 0, 0}); };
    EXPECT_TRUE(create(65).says("limit cq_entries: user 1000 has 0 of 100"));
    const Result made = create(63);
    ASSERT_EQ(made.error, 0) << made.reason;
    EXPECT_TRUE(create(33).says("limit cq_entries: user 1000 has 64 of 100"));
    const auto resize = [&](uint32_t n) {
        return call(Op::resize_cq, abi::ResizeCqRequest{made.as<abi::CreateCqReply>().handle, n, {}});
    };
    EXPECT_TRUE(resize(33).says("limit cq_entries: user 1000 has 64 of 100"));
    EXPECT_EQ(resize(32).error, 0);
}

class SlowRate : public ConductorTest {
protected:
    static Limits limits() {
        Limits l = small_limits();
        l.user.control_rate = 20;
        return l;
    }
    SlowRate() : ConductorTest(limits()) {}
};

TEST_F(SlowRate, AUserBeyondTheRateWaitsAndNothingIsRefused) {
    constexpr Nanos kSecond = 1'000'000'000, kNow = 10 * kSecond;
    conductor.service(kNow);
    const uint32_t other = open(0, 1001), root = open(0, 0), mine = pd();
    int made = 0;
    for (; made < 30 && conductor.not_before(session) <= kNow; ++made) EXPECT_EQ(call(Op::query_device).error, 0);
    EXPECT_GT(made, 5);
    EXPECT_LE(made, 20);
    EXPECT_EQ(conductor.not_before(session), kNow + kSecond / 20);
    EXPECT_EQ(on(Op::dealloc_pd, mine).error, 0) << "what frees something is not refused";
    EXPECT_EQ(conductor.not_before(session), kNow + 2 * kSecond / 20) << "but counts";
    EXPECT_EQ(on(Op::dealloc_pd, mine).error, ENOENT);
    EXPECT_EQ(call(Op(60'000)).error, EOPNOTSUPP);
    EXPECT_EQ(conductor.not_before(session), kNow + 4 * kSecond / 20) << "so do requests that fail";
    for (int i = 0; i < 15; ++i) EXPECT_EQ(send(conductor, other, packet(Op::query_device, {})).error, 0);
    EXPECT_LE(conductor.not_before(other), kNow) << "another user";
    for (int i = 0; i < 50; ++i) EXPECT_EQ(send(conductor, root, packet(Op::query_device, {})).error, 0);
    EXPECT_LE(conductor.not_before(root), kNow);
    const Nanos later = kNow + kSecond;
    conductor.service(later);
    EXPECT_LE(conductor.not_before(session), later);
    ASSERT_EQ(call(Op::status).error, 0);
    bool found = false;
    const auto status = nlohmann::json::parse(platform.status);
    for (const auto& row : status["limits"])
        if (row["resource"] == "control_rate") found = row["limit"] == 20 && row["used"] == 5 && row["refused"] == 4;
    EXPECT_TRUE(found) << platform.status;
}

TEST_F(SlowRate, NewSessionsCountAndAreRefusedToAUserWhoHasToWaitForLong) {
    constexpr Nanos kSecond = 1'000'000'000, kNow = 10 * kSecond;
    conductor.service(kNow);
    int opened = 0;
    for (uint32_t s = connect(); s != abi::kNoHandle && opened < 100; s = connect(), ++opened) close(s);
    EXPECT_GT(opened, 20) << "a debt of a second";
    EXPECT_LE(opened, 40);
    EXPECT_NE(connect(1001), abi::kNoHandle);
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(connect(), abi::kNoHandle);
    conductor.service(kNow + 2 * kSecond);  // the refused sessions were not charged to the user
    EXPECT_NE(connect(), abi::kNoHandle);
}

class SlowSender : public ConductorTest {
protected:
    static Limits limits() {
        Limits l = small_limits();
        l.rules = {{LimitRule::Whom::user, 1000, &UserLimits::bytes_per_second, 5000}};
        return l;
    }
    SlowSender() : ConductorTest(limits()) {}
};

TEST_F(SlowSender, EnginesGetTheRateOfTheUserAndStatusShowsIt) {
    constexpr Nanos kSecond = 1'000'000'000;
    ASSERT_EQ(port.rates.size(), 2u);
    qp::UserRate* mine = port.rates.front();
    ASSERT_NE(mine, nullptr);
    open();
    ASSERT_EQ(port.rates.size(), 4u);
    for (qp::UserRate* r : port.rates) EXPECT_EQ(r, mine) << "one for all sessions and engines";
    open(0, 1001);
    EXPECT_EQ(port.rates.back(), nullptr) << "another user has no limit";
    mine->charge(10 * kSecond, 1, 0);
    mine->charge(11 * kSecond, 1, 7000);
    mine->count_wait();
    conductor.service(11 * kSecond);
    ASSERT_EQ(call(Op::status).error, 0);
    int found = 0;
    const auto status = nlohmann::json::parse(platform.status);
    for (const auto& row : status["limits"]) {
        if (row["resource"] == "bytes_per_second") found += row["limit"] == 5000 && row["used"] == 7000 && row["refused"] == 1;
        if (row["resource"] == "packets_per_second") found += !row.contains("limit");
    }
    EXPECT_EQ(found, 2) << platform.status;
}

class ManyUsers : public ConductorTest {
protected:
    static constexpr Nanos kSecond = 1'000'000'000;
    static constexpr uint32_t kFirst = 2000, kUsers = 1000;
    static Limits limits() {
        Limits l = small_limits();
        l.user.control_rate = 20;
        l.user.sessions = 1;
        l.user.bytes_per_second = 5000;
        return l;
    }
    ManyUsers() : ConductorTest(limits()) {}
    /// Each user, one after the other, opens a session, is refused a second session, and closes the first session.
    void come_and_go(Nanos pause) {
        now = 10 * kSecond;
        for (uint32_t uid = kFirst; uid < kFirst + kUsers; ++uid, now += pause) {
            conductor.service(now);
            const uint32_t s = open(0, uid);
            EXPECT_EQ(connect(uid), abi::kNoHandle) << "limit sessions";
            close(s);
        }
    }
};

TEST_F(ManyUsers, UsersWithoutSessionsAndDebtsAreForgotten) {
    EXPECT_EQ(connect(), abi::kNoHandle) << "user 1000 has a session";
    come_and_go(2 * kSecond);
    EXPECT_LE(conductor.users(), 130u);
    const uint32_t root = open(0, 0);
    ASSERT_EQ(send(conductor, root, packet(Op::status, {})).error, 0);
    std::string of_1000;
    const auto status = nlohmann::json::parse(platform.status);
    for (const auto& row : status["limits"])
        if (row["user"] == 1000 && row["resource"] == "sessions") of_1000 += row.dump();
    EXPECT_NE(of_1000.find("\"refused\":1,"), std::string::npos) << "whoever has a session is kept: " << of_1000;
    for (qp::UserRate* r : {port.rates[0], port.rates[1]}) EXPECT_EQ(r->due(), 0u) << "the engines still use it";
}

TEST_F(ManyUsers, AUserWithADebtIsKept) {
    come_and_go(0);
    EXPECT_GE(conductor.users(), kUsers);
    for (uint32_t s = connect(kFirst); s != abi::kNoHandle; s = connect(kFirst)) close(s);
    for (uint32_t uid = 10'000; uid < 13'000; ++uid) close(connect(uid));
    EXPECT_EQ(connect(kFirst), abi::kNoHandle) << "a debt of a second";
}

TEST(Limits, TheLastRuleThatFitsCounts) {
    Limits l;
    using Whom = LimitRule::Whom;
    l.rules = {{Whom::everybody, 0, &UserLimits::qps, 10},
               {Whom::group, 7, &UserLimits::qps, 20},
               {Whom::user, 1, &UserLimits::qps, 30}};
    EXPECT_EQ(l.of_user(5, 5).qps, 10u);
    EXPECT_EQ(l.of_user(5, 7).qps, 20u);
    EXPECT_EQ(l.of_user(1, 7).qps, 30u);
    EXPECT_EQ(l.of_user(7, 1).qps, 10u) << "a user's number is not a group's";
    EXPECT_EQ(l.of_user(1, 7).cqs, UserLimits{}.cqs);
}

TEST_F(SmallShares, SessionsOfAUserAreCountedAndRootHasTheWhole) {
    EXPECT_NE(connect(), abi::kNoHandle);
    EXPECT_NE(connect(), abi::kNoHandle);
    EXPECT_EQ(connect(), abi::kNoHandle);
    EXPECT_NE(connect(1001), abi::kNoHandle);
    for (int i = 0; i < 5; ++i) EXPECT_NE(connect(0), abi::kNoHandle);
}

TEST_F(SmallShares, MappingsAreCountedByUserAndAltogether) {
    const auto add = [&](uint32_t s, uint64_t length) {
        return call_as(s, Op::add_region, abi::AddRegionRequest{length, 1, 0}, {next_sent_fd++});
    };
    EXPECT_TRUE(add(session, 20000).says("limit mapped_bytes"));
    Result r;
    for (int i = 0; i < 10 && r.error <= 0; ++i) r = add(session, 1000);
    EXPECT_TRUE(r.says("limit mappings: user 1000 has 6 of 6")) << r.reason;
    const uint32_t root = open(0, 0);
    r = {};
    for (int i = 0; i < 20 && r.error <= 0; ++i) r = add(root, 1000);
    EXPECT_TRUE(r.says("limit mappings: all users together have 12 of 12")) << r.reason;
}

}  // namespace
}  // namespace roci::host::test
