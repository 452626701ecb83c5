// Tests of `roci why`: which QPs a user may query, the text, and the journals that remain of destroyed QPs.
#include <fcntl.h>

#include <fstream>
#include <sstream>

#include "fixture.hpp"
#include "host/sessions/story.hpp"

namespace roci::host::test {
namespace {

using abi::Op;
using abi::Reason;
using qp::Happening;

QpFacts facts(uint32_t qpn = 18) {
    QpFacts f;
    f.qpn = qpn;
    f.type = qp::Type::rc;
    f.program = "app";
    f.now.state = qp::State::rts;
    f.attr.path_mtu = IBV_MTU_4096;
    f.attr.dest_qp_num = 99;
    return f;
}

class WhyTest : public ConductorTest {
protected:
    Result why(uint32_t of, uint32_t qpn) { return call_as(of, Op::why, abi::WhyRequest{qpn, 0}); }
};

TEST_F(WhyTest, TellsTheOwnerAndRootAndNobodyElse) {
    const auto made = qp();
    EXPECT_EQ(why(session, made.qpn).error, 0);
    EXPECT_NE(platform.status.find("QP " + std::to_string(made.qpn) + ", RC on roci0, of unit test (pid 42)"), std::string::npos)
        << platform.status;
    EXPECT_EQ(why(open(0, 0), made.qpn).error, 0) << "root";
    const Result stranger = why(open(0, 1001), made.qpn), nobody = why(open(0, 1001), made.qpn + 1000);
    EXPECT_EQ(stranger.error, ENOENT);
    EXPECT_EQ(nobody.error, ENOENT);
    EXPECT_EQ(stranger.reason.substr(0, 30), nobody.reason.substr(0, 30)) << "not even that it is there";
}

TEST(Archive, IsBoundedByUser) {
    Archive archive;
    for (uint32_t i = 0; i < 1000; ++i) {
        QpFacts f = facts(i);
        f.uid = 7;
        archive.keep(f);
    }
    EXPECT_EQ(archive.size(), Archive::kMostOfUser);
    EXPECT_EQ(archive.find(1), nullptr);
    ASSERT_NE(archive.find(999), nullptr);
    for (uint32_t uid = 100; uid < 1000; ++uid) {
        QpFacts f = facts(uid);
        f.uid = uid;
        archive.keep(f);
    }
    EXPECT_EQ(archive.size(), Archive::kMost);
}

bool says(const std::string& text, const std::string& word) { return text.find(word) != std::string::npos; }

TEST(Story, NamesKeyRangeRightAndDomain) {
    QpFacts f = facts();
    f.now.state = qp::State::err;
    f.journal.add(1'000'000, Happening::state, uint8_t(qp::State::rts), {}, Reason::none);
    f.journal.add(2'000'000, Happening::refused, 0, Psn(77), Reason::rkey_other_pd);
    f.journal.add(2'000'000, Happening::state, uint8_t(qp::State::err), {}, Reason::none);
    f.journal.access = {mem::Fault::wrong_pd, 0x1234, 5, mem::kRemoteWrite, 0x7000, 64, 6, mem::kRemoteRead, 0x6000, 4096};
    const std::string text = sessions::story_of(f, "roci0");
    for (const char* word : {"in ERR", "another protection domain", "vendor_err 25", "remote write of 64 bytes at 0x7000",
                             "key 0x1234 from PD 5", "4096 bytes at 0x6000, PD 6, for remote read", "+0.001000 s", "PSN 77"})
        EXPECT_TRUE(says(text, word)) << word << "\n" << text;
}

TEST(Story, HasEachChangeOfTheStateOnce) {
    QpFacts f = facts();
    EXPECT_FALSE(says(sessions::story_of(f, "roci0"), "what happened"));
    f.steps.add(1'000'000, qp::State::reset);
    f.steps.add(2'000'000, qp::State::init);
    f.steps.add(3'000'000, qp::State::rtr);
    f.steps.add(4'000'000, qp::State::rts);
    const std::string before =
        "what happened:\n  +0.000000 s  the QP is in RESET\n  +0.001000 s  the QP is in INIT\n  +0.002000 s  the QP is in RTR\n"
        "  +0.003000 s  the QP is in RTS\n";
    EXPECT_TRUE(says(sessions::story_of(f, "roci0"), before)) << "a QP without an unusual event";
    f.journal.add(6'000'000, Happening::state, uint8_t(qp::State::rts), {}, Reason::none);
    f.journal.add(6'000'000, Happening::timeout, 0, Psn(7), Reason::none);
    f.journal.add(7'000'000, Happening::state, uint8_t(qp::State::err), {}, Reason::none);
    f.steps.add(8'000'000, qp::State::reset);
    f.journal.add(8'000'100, Happening::state, uint8_t(qp::State::reset), {}, Reason::none);
    const std::string text = sessions::story_of(f, "roci0");
    EXPECT_TRUE(says(text, before + "  +0.005000 s  no answer within the ACK timeout, 0 retries left, PSN 7\n"
                                    "  +0.006000 s  the QP is in ERR\n  +0.007000 s  the QP is in RESET\n"))
        << text;
    for (uint32_t i = 0; i < 1000; ++i) f.steps.add(i, i % 2 == 0 ? qp::State::reset : qp::State::init);
    EXPECT_EQ(f.steps.count(), StateSteps::kMost);
    EXPECT_EQ(f.steps.at(0).at, 1000 - StateSteps::kMost);
    EXPECT_EQ(f.steps.at(StateSteps::kMost - 1).to, qp::State::init);
}

TEST(Story, SaysWhatSlowsAQpThatWorks) {
    QpFacts f = facts();
    f.send_depth = 16;
    EXPECT_TRUE(says(sessions::story_of(f, "roci0"), "nothing waits to be sent"));
    f.now.counters.tx_packets = 1000;
    f.now.counters.events.retransmits = 10;
    EXPECT_TRUE(says(sessions::story_of(f, "roci0"), "10 of 1000 packets (1.00 %) were sent again"));
    f.slow_ops = 3;
    EXPECT_TRUE(says(sessions::story_of(f, "roci0"), "by address"));
    f.attr.path_mtu = IBV_MTU_1024;
    EXPECT_TRUE(says(sessions::story_of(f, "roci0"), "path MTU is 1024"));
}

TEST(Story, SaysHowTheProgramSlowsIt) {
    QpFacts f = facts();
    f.now.habits = {.looked = 16, .signaled = 16, .unaligned = 16};
    f.now.counters.events.tx_messages = 10;
    EXPECT_FALSE(says(sessions::story_of(f, "roci0"), "signalled")) << "few messages";
    EXPECT_TRUE(says(sessions::story_of(f, "roci0"), "buffers of 16 of the last 16 send requests are not aligned"));
    f.now.counters.events.tx_messages = 5000;
    EXPECT_TRUE(says(sessions::story_of(f, "roci0"), "every work request is signalled"));
    f.now.habits.signaled = 15;
    f.now.habits.unaligned = 7;
    EXPECT_FALSE(says(sessions::story_of(f, "roci0"), "signalled"));
    EXPECT_FALSE(says(sessions::story_of(f, "roci0"), "aligned"));
}

TEST(Story, NamesIncastAndTheLimitOfTheMoment) {
    QpFacts f = facts();
    f.receiving = 12;
    f.disturbed = 5;
    EXPECT_FALSE(says(sessions::story_of(f, "roci0"), "incast"));
    f.disturbed = 11;
    EXPECT_TRUE(says(sessions::story_of(f, "roci0"), "incast: 12 QPs receive on this device, and packets to 11"));
    f.now.limit = qp::Limit::lcore;
    EXPECT_FALSE(says(sessions::story_of(f, "roci0"), "the limit is"));
    f.now.limit = qp::Limit::credits;
    EXPECT_TRUE(says(sessions::story_of(f, "roci0"), "the limit is \"credits\": the peer has no receive posted"));
}

TEST(Story, SaysThatFewRetriesWereLeft) {
    QpFacts f = facts();
    f.now.state = qp::State::err;
    f.journal.add(1, Happening::failed, 0, {}, Reason::peer_silent);
    EXPECT_TRUE(says(sessions::story_of(f, "roci0"), "retry_cnt is 0: a single loss can end the connection"));
    f.attr.retry_cnt = 7;
    EXPECT_FALSE(says(sessions::story_of(f, "roci0"), "retry_cnt is"));
}

TEST_F(WhyTest, KeepsWhatModifyQpRefused) {
    const auto made = qp();
    abi::ModifyQpRequest r{};
    r.handle = made.handle;
    r.mask = qp::kAttrState;
    r.attr.qp_state = uint32_t(qp::State::rts);
    const std::string reason = call(Op::modify_qp, r).reason;
    EXPECT_EQ(why(session, made.qpn).error, 0);
    EXPECT_TRUE(says(platform.status, "not connected: ibv_modify_qp to RTS was refused: " + reason)) << platform.status;
    EXPECT_EQ(call(Op::destroy_qp, abi::HandleRequest{made.handle}).error, 0);
    EXPECT_EQ(why(session, made.qpn).error, 0);
    EXPECT_TRUE(says(platform.status, "destroyed")) << platform.status;
    EXPECT_TRUE(says(platform.status, reason)) << platform.status;
}

TEST_F(WhyTest, TellsTheLastStateOfADestroyedQpWithoutAJournal) {
    const Step steps[] = {to_init(), to_rtr(), to_rts()};
    const char* const told[] = {"destroyed, last in INIT\ncause: it is not connected: ibv_modify_qp was refused",
                                "destroyed, last in RTR\ncause: it cannot send: ibv_modify_qp was refused"};
    for (size_t n = 1; n <= std::size(steps); ++n) {
        const auto made = qp();
        for (size_t i = 0; i < n; ++i) ASSERT_EQ(modify(made.handle, steps[i].mask, steps[i].attr).error, 0);
        EXPECT_NE(modify(made.handle, qp::kAttrPathMtu, {.path_mtu = 99}).error, 0);
        EXPECT_EQ(call(Op::destroy_qp, abi::HandleRequest{made.handle}).error, 0);
        if (n == std::size(steps)) {
            EXPECT_EQ(why(session, made.qpn).error, ENOENT) << "a QP that reached RTS and had no error has not failed";
            continue;
        }
        EXPECT_EQ(why(session, made.qpn).error, 0);
        EXPECT_TRUE(says(platform.status, told[n - 1])) << platform.status;
    }
}

// Each session that has opened an XRC target QP has one or more handles of this QP.
TEST_F(WhyTest, CountsAReceiverOnceForAllItsHandles) {
    const uint32_t domain = handle_of(call(Op::open_xrcd, abi::OpenXrcdRequest{O_CREAT, 1}, {1001}));
    abi::CreateQpRequest target = qp_request(abi::kNoHandle, abi::kNoHandle, IBV_QPT_XRC_RECV);
    target.xrcd = domain;
    const auto made = call(Op::create_qp, target).as<abi::CreateQpReply>();
    for (int i = 0; i < 8; ++i) handle_of(call(Op::open_qp, abi::OpenQpRequest{domain, made.qpn, IBV_QPT_XRC_RECV, 0}));
    for (const Step& step : {to_init(), to_rtr()}) ASSERT_EQ(modify(made.handle, step.mask, step.attr).error, 0);
    port.counters.events.rx_messages = 100;
    port.counters.events.out_of_order = 1;
    EXPECT_EQ(why(session, made.qpn).error, 0);
    EXPECT_FALSE(says(platform.status, "incast")) << platform.status;
}

TEST(Story, FindsEndsThatDoNotFit) {
    const auto devices = two_devices();
    QpFacts a = facts(18), b = facts(19);
    a.attr.ah = good_av(kOtherGid4);
    b.attr.ah = good_av(kGid4);
    a.attr.dest_qp_num = 19;
    b.attr.dest_qp_num = 18;
    const auto found = [&] {
        std::string all;
        for (const std::string& m : sessions::mismatches(a, b, devices[0], devices[1])) all += m + "\n";
        return all;
    };
    EXPECT_EQ(found(), "");
    b.attr.path_mtu = IBV_MTU_1024;
    EXPECT_TRUE(says(found(), "path MTU 4096 at QP 18 but 1024 at QP 19"));
    b.attr.dest_qp_num = 20;
    EXPECT_TRUE(says(found(), "QP 19 is connected to QP 20, not to QP 18"));
    a.attr.sq_psn = 5;
    EXPECT_TRUE(says(found(), "starts at PSN 5"));
    b.attr.ah = good_av(kOtherGid4);
    EXPECT_TRUE(says(found(), "not one of roci0"));
    b.now.state = qp::State::init;
    EXPECT_TRUE(says(found(), "must be in RTR or RTS"));
}

TEST(Reasons, HaveWords) {
    for (const abi::ReasonText& r : abi::kReasons) {
        EXPECT_GT(std::strlen(r.text), 10u) << r.name;
        EXPECT_GT(std::strlen(r.advice), 5u) << r.name;
        EXPECT_EQ(abi::find_reason(uint32_t(r.reason)), &r);
    }
    EXPECT_EQ(abi::find_reason(0), nullptr);
    EXPECT_EQ(abi::find_reason(1000), nullptr);
}

TEST(Reasons, AreDocumented) {
    std::ifstream in(ROCI_VERBS_DOCUMENT);
    std::ostringstream text;
    text << in.rdbuf();
    for (const abi::ReasonText& r : abi::kReasons) {
        const std::string row =
            "| " + std::to_string(uint32_t(r.reason)) + " | `" + r.name + "` | " + r.text + " | " + r.advice + " |\n";
        EXPECT_TRUE(says(text.str(), row)) << "docs/verbs.md lacks: " << row;
    }
}

}  // namespace
}  // namespace roci::host::test
