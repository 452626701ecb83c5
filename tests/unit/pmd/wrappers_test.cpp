// Tests of the wrappers around a port: fault injection, taps. FakePort detects a frame that is freed twice.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/bytes.hpp"
#include "fake_port.hpp"
#include "pmd_glue/fault_port.hpp"
#include "pmd_glue/tap_port.hpp"
#include "pmd_glue/tap_writer.hpp"

namespace roci::pmd {
namespace {

constexpr uint8_t kOwnLast = 1, kOtherLast = 2;

// ---- faults ----

constexpr uint32_t kMany = 20000;

struct Faults : testing::Test {
    FakePort wire;
    FakeTime time;
    void send_many(FaultPort& p, uint32_t count = kMany) {
        for (uint32_t i = 0; i < count; ++i) ASSERT_TRUE(offer(p, frame_to(kOtherLast, i)));
    }
    static void expect_share(uint64_t n, uint64_t of, double p) {  // tolerates five standard deviations
        EXPECT_NEAR(double(n), double(of) * p, 5 * std::sqrt(double(of) * p * (1 - p)));
    }
    void let_time_pass(FaultPort& p) {
        time.t += 1'000'000'000;
        io::RxFrame f;
        EXPECT_EQ(p.rx_burst(&f, 1), 0u);
    }
};

TEST_F(Faults, NothingAskedForNothingDone) {
    FaultPort p(wire, {}, time);
    send_many(p, 100);
    ASSERT_EQ(wire.sent.size(), 100u);
    for (uint32_t i = 0; i < 100; ++i) EXPECT_EQ(wire.sent[i], frame_to(kOtherLast, i));
    EXPECT_EQ(p.counts().sent, 100u);
    EXPECT_EQ(p.next_event(), kNever);
}

TEST_F(Faults, DropsTheShareAskedForAndFreesIt) {
    FaultPort p(wire, {.seed = 7, .drop = 0.1}, time);
    send_many(p);
    expect_share(p.counts().dropped, kMany, 0.1);
    EXPECT_EQ(wire.sent.size() + p.counts().dropped, kMany);
    EXPECT_EQ(wire.outstanding_tx(), 0u);
}

TEST_F(Faults, TheSameSeedGivesTheSameFaults) {
    const auto run = [&](uint64_t seed) {
        FakePort w;
        FaultPort p(w, {.seed = seed, .drop = 0.2, .corrupt = 0.1, .reorder = 0.1, .duplicate = 0.1}, time);
        for (uint32_t i = 0; i < 500; ++i) offer(p, frame_to(kOtherLast, i));
        return w.sent;
    };
    EXPECT_EQ(run(3), run(3));
    EXPECT_NE(run(3), run(4));
}

TEST_F(Faults, CorruptionFlipsOneBitBehindTheEthernetHeader) {
    FaultPort p(wire, {.corrupt = 0.25}, time);
    send_many(p, 2000);
    uint64_t changed = 0;
    for (uint32_t i = 0; i < 2000; ++i) {
        const std::string want = frame_to(kOtherLast, i);
        int bits = 0;
        for (size_t b = 0; b < want.size(); ++b) {
            const int diff = __builtin_popcount(uint8_t(want[b] ^ wire.sent[i][b]));
            if (b < 14) {
                ASSERT_EQ(diff, 0);
            }
            bits += diff;
        }
        ASSERT_LE(bits, 1);
        changed += uint64_t(bits);
    }
    EXPECT_EQ(changed, p.counts().corrupted);
    expect_share(changed, 2000, 0.25);
}

TEST_F(Faults, ADuplicateIsTheSameFrameTwiceAndNeedsAFrameOfItsOwn) {
    FaultPort p(wire, {.duplicate = 1}, time);
    send_many(p, 10);
    ASSERT_EQ(wire.sent.size(), 20u);
    for (uint32_t i = 0; i < 10; ++i) {
        EXPECT_EQ(number_of(wire.sent[2 * i]), i);
        EXPECT_EQ(wire.sent[2 * i], wire.sent[2 * i + 1]);
    }
    wire.pool = 1;  // the only free frame is the one that offer() takes, so none is left for the duplicate
    EXPECT_TRUE(offer(p, frame_to(kOtherLast, 99)));
    EXPECT_EQ(p.counts().duplicate_failed, 1u);
    EXPECT_EQ(wire.sent.size(), 21u);
    EXPECT_EQ(wire.outstanding_tx(), 0u);
}

TEST_F(Faults, ReorderingLosesNothingAndDisplacesByAtMostItsDepth) {
    FaultPort p(wire, {.reorder = 0.1}, time);
    send_many(p);
    let_time_pass(p);
    ASSERT_EQ(wire.sent.size(), kMany);
    std::vector<uint32_t> order;
    uint32_t overtaken = 0;
    for (const std::string& f : wire.sent) order.push_back(number_of(f));
    for (size_t i = 1; i < order.size(); ++i) overtaken += order[i] < order[i - 1] ? 1 : 0;
    EXPECT_GT(overtaken, kMany / 20);
    std::sort(order.begin(), order.end());
    for (uint32_t i = 0; i < kMany; ++i) ASSERT_EQ(order[i], i);
    expect_share(p.counts().reordered, kMany, 0.1);
}

TEST_F(Faults, AHeldFrameGoesOutByItselfWhenNothingFollows) {
    FaultPort p(wire, {.reorder = 1}, time);
    send_many(p, 1);
    EXPECT_EQ(wire.sent.size(), 0u);
    EXPECT_EQ(p.next_event(), time.t + FaultPort::kReorderTimeout);
    time.t += FaultPort::kReorderTimeout;
    io::RxFrame f;
    p.rx_burst(&f, 1);
    EXPECT_EQ(wire.sent.size(), 1u);
    EXPECT_EQ(p.next_event(), kNever);
}

TEST_F(Faults, DelayKeepsOrderAndTimeAndIsBounded) {
    FaultPort p(wire, {.delay = 5000}, time);
    send_many(p, 3);
    EXPECT_EQ(p.next_event(), time.t + 5000);
    time.t += 4999;
    io::RxFrame f;
    p.rx_burst(&f, 1);
    EXPECT_EQ(wire.sent.size(), 0u);
    time.t += 1;
    p.rx_burst(&f, 1);
    ASSERT_EQ(wire.sent.size(), 3u);
    for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(number_of(wire.sent[i]), i);

    uint32_t taken = 0;
    while (taken < 5000 && offer(p, frame_to(kOtherLast, taken))) ++taken;
    EXPECT_LE(taken, FaultPort::kMaxHeld);
    EXPECT_GE(taken, FaultPort::kMaxHeld - 2);
    let_time_pass(p);
    EXPECT_EQ(wire.sent.size(), 3 + taken);
    EXPECT_EQ(wire.outstanding_tx(), 0u);
}

TEST_F(Faults, WhatTheWireRefusesIsKeptAndSentLaterInOrder) {
    FaultPort p(wire, {.drop = 0.001, .duplicate = 1}, time);
    wire.accept_limit = 0;
    uint32_t taken = 0;
    while (taken < 5000 && offer(p, frame_to(kOtherLast, taken))) ++taken;
    EXPECT_LT(taken, 300u) << "the rest is the caller's";
    EXPECT_EQ(p.next_event(), 0u);
    wire.accept_limit = -1;
    io::RxFrame f;
    p.rx_burst(&f, 1);
    EXPECT_EQ(wire.sent.size(), 2 * (taken - p.counts().dropped));
    for (size_t i = 1; i < wire.sent.size(); ++i) EXPECT_LE(number_of(wire.sent[i - 1]), number_of(wire.sent[i]));
    EXPECT_EQ(wire.outstanding_tx(), 0u);
}

TEST_F(Faults, FramesWithoutFaultThatTheWireRefusesStayWithTheCaller) {
    FaultPort p(wire, {.drop = 1e-9}, time);
    wire.accept_limit = 3;
    EXPECT_EQ(offer_burst(p, 0, 10), 3u);
    EXPECT_EQ(p.counts().offered, 3u);
    EXPECT_EQ(p.counts().sent, 3u);
    wire.accept_limit = -1;
    EXPECT_EQ(offer_burst(p, 3, 10), 10u);
    for (uint32_t i = 0; i < 13; ++i) EXPECT_EQ(number_of(wire.sent[i]), i);
    EXPECT_EQ(wire.outstanding_tx(), 0u);
}

TEST_F(Faults, FaultsDoNotDependOnTheSizeOfBursts) {
    const auto run = [&](uint32_t burst) {
        FakePort w;
        FaultPort p(w, {.seed = 5, .drop = 0.05, .corrupt = 0.02, .reorder = 0.02, .duplicate = 0.02}, time);
        for (uint32_t i = 0; i < 3200; i += burst) EXPECT_EQ(offer_burst(p, i, burst), burst);
        return w.sent;
    };
    EXPECT_EQ(run(1), run(64));
    EXPECT_EQ(run(1), run(5));
}

TEST_F(Faults, EverythingAtOnceBalancesTheBooksAndEndsClean) {
    {
        FaultPort p(wire, {.seed = 11, .drop = 0.1, .corrupt = 0.1, .reorder = 0.2, .duplicate = 0.2, .ecn = 0.5, .delay = 3000},
                    time);
        for (uint32_t i = 0; i < kMany; ++i) {
            time.t += 100;
            wire.accept_limit = i % 7 == 0 ? 0 : -1;
            offer(p, frame_to(kOtherLast, i));
        }
        const FaultCounts c = p.counts();
        wire.accept_limit = -1;
        let_time_pass(p);
        EXPECT_EQ(c.offered - c.dropped + c.duplicated, p.counts().sent);
        EXPECT_EQ(wire.sent.size(), p.counts().sent);
        EXPECT_EQ(wire.outstanding_tx(), 0u);
        offer(p, frame_to(kOtherLast, 1));  // the port holds this frame when it is destroyed
        offer(p, frame_to(kOtherLast, 2));
    }
    EXPECT_EQ(wire.outstanding_tx(), 0u);
}

uint16_t ipv4_checksum(const std::string& f) {
    uint32_t sum = 0;
    for (size_t i = 14; i < 34; i += 2) sum += load_be<uint16_t>(reinterpret_cast<const uint8_t*>(&f[i]));
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    return uint16_t(~sum);
}

TEST_F(Faults, EcnMarksCapableSendersAndKeepsTheChecksumRight) {
    FaultPort p(wire, {.ecn = 1}, time);
    std::string v4(100, '\0');
    v4[12] = 0x08;
    v4[14] = 0x45;
    v4[15] = 0x02;  // ECT(0)
    v4[22] = 64;
    store_be<uint16_t>(reinterpret_cast<uint8_t*>(&v4[24]), ipv4_checksum(v4));
    ASSERT_EQ(ipv4_checksum(v4), 0u);
    std::string v6(100, '\0');
    v6[12] = char(0x86);
    v6[13] = char(0xdd);
    v6[14] = 0x60;
    v6[15] = 0x20;  // ECT(0): traffic class 2
    std::string incapable = v4;
    incapable[15] = 0;
    for (const std::string& f : {v4, v6, incapable}) ASSERT_TRUE(offer(p, f));
    EXPECT_EQ(wire.sent[0][15], 3);
    EXPECT_EQ(ipv4_checksum(wire.sent[0]), 0u);
    EXPECT_EQ(wire.sent[1][15], 0x30);
    EXPECT_EQ(wire.sent[2], incapable);
    EXPECT_EQ(p.counts().marked, 2u);
}

// ---- taps ----

std::string temporary(const char* name) { return testing::TempDir() + "/" + std::to_string(getpid()) + name; }

std::string contents(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream s;
    s << in.rdbuf();
    return s.str();
}

TEST(Tap, RecordsWhatWasAcceptedAndWhatCame) {
    FakePort wire;
    FakeTime time;
    TapRing ring("roci0", 0);
    TapPort port(wire, time);
    ASSERT_TRUE(port.attach(ring));
    wire.incoming.push_back(frame_to(kOwnLast, 1));
    EXPECT_EQ(receive_all(port), std::vector<uint32_t>{1});
    EXPECT_TRUE(offer(port, frame_to(kOtherLast, 2)));
    wire.accept_limit = 0;
    EXPECT_FALSE(offer(port, frame_to(kOtherLast, 3)));
    ASSERT_NE(ring.peek(), nullptr);
    EXPECT_EQ(ring.peek()->direction, Direction::in);
    ring.pop();
    ASSERT_NE(ring.peek(), nullptr);
    EXPECT_EQ(ring.peek()->direction, Direction::out);
    EXPECT_EQ(number_of({reinterpret_cast<const char*>(ring.peek()->bytes), ring.peek()->captured}), 2u);
    ring.pop();
    EXPECT_EQ(ring.peek(), nullptr) << "a refused frame is not recorded";
    EXPECT_EQ(ring.captured(), 2u);
}

TEST(Tap, AFullRingCountsWhatItMissesAndStopsNobody) {
    FakePort wire;
    FakeTime time;
    TapRing ring("roci0", 0);
    TapPort port(wire, time);
    ASSERT_TRUE(port.attach(ring));
    for (uint32_t i = 0; i < TapRing::kWholeFrames + 10; ++i) ASSERT_TRUE(offer(port, frame_to(kOtherLast, i)));
    EXPECT_EQ(wire.sent.size(), TapRing::kWholeFrames + 10);
    EXPECT_EQ(ring.captured(), TapRing::kWholeFrames);
    EXPECT_EQ(ring.missed(), 10u);
}

TEST(Tap, MoreFramesFitIfLessIsKeptOfEach) {
    FakePort wire;
    FakeTime time;
    TapRing headers("roci0", 0, {}, 128);
    EXPECT_EQ(headers.slots(), 32 * TapRing::kWholeFrames);
    TapPort port(wire, time);
    ASSERT_TRUE(port.attach(headers));
    for (uint32_t i = 0; i < 2 * TapRing::kWholeFrames; ++i) ASSERT_TRUE(offer(port, frame_to(kOtherLast, i)));
    EXPECT_EQ(headers.missed(), 0u);
    for (uint32_t i = 0; i < 2 * TapRing::kWholeFrames; ++i) {
        const TapRing::Slot* s = headers.peek();
        ASSERT_NE(s, nullptr);
        ASSERT_EQ(number_of({reinterpret_cast<const char*>(s->bytes), s->captured}), i);
        headers.pop();
    }
}

TEST(Tap, ThePcapngFileReadsBack) {
    const std::string path = temporary("tap.pcapng");
    TapRing a("roci0", 0), b("roci1", 0);
    constexpr Nanos kTime = 1'000'000'005;
    constexpr int64_t kOffset = 1'700'000'000'000'000'000;
    {
        std::string why;
        std::vector<std::unique_ptr<TapSink>> sinks;
        sinks.push_back(open_pcapng(path, {"roci0", "roci1"}, kOffset, why));
        ASSERT_NE(sinks[0], nullptr) << why;
        TapWriter writer({&a, &b}, {0, 1}, std::move(sinks));
        const std::string f = frame_to(9, 77, 61);  // pcapng must pad a frame of this length
        for (int i = 0; i < 3; ++i) a.push(kTime, Direction::out, reinterpret_cast<const uint8_t*>(f.data()), uint32_t(f.size()));
        b.push(kTime, Direction::in, reinterpret_cast<const uint8_t*>(f.data()), uint32_t(f.size()));
    }
    // Reads the blocks one by one. The two lengths of a block must be equal and multiples of four. No byte may be
    // left at the end.
    const std::string file = contents(path);
    const auto word = [&](size_t at) {
        uint32_t v = 0;
        std::memcpy(&v, &file[at], 4);
        return v;
    };
    std::vector<uint32_t> types;
    std::vector<uint32_t> interfaces;
    size_t at = 0;
    for (; at + 12 <= file.size();) {
        const uint32_t length = word(at + 4);
        ASSERT_EQ(length % 4, 0u);
        ASSERT_LE(at + length, file.size());
        ASSERT_EQ(word(at + length - 4), length);
        types.push_back(word(at));
        if (word(at) == 6) {
            interfaces.push_back(word(at + 8));
            EXPECT_EQ(uint64_t(word(at + 12)) << 32 | word(at + 16), kTime + uint64_t(kOffset));
            EXPECT_EQ(word(at + 20), 61u);
            EXPECT_EQ(number_of(file.substr(at + 28, 61)), 77u);
        }
        at += length;
    }
    EXPECT_EQ(at, file.size());
    EXPECT_EQ(types, (std::vector<uint32_t>{0x0a0d0d0a, 1, 1, 6, 6, 6, 6, 5, 5}));
    std::sort(interfaces.begin(), interfaces.end());
    EXPECT_EQ(interfaces, (std::vector<uint32_t>{0, 0, 0, 1}));

    if (std::system("command -v tshark >/dev/null 2>&1") == 0) {  // if tshark is installed, it must read the file too
        const std::string out = temporary("tap.txt");
        const std::string run = "tshark -r " + path +
                                " -T fields -e frame.interface_name -e frame.len -e frame.packet_flags_direction > " + out +
                                " 2>/dev/null";
        ASSERT_EQ(std::system(run.c_str()), 0);
        const std::string text = contents(out);
        EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
        EXPECT_NE(text.find("roci0\t61"), std::string::npos) << text;
        EXPECT_NE(text.find("roci1\t61"), std::string::npos) << text;
        std::filesystem::remove(out);
    }
    std::filesystem::remove(path);
}

TEST(Tap, TheTraceHasALineAFrame) {
    const std::string path = temporary("tap.trace");
    TapRing ring("roci0", 0);
    {
        std::string why;
        std::vector<std::unique_ptr<TapSink>> sinks;
        sinks.push_back(open_trace(
            path, {"roci0"}, [](const uint8_t*, uint32_t n) { return "frame of " + std::to_string(n); }, why));
        TapWriter writer({&ring}, {0}, std::move(sinks));
        const std::string f = frame_to(1, 1);
        ring.push(2'000'000'007, Direction::out, reinterpret_cast<const uint8_t*>(f.data()), uint32_t(f.size()));
    }
    EXPECT_EQ(contents(path), "2.000000007 roci0 > 100 frame of 100\n# roci0: 1 frames, 0 missed\n");
    std::filesystem::remove(path);
}

TEST(Tap, AFileThatCannotBeWrittenIsSaidSo) {
    std::string why;
    EXPECT_EQ(open_pcapng("/nowhere/at/all.pcapng", {"roci0"}, 0, why), nullptr);
    EXPECT_NE(why.find("/nowhere/at/all.pcapng"), std::string::npos);
    EXPECT_NE(why.find("No such file"), std::string::npos);
}

}  // namespace
}  // namespace roci::pmd
