// Tests of `roci top`: the figures that it computes from two readings of the counters, its text, and its JSON.
#include "top_text.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "apps/rocid/counter_page.hpp"
#include "engine/counters.hpp"
#include "qp/counters.hpp"
#include "qp/limit.hpp"

namespace roci::cli {
namespace {

using json = nlohmann::ordered_json;

json status(uint64_t sent, const char* limit) {
    json qp = {
        {"qpn", 18},
        {"type", "RC"},
        {"state", "RTS"},
        {"limit", limit},
        {"in_flight", 3},
        {"window", 256},
        {"round_trip_us", 12.5},
        {"peer", {{"qpn", 19}, {"gid", "::ffff:10.0.0.2"}}},
        {"counters",
         {{"tx_bytes", sent * 1000}, {"rx_bytes", 0}, {"tx_messages", sent}, {"rx_messages", 0}, {"retransmits", sent / 10}}}};
    json slow = qp;
    slow["qpn"] = 20;
    slow["counters"]["tx_bytes"] = 0;
    json bare = {{"qpn", 22}, {"type", "RC"}};
    return {{"engines", {{{"index", 0}, {"queues", 3}}}},
            {"sessions", {{{"id", 1}, {"pid", 42}, {"program", "app"}, {"device", "roci0"}, {"qps", {slow, qp, bare}}}}}};
}

struct TopTest : ::testing::Test {
    const std::vector<std::string> names{"roci0", "roci1"};
    rocid::CounterPage page{2, names};
    engine::CounterPlaces a = page.places(0), b = page.places(1);
    std::vector<std::byte> bytes;

    CounterReader reader() {
        bytes.resize(size_t(lseek(page.fd(), 0, SEEK_END)));
        EXPECT_EQ(pread(page.fd(), bytes.data(), bytes.size(), 0), ssize_t(bytes.size()));
        std::string why;
        auto r = CounterReader::of(bytes, why);
        EXPECT_TRUE(r) << why;
        return std::move(*r);
    }
    /// Returns the model of an interval of two seconds with traffic.
    TopModel model(const char* limit = "window") {
        LimitTally limits;
        const TopReading before = read_top(reader(), status(0, "program"), 10);
        tally(limits, status(0, "program"));
        a.engine->add(engine::Counter::busy_ns, 500'000'000);
        a.engine->add(engine::Counter::tx_frames, 4000);
        b.engine->add(engine::Counter::asleep_ns, 1'900'000'000);
        qp::bump(a.devices[0]->tx_messages, 1000);
        qp::bump(b.devices[0]->tx_messages, 1000);
        qp::bump(a.devices[1]->tx_octets, 1'000'000);
        for (int i = 0; i < 3; ++i) tally(limits, status(2000, limit));
        const CounterReader now = reader();
        return make_top(now, before, read_top(now, status(2000, limit), 12), limits);
    }
};

TEST_F(TopTest, RatesAreThoseOfTheInterval) {
    const TopModel m = model();
    EXPECT_EQ(m.seconds, 2);
    ASSERT_EQ(m.engines.size(), 2u);
    EXPECT_DOUBLE_EQ(m.engines[0].busy, 0.25);
    EXPECT_DOUBLE_EQ(m.engines[0].tx_frames, 2000);
    EXPECT_DOUBLE_EQ(m.engines[0].messages, 500);
    EXPECT_EQ(m.engines[0].queues, 3u);
    EXPECT_DOUBLE_EQ(m.engines[1].asleep, 0.95);
    ASSERT_EQ(m.devices.size(), 2u);
    EXPECT_DOUBLE_EQ(m.devices[0].tx_messages, 1000);
    EXPECT_DOUBLE_EQ(m.devices[1].tx_bits, 4'000'000);
    ASSERT_EQ(m.qps.size(), 2u);
    EXPECT_EQ(m.not_shown, 1u);
    EXPECT_DOUBLE_EQ(m.qps[1].tx_messages, 1000);
    EXPECT_DOUBLE_EQ(m.qps[1].tx_bits, 8'000'000);
    EXPECT_DOUBLE_EQ(m.qps[1].resent, 100);
    EXPECT_EQ(m.qps[1].peer, "::ffff:10.0.0.2:19");
}

TEST_F(TopTest, TheMostFrequentLimitCounts) {
    const TopModel m = model();
    EXPECT_EQ(m.qps[1].limit, "window");
    EXPECT_DOUBLE_EQ(m.qps[1].limit_share, 0.75);
}

TEST_F(TopTest, SortsByWhatIsAsked) {
    TopModel m = model();
    sort_top(m.qps, TopSort::rate);
    EXPECT_EQ(m.qps[0].qpn, 18u);
    sort_top(m.qps, TopSort::messages);
    EXPECT_EQ(m.qps[0].qpn, 18u) << "equal: by number";
    m.qps[1].round_trip_us = 1000;
    m.qps[1].limit = "credits";
    const uint64_t other = m.qps[1].qpn;
    sort_top(m.qps, TopSort::rtt);
    EXPECT_EQ(m.qps[0].qpn, other);
    sort_top(m.qps, TopSort::rate);
    sort_top(m.qps, TopSort::limit);
    EXPECT_EQ(m.qps[0].limit, "credits");
}

std::string all(const std::vector<std::string>& lines) {
    std::string out;
    for (const std::string& l : lines) out += l + "\n";
    return out;
}

TEST_F(TopTest, FitsEveryWidthAndSaysWhatItLeavesOut) {
    const TopModel m = model();
    for (size_t width = 20; width <= 140; ++width)
        for (const std::string& line : top_lines(m, {.width = width})) EXPECT_LE(line.size(), width) << line;
    EXPECT_EQ(all(top_lines(m, {.width = 140})).find("left out"), std::string::npos);
    const std::string narrow = all(top_lines(m, {.width = 40}));
    EXPECT_NE(narrow.find("left out, 40 columns"), std::string::npos) << narrow;
    EXPECT_NE(narrow.find("18 window 75%"), std::string::npos) << narrow;
    EXPECT_NE(narrow.find("RTT us"), std::string::npos) << narrow;
}

TEST_F(TopTest, SaysWhichQpsEndedWhileTheyWereLookedAt) {
    const TopReading before = read_top(reader(), status(0, "program"), 10);
    nlohmann::ordered_json later = status(2000, "program");
    nlohmann::ordered_json& qps = later["sessions"][0]["qps"];
    ASSERT_EQ(qps[1]["qpn"], 18);
    qps.erase(1);
    const auto notes = [&](const nlohmann::ordered_json& now) {
        return make_top(reader(), before, read_top(reader(), now, 12), {}).notes;
    };
    const auto has = [](const std::vector<std::string>& all, const char* wanted) {
        return std::ranges::find(all, wanted) != all.end();
    };
    EXPECT_TRUE(has(notes(later), "destroyed in this interval: 1 QP (18)"));
    later["sessions"].clear();
    EXPECT_TRUE(has(notes(later), "destroyed in this interval: 2 QPs (18, 20)"));
    for (const std::string& note : notes(status(2000, "program"))) EXPECT_EQ(note.find("destroyed"), std::string::npos) << note;
}

TEST_F(TopTest, SaysWhatIsSlowInWords) {
    const std::string text = all(top_lines(model(), {}));
    EXPECT_NE(text.find("limit \"window\" (2 QPs): as many packets as engine.max_inflight"), std::string::npos) << text;
    EXPECT_NE(text.find("1 QPs without figures"), std::string::npos) << text;
    a.engine->add(engine::Counter::sleeps, 10);
    TopModel m = model("nothing that this roci knows");
    EXPECT_EQ(all(m.notes).find("slept"), std::string::npos) << "engine 0 was busy, engine 1 had no messages to wake it";
}

TEST_F(TopTest, ShowsNoMoreRowsThanAsked) {
    const std::string text = all(top_lines(model(), {.width = 100, .rows = 1}));
    EXPECT_NE(text.find("... 1 more QPs"), std::string::npos) << text;
}

TEST_F(TopTest, JsonHasAllOfIt) {
    const json j = top_json(model());
    EXPECT_EQ(j["engines"].size(), 2u);
    EXPECT_EQ(j["qps"][1]["limit"], "window");
    EXPECT_EQ(j["not_shown"], 1);
}

TEST(Top, NothingThereIsNoError) {
    const TopModel m = make_top(CounterReader{}, {}, {}, {});
    EXPECT_FALSE(top_lines(m, {}).empty());
}

TEST(Top, ThePageHasEveryLimit) {
    std::ifstream in(ROCI_SEE_DOCUMENT);
    std::ostringstream page;
    page << in.rdbuf();
    for (const qp::LimitText& l : qp::kLimits)
        EXPECT_NE(page.str().find(std::string("| `") + l.name + "` | " + l.text + " |\n"), std::string::npos) << l.name;
}

TEST(Wrap, BreaksAtSpacesAndLongWords) {
    EXPECT_EQ(wrap("one two three", 8), (std::vector<std::string>{"one two", "  three"}));
    for (const std::string& line : wrap(std::string(50, 'x') + " " + std::string(50, 'y'), 20)) EXPECT_LE(line.size(), 20u);
}

}  // namespace
}  // namespace roci::cli
