// Two threads use the rings as a client and rocid do. No entry may be lost or duplicated. With -Db_sanitize=thread,
// no data race may be reported.
#include <gtest/gtest.h>

#include <thread>

#include "fixture.hpp"
#include "rings/doorbell.hpp"

namespace roci::rings {
namespace {

// The producer does not check for a free entry. As in work queues, the producer needs a credit per entry, which the
// consumer returns after polling. The credits are read with relaxed order, so that only the order of the ring itself
// protects the entries.
TEST(Stress, CqLaneDeliversEachEntryOnceInOrder) {
    constexpr uint64_t kEntries = 200000;
    constexpr uint32_t kDepth = 16;
    CqPair p(1, kDepth);
    std::atomic<uint64_t> polled{0};
    std::thread engine([&] {
        for (uint64_t i = 0; i < kEntries; ++i) {
            while (i - polled.load(std::memory_order_relaxed) >= kDepth) std::this_thread::yield();
            ASSERT_EQ(p.push(i), PushResult::ok) << i;
        }
    });
    for (uint64_t i = 0; i < kEntries;) {
        const int64_t got = p.poll();
        if (got == -1) {
            std::this_thread::yield();
            continue;
        }
        ASSERT_EQ(got, int64_t(i));
        polled.store(++i, std::memory_order_release);
    }
    engine.join();
    EXPECT_FALSE(p.cq.dead);
}

// The client arms the CQ. If it then finds no entry, it sleeps until an event. A lost event would make the test hang
// until its timeout.
TEST(Stress, ArmAndNotifyLoseNoEvent) {
    constexpr uint64_t kEntries = 50000;
    CqPair p(2, 16);
    io::EventRing events(8);
    std::atomic<uint64_t> polled{0};
    std::atomic<bool> client_waits{false}, engine_done{false};
    std::thread engine([&] {
        for (uint64_t i = 0; i < kEntries; ++i) {
            while (i - polled.load(std::memory_order_relaxed) >= 16) std::this_thread::yield();
            ASSERT_EQ(p.push(i, uint32_t(i & 1)), PushResult::ok);
            while (!notify(p.cq, false, events)) std::this_thread::yield();
            // Sometimes waits until the client has polled all entries and sleeps.
            if (i % 64 == 0)
                while (!client_waits.load() && polled.load() != i + 1) std::this_thread::yield();
        }
        engine_done = true;
    });
    uint64_t seen = 0, sum = 0, slept = 0;
    auto drain = [&] {
        uint64_t n = 0;
        for (int64_t got = p.poll(); got != -1; got = p.poll(), ++n) sum += uint64_t(got);
        seen += n;
        polled.store(seen, std::memory_order_release);
        return n;
    };
    while (seen < kEntries) {
        if (drain() != 0) continue;
        p.client.arm(false);
        if (drain() != 0) continue;
        client_waits = true;
        for (io::Event e; !events.pop(e);) std::this_thread::yield();
        client_waits = false;
        ++slept;
    }
    // Unread events may fill the ring. The engine then waits before it adds its last events, until this loop has removed
    // some events.
    for (io::Event e; !engine_done.load();)
        if (!events.pop(e)) std::this_thread::yield();
    engine.join();
    EXPECT_EQ(sum, kEntries * (kEntries - 1) / 2);
    EXPECT_GT(slept, 0u);
}

// rocid stops polling the queue whenever it finds no work, and then relies on the doorbell alone. A lost doorbell
// would make the test hang.
TEST(Stress, SendQueueAndDoorbellLoseNoWork) {
    constexpr uint64_t kWqes = 100000;
    constexpr uint32_t kSlot = 777;
    SqPair sq(32, 64);
    auto page = std::make_unique<abi::DoorbellPage>();
    abi::EnginePage::Line line{};
    std::atomic<uint64_t> doorbells{0};
    std::thread client([&] {
        const abi::DoorbellTarget target{page.get(), &line};
        for (uint64_t i = 0; i < kWqes;) {
            uint32_t batch = 1 + uint32_t(i % 5);
            while (batch-- > 0 && i < kWqes && sq.client.free_slots() > 0) {
                abi::SendWqe* w = sq.client.slot(sq.client.head++);
                w->wr_id = i++;
                w->opcode = abi::WrOpcode::send;
            }
            if (sq.client.publish()) {
                doorbells.fetch_add(1, std::memory_order_relaxed);
                (void)abi::ring_doorbell(target, kSlot);
            }
            if (i % 97 == 0) std::this_thread::yield();
        }
    });
    uint32_t taken = 0;
    uint64_t expected = 0, idled = 0;
    bool watching = false;
    while (expected < kWqes) {
        if (!watching) {
            collect_doorbells(*page, [&](uint32_t slot) {
                ASSERT_EQ(slot, kSlot);
                watching = true;
            });
            if (!watching) {
                std::this_thread::yield();
                continue;
            }
        }
        for (; sq.view.posted(taken); ++taken, ++expected) {
            abi::SendWqe w;
            std::memcpy(&w, sq.view.slot(taken), sizeof w);
            ASSERT_EQ(w.wr_id, expected);
            sq.client.free_send(taken);
        }
        if (go_idle(sq.view, taken)) {
            watching = false;
            ++idled;
        }
    }
    client.join();
    EXPECT_GT(idled, 0u);
    EXPECT_GT(doorbells.load(), 0u);
}

}  // namespace
}  // namespace roci::rings
