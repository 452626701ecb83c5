// Tests the protocols of the shared rings in every execution that the memory model of C++ permits. Each program runs the code of
// both ends. A table contains the memory orders that the program needs. If any one of them is weakened to relaxed, the explorer
// must find a bug.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "abi/client_rings.hpp"
#include "abi/device_page.hpp"
#include "base/epoch.hpp"
#include "base/spsc_ring.hpp"
#include "explorer.hpp"
#include "rings/doorbell.hpp"
#include "rings/queues.hpp"

namespace roci::weak {
namespace {

using Make = std::function<Program()>;
using Needed = std::vector<Weakening>;

void check(const Make& make, const Needed& needed) {
    const Report report = explore(make);
    EXPECT_EQ(report.bug, "");
    EXPECT_GT(report.executions, 1u);
    for (const Weakening& w : needed)
        EXPECT_NE(explore(make, w).bug, "") << "step " << w.step << ", kind " << int(w.kind)
                                            << ": not needed, or the explorer is blind";
}

/// A model of an eventfd on which a thread sleeps. The kernel's lock orders the accesses before a wake-up before the accesses of
/// the woken thread.
struct Bell {
    std::atomic<uint32_t> rung{0};
    void ring() { rung.exchange(1, std::memory_order_acq_rel); }
    void sleep() {
        until([this] { return rung.load(std::memory_order_relaxed) != 0; });
        rung.exchange(0, std::memory_order_acq_rel);
    }
};

/// A model of futex(2) for one waiting thread. Under a lock, the kernel compares the word and adds the thread to its
/// list.
struct Futex {
    std::atomic<uint32_t> locked{0}, woken{0};
    bool waits = false;
    void lock() {
        until([this] {
            uint32_t free = 0;
            return locked.compare_exchange_strong(free, 1, std::memory_order_acquire);
        });
    }
    void unlock() { locked.store(0, std::memory_order_release); }
    void wait(uint32_t* word, uint32_t value) {
        lock();
        waits = std::atomic_ref(*word).load(std::memory_order_relaxed) == value;
        const bool sleeps = waits;
        unlock();
        if (sleeps) until([this] { return woken.load(std::memory_order_acquire) != 0; });
    }
    void wake() {
        lock();
        if (std::exchange(waits, false)) woken.store(1, std::memory_order_release);
        unlock();
    }
};

/// A send queue, a CQ, a doorbell page and a sleeping flag, as a client and an engine share them.
struct World {
    static constexpr uint32_t kSlots = 2, kEntries = 2;
    struct Sq {
        abi::SqShared head;
        alignas(64) std::byte slots[kSlots * 64];
    } sq;
    struct Lane {
        abi::CqLane head;
        abi::Cqe entries[kEntries];
    };
    struct CqMemory {
        abi::CqShared head;
        Lane lane;
    } cq;
    abi::DoorbellPage page;
    abi::EnginePage::Line engine;
    Bell bell;
    Futex futex;

    abi::SqProducer producer;
    abi::CqConsumer consumer;
    rings::SqView view;
    rings::Cq queue;
    uint64_t taken = 0;
    bool sleeps = false;  ///< the engine sleeps, or the program waits for an entry

    explicit World(uint32_t depth) {
        std::memset(&sq, 0, sizeof sq);
        std::memset(&cq, 0, sizeof cq);
        std::memset(&page, 0, sizeof page);
        engine.sleeping = 0;
        producer.shared = view.shared = &sq.head;
        producer.slots = sq.slots;
        producer.depth = view.depth = consumer.depth = depth;
        producer.stride = view.stride = 64;
        consumer.shared = queue.shared = &cq.head;
        consumer.lane_base = reinterpret_cast<std::byte*>(&cq.lane);
        consumer.lanes = queue.lane_count = 1;
        queue.lanes[0].shared = &cq.lane.head;
        queue.lanes[0].entries = cq.lane.entries;
        queue.lanes[0].depth = depth;
        queue.channel = 1;
    }
    /// Returns the memory that the explorer examines. Of the doorbell page, this is only the part that slot 0 uses.
    std::vector<std::pair<void*, size_t>> shared() {
        return {{&sq, sizeof sq},         {&cq, sizeof cq},     {&page.summary[0], 8},  {&page.words[0], 8},
                {&engine, sizeof engine}, {&bell, sizeof bell}, {&futex, sizeof futex}, {&producer.tail, sizeof producer.tail}};
    }

    // ---- the client
    void fill(uint64_t wr_id) {
        step("fill");
        abi::SendWqe* w = producer.slot(producer.head++);
        w->wr_id = wr_id;
        w->num_sge = 0;
        w->send_flags = 0;
    }
    bool publish() {
        step("publish");
        return producer.publish();
    }
    void post(uint64_t wr_id) {
        fill(wr_id);
        if (!publish()) return;
        step("ring");
        if (abi::ring_doorbell({&page, &engine}, 0)) bell.ring();
    }
    bool poll(uint64_t wr_id) {
        step("poll");
        const abi::Cqe* e = consumer.peek();
        if (e == nullptr) return false;
        require(e->wr_id == wr_id, "an entry is not the one that was written");
        step("pop");
        consumer.pop();
        return true;
    }

    // ---- the engine
    bool take(uint32_t index) {
        step("look");
        if (!view.posted(index)) return false;
        step("fetch");
        const auto* w = reinterpret_cast<const abi::SendWqe*>(view.slot(index));
        require(w->wr_id == 10 + index && w->num_sge == 0, "a WQE is not the one that was posted");
        return true;
    }
    rings::PushResult push(uint64_t wr_id) {
        abi::Cqe e{};
        e.wr_id = wr_id;
        rings::Completions out;
        step("push");
        const auto result = rings::push(queue, 0, e, out);
        step("complete");
        out.write_out();
        return result;
    }
};

std::unique_ptr<World> world;

Program program(std::vector<std::function<void()>> threads, std::function<void()> at_end = {}) {
    return {std::move(threads), std::move(at_end), world->shared()};
}

}  // namespace

TEST(WeakMemory, PostedWqesArriveWhole) {
    check(
        [] {
            world = std::make_unique<World>(2);
            return program({[] {
                                world->fill(10);
                                world->fill(11);
                                (void)world->publish();
                            },
                            [] {
                                for (uint32_t i = 0; i < 2; ++i) until([i] { return world->take(i); });
                                world->taken = 2;
                            }},
                           [] { require(world->taken == 2, "a WQE did not arrive"); });
        },
        {{"publish", Kind::store}, {"look", Kind::load}});
}

/// A program posts in one thread and polls in another. The second WQE uses the same slot as the first WQE, and the second CQ
/// entry uses the same slot as the first entry.
TEST(WeakMemory, SlotsAreReusedAfterTheirLastUse) {
    check(
        [] {
            world = std::make_unique<World>(1);
            return program({[] {
                                world->post(10);
                                step("room");
                                until([] { return world->producer.free_slots() != 0; });
                                world->post(11);
                            },
                            [] {
                                until([] { return world->poll(10); });
                                step("free");
                                world->producer.free_send(0);
                            },
                            [] {
                                for (uint32_t i = 0; i < 2; ++i) {
                                    until([i] { return world->take(i); });
                                    require(world->push(10 + i) == rings::PushResult::ok, "the CQ seems full");
                                }
                                world->taken = 2;
                            }},
                           [] { require(world->taken == 2, "a WQE did not arrive"); });
        },
        {{"publish", Kind::store},
         {"look", Kind::load},
         {"complete", Kind::store},
         {"poll", Kind::load},
         {"free", Kind::store},
         {"room", Kind::load}});
}

/// Only the index of the consumer shows that an entry may be overwritten.
TEST(WeakMemory, EntriesAreOverwrittenAfterTheyWerePolled) {
    check(
        [] {
            world = std::make_unique<World>(1);
            world->queue.ignore_overrun = true;
            return program(
                {[] {
                     for (uint64_t id : {10, 11}) until([id] { return world->poll(id); });
                     world->taken = 2;
                 },
                 [] {
                     world->push(10);
                     until([] { return world->push(11) == rings::PushResult::ok && world->queue.lanes[0].produced == 2; });
                 }},
                [] { require(world->taken == 2, "an entry is lost"); });
        },
        {{"complete", Kind::store}, {"poll", Kind::load}, {"pop", Kind::store}, {"push", Kind::load}});
}

namespace {

/// Models Engine::poll: collects doorbells, and polls the queue until the queue is idle.
void poll_queue(bool active, uint32_t& taken) {
    step("collect");
    rings::collect_doorbells(world->page, [&](uint32_t) { active = true; });
    while (active) {
        for (; world->take(taken); ++taken) world->taken = taken + 1;
        step("announce");
        rings::announce_idle(world->view);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        active = !rings::stays_idle(world->view, taken);
    }
}

/// Models LcoreLoop::nap (pmd_glue/lcore_loop.hpp).
void nap() {
    std::atomic_ref sleeping(world->engine.sleeping);
    step("sleep");
    sleeping.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!rings::doorbell_pending(world->page)) world->bell.sleep();
    step("wake");
    sleeping.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace

TEST(WeakMemory, NoPostIsLostWhenAnEngineStopsPollingAndSleeps) {
    check(
        [] {
            world = std::make_unique<World>(2);
            return program({[] { world->post(10); },
                            [] {
                                uint32_t taken = 0;
                                for (poll_queue(true, taken);; poll_queue(false, taken)) nap();
                            }},
                           [] { require(world->taken == 1, "the engine sleeps, and a WQE is posted"); });
        },
        {{"publish", Kind::fence}, {"announce", Kind::fence}, {"ring", Kind::fence}, {"sleep", Kind::fence}});
}

TEST(WeakMemory, NoCompletionEventIsLost) {
    static io::EventRing events(4);
    check(
        [] {
            world = std::make_unique<World>(2);
            for (io::Event e; events.pop(e);) continue;
            return program(
                {[] {
                     if (world->poll(10)) return;
                     step("arm");
                     world->consumer.arm(false);
                     if (!world->poll(10)) world->sleeps = true;
                 },
                 [] {
                     world->push(10);
                     step("notify");
                     require(rings::notify(world->queue, false, events), "the ring of events is full");
                 }},
                [] { require(!world->sleeps || !events.empty(), "the program waits for an event, and an entry is there"); });
        },
        {{"arm", Kind::fence}, {"notify", Kind::fence}, {"complete", Kind::store}});
}

/// Models poller.cpp of libibverbs, and qp::notify and qp::settle of an engine.
TEST(WeakMemory, NoEntryIsLeftToASleepingPoller) {
    check(
        [] {
            world = std::make_unique<World>(2);
            return program({[] {
                                while (!world->poll(10)) {
                                    step("doze");
                                    uint32_t* word = world->consumer.prepare_sleep();
                                    if (word != nullptr) world->futex.wait(word, 1);
                                }
                                world->taken = 1;
                            },
                            [] {
                                const auto wake = [] {
                                    step("wake");
                                    if (rings::take_sleeper(world->queue, world->queue.lanes[0])) world->futex.wake();
                                };
                                world->push(10);
                                wake();
                                step("settle");
                                std::atomic_thread_fence(std::memory_order_seq_cst);
                                wake();
                            }},
                           [] { require(world->taken == 1, "the poller sleeps, and an entry is there"); });
        },
        {{"doze", Kind::fence}, {"settle", Kind::fence}});
}

TEST(WeakMemory, ReceivesArriveWhole) {
    struct Rq {
        abi::RqShared head;
        alignas(64) std::byte slots[2 * 32];
    };
    static Rq rq;
    static abi::RqProducer producer;
    static uint32_t taken;
    check(
        [] {
            std::memset(&rq, 0, sizeof rq);
            producer = {.shared = &rq.head, .slots = rq.slots, .depth = 2, .stride = 32};
            taken = 0;
            return Program{{[] {
                                producer.slot(producer.head++)->wr_id = 20;
                                step("publish");
                                require(!producer.publish(), "no QP is in error");
                            },
                            [] {
                                const rings::RqView view{&rq.head, 2, 32, 1};
                                rings::RqCursor cursor;
                                step("look");
                                until([&] { return cursor.posted(view, 1) == 1; });
                                require(reinterpret_cast<const abi::RecvWqe*>(view.slot(0))->wr_id == 20,
                                        "not the receive that was posted");
                                taken = 1;
                            }},
                           [] { require(taken == 1, "a receive did not arrive"); },
                           {{&rq, sizeof rq}}};
        },
        {{"publish", Kind::store}, {"look", Kind::load}});
}

namespace {

/// An item of a SpscRing. The slots of the ring are in `slots`, which the explorer examines.
struct Item {
    uint64_t value = 0;
    static Item slots[1];
    static void* operator new[](size_t) { return slots; }
    static void operator delete[](void*) {}
};
Item Item::slots[1];

}  // namespace

TEST(WeakMemory, ARingBetweenTwoThreadsDeliversEachItemOnce) {
    static std::unique_ptr<SpscRing<Item>> ring;
    static uint64_t sum;
    check(
        [] {
            ring = std::make_unique<SpscRing<Item>>(1);
            sum = 0;
            return Program{{[] {
                                step("push");
                                for (uint64_t i = 1; i <= 2; ++i) until([i] { return ring->push({i}); });
                            },
                            [] {
                                step("pop");
                                for (uint64_t n = 1; n <= 2; ++n) {
                                    Item item;
                                    until([&] { return ring->pop(item); });
                                    require(item.value == n, "not the item that was pushed");
                                    sum += n;
                                }
                            }},
                           [] { require(sum == 3, "an item is lost"); },
                           {{ring.get(), sizeof *ring}, {Item::slots, sizeof Item::slots}}};
        },
        {{"push", Kind::store}, {"push", Kind::load}, {"pop", Kind::store}, {"pop", Kind::load}});
}

/// A writer, like the conductor (rocid's control thread), removes an entry of a table. It frees the object of the entry
/// after the fence.
TEST(WeakMemory, AFenceWaitsForEachReader) {
    struct Shared {
        Epoch epoch;
        EpochReader reader;
        std::atomic<int*> entry;
        int object;
    };
    static std::unique_ptr<Shared> shared;
    static bool freed;
    check(
        [] {
            shared = std::make_unique<Shared>();
            shared->entry = &shared->object;
            freed = false;
            return Program{{[] {
                                for (int round = 0; round < 2; ++round) {
                                    step("rouse");
                                    shared->reader.rouse();
                                    step("note");
                                    shared->reader.note(shared->epoch, [] {});
                                    step("use");
                                    if (const int* found = shared->entry.load(std::memory_order_acquire))
                                        require(*found == 0, "freed");
                                    step("rest");
                                    shared->reader.rest();
                                }
                            },
                            [] {
                                step("remove");
                                shared->entry.store(nullptr, std::memory_order_release);
                                step("advance");
                                const Epoch::Number epoch = shared->epoch.advance();
                                step("wait");
                                until([=] { return shared->reader.passed(epoch); });
                                shared->object = 1;
                                freed = true;
                            }},
                           [] { require(freed, "the fence does not end"); },
                           {{shared.get(), sizeof *shared}}};
        },
        {{"rouse", Kind::update}, {"note", Kind::load}, {"advance", Kind::update}, {"wait", Kind::load}, {"rest", Kind::store}});
}

/// The first two words of a record contain the port's state. Each write stores the same value in both words.
TEST(WeakMemory, ARecordOfTheDevicePageIsNeverTorn) {
    struct Part {
        uint64_t first, second;
    };
    static std::unique_ptr<abi::DeviceRecord> record;
    static std::unique_ptr<abi::DeviceSnapshot> one, two;
    one = std::make_unique<abi::DeviceSnapshot>();
    two = std::make_unique<abi::DeviceSnapshot>();
    std::memset(one.get(), 1, sizeof *one);
    std::memset(two.get(), 2, sizeof *two);
    check(
        [] {
            record = std::make_unique<abi::DeviceRecord>();
            record->write(*one);
            return Program{{[] {
                                step("write");
                                record->write(*two);
                            },
                            [] {
                                Part part{};
                                step("read");
                                until([&] { return record->try_read(0, part); });
                                require(part.first == part.second, "torn");
                            }},
                           {},
                           {{record.get(), 3 * sizeof(uint64_t)}}};
        },
        {{"write", Kind::store}, {"read", Kind::load}});
}

}  // namespace roci::weak
