// Tests of the attributes of the device. Every capability flag that the device reports must have a test. The largest
// queues must be possible. The GID table must be correct.
#include <cstdio>

#include "fixture.hpp"

namespace verbs_test {
namespace {

class Device : public Pair {
protected:
    void SetUp() override {
        Pair::SetUp();
        ASSERT_EQ(ibv_query_device_ex(a->context, nullptr, &attr), 0);
    }
    ibv_device_attr_ex attr{};
};

/// A capability flag and the name of its test. The test is in this program, in another program of this folder, or
/// among the tests with two hosts. If the name is nullptr, the device must not report the flag.
struct Shown {
    uint64_t flag;
    const char* name;
    const char* by;
};
constexpr Shown kFlags[] = {
    {IBV_DEVICE_CURR_QP_STATE_MOD, "CURR_QP_STATE_MOD", "Device.TheCurrentStateMayBeGiven"},
    {IBV_DEVICE_PORT_ACTIVE_EVENT, "PORT_ACTIVE_EVENT", "tests/interop/hosts: link down for 0.4 s under traffic"},
    {IBV_DEVICE_SYS_IMAGE_GUID, "SYS_IMAGE_GUID", "Device.IsSomebody"},
    {IBV_DEVICE_RC_RNR_NAK_GEN, "RC_RNR_NAK_GEN", "Transports.RcWaitsForAReceiver"},
    {IBV_DEVICE_MEM_WINDOW, "MEM_WINDOW", "Windows.Type1OpensItsRangeOnly"},
    {IBV_DEVICE_XRC, "XRC", "Xrc.DeliversToTheSrqThatIsNamed"},
    {IBV_DEVICE_MEM_MGT_EXTENSIONS, "MEM_MGT_EXTENSIONS", "Windows.Type2IsClosedBySendWithInvalidate"},
    {IBV_DEVICE_MEM_WINDOW_TYPE_2B, "MEM_WINDOW_TYPE_2B", "Windows.Type2IsClosedBySendWithInvalidate"},
    {IBV_DEVICE_SRQ_RESIZE, "SRQ_RESIZE", "SrqResize.KeepsWhatIsQueuedInOrder"},
    {IBV_DEVICE_UD_IP_CSUM, "UD_IP_CSUM", "Checksums.AreFilledInAndVerified"},
    {IBV_DEVICE_RC_IP_CSUM, "RC_IP_CSUM", nullptr},
    // rdma-core 45 and newer declare these flags.
    {uint64_t{1} << 38, "FLUSH_GLOBAL", "Flush.CompletesAfterTheDataOfEarlierWrites"},
    {uint64_t{1} << 40, "ATOMIC_WRITE", "AtomicWrite.StoresEightBytes"},
};

/// A capability that is not reported in flags, but in another field.
struct Said {
    const char* name;
    const char* by;
    uint64_t (*value)(const ibv_device_attr_ex&);
};
constexpr Said kFields[] = {
    {"atomic_cap", "Operations.CompareAndSwapSwapsOnlyWhatIsEqual",
     [](const ibv_device_attr_ex& d) { return uint64_t(d.orig_attr.atomic_cap); }},
    {"max_mcast_grp", "Multicast.ReachesWhoIsAttachedAndNobodyElse",
     [](const ibv_device_attr_ex& d) { return uint64_t(d.orig_attr.max_mcast_grp); }},
    {"odp_caps", "Memory.OnDemandPagingSeesWhatIsMappedNow, Memory.AnImplicitRegionCoversAllAddresses",
     [](const ibv_device_attr_ex& d) { return d.odp_caps.general_caps; }},
    {"rc_odp_caps", "OnDemand.ServesRcAsItSays",
     [](const ibv_device_attr_ex& d) { return uint64_t(d.odp_caps.per_transport_caps.rc_odp_caps); }},
    {"uc_odp_caps", "OnDemand.ServesUcAsItSays",
     [](const ibv_device_attr_ex& d) { return uint64_t(d.odp_caps.per_transport_caps.uc_odp_caps); }},
    {"ud_odp_caps", "OnDemand.ServesUdAsItSays",
     [](const ibv_device_attr_ex& d) { return uint64_t(d.odp_caps.per_transport_caps.ud_odp_caps); }},
    {"xrc_odp_caps", "rdma-core's test_odp, test_odp_xrc_traffic",
     [](const ibv_device_attr_ex& d) { return uint64_t(d.xrc_odp_caps); }},
    {"tm_caps", "TagMatching.CapabilitiesAreServed",
     [](const ibv_device_attr_ex& d) { return uint64_t(d.tm_caps.max_num_tags); }},
    {"cq_mod_caps", "Cqs.ModerationWaitsForTheCountOrThePeriod",
     [](const ibv_device_attr_ex& d) { return uint64_t(d.cq_mod_caps.max_cq_count); }},
    {"max_dm_size", "Memory.DeviceMemoryIsReachedByCopyAndByRdma", [](const ibv_device_attr_ex& d) { return d.max_dm_size; }},
    {"completion_timestamp_mask", "Device.TimestampsAreOfTheClockThatCanBeRead",
     [](const ibv_device_attr_ex& d) { return d.completion_timestamp_mask; }},
};

TEST_F(Device, EveryCapabilityReportedHasATest) {
    for (const Said& s : kFields)
        if (s.value(attr) != 0) std::printf("%s: %s\n", s.name, s.by);
    EXPECT_EQ(attr.pci_atomic_caps.fetch_add, 0u);
    uint64_t unshown = attr.device_cap_flags_ex;
    for (const Shown& s : kFlags) {
        if (s.by != nullptr) unshown &= ~s.flag;
        if ((attr.device_cap_flags_ex & s.flag) != 0 && s.by != nullptr) std::printf("%s: %s\n", s.name, s.by);
    }
    EXPECT_EQ(unshown, 0u) << "flags that no test here shows";
    EXPECT_EQ(attr.orig_attr.device_cap_flags, uint32_t(attr.device_cap_flags_ex));
    EXPECT_EQ(attr.tso_caps.max_tso, 0u);
    EXPECT_EQ(attr.rss_caps.supported_qpts, 0u);
    EXPECT_EQ(attr.raw_packet_caps, 0u);
    EXPECT_EQ(attr.packet_pacing_caps.qp_rate_limit_max, 0u);
}

TEST_F(Device, IsSomebody) {
    EXPECT_NE(attr.orig_attr.node_guid, 0u);
    EXPECT_NE(attr.orig_attr.sys_image_guid, 0u);
    EXPECT_EQ(attr.orig_attr.node_guid, ibv_get_device_guid(a->context->device));
    EXPECT_GE(attr.orig_attr.phys_port_cnt, 1);
}

// The attribute cur_qp_state is optional. If a program sets it, it must be equal to the current state (IBA 11.2.5.2).
TEST_F(Device, TheCurrentStateMayBeGiven) {
    connect();
    ibv_qp_attr change{};
    change.qp_state = IBV_QPS_RTS;
    change.cur_qp_state = IBV_QPS_RTS;
    change.min_rnr_timer = 3;
    EXPECT_EQ(ibv_modify_qp(a->qp, &change, IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_MIN_RNR_TIMER), 0);
    change.cur_qp_state = IBV_QPS_INIT;
    EXPECT_NE(ibv_modify_qp(a->qp, &change, IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_MIN_RNR_TIMER), 0);
    EXPECT_EQ(a->state(), IBV_QPS_RTS);
}

TEST_F(Device, ItsLargestQueuesCanBeMade) {
    ibv_cq* cq = ibv_create_cq(a->context, attr.orig_attr.max_cqe, nullptr, nullptr, 0);
    ASSERT_NE(cq, nullptr);
    EXPECT_GE(cq->cqe, attr.orig_attr.max_cqe);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap.max_send_wr = init.cap.max_recv_wr = uint32_t(attr.orig_attr.max_qp_wr);
    init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    ibv_qp* deep = ibv_create_qp(a->pd, &init);
    ASSERT_NE(deep, nullptr);
    EXPECT_GE(init.cap.max_send_wr, uint32_t(attr.orig_attr.max_qp_wr));
    EXPECT_EQ(ibv_destroy_qp(deep), 0);
    init.cap.max_send_wr = init.cap.max_recv_wr = 4;
    init.cap.max_send_sge = init.cap.max_recv_sge = uint32_t(attr.orig_attr.max_sge);
    ibv_qp* wide = ibv_create_qp(a->pd, &init);
    ASSERT_NE(wide, nullptr);
    EXPECT_GE(init.cap.max_recv_sge, uint32_t(attr.orig_attr.max_sge));
    EXPECT_EQ(ibv_destroy_qp(wide), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(Device, TimestampsAreOfTheClockThatCanBeRead) {
    if (attr.completion_timestamp_mask == 0) GTEST_SKIP() << "no timestamps";
    ibv_cq_init_attr_ex init{};
    init.cqe = 16;
    init.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    ibv_cq_ex* cq = ibv_create_cq_ex(a->context, &init);
    ASSERT_NE(cq, nullptr);
    a->cq = ibv_cq_ex_to_cq(cq);
    connect();
    const auto clock = [&] {
        ibv_values_ex values{};
        values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
        EXPECT_EQ(ibv_query_rt_values_ex(a->context, &values), 0);
        return uint64_t(values.raw_clock.tv_nsec);
    };
    const uint64_t before = clock();
    ASSERT_EQ(a->write(*b, 1, 0, 8, 0), 0);
    ibv_poll_cq_attr poll{};
    while (ibv_start_poll(cq, &poll) == ENOENT) std::this_thread::yield();
    const uint64_t stamp = ibv_wc_read_completion_ts(cq);
    ibv_end_poll(cq);
    EXPECT_GE(stamp, before);
    EXPECT_LE(stamp, clock());
    EXPECT_NE(attr.hca_core_clock, 0u);
}

TEST_F(Device, TheGidTableIsTrue) {
    ibv_port_attr port{};
    ASSERT_EQ(ibv_query_port(a->context, 1, &port), 0);
    std::vector<ibv_gid_entry> table(size_t(port.gid_tbl_len));
    const ssize_t count = ibv_query_gid_table(a->context, table.data(), table.size(), 0);
    ASSERT_GT(count, 0);
    for (ssize_t i = 0; i < count; ++i) {
        const ibv_gid_entry& e = table[size_t(i)];
        ibv_gid gid{};
        ASSERT_EQ(ibv_query_gid(a->context, uint8_t(e.port_num), int(e.gid_index), &gid), 0);
        EXPECT_EQ(std::memcmp(gid.raw, e.gid.raw, sizeof gid.raw), 0);
        EXPECT_EQ(e.gid_type, uint32_t(IBV_GID_TYPE_ROCE_V2));
        ibv_gid_entry one{};
        EXPECT_EQ(ibv_query_gid_ex(a->context, e.port_num, e.gid_index, &one, 0), 0);
        EXPECT_EQ(std::memcmp(&one, &e, sizeof one), 0);
    }
    ibv_gid none{};
    EXPECT_NE(ibv_query_gid(a->context, 1, port.gid_tbl_len, &none), 0);
}

}  // namespace
}  // namespace verbs_test
