#include "mem/slow_memory.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

namespace roci::mem {
namespace {

constexpr uint32_t kPd = 7;
constexpr uint64_t kIova = 0x7f0000001000;

/// The memory of a client's process, which is accessed by copying. The process may have ended.
class FakeProcess : public RemoteProcess {
public:
    explicit FakeProcess(uint64_t base, size_t n) : base_(base), bytes(n) {}
    bool read(uint64_t at, std::byte* out, uint64_t n) override {
        if (!reach(at, n)) return false;
        std::memcpy(out, &bytes[at - base_], n);
        return true;
    }
    bool write(uint64_t at, const std::byte* in, uint64_t n) override {
        if (!reach(at, n)) return false;
        std::memcpy(&bytes[at - base_], in, n);
        return true;
    }
    SlowWorker* worker() override { return worker_; }
    bool gone = false;
    SlowWorker* worker_ = nullptr;

private:
    bool reach(uint64_t at, uint64_t n) const { return !gone && at >= base_ && at + n <= base_ + bytes.size(); }
    uint64_t base_;

public:
    std::vector<std::byte> bytes;
};

std::vector<std::byte> pattern(size_t n, unsigned seed = 1) {
    std::vector<std::byte> v(n);
    for (size_t i = 0; i < n; ++i) v[i] = std::byte(uint8_t(i * 131 + seed * 17 + i / 251));
    return v;
}

struct MemoryTest : ::testing::Test {
    KeyTable table{64};
    alignas(64) std::byte memory[4096] = {};
    MemoryRegion region;
    const MemoryRegion* found = nullptr;

    MemoryTest() {
        region.key = Key{5 << 8 | 0x2a};
        region.pd = kPd;
        region.access = kLocalWrite | kRemoteRead;
        region.iova = kIova;
        region.length = sizeof memory;
        region.segments = {{.offset = 0, .length = sizeof memory, .base = memory}};
        table.publish(5, &region);
    }
    Fault ask(uint64_t va, uint64_t n, uint32_t needed = 0, Key key = Key{5 << 8 | 0x2a}, uint32_t pd = kPd, uint32_t qpn = 99) {
        return check(table, key, pd, qpn, va, n, needed, found);
    }
};

TEST_F(MemoryTest, WholeRangeAndItsEdgesAreAllowed) {
    EXPECT_EQ(ask(kIova, 4096, kRemoteRead), Fault::ok);
    EXPECT_EQ(found, &region);
    EXPECT_EQ(ask(kIova + 4095, 1), Fault::ok);
    EXPECT_EQ(ask(kIova + 4095, 2), Fault::out_of_range);
    EXPECT_EQ(found, nullptr);
    EXPECT_EQ(ask(kIova - 1, 1), Fault::out_of_range);
    EXPECT_EQ(ask(kIova + 4096, 1), Fault::out_of_range);
}

TEST_F(MemoryTest, RangesThatWrapAroundAreRefused) {
    EXPECT_EQ(ask(kIova, ~uint64_t{0}), Fault::out_of_range);
    EXPECT_EQ(ask(kIova + 1, ~uint64_t{0} - kIova), Fault::out_of_range);
    EXPECT_EQ(ask(~uint64_t{0}, 2), Fault::out_of_range);
    EXPECT_EQ(ask(0, ~uint64_t{0}), Fault::out_of_range);
}

TEST_F(MemoryTest, RegionAtTheEndOfTheAddressSpaceWorks) {
    region.iova = ~uint64_t{0} - 4095;
    EXPECT_EQ(ask(region.iova, 4096), Fault::ok);
    EXPECT_EQ(ask(~uint64_t{0}, 1), Fault::ok);
    EXPECT_EQ(ask(~uint64_t{0}, 2), Fault::out_of_range);
}

TEST_F(MemoryTest, StaleOrForeignKeysAreRefusedInOrder) {
    EXPECT_EQ(ask(kIova, 1, 0, Key{5 << 8 | 0x2b}), Fault::bad_key) << "variant of an earlier registration";
    EXPECT_EQ(ask(kIova, 1, 0, Key{6 << 8 | 0x2a}), Fault::bad_key);
    EXPECT_EQ(ask(kIova, 1, 0, Key{0}), Fault::bad_key);
    EXPECT_EQ(ask(kIova, 1, 0, Key{0xffffffff}), Fault::bad_key) << "index beyond the table";
    EXPECT_EQ(ask(kIova, 1, kRemoteWrite, region.key, kPd + 1), Fault::wrong_pd) << "PD before rights";
    EXPECT_EQ(ask(kIova, 9999, kRemoteWrite), Fault::no_permission) << "rights before range";
    EXPECT_EQ(ask(kIova, 1, kRemoteRead | kRemoteWrite), Fault::no_permission) << "all rights, not any";
    region.invalidated = true;
    EXPECT_EQ(ask(kIova, 1), Fault::bad_key);
    region.invalidated = false;
    table.clear(5);
    EXPECT_EQ(ask(kIova, 1), Fault::bad_key);
}

TEST_F(MemoryTest, ZeroLengthNeedsNoKeyAndYieldsARegionThatCopiesNothing) {
    EXPECT_EQ(ask(12345, 0, kRemoteWrite, Key{0}), Fault::ok);
    ASSERT_NE(found, nullptr);
    EXPECT_TRUE(copy_in(*found, 12345, nullptr, 0));
    EXPECT_TRUE(copy_out(*found, 12345, nullptr, 0));
    std::byte b{};
    EXPECT_FALSE(copy_in(*found, 0, &b, 1));
    EXPECT_EQ(direct(*found, 0, 0), nullptr);
}

struct WindowTest : MemoryTest {
    MemoryRegion window;
    const Key kWindow{7 << 8 | 1};

    WindowTest() {
        region.access |= kMwBind;
        window.key = Key{7 << 8};
        window.pd = kPd;
        window.is_window = true;
        window.invalidated = true;
        table.publish(7, &window);
    }
    BindRequest request() {
        return {.fresh = kWindow,
                .parent = region.key,
                .pd = kPd,
                .qpn = 99,
                .access = kRemoteWrite,
                .iova = kIova + 100,
                .length = 50};
    }
    Fault through(uint64_t va, uint64_t n, uint32_t needed = kRemoteWrite, uint32_t qpn = 99) {
        return ask(va, n, needed, kWindow, kPd, qpn);
    }
};

TEST_F(WindowTest, OpensExactlyItsPartOfTheParent) {
    EXPECT_EQ(through(kIova + 100, 1), Fault::bad_key) << "not bound yet";
    ASSERT_EQ(bind_window(table, request()), BindResult::done);
    EXPECT_EQ(through(kIova + 100, 50), Fault::ok);
    EXPECT_EQ(found, &region);
    EXPECT_EQ(through(kIova + 99, 1), Fault::out_of_range);
    EXPECT_EQ(through(kIova + 100, 51), Fault::out_of_range);
    EXPECT_EQ(through(kIova + 100, 1, kRemoteRead), Fault::no_permission) << "the parent may be read, the window may not";
    EXPECT_EQ(through(kIova + 100, 1, 0), Fault::bad_key) << "an rkey is no lkey";
}

TEST_F(WindowTest, BindNeedsAFittingParent) {
    BindRequest r = request();
    r.length = sizeof memory;
    EXPECT_EQ(bind_window(table, r), BindResult::refused) << "beyond the parent";
    r = request();
    r.pd = kPd + 1;
    EXPECT_EQ(bind_window(table, r), BindResult::refused) << "another protection domain";
    r = request();
    r.access = kRemoteRead | kMwBind;
    EXPECT_EQ(bind_window(table, r), BindResult::refused) << "a window cannot be bound to in turn";
    r = request();
    r.fresh = region.key;
    EXPECT_EQ(bind_window(table, r), BindResult::refused) << "not a window";
    region.access = kRemoteRead | kMwBind;
    EXPECT_EQ(bind_window(table, request()), BindResult::refused)
        << "remote write through a parent that may not be written locally";
    region.access = kLocalWrite | kRemoteWrite;
    EXPECT_EQ(bind_window(table, request()), BindResult::refused) << "a parent without the right to bind";
    EXPECT_EQ(through(kIova + 100, 1), Fault::bad_key) << "nothing was opened meanwhile";
}

TEST_F(WindowTest, ClosesWithItsParentAndWhenUnbound) {
    ASSERT_EQ(bind_window(table, request()), BindResult::done);
    table.clear(5);
    EXPECT_EQ(through(kIova + 100, 1), Fault::bad_key);
    table.publish(5, &region);
    BindRequest none = request();
    none.length = 0;
    ASSERT_EQ(bind_window(table, none), BindResult::done);
    EXPECT_EQ(through(kIova + 100, 1), Fault::bad_key);
}

TEST_F(WindowTest, Type2ServesOnlyItsQpAndIsInvalidatedByItOnly) {
    window.type2 = true;
    ASSERT_EQ(bind_window(table, request()), BindResult::done);
    EXPECT_EQ(through(kIova + 100, 1), Fault::ok);
    EXPECT_EQ(through(kIova + 100, 1, kRemoteWrite, 100), Fault::wrong_pd);
    EXPECT_EQ(bind_window(table, request()), BindResult::refused) << "still bound";
    EXPECT_FALSE(invalidate_window(table, kWindow, kPd, 100));
    EXPECT_FALSE(invalidate_window(table, region.key, kPd, 99)) << "a region is not invalidated from afar";
    EXPECT_TRUE(invalidate_window(table, kWindow, kPd, 99));
    EXPECT_EQ(through(kIova + 100, 1), Fault::bad_key);
    EXPECT_FALSE(invalidate_window(table, kWindow, kPd, 99)) << "twice";
}

TEST_F(WindowTest, AZeroBasedWindowCountsFromItsFirstByte) {
    BindRequest b = request();
    b.access |= kZeroBased;
    EXPECT_EQ(bind_window(table, b), BindResult::refused) << "o10-36.2.2: not of type 1";
    window.type2 = true;
    ASSERT_EQ(bind_window(table, b), BindResult::done);
    WindowUse use;
    uint64_t va = 0;
    ASSERT_EQ(check(table, kWindow, kPd, 99, va, 50, kRemoteWrite, found, use), Fault::ok);
    EXPECT_EQ(va, kIova + 100) << "where the access goes";
    EXPECT_EQ(found, &region);
    EXPECT_EQ(through(49, 1), Fault::ok);
    EXPECT_EQ(through(1, 50), Fault::out_of_range);
    EXPECT_EQ(through(kIova + 100, 1), Fault::out_of_range) << "the region's addresses mean nothing";
    EXPECT_EQ(through(~uint64_t{0}, 2), Fault::out_of_range);
}

// A FLUSH of a whole region names no range.
TEST_F(WindowTest, AKeyIsCheckedWithoutARange) {
    const auto by_key = [&](Key key, uint32_t needed) {
        WindowUse use;
        return check_key(table, key, kPd, 99, needed, found, use);
    };
    EXPECT_EQ(by_key(region.key, kFlushGlobal), Fault::no_permission);
    EXPECT_EQ(found, nullptr);
    EXPECT_EQ(by_key(kWindow, kFlushGlobal), Fault::bad_key) << "not bound yet";
    BindRequest b = request();
    b.access = kFlushGlobal | kFlushPersistent;
    EXPECT_EQ(bind_window(table, b), BindResult::refused) << "no memory is persistent";
    b.access = kFlushGlobal;
    ASSERT_EQ(bind_window(table, b), BindResult::done);
    EXPECT_EQ(by_key(kWindow, kFlushGlobal), Fault::ok);
    EXPECT_EQ(found, &window);
    EXPECT_EQ(by_key(kWindow, kFlushGlobal | kFlushPersistent), Fault::no_permission);
    EXPECT_EQ(by_key(kWindow, kFlushPersistent), Fault::bad_key);
}

TEST_F(WindowTest, ARegionWithBoundWindowsStays) {
    ASSERT_EQ(bind_window(table, request()), BindResult::done);
    EXPECT_FALSE(close_to_windows(region));
    ASSERT_EQ(bind_window(table, request()), BindResult::done) << "the refusal changed nothing";
    BindRequest none = request();
    none.length = 0;
    ASSERT_EQ(bind_window(table, none), BindResult::done);
    EXPECT_TRUE(close_to_windows(region));
    EXPECT_EQ(bind_window(table, request()), BindResult::refused) << "it is about to go";
    EXPECT_EQ(region.users, 0u);
}

TEST_F(WindowTest, InvalidatingAndDeallocatingLetGoOfTheRegion) {
    window.type2 = true;
    ASSERT_EQ(bind_window(table, request()), BindResult::done);
    ASSERT_TRUE(invalidate_window(table, kWindow, kPd, 99));
    EXPECT_EQ(region.users, 0u);
    ASSERT_EQ(bind_window(table, request()), BindResult::done);
    let_go(table, window);
    EXPECT_EQ(region.users, 0u);
    EXPECT_TRUE(close_to_windows(region));
}

TEST_F(WindowTest, Type2IsNotClosedByABindOfNoLength) {
    window.type2 = true;
    BindRequest none = request();
    none.length = 0;
    EXPECT_EQ(bind_window(table, none), BindResult::refused) << "o10-37.2.40";
    ASSERT_EQ(bind_window(table, request()), BindResult::done);
    EXPECT_EQ(bind_window(table, none), BindResult::refused);
    EXPECT_EQ(through(kIova + 100, 1), Fault::ok);
}

TEST_F(MemoryTest, CopiesExactlyTheRange) {
    for (size_t n : {0u, 1u, 7u, 8u, 9u, 63u, 256u, 1024u, 4000u}) {
        std::fill(std::begin(memory), std::end(memory), std::byte{0xee});
        const auto in = pattern(n);
        ASSERT_TRUE(copy_in(region, kIova + 48, in.data(), n));
        EXPECT_EQ(memory[47], std::byte{0xee});
        EXPECT_EQ(memory[48 + n], std::byte{0xee});
        std::vector<std::byte> out(n);
        ASSERT_TRUE(copy_out(region, kIova + 48, out.data(), n));
        EXPECT_EQ(out, in) << n;
    }
}

TEST_F(MemoryTest, CopyOutsideTheRegionIsRefusedEvenUnchecked) {
    const auto in = pattern(16);
    EXPECT_FALSE(copy_in(region, kIova + 4090, in.data(), 16));
    EXPECT_FALSE(copy_in(region, kIova - 8, in.data(), 16));
    for (std::byte b : memory) ASSERT_EQ(b, std::byte{0});
}

TEST_F(MemoryTest, ReadOnlyMappingIsNeverWritten) {
    region.segments[0].writable = false;
    const auto in = pattern(16);
    EXPECT_FALSE(copy_in(region, kIova, in.data(), 16));
    EXPECT_EQ(direct(region, kIova, 8), nullptr);
    EXPECT_EQ(memory[0], std::byte{0});
    std::byte out[16];
    EXPECT_TRUE(copy_out(region, kIova, out, 16));
}

TEST_F(MemoryTest, PoisonedMappingFails) {
    MappedRegion mapped;
    region.segments[0].mapped = &mapped;
    std::byte b[16] = {};
    EXPECT_TRUE(copy_out(region, kIova, b, 16));
    mapped.poisoned = true;
    EXPECT_FALSE(copy_out(region, kIova, b, 16));
    EXPECT_FALSE(copy_in(region, kIova, b, 16));
    EXPECT_EQ(direct(region, kIova, 8), nullptr);
}

struct ScatteredTest : MemoryTest {
    // Four segments: 100 mapped bytes, 300 bytes that are accessed in the process, 1 mapped byte and 600 mapped
    // bytes. The ranges of the test EveryRangeRoundTrips cross each boundary between segments.
    FakeProcess process{0x5000, 300};
    ScatteredTest() {
        region.segments = {{.offset = 0, .length = 100, .base = memory},
                           {.offset = 100, .length = 300, .base = nullptr, .client_address = 0x5000},
                           {.offset = 400, .length = 1, .base = memory + 2000},
                           {.offset = 401, .length = 600, .base = memory + 3000}};
        region.length = 1001;
        region.process = &process;
    }
    /// Executes an access in the same two steps as rocid: an engine prepares the request, and a worker serves it.
    bool slowly(SlowRequest::Kind kind, uint64_t va, std::byte* bytes, uint32_t length) {
        SlowRequest r;
        r.kind = kind;
        if (!add(r, region, va, bytes, length)) return false;
        serve(r);
        return r.good;
    }
};

TEST_F(ScatteredTest, EveryRangeRoundTrips) {
    auto all = pattern(1001);
    ASSERT_TRUE(slowly(SlowRequest::Kind::write, kIova, all.data(), 1001));
    EXPECT_EQ(memory[99], all[99]);
    EXPECT_EQ(process.bytes[0], all[100]);
    EXPECT_EQ(process.bytes[299], all[399]);
    EXPECT_EQ(memory[2000], all[400]);
    EXPECT_EQ(memory[3599], all[1000]);
    for (size_t from : {0u, 50u, 99u, 100u, 101u, 399u, 400u, 401u, 700u}) {
        for (uint32_t n : {1u, 2u, 8u, 100u, 301u}) {
            std::vector<std::byte> out(n);
            ASSERT_TRUE(slowly(SlowRequest::Kind::read, kIova + from, out.data(), n));
            EXPECT_TRUE(std::equal(out.begin(), out.end(), all.begin() + long(from))) << from << "+" << n;
        }
    }
    EXPECT_FALSE(slowly(SlowRequest::Kind::read, kIova + 1, std::vector<std::byte>(1001).data(), 1001));
}

TEST_F(ScatteredTest, NobodyButTheWorkerAccessesByAddress) {
    std::byte b[200] = {};
    EXPECT_TRUE(copy_out(region, kIova, b, 100));
    EXPECT_FALSE(copy_out(region, kIova, b, 101));
    EXPECT_FALSE(copy_in(region, kIova + 200, b, 50));
    EXPECT_EQ(region.slow_ops, 0u);
}

TEST_F(ScatteredTest, ADeadProcessIsAFault) {
    std::byte b[200] = {};
    process.gone = true;
    EXPECT_FALSE(slowly(SlowRequest::Kind::read, kIova, b, 101));
    EXPECT_FALSE(slowly(SlowRequest::Kind::write, kIova + 200, b, 50));
    region.process = nullptr;
    EXPECT_FALSE(slowly(SlowRequest::Kind::write, kIova + 200, b, 50));
}

TEST_F(ScatteredTest, ARequestHoldsItsRegions) {
    struct Worker : SlowWorker {
        Worker() : SlowWorker(2, 3) {}
        void submitted() override { ++times; }
        int times = 0;
    } worker;
    process.worker_ = &worker;
    std::byte b[200] = {};
    SlowRequest request;
    ASSERT_TRUE(add(request, region, kIova, b, 101));
    EXPECT_EQ(submit(request, 2), nullptr) << "there is no such engine";
    SlowLane* lane = submit(request, 1);
    ASSERT_EQ(lane, &worker.lane(1));
    EXPECT_EQ(worker.times, 1);
    EXPECT_EQ(lane->worker, 3u);
    EXPECT_EQ(region.slow_ops, 1u);
    EXPECT_EQ(region.slow_pending, 1u);
    SlowRequest* taken = nullptr;
    ASSERT_TRUE(lane->requests.pop(taken));
    release(*taken);
    EXPECT_EQ(region.slow_pending, 0u);
    lane->under_way = SlowLane::kSize;
    ASSERT_TRUE(add(request, region, kIova, b, 101));
    EXPECT_EQ(submit(request, 1), nullptr) << "full";
    EXPECT_EQ(region.slow_pending, 0u);
}

TEST_F(ScatteredTest, AtomicsByAddress) {
    const uint64_t before = 41;
    std::memcpy(process.bytes.data() + 8, &before, 8);
    const auto atomic = [&](SlowRequest::Kind kind, uint64_t compare, uint64_t operand) {
        SlowRequest r;
        r.kind = kind;
        r.compare = compare;
        r.operand = operand;
        EXPECT_TRUE(add(r, region, kIova + 108, reinterpret_cast<std::byte*>(&r.original), 8));
        serve(r);
        EXPECT_TRUE(r.good);
        return r.original;
    };
    EXPECT_EQ(atomic(SlowRequest::Kind::fetch_add, 0, 1), 41u);
    EXPECT_EQ(atomic(SlowRequest::Kind::compare_swap, 1, 7), 42u);
    EXPECT_EQ(atomic(SlowRequest::Kind::compare_swap, 42, 7), 42u);
    EXPECT_EQ(atomic(SlowRequest::Kind::fetch_add, 0, 0), 7u);
    SlowRequest crosses;
    crosses.kind = SlowRequest::Kind::fetch_add;
    EXPECT_FALSE(add(crosses, region, kIova + 96, reinterpret_cast<std::byte*>(&crosses.original), 8)) << "partly mapped";
}

TEST_F(ScatteredTest, DirectNeedsOneMappedAlignedStretch) {
    EXPECT_EQ(direct(region, kIova + 8, 8), memory + 8);
    EXPECT_EQ(direct(region, kIova + 9, 8), nullptr) << "not aligned";
    EXPECT_EQ(direct(region, kIova + 96, 8), nullptr) << "crosses into the next stretch";
    EXPECT_EQ(direct(region, kIova + 104, 8), nullptr) << "not mapped";
    EXPECT_EQ(direct(region, kIova + 401, 8), memory + 3000) << "alignment of the real address counts";
    EXPECT_EQ(direct(region, kIova + 2000, 8), nullptr);
}

// The last byte must be stored last. Programs poll the last byte of the buffer of an RDMA WRITE and then read the
// other bytes.
TEST_F(MemoryTest, TheEndOfARangeIsStoredLast) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "plain memory shared on purpose";
#endif
    constexpr size_t kBytes = 4096;
    std::atomic<bool> stop{false};
    std::vector<std::byte> in(kBytes);
    std::thread writer([&] {
        for (unsigned round = 1; !stop; round = round % 250 + 1) {
            std::fill(in.begin(), in.end(), std::byte(uint8_t(round)));
            (void)copy_in(region, kIova, in.data(), kBytes);
            while (!stop && std::atomic_ref(memory[0]).load() == std::byte(uint8_t(round))) std::this_thread::yield();
        }
    });
    unsigned wrong = 0;
    for (unsigned round = 1; round <= 200; ++round) {
        while (std::atomic_ref(memory[kBytes - 1]).load(std::memory_order_acquire) != std::byte(uint8_t(round)))
            std::this_thread::yield();
        for (size_t i = 0; i < kBytes; ++i) wrong += memory[i] != std::byte(uint8_t(round));
        std::atomic_ref(memory[0]).store(std::byte{0});  // the next round waits for this byte again
    }
    stop = true;
    writer.join();
    EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace roci::mem
