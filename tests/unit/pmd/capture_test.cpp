// Tests of live captures: the filters of taps, rings that are attached and detached, and readers that are slow or
// have ended.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "base/bytes.hpp"
#include "fake_port.hpp"
#include "pmd_glue/live_stream.hpp"
#include "pmd_glue/tap_port.hpp"
#include "pmd_glue/tap_writer.hpp"
#include "wire/packet.hpp"

namespace roci::pmd {
namespace {

constexpr uint8_t kRcSendOnly = 0x04, kUdSendOnly = 0x64;

struct FrameSpec {
    uint8_t opcode = kRcSendOnly;
    uint32_t dest_qp = 0, source_qp = 0;
    bool vlan = false;
    uint8_t last_of_ip = 2;
    uint16_t port = wire::kRoceUdpPort;
};

/// Builds the headers that a tap reads. With `ipv6`, the IPv4 address is mapped into IPv6.
std::string frame_of(const FrameSpec& spec, bool ipv6 = false) {
    std::string f(12, '\0');
    const auto be16 = [&](uint32_t v) { f += {char(v >> 8), char(v)}; };
    const auto be24 = [&](uint32_t v) { f += {char(v >> 16), char(v >> 8), char(v)}; };
    if (spec.vlan) be16(wire::kEtherVlan), be16(7);
    be16(ipv6 ? wire::kEtherIpv6 : wire::kEtherIpv4);
    if (ipv6) {
        f += '\x60' + std::string(23, '\0') + std::string(10, '\0') + "\xff\xff";
    } else {
        f += '\x45' + std::string(15, '\0');
    }
    f += {10, 77, 0, char(spec.last_of_ip)};
    be16(50000), be16(spec.port), be16(0), be16(0);
    f += char(spec.opcode) + std::string(4, '\0');
    be24(spec.dest_qp);
    f += std::string(4 + 5, '\0');  // the reserved byte and the PSN of the BTH, then the Q_Key and the reserved byte of the DETH
    be24(spec.source_qp);
    return f + std::string(16, '\0');
}

bool sees(const TapFilter& filter, Direction direction, const std::string& frame, uint32_t sender = 0) {
    return wants(filter, direction, reinterpret_cast<const uint8_t*>(frame.data()), uint32_t(frame.size()), sender);
}

TEST(TapFilter, WithoutAQueuePairEverythingIsWanted) { EXPECT_TRUE(sees({}, Direction::in, "not even a frame")); }

TEST(TapFilter, AQueuePairsFramesBothWays) {
    const TapFilter filter{.qpn = 17};
    for (const bool ipv6 : {false, true})
        for (const bool vlan : {false, true}) {
            EXPECT_TRUE(sees(filter, Direction::in, frame_of({.dest_qp = 17, .vlan = vlan}, ipv6)));
            EXPECT_FALSE(sees(filter, Direction::in, frame_of({.dest_qp = 18, .vlan = vlan}, ipv6)));
            EXPECT_TRUE(sees(filter, Direction::out, frame_of({.dest_qp = 18, .vlan = vlan}, ipv6), 17));
        }
}

TEST(TapFilter, AnothersFramesAreNotSeenWhereverTheyGo) {
    const TapFilter filter{.qpn = 17};
    EXPECT_FALSE(sees(filter, Direction::out, frame_of({.dest_qp = 17}), 18));
    EXPECT_FALSE(sees(filter, Direction::out, frame_of({.opcode = kUdSendOnly, .dest_qp = 99, .source_qp = 17}), 18))
        << "what the frame claims counts for nothing";
    EXPECT_FALSE(sees(filter, Direction::out, frame_of({.dest_qp = 17}), 0)) << "of no queue pair";
}

TEST(TapFilter, FramesThatAreNotRoceOrCutShortAreNobodys) {
    const TapFilter filter{.qpn = 17};
    EXPECT_FALSE(sees(filter, Direction::in, frame_of({.dest_qp = 17, .port = 53})));
    const std::string whole = frame_of({.dest_qp = 17});
    for (size_t n = 0; n < 14 + 20 + 8 + 12; ++n) EXPECT_FALSE(sees(filter, Direction::in, whole.substr(0, n))) << n;
}

TEST(TapRings, ComeAndGoAndEachHasItsOwnFrames) {
    FakePort wire;
    FakeTime time;
    TapPort port(wire, time);
    TapRing all("roci0", 0), few("roci0", 0, {}, 20);
    ASSERT_TRUE(offer(port, frame_to(2, 1)));
    ASSERT_TRUE(port.attach(all));
    ASSERT_TRUE(offer(port, frame_to(2, 2)));
    ASSERT_TRUE(port.attach(few));
    ASSERT_TRUE(offer(port, frame_to(2, 3)));
    port.detach(all);
    ASSERT_TRUE(offer(port, frame_to(2, 4)));
    port.detach(few);
    ASSERT_TRUE(offer(port, frame_to(2, 5)));
    EXPECT_EQ(all.captured(), 2u);
    EXPECT_EQ(few.captured(), 2u);
    EXPECT_EQ(few.peek()->captured, 20u);
    EXPECT_GT(few.peek()->length, 20u);
    EXPECT_EQ(wire.sent.size(), 5u);
}

TEST(TapRings, ThereAreSoManyAndNoMore) {
    FakePort wire;
    FakeTime time;
    TapPort port(wire, time);
    std::vector<std::unique_ptr<TapRing>> rings;
    for (uint32_t i = 0; i < TapPort::kMaxRings; ++i) {
        rings.push_back(std::make_unique<TapRing>("roci0", 0));
        EXPECT_TRUE(port.attach(*rings.back()));
    }
    TapRing one_more("roci0", 0);
    EXPECT_FALSE(port.attach(one_more));
    port.detach(*rings[2]);
    EXPECT_TRUE(port.attach(one_more));
}

struct Pipe {
    Pipe() {
        signal(SIGPIPE, SIG_IGN);
        EXPECT_EQ(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
        fcntl(ends[1], F_SETPIPE_SZ, 4096);
    }
    int ends[2];
};

/// A writer with one full ring. The pipe of the writer can hold only a few of the frames.
struct LiveWriter {
    LiveWriter() : ring("roci0", 0), ending(std::make_shared<std::atomic<bool>>(false)) {
        const std::string f = frame_to(2, 1);
        for (uint32_t i = 0; i < TapRing::kWholeFrames; ++i)
            ring.push(i, Direction::out, reinterpret_cast<const uint8_t*>(f.data()), uint32_t(f.size()));
        std::vector<std::unique_ptr<TapSink>> sinks;
        sinks.push_back(pcapng_to(open_live_stream(pipe.ends[1], ending), {"roci0"}, 0));
        writer = std::make_unique<TapWriter>(std::vector{&ring}, std::vector<uint32_t>{0}, std::move(sinks));
    }
    bool finishes() const {
        for (int i = 0; i < 10'000 && !writer->finished(); ++i) usleep(1000);
        return writer->finished();
    }
    Pipe pipe;
    TapRing ring;
    std::shared_ptr<std::atomic<bool>> ending;
    std::unique_ptr<TapWriter> writer;
};

TEST(LiveCapture, AReaderThatIsGoneEndsIt) {
    LiveWriter live;
    close(live.pipe.ends[0]);
    EXPECT_TRUE(live.finishes());
}

TEST(LiveCapture, AReaderThatNeverReadsCannotHoldItsEnd) {
    LiveWriter live;
    *live.ending = true;
    live.writer->finish();
    EXPECT_TRUE(live.finishes());
    close(live.pipe.ends[0]);
}

TEST(LiveCapture, ASlowReaderGetsEverything) {
    LiveWriter live;
    *live.ending = true;
    live.writer->finish();
    std::string got;
    for (char buffer[512];;) {
        const ssize_t n = read(live.pipe.ends[0], buffer, sizeof buffer);
        if (n == 0) break;
        if (n > 0)
            got.append(buffer, size_t(n));
        else
            usleep(100);
    }
    EXPECT_TRUE(live.finishes());
    size_t packets = 0;  // number of packet blocks (pcapng type 6)
    for (size_t at = 0; at < got.size();) {
        uint32_t type, length;
        std::memcpy(&type, &got[at], 4);
        std::memcpy(&length, &got[at + 4], 4);
        ASSERT_GE(length, 12u);
        packets += type == 6;
        at += length;
    }
    EXPECT_EQ(packets, TapRing::kWholeFrames);
    close(live.pipe.ends[0]);
}

}  // namespace
}  // namespace roci::pmd
