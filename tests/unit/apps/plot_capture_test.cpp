// Tests of how `roci plot` reads captures: several file formats and link types, complete files and damaged files.
#include <gtest/gtest.h>

#include <iterator>
#include <random>

#include "analysis.hpp"
#include "capture_file.hpp"
#include "failure.hpp"
#include "page.hpp"
#include "plot_fixture.hpp"

namespace roci::plot {
namespace {

using namespace test;

/// Returns three WRITEs and their ACK.
std::vector<Captured> exchange() { return {{100, write(5)}, {110, write(6)}, {120, write(7)}, {150, ack(7)}}; }

Capture read(const Bytes& bytes, size_t most = kMostFrames) {
    const File file;
    file.write(bytes);
    return read_capture(file.path, "test", most);
}

bool noted(const Capture& c, const std::string& words) {
    for (const std::string& n : c.notices)
        if (n.find(words) != std::string::npos) return true;
    return false;
}

void expect_failure(const Bytes& bytes, Ending ending, const std::string& words) {
    try {
        read(bytes);
        ADD_FAILURE() << "read, though " << words;
    } catch (const Failure& f) {
        EXPECT_EQ(f.ending(), ending);
        EXPECT_NE(std::string(f.what()).find(words), std::string::npos) << f.what();
    }
}

TEST(PlotCapture, SoftRoceExcerptIsRead) {
    const Capture c = read_capture(ROCI_TEST_DATA "/rxe-excerpt.pcap", "excerpt");
    EXPECT_EQ(c.counts.frames, 223u);
    EXPECT_EQ(c.counts.roce, 205u);
    EXPECT_EQ(c.counts.tcp, 18u);
    EXPECT_EQ(c.counts.icrc_good, 205u);
    EXPECT_TRUE(c.notices.empty());
    uint64_t frames = 0;
    for (const Connection& connection : find_connections(c)) {
        frames += connection.frames;
        const bool reliable = connection.service == wire::Service::rc;
        EXPECT_FALSE(reliable && connection.to_a == kNoFlow) << connection.a << " and " << connection.b;
    }
    EXPECT_EQ(frames, 205u);
}

TEST(PlotCapture, ConnectionManagementIsOneConnection) {
    const Analysis a = analyse_capture(read_capture(ROCI_TEST_DATA "/cm.pcap", "cm"), {});
    ASSERT_EQ(a.drawn.size(), 1u);
    EXPECT_EQ(a.drawn[0].connection.a, "10.77.0.1 QP 1");
    EXPECT_EQ(a.drawn[0].streams[0].counts.packets + a.drawn[0].streams[1].counts.packets, 21u);
    EXPECT_EQ(a.drawn[0].ladder.size(), 21u);
}

TEST(PlotCapture, CutFileShowsWhatItHas) {
    Bytes bytes = pcap(exchange());
    bytes.erase(bytes.end() - 3, bytes.end());
    const Capture c = read(bytes);
    EXPECT_EQ(c.frames.size(), 3u);
    EXPECT_FALSE(c.cut.empty());
    EXPECT_TRUE(noted(c, "The capture is cut"));
}

TEST(PlotCapture, OtherFilesAreRefusedWithAReason) {
    expect_failure({}, Ending::failed, "cannot read 'test'");
    expect_failure(Bytes(100, 'x'), Ending::failed, "unknown file format");
    expect_failure(pcap({}), Ending::not_roce, "has no frames");
    expect_failure(pcap({{1, Bytes(60, 0)}}), Ending::not_roce, "other protocols");
    expect_failure(pcap(exchange(), 105), Ending::not_roce, "802.11");
    Bytes tcp = write(1);
    tcp[23] = 6;
    expect_failure(pcap({{1, tcp}}), Ending::not_roce, "1 are TCP");
    Bytes other_port = write(1);
    other_port[37] = 1;
    expect_failure(pcap({{1, other_port}}), Ending::not_roce, "other protocols");
    Bytes version1(80, 0);
    version1[12] = 0x89, version1[13] = 0x15;
    expect_failure(pcap({{1, version1}}), Ending::not_roce, "RoCE version 1");
    Bytes nonsense = write(1);
    nonsense[42] = 0xff;  // an opcode that does not exist
    expect_failure(pcap({{1, nonsense}}), Ending::not_roce, "no RoCEv2 headers");
}

TEST(PlotCapture, SnapLengthLeavesHeaders) {
    const Capture c = read(pcap(exchange(), 1, 80));
    EXPECT_EQ(c.frames.size(), 4u);
    EXPECT_EQ(c.frames[0].payload, 64u);
    EXPECT_EQ(c.counts.payload_cut, 3u);
    EXPECT_TRUE(noted(c, "was not captured"));
    expect_failure(pcap(exchange(), 1, 45), Ending::not_roce, "end before their RoCE headers");
}

TEST(PlotCapture, FramesWithoutIcrcAreDrawn) {
    std::vector<Captured> frames = exchange();
    for (Captured& f : frames) {
        f.bytes.erase(f.bytes.end() - 4, f.bytes.end());
        store_be<uint16_t>(&f.bytes[16], uint16_t(load_be<uint16_t>(&f.bytes[16]) - 4));
        store_be<uint16_t>(&f.bytes[38], uint16_t(load_be<uint16_t>(&f.bytes[38]) - 4));
    }
    const Capture c = read(pcap(frames));
    ASSERT_EQ(c.frames.size(), 4u);
    EXPECT_EQ(c.frames[0].payload, 64u);
    EXPECT_TRUE(noted(c, "have no ICRC"));
}

TEST(PlotCapture, WrongIcrcIsNoted) {
    std::vector<Captured> frames = exchange();
    frames[1].bytes.back() ^= 1;
    EXPECT_TRUE(noted(read(pcap(frames)), "1 frame was damaged on the way"));
    for (Captured& f : frames) std::fill(f.bytes.end() - 4, f.bytes.end(), uint8_t{0});
    const Capture c = read(pcap(frames));
    EXPECT_TRUE(noted(c, "No frame has a right ICRC"));
    EXPECT_EQ(c.frames.size(), 4u);
}

TEST(PlotCapture, OtherLinkTypesAreRead) {
    std::vector<Captured> raw = exchange(), any = raw, any2 = raw;
    for (Captured& f : raw) f.bytes.erase(f.bytes.begin(), f.bytes.begin() + 14);
    for (size_t i = 0; i < raw.size(); ++i) {
        any[i].bytes = {0, 4, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0};
        any2[i].bytes = {8, 0, 0, 0, 0, 0, 0, 3, 0, 1, 4, 6, 0, 0, 0, 0, 0, 0, 0, 0};
        for (Bytes* b : {&any[i].bytes, &any2[i].bytes}) b->insert(b->end(), raw[i].bytes.begin(), raw[i].bytes.end());
    }
    for (const auto& [frames, link] : {std::pair{&raw, 101u}, {&any, 113u}, {&any2, 276u}}) {
        const Capture c = read(pcap(*frames, link));
        EXPECT_EQ(c.frames.size(), 4u) << link;
        EXPECT_EQ(c.counts.icrc_good, 4u) << link;
    }
    EXPECT_EQ(read(pcap(any2, 276)).frames[0].place, (Place{3, Direction::out}));
}

TEST(PlotCapture, LongCapturesEndWithANotice) {
    const Capture c = read(pcap(exchange()), 2);
    EXPECT_EQ(c.frames.size(), 2u);
    EXPECT_TRUE(noted(c, "first 2 RoCEv2 packets"));
}

TEST(PlotCapture, BothEndsShowEachPacketOnceAndKnowWhatWasLost) {
    std::vector<Captured> frames;
    const auto travels = [&](uint64_t time, const Bytes& bytes, bool back, bool arrives) {
        frames.push_back({time, bytes, back ? 1u : 0u, 2});
        if (arrives) frames.push_back({time + 4, bytes, back ? 0u : 1u, 1});
    };
    travels(100, write(5), false, true);
    travels(110, write(6), false, false);
    travels(120, write(7), false, true);
    travels(130, ack(5), true, true);
    travels(140, write(6), false, true);
    travels(150, ack(7), true, true);
    const Analysis a = analyse_capture(read(pcapng(frames)), {});
    EXPECT_EQ(a.capture.places, (std::vector<std::string>{"left", "righ"}));
    ASSERT_EQ(a.drawn.size(), 1u);
    const Stream& s = a.drawn[0].streams[0];
    EXPECT_TRUE(s.lost_known);
    EXPECT_EQ(s.counts.packets, 4u);
    EXPECT_EQ(s.counts.lost, 1u);
    EXPECT_EQ(s.counts.resent, 1u);
    EXPECT_EQ(s.counts.acks, 2u);
    ASSERT_FALSE(s.rtt.empty());
    EXPECT_EQ(s.rtt[0].rtt, 34'000);  // "left" sent the request at 100 us and received its ACK at 134 us
}

TEST(PlotCapture, ConnectionsBetweenTheSameAddressesAreTold) {
    std::vector<Captured> frames;
    for (uint32_t i = 0; i < 20; ++i) {
        Bytes request = write(1000 + i), answer = ack(1000 + i), other = write(9'000'000 + i), reply = ack(9'000'000 + i);
        other[49] = 99;  // destination QP
        reply[49] = 98;
        for (const Bytes& b : {request, other, answer, reply}) frames.push_back({100 + frames.size(), b});
    }
    const std::vector<Connection> all = find_connections(read(pcap(frames)));
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].a, "10.0.0.1 QP 17");
    EXPECT_EQ(all[0].b, "10.0.0.2 QP 18");
    EXPECT_EQ(all[1].a, "10.0.0.1 QP 98");
    EXPECT_EQ(all[1].b, "10.0.0.2 QP 99");
}

TEST(PlotCapture, DamagedFilesAreReadOrRefused) {
    std::ifstream in(ROCI_TEST_DATA "/rxe-excerpt.pcap", std::ios::binary);
    const Bytes whole{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    std::mt19937 random(1);
    int read_ones = 0;
    for (int round = 0; round < 300; ++round) {
        Bytes bytes = round % 3 == 0 ? pcapng(exchange()) : whole;
        for (int i = 0; i < 20; ++i) bytes[24 + random() % (bytes.size() - 24)] = uint8_t(random());
        try {
            const Analysis a = analyse_capture(read(bytes), {});
            EXPECT_FALSE(page_data(a).empty());
            ++read_ones;
        } catch (const Failure& f) {
            EXPECT_STRNE(f.what(), "");
        }
    }
    EXPECT_GT(read_ones, 50);
}

TEST(PlotCapture, ChoicesThatNameNothingAreRefused) {
    const Capture c = read(pcap(exchange()));
    EXPECT_EQ(analyse_capture(c, {.qpn = kQpA}).drawn.size(), 1u);
    EXPECT_THROW(analyse_capture(c, {.flow = 2}), Failure);
    EXPECT_THROW(analyse_capture(c, {.qpn = 12345}), Failure);
}

}  // namespace
}  // namespace roci::plot
