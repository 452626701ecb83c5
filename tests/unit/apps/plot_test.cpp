// Tests of `roci plot`: the classification of packets, the text for the terminal, and the page.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis.hpp"
#include "capture_file.hpp"
#include "page.hpp"
#include "plot_fixture.hpp"
#include "words.hpp"

namespace roci::plot {
namespace {

using namespace test;

using Frames = std::vector<Bytes>;

/// Analyses a capture of these frames. One frame was captured every 10 us.
Analysis analysed(const Frames& frames, const std::string& name = "test") {
    std::vector<Captured> captured;
    for (const Bytes& b : frames) captured.push_back({1000 + 10 * captured.size(), b});
    const File file;
    file.write(pcap(captured));
    return analyse_capture(read_capture(file.path, name), {});
}
Stream requests_of(const Frames& frames) { return analysed(frames).drawn.at(0).streams[0]; }

Frames writes(uint32_t first, uint32_t count) {
    Frames out;
    for (uint32_t i = 0; i < count; ++i) out.push_back(write(first + i));
    return out;
}
Frames operator+(Frames a, const Frames& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

TEST(PlotStream, GoodExchange) {
    const Stream s = requests_of(writes(5, 3) + Frames{ack(7)});
    EXPECT_EQ(s.counts.sent, 3u);
    EXPECT_EQ(s.counts.lost + s.counts.resent + s.counts.late, 0u);
    EXPECT_EQ(s.counts.payload, 192u);
    ASSERT_EQ(s.rtt.size(), 1u);
    EXPECT_EQ(s.rtt[0].rtt, 10'000);
    ASSERT_EQ(s.messages.size(), 3u);
    EXPECT_EQ(s.messages[0].name, "WRITE");
    EXPECT_EQ(s.messages[0].end - s.messages[0].begin, 30'000);
    EXPECT_EQ(std::ranges::max(s.in_flight, {}, &InFlight::packets).packets, 3u);
    EXPECT_EQ(s.in_flight.back().packets, 0u);
    EXPECT_EQ(s.longest_gap.length, 30'000);
}

TEST(PlotStream, LossAfterTheCaptureIsNakedAndRepeated) {
    const Stream s = requests_of(writes(0xfffffe, 4) + Frames{nak(0xffffff), write(0xffffff), ack(1)});
    EXPECT_EQ(s.counts.sent, 4u);
    EXPECT_EQ(s.counts.lost, 1u);
    EXPECT_EQ(s.counts.resent, 1u);
    EXPECT_EQ(s.counts.again, 1u);
    EXPECT_EQ(s.counts.sequence_naks, 1u);
    const auto lost = std::ranges::find_if(s.events, &Event::lost);
    EXPECT_EQ(wire_psn(lost->psn), 0xffffffu);
    EXPECT_EQ(s.counts.payload, 4 * 64u);
}

TEST(PlotStream, LossBeforeTheCaptureIsAHoleThatIsFilled) {
    const Stream s = requests_of(Frames{write(5), write(7), write(8), nak(6), write(6), ack(8)});
    EXPECT_EQ(s.counts.lost, 1u);
    EXPECT_EQ(s.counts.resent, 1u);
    EXPECT_EQ(s.counts.again, 0u);
    EXPECT_TRUE(std::ranges::any_of(s.events, [](const Event& e) { return e.kind == Kind::missing && wire_psn(e.psn) == 6; }));
}

TEST(PlotStream, NakBehindARepairBelongsToTheFirstCopy) {
    const Stream s = requests_of(Frames{write(4), write(5), ack(4)} + writes(7, 20) + Frames{write(6), nak(6), ack(26)});
    EXPECT_EQ(s.counts.lost, 1u);
    EXPECT_EQ(s.counts.resent, 1u);
}

TEST(PlotStream, SlowNakBehindARepairBelongsToTheFirstCopy) {
    const Stream s = requests_of(Frames{write(4), ack(4), write(5)} + writes(7, 20) + Frames{write(6)} + writes(27, 5) +
                                 Frames{nak(6), ack(31)});
    EXPECT_EQ(s.counts.lost, 1u);
    EXPECT_EQ(s.counts.resent, 1u);
    EXPECT_EQ(std::ranges::count_if(s.events, [](const Event& e) { return e.lost && wire_psn(e.psn) == 6; }), 1);
}

TEST(PlotStream, RepairThatANakReportsAndThatIsRepeatedIsLost) {
    const Stream s = requests_of(Frames{write(4), ack(4), write(5)} + writes(7, 20) + Frames{write(6)} + writes(27, 5) +
                                 Frames{nak(6), write(6), ack(31)});
    EXPECT_EQ(s.counts.lost, 2u);
    EXPECT_EQ(s.counts.resent, 2u);
}

TEST(PlotStream, GoBackNLosesOnePacket) {
    const Stream s = requests_of(writes(5, 6) + Frames{nak(6)} + writes(6, 5) + Frames{ack(10)});
    EXPECT_EQ(s.counts.lost, 1u);
    EXPECT_EQ(s.counts.resent, 5u);
}

TEST(PlotStream, TimeoutRepeatsTheOldest) {
    const Stream s = requests_of(writes(5, 3) + writes(5, 3) + Frames{ack(7)});
    EXPECT_EQ(s.counts.lost, 1u);
    EXPECT_EQ(s.counts.resent, 3u);
}

TEST(PlotStream, OvertakenIsNotLost) {
    const Stream s = requests_of(Frames{write(5), write(7), write(6), write(8), ack(8)});
    EXPECT_EQ(s.counts.lost, 0u);
    EXPECT_EQ(s.counts.resent, 0u);
    EXPECT_EQ(s.counts.late, 1u);
}

TEST(PlotStream, RepeatAfterItsAckIsNeedless) {
    const Stream s = requests_of(Frames{write(5), ack(5), write(5), ack(5)});
    EXPECT_EQ(s.counts.needless, 1u);
    EXPECT_EQ(s.counts.lost, 0u);
}

TEST(PlotStream, RnrNakIsNoLoss) {
    const Stream s = requests_of(Frames{write(5), rnr_nak(5), write(5), ack(5)});
    EXPECT_EQ(s.counts.rnr_naks, 1u);
    EXPECT_EQ(s.counts.lost, 0u);
    EXPECT_EQ(s.counts.resent, 1u);
}

TEST(PlotStream, LostReadResponseIsRequestedAgain) {
    const auto read = [](uint32_t psn, uint32_t length) { return frame(Operation::read_request, psn, 0, false, 0, length); };
    const auto response = [](Operation o, uint32_t psn) { return frame(o, psn, 1024, true, 0x1f); };
    const Stream s =
        requests_of({read(5, 4096), response(Operation::read_response_first, 5), response(Operation::read_response_middle, 7),
                     response(Operation::read_response_last, 8), read(6, 1024), response(Operation::read_response_only, 6)});
    EXPECT_EQ(s.counts.lost, 1u);
    EXPECT_EQ(s.counts.lost_responses, 1u);
    EXPECT_EQ(s.counts.resent, 1u);
    EXPECT_EQ(s.counts.responses, 4u);
    EXPECT_EQ(s.counts.payload, 4096u);
    ASSERT_EQ(s.messages.size(), 1u);
    EXPECT_EQ(s.messages[0].bytes, 4096u);
    EXPECT_EQ(wire_psn(s.messages[0].last), 8u);
    EXPECT_GT(s.messages[0].end, 0);
}

TEST(PlotStream, ReadsOfManyPsnsKeepTheirResponses) {
    const uint32_t length = 300'000'000;  // 292,969 responses of 1,024 bytes each
    const Stream s = requests_of({frame(Operation::read_request, 5, 0, false, 0, length),
                                  frame(Operation::read_response_first, 5, 1024, true, 0x1f),
                                  frame(Operation::read_response_middle, 6, 1024, true), write(5 + 292'969), ack(5 + 292'969)});
    EXPECT_EQ(s.counts.sent, 2u);
    EXPECT_EQ(s.counts.responses, 2u);
    EXPECT_EQ(s.counts.lost + s.counts.not_captured, 0u);
    EXPECT_EQ(s.counts.payload, 2 * 1024u + 64u);
    EXPECT_EQ(s.rtt.size(), 2u);
}

TEST(PlotStream, UnreliableHolesAreLosses) {
    const auto send = [](uint32_t psn) { return frame(Operation::send_only, psn, 100, false, 0, 0, Service::uc); };
    const Stream s = requests_of({send(5), send(6), send(9)});
    EXPECT_EQ(s.counts.lost, 2u);
    EXPECT_EQ(s.counts.payload, 300u);
}

TEST(PlotStream, HoleThatNobodyReportsIsOfTheCapture) {
    const Stream s = requests_of(Frames{write(5), write(8), ack(8)});
    EXPECT_EQ(s.counts.not_captured, 2u);
    EXPECT_EQ(s.counts.lost, 0u);
}

TEST(PlotStream, AnotherConnectionOfTheSameNumbers) {
    const Stream s = requests_of(Frames{write(5), ack(5), write(9'000'000), ack(9'000'000), write(100), ack(100)});
    EXPECT_EQ(s.counts.sent, 3u);
    EXPECT_EQ(s.counts.lost + s.counts.not_captured + s.counts.late, 0u);
    EXPECT_EQ(s.messages.size(), 3u);
}

TEST(PlotStream, LongMessagesAreOneRowOfTheLadder) {
    const auto part = [](Operation o, uint32_t psn) { return frame(o, psn, 1024, false, 0, 3072); };
    const Analysis a =
        analysed({part(Operation::write_first, 5), part(Operation::write_middle, 6), part(Operation::write_last, 7), ack(7)});
    const Analysed& d = a.drawn.at(0);
    ASSERT_EQ(d.streams[0].messages.size(), 1u);
    EXPECT_EQ(d.streams[0].messages[0].bytes, 3072u);
    ASSERT_EQ(d.ladder.size(), 2u);
    EXPECT_EQ(d.ladder[0].text, "WRITE, 3,072 bytes, PSN 5 to 7");
    EXPECT_FALSE(d.ladder[0].to_a);
    EXPECT_EQ(d.ladder[1].text, "ACK up to PSN 7");
    EXPECT_TRUE(d.ladder[1].to_a);
}

TEST(PlotWords, LinesAreAsNarrowAsTheTerminal) {
    const Analysis a = analysed(writes(5, 3) + Frames{nak(6), write(6), ack(7)});
    const std::string text = summary_text(a, 40);
    EXPECT_NE(text.find("1 packet was lost; 1 sent again."), std::string::npos) << text;
    for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) EXPECT_LE(text.find('\n', at) - at, 40u) << text;
    EXPECT_EQ(grouped(1234567), "1,234,567");
    EXPECT_EQ(duration(4'200'000), "4.20 ms");
    EXPECT_EQ(byte_text(65'536), "65.5 kB");
}

TEST(PlotPage, NothingOfACaptureIsMarkup) {
    const std::string evil = "</script><script>alert(1)</script><img src=x onerror='y'>\xff";
    const std::string text = page(analysed(writes(5, 2), evil));
    EXPECT_EQ(text.find("<img"), std::string::npos);
    EXPECT_EQ(text.find("alert(1)</script>"), std::string::npos);
    size_t ends = 0;
    for (size_t at = 0; (at = text.find("</script>", at)) != std::string::npos; ++at) ++ends;
    EXPECT_EQ(ends, 2u);  // one end tag is behind the data, one is behind the script
}

TEST(PlotPage, LoadsNothingAndHasItsData) {
    const Analysis a = analysed(writes(5, 3) + Frames{nak(6), write(6), ack(7)});
    const std::string text = page(a);
    for (const char* word : {"http://", "https://", "src=", "@import", "url("})
        EXPECT_EQ(text.find(word), std::string::npos) << word;
    EXPECT_NE(text.find("default-src 'none'"), std::string::npos);
    EXPECT_NE(text.find("1 packet was lost; 1 sent again."), std::string::npos);
    const auto data = nlohmann::json::parse(page_data(a));
    EXPECT_EQ(data["connections"][0]["streams"][0]["counts"]["lost"], 1);
    EXPECT_EQ(data["connections"][0]["streams"][0]["events"]["t"].size(), 6u);
}

TEST(PlotPage, LongSeriesAreThinnedAndProblemsStay) {
    const Analysis a = analysed(writes(5, 60'000) + Frames{nak(500), write(500)});
    const auto events = nlohmann::json::parse(page_data(a))["connections"][0]["streams"][0]["events"];
    EXPECT_EQ(events["of"], 60'002);
    EXPECT_LE(events["t"].size(), 20'000u);
    EXPECT_GE(events["t"].size(), 10'000u);
    const auto lost = std::ranges::count_if(events["f"], [](const auto& f) { return (f.template get<int>() & 1) != 0; });
    EXPECT_EQ(lost, 1);
}

}  // namespace
}  // namespace roci::plot
