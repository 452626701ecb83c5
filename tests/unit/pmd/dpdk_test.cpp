// Tests with the real DPDK without hugepages: EAL, ports that are connected to each other, frames between them, and
// leaks.
#include <gtest/gtest.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <thread>

#include "fake_port.hpp"
#include "pmd_glue/clock.hpp"
#include "pmd_glue/dpdk_port.hpp"
#include "pmd_glue/eal.hpp"
#include "pmd_glue/net_ring.hpp"
#include "wire/packet.hpp"

namespace roci::pmd {
namespace {

constexpr uint32_t kFrames = 4096;

class Dpdk : public testing::Test {
protected:
    static void SetUpTestSuite() {
        had_folder = std::getenv("RUNTIME_DIRECTORY") != nullptr;
        EalOptions o;
        o.hugepages = Hugepages::never;
        o.engines = 1;
        o.memory_bytes = MbufPool::bytes(kFrames) + (16 << 20);
        eal = new Eal(o);
    }
    static void TearDownTestSuite() { delete eal; }
    static inline Eal* eal = nullptr;
    static inline bool had_folder = false;
};

TEST_F(Dpdk, SaysWhichMemoryItUses) {
    EXPECT_FALSE(eal->uses_hugepages());
    EXPECT_NE(eal->memory_mode().find("ordinary pages"), std::string::npos);
}

// The folder of DPDK must be removed. A folder that several rocids share would belong to the user who started the
// first rocid.
TEST_F(Dpdk, LeavesNoRuntimeFolderBehind) {
    const std::filesystem::path folder = rte_eal_get_runtime_dir();
    ASSERT_FALSE(folder.empty());
    EXPECT_FALSE(std::filesystem::exists(folder.parent_path())) << folder;
    EXPECT_FALSE(std::filesystem::exists(folder.parent_path().parent_path())) << folder;
    EXPECT_EQ(std::getenv("RUNTIME_DIRECTORY") != nullptr, had_folder) << "the environment is as before";
}

TEST_F(Dpdk, RunsABodyOnTheEnginesLcore) {
    std::atomic<int> ran{0};
    eal->launch(0, [&] { ran = 1; });
    eal->join();
    EXPECT_EQ(ran, 1);
}

TEST_F(Dpdk, WhatOnePortSendsTheOtherReceivesAndNothingIsLeaked) {
    MbufPool pool("pool_pair", kFrames, 0);
    {
        RingPair pair("pair0", "pair1", 1);
        MbufPool* pools[] = {&pool};
        start_port(pair.port_a(), pools, {1});
        start_port(pair.port_b(), pools, {1});
        DpdkPort a(pair.port_a(), 0, pool), b(pair.port_b(), 0, pool);

        io::TxFrame big;
        ASSERT_EQ(a.tx_alloc(&big, 1), 1u);
        EXPECT_GE(big.capacity, wire::kMaxFrame);
        a.tx_free(&big, 1);

        // Fills the ring. The port must refuse the next frame.
        unsigned accepted = 0;
        while (offer(a, frame_to(7, accepted))) ++accepted;
        EXPECT_EQ(accepted, RingPair::kDepth);
        io::RxFrame got[32];
        uint32_t expected = 0;
        for (unsigned n; (n = b.rx_burst(got, 32)) != 0; b.rx_free(got, n))
            for (unsigned i = 0; i < n; ++i) {
                ASSERT_EQ(got[i].length, 100u);
                ASSERT_EQ(number_of({reinterpret_cast<const char*>(got[i].data), got[i].length}), expected++);
            }
        EXPECT_EQ(expected, accepted);
        EXPECT_EQ(a.rx_burst(got, 32), 0u);

        // Leaves frames in the ring. The destructor of the pair must free these frames.
        for (uint32_t i = 0; i < 5; ++i) EXPECT_TRUE(offer(b, frame_to(8, i)));
        stop_port(pair.port_a());
        stop_port(pair.port_b());
    }
    EXPECT_EQ(pool.in_use(), 0u);
}

TEST_F(Dpdk, WhatNobodyTakesIsLostAfterAWhile) {
    MbufPool pool("pool_blocked", kFrames, 0);
    {
        RingPair pair("pair2", "pair3", 1);
        MbufPool* pools[] = {&pool};
        start_port(pair.port_a(), pools, {1});
        start_port(pair.port_b(), pools, {1});
        DpdkPort a(pair.port_a(), 0, pool), b(pair.port_b(), 0, pool);
        for (uint32_t i = 0; i < RingPair::kDepth; ++i) ASSERT_TRUE(offer(a, frame_to(7, i)));
        EXPECT_FALSE(offer(a, frame_to(7, 0))) << "at first the sender keeps it";
        std::this_thread::sleep_for(std::chrono::milliseconds(DpdkPort::kPatienceMs + 50));
        EXPECT_TRUE(offer(a, frame_to(7, 0)));
        EXPECT_EQ(a.lost_not_taken(), 1u);
        io::RxFrame got;
        ASSERT_EQ(b.rx_burst(&got, 1), 1u);
        b.rx_free(&got, 1);
        EXPECT_TRUE(offer(a, frame_to(7, 0))) << "there is room again";
        EXPECT_FALSE(offer(a, frame_to(7, 0))) << "and patience";
        EXPECT_EQ(a.lost_not_taken(), 1u);
        stop_port(pair.port_a());
        stop_port(pair.port_b());
    }
    EXPECT_EQ(pool.in_use(), 0u);
}

rte_mbuf& mbuf_of(void* cookie) { return *static_cast<rte_mbuf*>(cookie); }

/// The ring driver passes an mbuf with its flags unchanged. So the test can set the flags that any other driver would
/// set.
TEST_F(Dpdk, ChecksumsAreLeftToThePortAndItsWordIsTaken) {
    using wire::HeaderChecksum;
    MbufPool pool("pool_sums", kFrames, 0);
    {
        RingPair pair("pair4", "pair5", 1);
        MbufPool* pools[] = {&pool};
        const Started started = start_port(pair.port_a(), pools, {.checksums = true});
        EXPECT_EQ(started.can, ChecksumOffload{}) << "rings do nothing, and are asked for nothing";
        EXPECT_EQ(started.does, ChecksumOffload{});
        start_port(pair.port_b(), pools, {});
        DpdkPort a(pair.port_a(), 0, pool), believes(pair.port_b(), 0, pool, nullptr, {.received = true, .sent = false}),
            looks_itself(pair.port_b(), 0, pool);
        const auto send = [&](uint64_t flags, uint8_t checksum_offset) {
            io::TxFrame f;
            ASSERT_EQ(a.tx_alloc(&f, 1), 1u);
            std::memset(f.data, 0, 100);
            f.length = 100;
            f.left.checksum_offset = checksum_offset;
            mbuf_of(f.cookie).ol_flags |= flags;
            ASSERT_EQ(a.tx_burst(&f, 1), 1u);
        };
        io::RxFrame got;
        const std::pair<uint64_t, HeaderChecksum> kSaid[] = {{RTE_MBUF_F_RX_IP_CKSUM_GOOD, HeaderChecksum::right},
                                                             {RTE_MBUF_F_RX_IP_CKSUM_BAD, HeaderChecksum::wrong},
                                                             {RTE_MBUF_F_RX_IP_CKSUM_UNKNOWN, HeaderChecksum::unknown},
                                                             {RTE_MBUF_F_RX_IP_CKSUM_NONE, HeaderChecksum::unknown},
                                                             {RTE_MBUF_F_RX_L4_CKSUM_BAD, HeaderChecksum::unknown}};
        for (const auto& [flags, said] : kSaid) {
            send(flags, 0);
            ASSERT_EQ(believes.rx_burst(&got, 1), 1u);
            EXPECT_EQ(got.ip_checksum, said) << flags;
            EXPECT_EQ(mbuf_of(got.cookie).ol_flags & RTE_MBUF_F_TX_OFFLOAD_MASK, 0u) << "nothing is asked for of a whole frame";
            believes.rx_free(&got, 1);
            send(flags, 0);
            ASSERT_EQ(looks_itself.rx_burst(&got, 1), 1u);
            EXPECT_EQ(got.ip_checksum, HeaderChecksum::unknown) << "a port that was not asked";
            looks_itself.rx_free(&got, 1);
        }
        DpdkPort in_memory(pair.port_b(), 0, pool, nullptr, {.no_icrc = true});
        for (auto* port : {&looks_itself, &in_memory}) {
            send(0, 0);
            ASSERT_EQ(port->rx_burst(&got, 1), 1u);
            EXPECT_EQ(got.icrc, port == &in_memory ? HeaderChecksum::absent : HeaderChecksum::unknown);
            port->rx_free(&got, 1);
        }
        for (const uint8_t l3 : {uint8_t{14}, uint8_t{18}}) {
            send(0, l3);
            ASSERT_EQ(believes.rx_burst(&got, 1), 1u);
            EXPECT_EQ(mbuf_of(got.cookie).ol_flags & RTE_MBUF_F_TX_OFFLOAD_MASK, RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM);
            EXPECT_EQ(mbuf_of(got.cookie).l2_len, l3);
            EXPECT_EQ(mbuf_of(got.cookie).l3_len, 20u);
            believes.rx_free(&got, 1);
        }
        stop_port(pair.port_a());
        stop_port(pair.port_b());
    }
    EXPECT_EQ(pool.in_use(), 0u);
}

/// A started port. The test calls the sleep functions of the port, with or without a frame and with or without an
/// interrupt.
struct Sleeping {
    /// Makes the names of the pool and of both ports from `name`. No other test may use the same name.
    explicit Sleeping(const std::string& name) : pool("pool_" + name, kFrames, 0), pair(name + "0", name + "1", 1) {
        MbufPool* pools[] = {&pool};
        start_port(pair.port_a(), pools, {1});
        start_port(pair.port_b(), pools, {1});
    }
    ~Sleeping() {
        stop_port(pair.port_a());
        stop_port(pair.port_b());
    }
    void sleep(Waker::Slept how, bool frame, bool interrupt = false) {
        if (frame) {
            EXPECT_TRUE(offer(a, frame_to(7, 0)));
        }
        if (interrupt) b.interrupted() = true;
        b.before_sleep();
        b.after_sleep(how);
        io::RxFrame got[4];
        for (unsigned n; (n = b.rx_burst(got, 4)) != 0;) b.rx_free(got, n);
    }

    MbufPool pool;
    RingPair pair;
    DpdkPort a{pair.port_a(), 0, pool}, b{pair.port_b(), 0, pool};
};

TEST_F(Dpdk, APortWhoseInterruptsDoNotComeIsFoundOut) {
    using enum Waker::Slept;
    Sleeping port("deaf");
    for (int i = 0; i < 20; ++i) {
        port.sleep(until_time_was_up, false);
        port.sleep(until_time_was_up, true);
        port.sleep(until_woken, true);
        port.sleep(not_at_all, true);
        EXPECT_FALSE(port.b.wakes()) << "no interrupt has come yet";
    }
    port.sleep(until_woken, true, true);
    EXPECT_TRUE(port.b.wakes());
    for (int sleeps = 0; port.b.wakes(); ++sleeps) {
        ASSERT_LE(sleeps, 5) << "four misses, and the first sleep is only a suspicion";
        port.sleep(until_time_was_up, true);
        port.sleep(until_woken, true);  // a client has woken the lcore, so nothing is known about the interrupts of the port
    }
    port.sleep(until_woken, true, true);
    EXPECT_TRUE(port.b.wakes()) << "an interrupt is proof at any time";
}

TEST_F(Dpdk, AnInterruptThatComesLateIsNoMiss) {
    using enum Waker::Slept;
    Sleeping port("late");
    port.sleep(until_woken, true, true);
    for (int i = 0; i < 20; ++i) {
        port.sleep(until_time_was_up, true);
        EXPECT_TRUE(port.b.wakes());
        port.sleep(until_woken, false, true);  // the interrupt for the previous frame
        EXPECT_TRUE(port.b.wakes());
    }
}

TEST_F(Dpdk, AFrameAtTheEndOfATimeOutIsNoMiss) {
    using enum Waker::Slept;
    Sleeping port("chance");
    port.sleep(until_woken, true, true);
    for (int i = 0; i < 3; ++i) {
        port.sleep(until_time_was_up, true);
        port.sleep(until_time_was_up, false);
    }
    EXPECT_TRUE(port.b.wakes());
    port.sleep(until_woken, true, true);
    for (int i = 0; i < 3; ++i) {
        port.sleep(until_time_was_up, true);
        port.sleep(until_time_was_up, false);
    }
    EXPECT_TRUE(port.b.wakes()) << "an interrupt ends the count";
}

/// Returns a frame of `first` + `second` bytes in two segments, as a NIC with buffers of `first` bytes delivers it.
/// The value of each byte is its position modulo 256.
rte_mbuf* in_two_pieces(MbufPool& pool, uint16_t first, uint16_t second) {
    rte_mbuf *head = rte_pktmbuf_alloc(pool.get()), *tail = rte_pktmbuf_alloc(pool.get());
    uint8_t n = 0;
    for (auto* p = reinterpret_cast<uint8_t*>(rte_pktmbuf_append(head, first)); first != 0; --first) *p++ = n++;
    for (auto* p = reinterpret_cast<uint8_t*>(rte_pktmbuf_append(tail, second)); second != 0; --second) *p++ = n++;
    EXPECT_EQ(rte_pktmbuf_chain(head, tail), 0);
    return head;
}

TEST_F(Dpdk, AFrameInTwoPiecesIsPutTogetherIfItIsNotTooLong) {
    MbufPool pool("pool_pieces", kFrames, 0);
    {
        RingPair pair("pieces0", "pieces1", 1);
        MbufPool* pools[] = {&pool};
        start_port(pair.port_a(), pools, {1});
        start_port(pair.port_b(), pools, {1});
        DpdkPort b(pair.port_b(), 0, pool);
        rte_mbuf* sent[] = {in_two_pieces(pool, 4096, 78), in_two_pieces(pool, 4096, 1000), in_two_pieces(pool, 60, 40)};
        ASSERT_EQ(rte_eth_tx_burst(pair.port_a(), 0, sent, 3), 3);
        io::RxFrame got[4];
        ASSERT_EQ(b.rx_burst(got, 4), 2u);
        EXPECT_EQ(b.too_large(), 1u);
        EXPECT_EQ(got[0].length, 4174u);
        EXPECT_EQ(got[1].length, 100u);
        for (const io::RxFrame& f : {got[0], got[1]})
            for (uint32_t i = 0; i < f.length; ++i) ASSERT_EQ(f.data[i], uint8_t(i)) << i << " of " << f.length;
        b.rx_free(got, 2);
        stop_port(pair.port_a());
        stop_port(pair.port_b());
    }
    EXPECT_EQ(pool.in_use(), 0u);
}

TEST_F(Dpdk, AnEmptyPoolGivesFewerFramesThenNone) {
    MbufPool pool("pool_small", 1023, 0);
    DpdkPort p(0, 0, pool);
    std::vector<io::TxFrame> all(2000);
    unsigned have = 0;
    for (unsigned n; (n = p.tx_alloc(all.data() + have, 100)) != 0;) have += n;
    EXPECT_EQ(have, 1023u);
    std::set<void*> distinct;
    for (unsigned i = 0; i < have; ++i) distinct.insert(all[i].cookie);
    EXPECT_EQ(distinct.size(), 1023u);
    p.tx_free(all.data(), have);
    EXPECT_EQ(pool.in_use(), 0u);
}

TEST_F(Dpdk, ClockFollowsTheMonotonicClock) {
    const Clock clock;
    const Nanos a = Clock::monotonic(), b = clock.now(), c = Clock::monotonic();
    constexpr Nanos kSlack = 2'000'000;  // the clock may have this calibration error at first
    EXPECT_GE(b + kSlack, a);
    EXPECT_LE(b, c + kSlack);
    const Nanos earlier = clock.now();
    EXPECT_LE(earlier, clock.now());
}

TEST(ClockArithmetic, IsExactOverAYear) {
    const Clock clock(2'000'000'000, 500, 7);
    constexpr uint64_t kYear = uint64_t{365} * 86400;
    EXPECT_EQ(clock.at(500), 7u);
    EXPECT_EQ(clock.at(500 + kYear * 2'000'000'000), 7 + kYear * 1'000'000'000);
}

TEST(EalArguments, PinWhenAskedFloatOtherwise) {
    EalOptions o;
    o.engines = 2;
    const std::string all = "(" + cpu_list(allowed_cpus()) + ")";
    const auto has = [](const std::vector<std::string>& a, const std::string& s) {
        return std::find(a.begin(), a.end(), s) != a.end();
    };
    EXPECT_TRUE(has(eal_arguments(o, true), "--lcores=0@" + all + ",1@" + all + ",2@" + all));
    EXPECT_FALSE(has(eal_arguments(o, true), "--no-huge"));
    EXPECT_TRUE(has(eal_arguments(o, false), "--no-huge"));
    o.cpus = {1, 0};
    EXPECT_TRUE(has(eal_arguments(o, true), "--lcores=0@" + all + ",1@1,2@0"));
}

TEST(CpuList, JoinsRuns) {
    EXPECT_EQ(cpu_list({0}), "0");
    EXPECT_EQ(cpu_list({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

}  // namespace
}  // namespace roci::pmd
