// Tests of SRQs with tag matching: eager and rendezvous messages, matching in order, masks, unexpected messages and
// phases, deletion, and limits.
#include <endian.h>
#include <infiniband/tm_types.h>

#include <map>

#include "fixture.hpp"

namespace verbs_test {
namespace {

constexpr uint64_t kAll = ~uint64_t{0};
constexpr unsigned kTmFlags = IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID | IBV_WC_TM_SYNC_REQ;
/// Offsets of buffers. kHeader and kData are in a's memory. kTagged and kOrdinary are in b's memory.
constexpr size_t kHeader = 0, kData = 16384, kTagged = 0, kOrdinary = 32768;

/// b receives through the SRQ. a sends messages whose headers the test writes. a also receives FINs.
class TagMatching : public Pair {
protected:
    void SetUp() override {
        Pair::SetUp();
        ibv_device_attr_ex attr{};
        ASSERT_EQ(ibv_query_device_ex(b->context, nullptr, &attr), 0);
        caps = attr.tm_caps;
        if (caps.max_num_tags == 0) GTEST_SKIP() << "no tag matching";
        b->cq = ibv_create_cq(b->context, 256, b.get(), nullptr, 0);
        ibv_srq_init_attr_ex init{};
        init.attr = {16, 1, 0};
        init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
        init.srq_type = IBV_SRQT_TM;
        init.pd = b->pd;
        init.cq = b->cq;
        init.tm_cap = {8, 8};
        srq = ibv_create_srq_ex(b->context, &init);
        ASSERT_NE(srq, nullptr);
        granted = init.tm_cap;
        Shape with_srq;
        with_srq.srq = srq;
        connect({}, &with_srq);
    }
    void TearDown() override {
        if (b->qp != nullptr) {
            EXPECT_EQ(ibv_destroy_qp(b->qp), 0);
        }
        b->qp = nullptr;
        if (srq != nullptr) {
            EXPECT_EQ(ibv_destroy_srq(srq), 0);
        }
    }

    int change(ibv_ops_wr& wr) {
        ibv_ops_wr* bad = nullptr;
        const int err = ibv_post_srq_ops(srq, &wr, &bad);
        EXPECT_EQ(bad, err != 0 ? &wr : nullptr);
        return err;
    }
    /// Returns an operation that adds a buffer of 4,096 bytes for `tag`. `id` determines the position of the buffer.
    ibv_ops_wr entry(uint64_t id, uint64_t tag, uint64_t mask = kAll) {
        sges[id] = b->sge(kTagged + id * 4096, 4096);
        ibv_ops_wr wr{};
        wr.wr_id = 100 + id;
        wr.opcode = IBV_WR_TAG_ADD;
        wr.flags = IBV_OPS_SIGNALED;
        wr.tm.add = {id, &sges[id], 1, tag, mask};
        return wr;
    }
    uint32_t add(uint64_t id, uint64_t tag, uint64_t mask = kAll, unsigned flags = 0) {
        ibv_ops_wr wr = entry(id, tag, mask);
        EXPECT_EQ(change(wr), 0);
        expect(IBV_WC_TM_ADD, 100 + id, flags);
        return wr.tm.handle;
    }
    void sync(uint32_t handled, unsigned flags) {
        ibv_ops_wr wr{};
        wr.wr_id = 77;
        wr.opcode = IBV_WR_TAG_SYNC;
        wr.flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC;
        wr.tm.unexpected_cnt = handled;
        EXPECT_EQ(change(wr), 0);
        expect(IBV_WC_TM_SYNC, 77, flags);
    }
    ibv_wc expect(ibv_wc_opcode opcode, uint64_t id, unsigned flags) {
        const ibv_wc wc = b->poll();
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
        EXPECT_EQ(wc.opcode, opcode);
        EXPECT_EQ(wc.wr_id, id);
        EXPECT_EQ(wc.wc_flags & kTmFlags, flags);
        return wc;
    }
    void ordinary(uint64_t id) {
        ibv_sge s = b->sge(kOrdinary + id * 4096, 4096);
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.wr_id = id;
        wr.sg_list = &s;
        wr.num_sge = 1;
        ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
    }
    void write_header(uint8_t opcode, uint64_t tag) {
        ibv_tmh header{};
        header.opcode = opcode;
        header.app_ctx = htobe32(5);
        header.tag = htobe64(tag);
        std::memcpy(a->memory.data() + kHeader, &header, sizeof header);
    }
    void send(uint8_t opcode, uint64_t tag, uint32_t payload) {
        write_header(opcode, tag);
        a->fill(kHeader + sizeof(ibv_tmh), payload, uint8_t(tag));
        ASSERT_EQ(a->send(1, kHeader, uint32_t(sizeof(ibv_tmh)) + payload), 0);
        EXPECT_DONE(*a, 1);
    }
    void rendezvous(uint64_t tag, uint32_t length) {
        write_header(IBV_TMH_RNDV, tag);
        ibv_rvh rest{};
        rest.va = htobe64(a->address(kData));
        rest.rkey = htobe32(a->mr->rkey);
        rest.len = htobe32(length);
        std::memcpy(a->memory.data() + kHeader + sizeof(ibv_tmh), &rest, sizeof rest);
        a->fill(kData, length, uint8_t(tag));
        ASSERT_EQ(a->send(2, kHeader, sizeof(ibv_tmh) + sizeof rest), 0);
        EXPECT_DONE(*a, 2);
    }
    ibv_tm_caps caps{};
    ibv_tm_cap granted{};
    ibv_srq* srq = nullptr;
    std::map<uint64_t, ibv_sge> sges;
};

constexpr unsigned kWhole = IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID;

TEST_F(TagMatching, CapabilitiesAreServed) {
    EXPECT_GE(caps.max_rndv_hdr_size, sizeof(ibv_tmh) + sizeof(ibv_rvh));
    EXPECT_NE(caps.flags & IBV_TM_CAP_RC, 0u);
    EXPECT_GE(caps.max_ops, 1u);
    EXPECT_GE(caps.max_sge, 1u);
    EXPECT_GE(granted.max_num_tags, 8u);
    EXPECT_GE(granted.max_ops, 8u);
}

TEST_F(TagMatching, EagerGoesToTheFirstThatMatchesWithoutItsHeader) {
    add(1, 0x11);
    add(2, 0x20, 0xf0);
    add(3, 0x21);
    send(IBV_TMH_EAGER, 0x21, 500);
    const ibv_wc wc = expect(IBV_WC_TM_RECV, 2, kWhole);
    EXPECT_EQ(wc.byte_len, 500u);
    EXPECT_TRUE(same(*a, kHeader + sizeof(ibv_tmh), *b, kTagged + 2 * 4096, 500));
    send(IBV_TMH_EAGER, 0x21, 10);
    expect(IBV_WC_TM_RECV, 3, kWhole);
}

TEST_F(TagMatching, AnEagerMessageOfManyPacketsTellsItsMatchFirst) {
    add(1, 7);
    send(IBV_TMH_EAGER, 7, 4000);
    expect(IBV_WC_TM_RECV, 1, IBV_WC_TM_MATCH);
    EXPECT_EQ(expect(IBV_WC_TM_RECV, 1, IBV_WC_TM_DATA_VALID).byte_len, 4000u);
    EXPECT_TRUE(same(*a, kHeader + sizeof(ibv_tmh), *b, kTagged + 4096, 4000));
}

TEST_F(TagMatching, ARendezvousIsFetchedAndFinished) {
    ASSERT_EQ(a->receive(9, 40000, 64), 0);
    add(1, 7);
    rendezvous(7, 4096);
    expect(IBV_WC_TM_RECV, 1, IBV_WC_TM_MATCH);
    EXPECT_EQ(expect(IBV_WC_TM_RECV, 1, IBV_WC_TM_DATA_VALID).byte_len, 4096u);
    EXPECT_TRUE(same(*a, kData, *b, kTagged + 4096, 4096));
    EXPECT_DONE(*a, 9);
    EXPECT_EQ(a->memory[40000], IBV_TMH_FIN);
}

TEST_F(TagMatching, ARendezvousTooLongForItsBufferIsLeftToTheProgram) {
    add(1, 7);
    rendezvous(7, 8192);
    const ibv_wc wc = b->poll();
    EXPECT_EQ(wc.status, IBV_WC_TM_RNDV_INCOMPLETE);
    EXPECT_EQ(wc.wr_id, 1u);
    EXPECT_EQ(b->memory[kTagged + 4096], IBV_TMH_RNDV) << "its headers are there";
}

TEST_F(TagMatching, UntaggedMessagesTakeOrdinaryBuffers) {
    add(1, 7);
    ordinary(3);
    send(IBV_TMH_NO_TAG, 7, 100);
    EXPECT_EQ(expect(IBV_WC_TM_NO_TAG, 3, 0).byte_len, 100 + sizeof(ibv_tmh));
    EXPECT_TRUE(same(*a, kHeader, *b, kOrdinary + 3 * 4096, 100 + sizeof(ibv_tmh)));
}

// While the program has not handled an unexpected message, a new entry must not match. Otherwise a second message
// could overtake the unexpected message.
TEST_F(TagMatching, OutOfPhaseNothingNewMatchesUntilTheCountsAgree) {
    for (uint64_t id = 1; id < 4; ++id) ordinary(id);
    send(IBV_TMH_EAGER, 7, 10);
    expect(IBV_WC_TM_RECV, 1, 0);
    add(5, 7, kAll, IBV_WC_TM_SYNC_REQ);
    send(IBV_TMH_EAGER, 7, 10);
    expect(IBV_WC_TM_RECV, 2, 0);
    sync(1, IBV_WC_TM_SYNC_REQ);
    sync(2, 0);
    send(IBV_TMH_EAGER, 7, 10);
    expect(IBV_WC_TM_RECV, 5, kWhole);
}

TEST_F(TagMatching, WhatWasTakenCannotBeDeleted) {
    const uint32_t taken = add(1, 7), kept = add(2, 8);
    send(IBV_TMH_EAGER, 7, 10);
    expect(IBV_WC_TM_RECV, 1, kWhole);
    for (const auto& [handle, status] : {std::pair{kept, IBV_WC_SUCCESS}, std::pair{taken, IBV_WC_TM_ERR}}) {
        ibv_ops_wr wr{};
        wr.wr_id = handle;
        wr.opcode = IBV_WR_TAG_DEL;
        wr.flags = IBV_OPS_SIGNALED;
        wr.tm.handle = handle;
        ASSERT_EQ(change(wr), 0);
        const ibv_wc wc = b->poll();
        EXPECT_EQ(wc.status, status);
        EXPECT_EQ(wc.wr_id, handle);
    }
    ordinary(3);
    send(IBV_TMH_EAGER, 8, 10);
    expect(IBV_WC_TM_RECV, 3, 0);
}

TEST_F(TagMatching, AFullListIsEnomem) {
    uint32_t added = 0;
    int err = 0;
    for (; added < 100000; ++added) {
        ibv_ops_wr wr = entry(1, 1000 + added);
        wr.flags = 0;
        // Tries again while the ring is full.
        for (int i = 0; i < 1000 && (err = change(wr)) != 0 && added < granted.max_num_tags; ++i)
            std::this_thread::sleep_for(1ms);
        if (err != 0) break;
    }
    EXPECT_EQ(err, ENOMEM);
    EXPECT_EQ(added, granted.max_num_tags);
}

/// Posts all operations in one list, so that none of them completes before the last one is posted.
TEST_F(TagMatching, MoreOperationsThanWereGrantedAreEnomem) {
    std::vector<ibv_ops_wr> list(granted.max_ops + 1);
    for (size_t i = 0; i < list.size(); ++i) {
        list[i].wr_id = i;
        list[i].opcode = IBV_WR_TAG_SYNC;
        list[i].flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC;
        list[i].next = i + 1 < list.size() ? &list[i + 1] : nullptr;
    }
    ibv_ops_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_srq_ops(srq, list.data(), &bad), ENOMEM);
    EXPECT_EQ(bad, &list.back());
    for (uint64_t i = 0; i < granted.max_ops; ++i) expect(IBV_WC_TM_SYNC, i, 0);
    EXPECT_TRUE(b->quiet());
}

TEST_F(TagMatching, OtherSrqsAndOtherOpcodesAreRefused) {
    ibv_srq_init_attr attr{};
    attr.attr = {16, 1, 0};
    ibv_srq* plain = ibv_create_srq(b->pd, &attr);
    ASSERT_NE(plain, nullptr);
    ibv_ops_wr wr = entry(1, 7), *bad = nullptr;
    EXPECT_NE(ibv_post_srq_ops(plain, &wr, &bad), 0);
    EXPECT_EQ(ibv_destroy_srq(plain), 0);
    const uint32_t unknown = 42;
    std::memcpy(&wr.opcode, &unknown, sizeof unknown);
    EXPECT_EQ(change(wr), EINVAL);
}

}  // namespace
}  // namespace verbs_test
