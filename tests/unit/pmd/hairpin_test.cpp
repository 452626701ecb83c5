// Tests of HairpinPort: which frames return to the port's own device. FakePort detects a frame that is freed twice.
#include <gtest/gtest.h>

#include <numeric>
#include <optional>

#include "fake_port.hpp"
#include "pmd_glue/hairpin_port.hpp"

namespace roci::pmd {
namespace {

constexpr MacAddress kOwn{{0x02, 0, 0, 0, 0, 1}};
constexpr uint8_t kOwnLast = 1, kOtherLast = 2;

TEST(Hairpin, OwnFramesComeBackOthersGoOutBothInOrder) {
    FakePort wire;
    HairpinPort port(wire, kOwn);
    for (uint32_t i = 0; i < 10; ++i) ASSERT_TRUE(offer(port, frame_to(i % 2 == 0 ? kOwnLast : kOtherLast, i)));
    EXPECT_EQ(port.next_event(), 0u) << "there is something to receive at once";
    ASSERT_EQ(wire.sent.size(), 5u);
    for (uint32_t i = 0; i < 5; ++i) EXPECT_EQ(number_of(wire.sent[i]), 2 * i + 1);
    EXPECT_EQ(receive_all(port), (std::vector<uint32_t>{0, 2, 4, 6, 8}));
    EXPECT_EQ(port.next_event(), kNever);
    EXPECT_EQ(wire.outstanding_tx(), 0u);
}

TEST(Hairpin, AMixedBurstIsAcceptedFromTheFrontOnly) {
    FakePort wire;
    wire.accept_limit = 1;
    HairpinPort port(wire, kOwn);
    io::TxFrame f[4];
    ASSERT_EQ(port.tx_alloc(f, 4), 4u);
    const uint8_t to[] = {kOwnLast, kOtherLast, kOtherLast, kOwnLast};
    for (uint32_t i = 0; i < 4; ++i) {
        const std::string bytes = frame_to(to[i], i);
        std::memcpy(f[i].data, bytes.data(), bytes.size());
        f[i].length = uint32_t(bytes.size());
    }
    // The port accepts the first frame, which goes to its own address, and one frame to another address. It refuses
    // the second frame to another address and all frames after it.
    EXPECT_EQ(port.tx_burst(f, 4), 2u);
    EXPECT_EQ(wire.sent.size(), 1u);
    EXPECT_EQ(receive_all(port), std::vector<uint32_t>{0});
    port.tx_free(f + 2, 2);
    EXPECT_EQ(wire.outstanding_tx(), 0u);
}

TEST(Hairpin, AFullQueueIsBackPressureAndGoesBackWhenThePortGoes) {
    FakePort wire;
    {
        HairpinPort port(wire, kOwn, 4);
        for (uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(offer(port, frame_to(kOwnLast, i)));
        EXPECT_FALSE(offer(port, frame_to(kOwnLast, 4)));
        EXPECT_EQ(wire.outstanding_tx(), 4u);
    }
    EXPECT_EQ(wire.outstanding_tx(), 0u);
}

std::string frame_to_group(uint32_t number) {
    std::string f = frame_to(kOtherLast, number);
    f[0] = 0x03;
    return f;
}

unsigned send_burst(io::Port& port, const std::vector<std::string>& frames) {
    std::vector<io::TxFrame> f(frames.size());
    EXPECT_EQ(port.tx_alloc(f.data(), unsigned(f.size())), f.size());
    for (size_t i = 0; i < f.size(); ++i) {
        std::memcpy(f[i].data, frames[i].data(), frames[i].size());
        f[i].length = uint32_t(frames[i].size());
    }
    const unsigned sent = port.tx_burst(f.data(), unsigned(f.size()));
    port.tx_free(f.data() + sent, unsigned(f.size()) - sent);
    return sent;
}

/// Sends three frames to a group. Expects that `sent` frames leave and that copies of the first `copies` frames return.
void expect_copies(FakePort& wire, uint32_t sent, uint32_t copies) {
    HairpinPort port(wire, kOwn);
    EXPECT_EQ(send_burst(port, {frame_to_group(0), frame_to_group(1), frame_to_group(2)}), sent);
    EXPECT_EQ(wire.sent.size(), sent);
    std::vector<uint32_t> expected(copies);
    std::iota(expected.begin(), expected.end(), 0u);
    EXPECT_EQ(receive_all(port), expected);
    EXPECT_EQ(wire.outstanding_tx(), 0u);
}

TEST(Hairpin, MulticastFramesGoOutAndComeBackInOrder) {
    FakePort wire;
    HairpinPort port(wire, kOwn);
    std::vector<std::string> frames{frame_to(kOtherLast, 0)};
    std::vector<uint32_t> groups(100);
    for (uint32_t i = 0; i < 100; ++i) frames.push_back(frame_to_group(groups[i] = i + 1));
    frames.push_back(frame_to(kOtherLast, 101));
    EXPECT_EQ(send_burst(port, frames), 102u);
    ASSERT_EQ(wire.sent.size(), 102u);
    for (uint32_t i = 0; i < 102; ++i) EXPECT_EQ(number_of(wire.sent[i]), i);
    EXPECT_EQ(receive_all(port), groups);
    EXPECT_EQ(wire.outstanding_tx(), 0u);
}

TEST(Hairpin, OnlyMulticastFramesThatWereSentComeBack) {
    FakePort wire;
    wire.accept_limit = 2;
    expect_copies(wire, 2, 2);
}

TEST(Hairpin, WithoutBuffersForCopiesMulticastFramesStillGoOut) {
    FakePort wire;
    wire.pool = 4;
    expect_copies(wire, 3, 1);
}

TEST(Hairpin, WithoutAMacOnlyMulticastFramesComeBack) {
    FakePort wire;
    HairpinPort port(wire, std::nullopt);
    std::string all_ones = frame_to(kOwnLast, 3);
    std::fill_n(all_ones.begin(), 6, '\xff');
    EXPECT_EQ(send_burst(port, {frame_to(kOwnLast, 0), frame_to_group(1), frame_to(kOtherLast, 2), all_ones}), 4u);
    EXPECT_EQ(wire.sent.size(), 4u);
    EXPECT_EQ(receive_all(port), std::vector<uint32_t>{1});
    EXPECT_EQ(wire.outstanding_tx(), 0u);
}

TEST(Hairpin, NeitherTheWireNorTheQueueStarvesTheOther) {
    FakePort wire;
    HairpinPort port(wire, kOwn);
    io::RxFrame f[4];
    unsigned from_wire = 0, from_queue = 0;
    for (int round = 0; round < 100; ++round) {
        for (int i = 0; i < 4; ++i) {
            wire.incoming.push_back(frame_to(kOwnLast, 1000));
            offer(port, frame_to(kOwnLast, 1));
        }
        const unsigned n = port.rx_burst(f, 4);
        for (unsigned i = 0; i < n; ++i)
            ++(number_of({reinterpret_cast<const char*>(f[i].data), f[i].length}) == 1000 ? from_wire : from_queue);
        port.rx_free(f, n);
    }
    EXPECT_EQ(from_wire + from_queue, 400u);
    EXPECT_GE(from_wire, 150u);
    EXPECT_GE(from_queue, 150u);
    EXPECT_EQ(wire.outstanding_rx(), 0u);
}

}  // namespace
}  // namespace roci::pmd
