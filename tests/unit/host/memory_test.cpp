// Tests of PDs, regions, MRs and address handles.
#include "fixture.hpp"
#include "host/paths/resolve.hpp"

namespace roci::host::test {
namespace {

using abi::Op;

constexpr uint32_t kLocal = IBV_ACCESS_LOCAL_WRITE;

class MemoryTest : public ConductorTest {
protected:
    Result reg(const abi::RegMrRequest& in, const std::vector<abi::MrSegment>& segments) {
        return send(conductor, session, packet(Op::reg_mr, with(in, segments)));
    }
    Result rereg(uint32_t handle, uint32_t flags, const abi::RegMrRequest& in, const std::vector<abi::MrSegment>& segments = {}) {
        return send(conductor, session, packet(Op::rereg_mr, with(abi::ReregMrRequest{handle, flags, in}, segments)));
    }
    template <class T>
    static std::vector<std::byte> with(const T& head, const std::vector<abi::MrSegment>& segments) {
        auto body = bytes_of(head);
        for (const auto& s : segments) {
            const auto b = bytes_of(s);
            body.insert(body.end(), b.begin(), b.end());
        }
        return body;
    }
    const mem::MemoryRegion* find(const Result& r) { return shared.keys.find(Key{r.as<abi::RegMrReply>().lkey}); }
};

TEST_F(MemoryTest, PdsHaveNumbersOfTheirOwnAndBusyOnesStay) {
    const uint32_t a = pd(), b = pd();
    EXPECT_NE(a, b);
    const uint32_t r = region(4096);
    const Result mr = reg({a, kLocal, 0, 4096, 1, 0}, {{r, 0, 0, 4096}});
    ASSERT_EQ(mr.error, 0) << mr.reason;
    EXPECT_NE(find(mr)->pd, 0u);
    const Result busy = on(Op::dealloc_pd, a);
    EXPECT_EQ(busy.error, EBUSY);
    EXPECT_EQ(on(Op::dealloc_pd, b).error, 0);
    EXPECT_EQ(on(Op::dealloc_pd, b).error, ENOENT);
    EXPECT_EQ(on(Op::dereg_mr, mr.as<abi::RegMrReply>().handle).error, 0);
    EXPECT_EQ(on(Op::dealloc_pd, a).error, 0);
}

TEST_F(MemoryTest, AnMrNamesItsMemory) {
    const uint32_t r = region(0x10000);
    const Result mr = reg({pd(), kLocal | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING, 0x7000'0000'1000, 0x3000, 1, 0},
                          {{r, 0, 0x1000, 0x3000}});
    ASSERT_EQ(mr.error, 0) << mr.reason;
    const auto keys = mr.as<abi::RegMrReply>();
    EXPECT_EQ(keys.lkey, keys.rkey);
    const mem::MemoryRegion* m = find(mr);
    ASSERT_NE(m, nullptr);
    EXPECT_EQ(m->iova, 0x7000'0000'1000u);
    EXPECT_EQ(m->length, 0x3000u);
    EXPECT_EQ(m->access, kLocal | IBV_ACCESS_REMOTE_READ) << "optional flags are dropped";
    ASSERT_EQ(m->segments.size(), 1u);
    EXPECT_EQ(m->segments[0].base, (*platform.mapped.begin())->base + 0x1000);
    EXPECT_EQ(m->process, nullptr);
}

TEST_F(MemoryTest, NeighboursInOneMappingAreOneSegment) {
    const uint32_t a = region(0x4000), b = region(0x4000);
    const Result mr = reg({pd(), kLocal, 0, 0x5000, 4, 0},
                          {{a, 0, 0, 0x1000}, {a, 0, 0x1000, 0x1000}, {a, 0, 0x3000, 0x1000}, {b, 0, 0, 0x2000}});
    ASSERT_EQ(mr.error, 0) << mr.reason;
    const auto& s = find(mr)->segments;
    ASSERT_EQ(s.size(), 3u);
    EXPECT_EQ(s[0].length, 0x2000u);
    EXPECT_EQ(s[1].offset, 0x2000u);
    EXPECT_EQ(s[2].offset, 0x3000u);
    EXPECT_EQ(s[2].length, 0x2000u);
}

TEST_F(MemoryTest, TheSlowWay) {
    const Result mr = reg({pd(), kLocal, 0x1000, 0x2000, 1, 0}, {{abi::kNoHandle, 0, 0xabc000, 0x2000}});
    ASSERT_EQ(mr.error, 0) << mr.reason;
    EXPECT_NE(find(mr)->process, nullptr);
    EXPECT_EQ(find(mr)->segments[0].base, nullptr);
    EXPECT_EQ(find(mr)->segments[0].client_address, 0xabc000u);
    const uint32_t other = open();
    platform.allow_process = false;
    const uint32_t p = handle_of(call_as(other, Op::alloc_pd, abi::HandleRequest{}));
    session = other;
    const Result refused = reg({p, kLocal, 0x1000, 0x2000, 1, 0}, {{abi::kNoHandle, 0, 0xabc000, 0x2000}});
    EXPECT_EQ(refused.error, EPERM);
    EXPECT_TRUE(refused.says("/proc/self/mem"));
    session = all_sessions.front();
}

TEST_F(MemoryTest, ZeroLengthIsAllowed) {
    const Result mr = reg({pd(), kLocal, 0x1000, 0, 0, 0}, {});
    ASSERT_EQ(mr.error, 0) << mr.reason;
    EXPECT_EQ(find(mr)->length, 0u);
}

TEST_F(MemoryTest, WhatAnMrRefuses) {
    const uint32_t p = pd(), r = region(0x2000), ro = region(0x2000, false);
    constexpr uint64_t top = ~uint64_t{0};
    struct {
        abi::RegMrRequest in;
        std::vector<abi::MrSegment> segments;
        int error;
        const char* word;
    } const cases[] = {
        {{p + 1, kLocal, 0, 0x1000, 1, 0}, {{r, 0, 0, 0x1000}}, ENOENT, "PD"},
        {{p, IBV_ACCESS_REMOTE_WRITE, 0, 0x1000, 1, 0}, {{r, 0, 0, 0x1000}}, EINVAL, "LOCAL_WRITE"},
        {{p, IBV_ACCESS_REMOTE_ATOMIC, 0, 0x1000, 1, 0}, {{r, 0, 0, 0x1000}}, EINVAL, "LOCAL_WRITE"},
        {{p, 1u << 15, 0, 0x1000, 1, 0}, {{r, 0, 0, 0x1000}}, EINVAL, "unknown access"},
        {{p, mem::kFlushPersistent, 0, 0x1000, 1, 0}, {{r, 0, 0, 0x1000}}, EINVAL, "persistent memory"},
        {{p, kLocal, 0, 0x1000, 1, 0}, {{r + 9, 0, 0, 0x1000}}, ENOENT, "region"},
        {{p, kLocal, 0, 0x1000, 1, 0}, {{r, 0, 0x1001, 0x1000}}, EINVAL, "outside"},
        {{p, kLocal, 0, 0x1000, 1, 0}, {{r, 0, top, 0x1000}}, EINVAL, "outside"},
        {{p, kLocal, 0, top, 1, 0}, {{r, 0, 0x1000, top}}, EINVAL, "outside"},
        {{p, kLocal, 0, 0x1000, 1, 0}, {{r, 0, 0, 0x800}}, EINVAL, "segments have"},
        {{p, kLocal, 0, 0x1000, 1, 0}, {{r, 0, 0, 0x1800}}, EINVAL, "longer"},
        {{p, kLocal, 0, 0x1000, 2, 0}, {{r, 0, 0, 0x1000}, {r, 0, 0, top}}, EINVAL, "longer"},
        {{p, kLocal, 0, 0x1000, 2, 0}, {{r, 0, 0, 0x1000}, {r, 0, 0x1000, 0}}, EINVAL, "empty"},
        {{p, kLocal, 0, 0x1000, 2, 0}, {{r, 0, 0, 0x1000}}, EINVAL, "announced"},
        {{p, kLocal, 0, 0x1000, 0xffffffff, 0}, {{r, 0, 0, 0x1000}}, EINVAL, "announced"},
        {{p, kLocal, 0, 0, 0, 0}, {{r, 0, 0, 0x1000}}, EINVAL, "announced"},
        {{p, kLocal, top, 0x1000, 1, 0}, {{r, 0, 0, 0x1000}}, EINVAL, "wraps"},
        {{p, kLocal, 0, 0x1000, 1, 0}, {{ro, 0, 0, 0x1000}}, EACCES, "read-only"},
        {{p, kLocal, 0, 0x1000, 1, 0}, {{abi::kNoHandle, 0, top, 0x1000}}, EINVAL, "wraps"},
    };
    for (const auto& t : cases) {
        const Result got = reg(t.in, t.segments);
        EXPECT_EQ(got.error, t.error) << t.word << ": " << got.reason;
        EXPECT_TRUE(got.says(t.word)) << got.reason;
    }
    EXPECT_EQ(conductor.totals().mrs, 0u);
    EXPECT_EQ(reg({p, IBV_ACCESS_REMOTE_READ, 0, 0x1000, 1, 0}, {{ro, 0, 0, 0x1000}}).error, 0) << "reading is fine";
    EXPECT_EQ(on(Op::dealloc_pd, p).error, EBUSY) << "only that one holds the PD";
}

TEST_F(MemoryTest, ARegionOutlivesItsRemovalWhileAnMrUsesIt) {
    const uint32_t r = region(0x2000);
    const uint32_t mr =
        reg({pd(), kLocal, 0, 0x2000, 2, 0}, {{r, 0, 0x1000, 0x1000}, {r, 0, 0, 0x1000}}).as<abi::RegMrReply>().handle;
    EXPECT_EQ(on(Op::remove_region, r).error, 0);
    EXPECT_EQ(on(Op::remove_region, r).error, ENOENT);
    EXPECT_EQ(platform.mapped.size(), 1u);
    EXPECT_EQ(conductor.totals().regions, 1u);
    EXPECT_EQ(on(Op::dereg_mr, mr).error, 0);
    EXPECT_TRUE(platform.mapped.empty());
    EXPECT_EQ(conductor.totals().mapped_bytes, 0u);
}

TEST_F(MemoryTest, TheSameMemoryTwiceIsTwoRegions) {
    EXPECT_NE(region(0x2000), region(0x2000));
    EXPECT_EQ(conductor.totals().mapped_bytes, 0x4000u);
}

TEST_F(MemoryTest, RegionsThatAreRefused) {
    EXPECT_EQ(call(Op::add_region, abi::AddRegionRequest{0, 1, 0}, {90}).error, EINVAL);
    EXPECT_EQ(call(Op::add_region, abi::AddRegionRequest{~uint64_t{0}, 1, 0}, {91}).error, ENOMEM);
    platform.refuse_map = true;
    const Result r = call(Op::add_region, abi::AddRegionRequest{4096, 1, 0}, {92});
    EXPECT_EQ(r.error, EINVAL);
    EXPECT_TRUE(r.says("test says so"));
    EXPECT_EQ(platform.taken, (std::set<int>{90, 91, 92}));
    EXPECT_EQ(conductor.totals().regions, 0u);
}

TEST_F(MemoryTest, AKeyIsFencedAndNotSoonReused) {
    const uint32_t p = pd(), r = region(0x1000);
    std::set<uint32_t> seen;
    for (int i = 0; i < 5000; ++i) {
        const auto keys = reg({p, kLocal, 0, 0x1000, 1, 0}, {{r, 0, 0, 0x1000}}).as<abi::RegMrReply>();
        EXPECT_TRUE(seen.insert(keys.lkey).second) << "a stale key must not work";
        EXPECT_NE(keys.lkey >> 8, 0u);
        port.log.clear();
        EXPECT_EQ(on(Op::dereg_mr, keys.handle).error, 0);
        EXPECT_EQ(shared.keys.find(Key{keys.lkey}), nullptr);
        EXPECT_EQ(port.count(Kind::fence), 1u);
    }
}

TEST_F(MemoryTest, KeysRunOut) {
    const uint32_t p = pd(), r = region(0x1000);
    std::vector<uint32_t> made;
    Result last;
    while ((last = reg({p, kLocal, 0, 0x1000, 1, 0}, {{r, 0, 0, 0x1000}})).error == 0)
        made.push_back(last.as<abi::RegMrReply>().handle);
    EXPECT_EQ(last.error, ENOMEM);
    EXPECT_EQ(made.size(), 511u);
    EXPECT_EQ(on(Op::dereg_mr, made[7]).error, 0);
    EXPECT_EQ(reg({p, kLocal, 0, 0x1000, 1, 0}, {{r, 0, 0, 0x1000}}).error, 0);
}

TEST_F(MemoryTest, Rereg) {
    const uint32_t p = pd(), p2 = pd(), r = region(0x4000), ro = region(0x1000, false);
    const auto first = reg({p, kLocal, 0x1000, 0x1000, 1, 0}, {{r, 0, 0, 0x1000}}).as<abi::RegMrReply>();
    const uint32_t old_pd = shared.keys.find(Key{first.lkey})->pd;

    const Result moved = rereg(first.handle, IBV_REREG_MR_CHANGE_PD, {p2, 0, 0, 0, 0, 0});
    ASSERT_EQ(moved.error, 0) << moved.reason;
    EXPECT_EQ(moved.as<abi::RegMrReply>().lkey, first.lkey) << "the same memory keeps its key";
    EXPECT_NE(find(moved)->pd, old_pd);
    EXPECT_EQ(find(moved)->length, 0x1000u);
    EXPECT_EQ(on(Op::dealloc_pd, p2).error, EBUSY);
    EXPECT_EQ(on(Op::dealloc_pd, p).error, 0) << "the old PD is free";

    EXPECT_EQ(rereg(first.handle, IBV_REREG_MR_CHANGE_ACCESS, {0, IBV_ACCESS_REMOTE_WRITE, 0, 0, 0, 0}).error, EINVAL);
    const Result rights = rereg(first.handle, IBV_REREG_MR_CHANGE_ACCESS, {0, kLocal | IBV_ACCESS_REMOTE_WRITE, 0, 0, 0, 0});
    ASSERT_EQ(rights.error, 0) << rights.reason;
    EXPECT_EQ(find(rights)->access, uint32_t(kLocal | IBV_ACCESS_REMOTE_WRITE));

    EXPECT_EQ(rereg(first.handle, IBV_REREG_MR_CHANGE_TRANSLATION, {0, 0, 0x9000, 0x1000, 1, 0}, {{ro, 0, 0, 0x1000}}).error,
              EACCES);
    EXPECT_EQ(shared.keys.find(Key{first.lkey})->iova, 0x1000u) << "a refused change changes nothing";
    const Result elsewhere =
        rereg(first.handle, IBV_REREG_MR_CHANGE_TRANSLATION, {0, 0, 0x9000, 0x2000, 1, 0}, {{r, 0, 0x1000, 0x2000}});
    ASSERT_EQ(elsewhere.error, 0) << elsewhere.reason;
    EXPECT_NE(elsewhere.as<abi::RegMrReply>().lkey, first.lkey) << "a peer's old key must not reach other memory";
    EXPECT_EQ(shared.keys.find(Key{first.lkey}), nullptr);
    EXPECT_EQ(find(elsewhere)->iova, 0x9000u);

    EXPECT_EQ(rereg(first.handle, 0, {}).error, EINVAL);
    EXPECT_EQ(rereg(first.handle, 8, {}).error, EINVAL);
    EXPECT_EQ(rereg(77, IBV_REREG_MR_CHANGE_PD, {p2, 0, 0, 0, 0, 0}).error, ENOENT);
    EXPECT_EQ(rereg(first.handle, IBV_REREG_MR_CHANGE_PD, {99, 0, 0, 0, 0, 0}).error, ENOENT);
    EXPECT_EQ(on(Op::dereg_mr, first.handle).error, 0);
}

TEST_F(MemoryTest, ASessionCannotUseAnothersHandles) {
    const uint32_t p = pd();
    for (int i = 0; i < 3; ++i) pd();
    const uint32_t other = open();
    EXPECT_EQ(call_as(other, Op::dealloc_pd, abi::HandleRequest{p, 0}).error, ENOENT);
}

// ---- address handles ------------------------------------------------------------------------------------------------

TEST_F(MemoryTest, AnAddressHandleIsPublishedUnderItsNumber) {
    const uint32_t p = pd();
    const uint32_t ah = handle_of(call(Op::create_ah, abi::CreateAhRequest{p, 0, good_av()}));
    const io::AddressHandle* a = shared.ahs.find(ah);
    ASSERT_NE(a, nullptr);
    EXPECT_NE(a->pd, 0u);
    const uint8_t to_from[12] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1};
    EXPECT_EQ(std::memcmp(a->path.bytes, to_from, 12), 0) << "the other device's MAC, then ours";
    EXPECT_EQ(on(Op::dealloc_pd, p).error, EBUSY);
    EXPECT_EQ(on(Op::destroy_ah, ah).error, 0);
    EXPECT_EQ(shared.ahs.find(ah), nullptr);
    EXPECT_EQ(on(Op::destroy_ah, ah).error, EINVAL);
    EXPECT_EQ(on(Op::dealloc_pd, p).error, 0);
}

TEST_F(MemoryTest, AddressesThatLeadNowhere) {
    const uint32_t p = pd();
    const auto with = [&](auto&& change) {
        abi::AhAttr av = good_av();
        change(av);
        return call(Op::create_ah, abi::CreateAhRequest{p, 0, av});
    };
    EXPECT_EQ(with([](abi::AhAttr& a) { a.is_global = 0; }).error, EINVAL) << "RoCE has no LIDs";
    EXPECT_EQ(with([](abi::AhAttr& a) { a.sgid_index = 1; }).error, ENODATA) << "an empty entry";
    EXPECT_EQ(with([](abi::AhAttr& a) { a.sgid_index = 200; }).error, EINVAL);
    EXPECT_EQ(with([](abi::AhAttr& a) { a.sgid_index = 0; }).error, EINVAL) << "IPv6 to IPv4";
    EXPECT_EQ(with([](abi::AhAttr& a) { a.port_num = 2; }).error, EINVAL);
    EXPECT_EQ(with([](abi::AhAttr& a) { std::memset(a.dgid.raw, 0, 16); }).error, EINVAL);
    const Result unknown = with([](abi::AhAttr& a) { a.dgid.raw[15] = 99; });
    EXPECT_EQ(unknown.error, EHOSTUNREACH);
    EXPECT_TRUE(unknown.says("10.0.0.99")) << unknown.reason;
    EXPECT_EQ(with([](abi::AhAttr& a) { a.dgid.raw[15] = 99, a.dmac[5] = 1; }).error, 0) << "the client knew the MAC";
    EXPECT_EQ(call(Op::create_ah, abi::CreateAhRequest{p + 1, 0, good_av()}).error, ENOENT);
}

TEST_F(MemoryTest, MulticastAddressesAndTheOwnAddress) {
    const uint32_t p = pd();
    abi::AhAttr av = good_av(Gid{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 0x81, 2, 3}});
    const auto* four = shared.ahs.find(handle_of(call(Op::create_ah, abi::CreateAhRequest{p, 0, av})));
    const uint8_t mac4[6] = {0x01, 0x00, 0x5e, 0x01, 2, 3};
    EXPECT_EQ(std::memcmp(four->path.bytes, mac4, 6), 0) << "23 bits of the address";
    av = good_av(Gid{{0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4}});
    const auto* six = shared.ahs.find(handle_of(call(Op::create_ah, abi::CreateAhRequest{p, 0, av})));
    const uint8_t mac6[6] = {0x33, 0x33, 1, 2, 3, 4};
    EXPECT_EQ(std::memcmp(six->path.bytes, mac6, 6), 0);
    const auto* own = shared.ahs.find(handle_of(call(Op::create_ah, abi::CreateAhRequest{p, 0, good_av(kGid4)})));
    const uint8_t own_mac[6] = {2, 0, 0, 0, 0, 1};
    EXPECT_EQ(std::memcmp(own->path.bytes, own_mac, 6), 0);
}

TEST_F(MemoryTest, AddressHandlesRunOutAndComeBack) {
    const uint32_t p = pd();
    std::vector<uint32_t> made;
    Result r;
    while ((r = call(Op::create_ah, abi::CreateAhRequest{p, 0, good_av()})).error == 0)
        made.push_back(r.as<abi::HandleReply>().handle);
    EXPECT_EQ(r.error, ENOMEM);
    EXPECT_EQ(made.size(), 63u);
    for (const uint32_t ah : made) EXPECT_EQ(on(Op::destroy_ah, ah).error, 0);
    EXPECT_EQ(call(Op::create_ah, abi::CreateAhRequest{p, 0, good_av()}).error, 0);
}

TEST(UdpSourcePort, IsInTheDynamicRangeAndEqualOnBothEnds) {
    for (uint32_t a = 1; a < 0x1000000; a = a * 7 + 3) {
        for (uint32_t b = 2; b < 0x1000000; b = b * 5 + 1) {
            const uint16_t sport = paths::udp_source_port(0, {a, b});
            EXPECT_GE(sport, 0xc000);
            EXPECT_EQ(sport, paths::udp_source_port(0, {b, a}));
        }
    }
    // The product 0x11 * 0x12 = 0x132 fits into the variable bits of the port, so it is not folded.
    EXPECT_EQ(paths::udp_source_port(0, {0x11, 0x12}), 0xc132);
    EXPECT_EQ(paths::udp_source_port(0x5, {0x11, 0x12}), 0xc005) << "the program's flow label wins";
    EXPECT_EQ(paths::udp_source_port(0xfc000, {}), 0xc03f);
    const uint64_t product = uint64_t{0x123456} * 0xabcdef;
    const uint64_t once = product ^ product >> 20;
    const auto label = uint32_t((once ^ once >> 40) & 0xfffff);
    EXPECT_EQ(paths::udp_source_port(0, {0x123456, 0xabcdef}), 0xc000 + ((label & 0x3fff) ^ label >> 14));
}

}  // namespace
}  // namespace roci::host::test
