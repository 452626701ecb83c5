// Tests of the pool of frames that arrived behind a gap, of the search for gaps, and of the adaptive limits of
// Patience.
#include "qp/reorder_pool.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "qp/state.hpp"

namespace roci::qp {
namespace {

struct ReorderPoolTest : ::testing::Test {
    std::vector<uint8_t> bytes = std::vector<uint8_t>(200, 7);
    wire::Packet packet(uint32_t psn, uint32_t payload = 100) {
        wire::Packet p;
        p.psn = Psn(psn);
        p.frame = bytes.data();
        p.l3 = bytes.data() + 14;
        p.payload = bytes.data() + 58;
        p.payload_length = payload;
        return p;
    }
    static ReorderLimits limits(uint32_t frames, size_t kept) { return {frames, kept * ReorderPool::kFrameBytes}; }
};

/// Keeps a frame that no port lends.
KeptFrame* keep(ReorderPool& pool, const wire::Packet& p, uint32_t has) {
    Arrival none;
    return pool.keep(p, has, none);
}

/// A port that lends frames and counts the frames that return.
struct LendingPort final : io::Port {
    unsigned rx_burst(io::RxFrame*, unsigned) override { return 0; }
    void rx_free(io::RxFrame* frames, unsigned count) override {
        for (unsigned i = 0; i < count; ++i) returned.push_back(frames[i].cookie);
        ++bursts;
    }
    unsigned tx_alloc(io::TxFrame*, unsigned) override { return 0; }
    unsigned tx_burst(io::TxFrame*, unsigned) override { return 0; }
    void tx_free(io::TxFrame*, unsigned) override {}
    uint32_t lends() const override { return lent; }
    std::vector<void*> returned;
    uint32_t lent = 2, bursts = 0;
};

TEST_F(ReorderPoolTest, APortLendsNoMoreFramesThanItSays) {
    LendingPort port;
    std::array<io::Port*, 1> ports{&port};
    ReorderPool pool(HeapChunks::instance(), limits(8, 16), ports);
    std::vector<KeptFrame*> kept;
    for (uint32_t i = 0; i < 3; ++i) {
        const io::RxFrame frame{bytes.data(), uint32_t(bytes.size()), &bytes[i]};
        Arrival arrival{&frame, 0};
        kept.push_back(pool.keep(packet(5 + i), 0, arrival));
        ASSERT_NE(kept.back(), nullptr);
        EXPECT_EQ(arrival.frame == nullptr, i < 2) << "the third frame is copied";
        EXPECT_EQ(kept.back()->packet.frame == bytes.data(), i < 2);
    }
    for (KeptFrame* k : kept) ReturnedFrames(pool).add(k);
    EXPECT_EQ(port.returned, (std::vector<void*>{&bytes[0], &bytes[1]}));
    const io::RxFrame again{bytes.data(), uint32_t(bytes.size()), nullptr};
    Arrival arrival{&again, 0};
    KeptFrame* k = pool.keep(packet(9), 0, arrival);
    EXPECT_EQ(arrival.frame, nullptr) << "the returned frames are lent again";
    ReturnedFrames(pool).add(k);
    EXPECT_EQ(pool.in_use(), 0u);
}

TEST_F(ReorderPoolTest, EachPortGetsItsFramesBackInBursts) {
    LendingPort left, right;
    left.lent = right.lent = 64;
    std::array<io::Port*, 2> ports{&left, &right};
    ReorderPool pool(HeapChunks::instance(), limits(64, 400), ports);
    std::vector<KeptFrame*> kept;
    for (uint32_t i = 0; i < 50; ++i) {
        const io::RxFrame frame{bytes.data(), uint32_t(bytes.size()), nullptr};
        Arrival arrival{&frame, i < 40 ? 0u : 1u};
        kept.push_back(pool.keep(packet(i), 0, arrival));
        ASSERT_EQ(arrival.frame, nullptr);
    }
    {
        ReturnedFrames returned(pool);
        for (KeptFrame* k : kept) returned.add(k);
    }
    EXPECT_EQ(left.returned.size(), 40u);
    EXPECT_EQ(left.bursts, 2u);
    EXPECT_EQ(right.returned.size(), 10u);
    EXPECT_EQ(right.bursts, 1u);
    EXPECT_EQ(pool.in_use(), 0u);
}

TEST_F(ReorderPoolTest, ACopyIsIndependentOfTheFrame) {
    ReorderPool pool(HeapChunks::instance(), limits(8, 4));
    bytes[58] = 42;
    KeptFrame* k = keep(pool, packet(5), 0);
    ASSERT_NE(k, nullptr);
    bytes.assign(200, 0);
    EXPECT_EQ(k->packet.psn, Psn(5));
    EXPECT_EQ(k->packet.payload[0], 42);
    EXPECT_EQ(k->packet.payload[1], 7);
    EXPECT_EQ(k->packet.payload - k->packet.frame, 58);
    EXPECT_EQ(k->packet.l3 - k->packet.frame, 14);
    ReturnedFrames(pool).add(k);
    EXPECT_EQ(pool.in_use(), 0u);
}

TEST_F(ReorderPoolTest, AFrameThatIsTooLongIsNotKept) {
    ReorderPool pool(HeapChunks::instance(), limits(8, 4));
    bytes.assign(wire::kMaxFrame + 100, 0);
    EXPECT_EQ(keep(pool, packet(5, wire::kMaxFrame - 57), 0), nullptr);
    EXPECT_EQ(pool.counters().no_memory, 1u);
}

/// Each QP, one after the other, keeps as many frames as the pool permits. Returns the number of frames per QP.
std::vector<uint32_t> shares(ReorderPool& pool, const wire::Packet& p, uint32_t qps, std::vector<KeptFrame*>& all) {
    std::vector<uint32_t> has;
    for (uint32_t q = 0; q < qps; ++q) {
        uint32_t n = 0;
        for (KeptFrame* k = keep(pool, p, n); k != nullptr; k = keep(pool, p, n)) {
            all.push_back(k);
            ++n;
        }
        has.push_back(n);
    }
    return has;
}

TEST_F(ReorderPoolTest, EverybodyHasAShareAndNobodyHasItAll) {
    ReorderPool pool(HeapChunks::instance(), limits(1024, 1000));
    std::vector<KeptFrame*> all;
    const auto has = shares(pool, packet(1), 8, all);
    EXPECT_EQ(has, (std::vector<uint32_t>{200, 160, 128, 102, 82, 65, 52, 42}));
    EXPECT_EQ(pool.counters().share, 8u);
    EXPECT_EQ(pool.counters().no_memory, 0u);
    for (KeptFrame* k : all) ReturnedFrames(pool).add(k);
}

TEST_F(ReorderPoolTest, NeverMoreThanItsCapacity) {
    ReorderPool pool(HeapChunks::instance(), limits(1024, 10));
    std::vector<KeptFrame*> all;
    for (const uint32_t n : shares(pool, packet(1), 20, all)) EXPECT_LE(n, 2u);
    EXPECT_EQ(all.size(), 10u);
    EXPECT_EQ(pool.in_use(), pool.capacity());
    EXPECT_GT(pool.counters().no_memory, 0u);
    for (KeptFrame* k : all) ReturnedFrames(pool).add(k);
}

TEST_F(ReorderPoolTest, PlacesAreEmptyHoweverTheyWereLeft) {
    ReorderPool pool(HeapChunks::instance(), limits(64, 4));
    KeptFrame** places = pool.take_places();
    for (uint32_t i = 0; i < 64; ++i) places[i] = reinterpret_cast<KeptFrame*>(1);
    pool.give_back(places);
    places = pool.take_places();
    for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(places[i], nullptr);
    pool.give_back(places);
}

// ---- holes ----------------------------------------------------------------------------------------------------------

TEST_F(ReorderPoolTest, HolesAreFoundAcrossTheEndOfThePsns) {
    ReorderPool pool(HeapChunks::instance(), limits(16, 64));
    Backlog b;
    b.base = Psn(0xfffffd);
    b.places = pool.take_places();
    for (const uint32_t psn : {0xffffffu, 2u, 3u}) {
        b.places[psn % 16] = keep(pool, packet(psn), 0);
        ++b.count;
    }
    b.first = Psn(0xffffff);
    b.end = Psn(4);
    EXPECT_EQ(hole_from(b, 16, b.base), (Hole{Psn(0xfffffd), 2}));
    EXPECT_EQ(hole_from(b, 16, Psn(0xfffffe)), (Hole{Psn(0xfffffe), 1}));
    EXPECT_EQ(hole_from(b, 16, Psn(0xffffff)), (Hole{Psn(0), 2}));
    EXPECT_EQ(hole_from(b, 16, Psn(2)).length, 0u) << "nothing is missing before the last one";
    EXPECT_EQ(hole_from(b, 16, Psn(9)).length, 0u) << "behind the last one";
    for (uint32_t i = 0; i < 16; ++i)
        if (b.places[i] != nullptr) ReturnedFrames(pool).add(b.places[i]);
    pool.give_back(b.places);
}

// ---- patience -------------------------------------------------------------------------------------------------------

TEST(Patience, ThreeMayOvertakeAndThenItIsLost) {
    const Patience p;
    EXPECT_FALSE(p.exhausted(3, 0));
    EXPECT_TRUE(p.exhausted(4, 0));
    EXPECT_FALSE(p.exhausted(1, Patience::kShortest - 1));
    EXPECT_TRUE(p.exhausted(1, Patience::kShortest));
}

TEST(Patience, GrowsWhenWhatWasAskedForComesTwice) {
    Patience p;
    p.arrived(Psn(7), 20, 50'000);
    EXPECT_FALSE(p.repeated(Psn(8)));
    EXPECT_EQ(p.places(), Patience::kFewest);
    EXPECT_TRUE(p.repeated(Psn(7)));
    EXPECT_FALSE(p.repeated(Psn(7))) << "once";
    EXPECT_EQ(p.places(), 2 * Patience::kFewest);
    EXPECT_EQ(p.wait(), 62'500u);
}

/// A peer may send a lost frame again twice. Then both copies arrive, although the first copy was not late. If one such frame set
/// the limits, the QP would recognise later losses only after milliseconds.
TEST(Patience, OneSecondCopyAtMostDoublesALimit) {
    Patience p;
    p.arrived(Psn(7), 100, 1'500'000);
    EXPECT_TRUE(p.repeated(Psn(7)));
    EXPECT_EQ(p.places(), 2 * Patience::kFewest);
    EXPECT_EQ(p.wait(), 2 * Patience::kShortest);
}

/// In a network that reorders, many frames are late.
TEST(Patience, SeveralLateFramesShowTheReorderingOfTheNetwork) {
    Patience p;
    for (uint32_t i = 0; i < 6; ++i) {
        p.arrived(Psn(2000 * i), 20, 50'000);
        EXPECT_TRUE(p.repeated(Psn(2000 * i)));
    }
    EXPECT_EQ(p.places(), 26);
    EXPECT_EQ(p.wait(), 62'500u);
}

// If many frames of a window are late, their repetitions arrive much later than the frames. When the repetitions
// arrive, Patience must still have a record of the first late frames.
TEST(Patience, LearnsWhenRepetitionsComeMuchLater) {
    Patience p;
    for (uint32_t i = 0; i < 100; ++i) p.arrived(Psn(10 * i), 20, 1000);
    EXPECT_TRUE(p.repeated(Psn(0)));
    EXPECT_EQ(p.places(), 2 * Patience::kFewest);
}

TEST(Patience, IsBounded) {
    Patience p;
    for (uint32_t i = 0; i < 100; ++i) {
        p.arrived(Psn(i), 1'000'000, Nanos{1} << 60);
        EXPECT_TRUE(p.repeated(Psn(i)));
    }
    EXPECT_EQ(p.places(), Patience::kMost);
    EXPECT_EQ(p.wait(), Patience::kLongest);
}

TEST(Patience, ShrinksWhileLossesAreLosses) {
    Patience p;
    for (uint32_t i = 0; i < 8; ++i) {
        p.arrived(Psn(i), 100, 1'000'000);
        p.repeated(Psn(i));
    }
    EXPECT_GT(p.places(), 100);
    for (uint32_t i = 0; i < 1000; ++i) p.arrived(Psn(100 + i), 4, 1000);
    EXPECT_GT(p.places(), 100) << "their repetitions may still come";
    for (uint32_t i = 0; i < 1000; ++i) p.arrived(Psn(2000 * i), 4, 1000);
    EXPECT_EQ(p.places(), Patience::kFewest);
    EXPECT_EQ(p.wait(), Patience::kShortest);
}

}  // namespace
}  // namespace roci::qp
