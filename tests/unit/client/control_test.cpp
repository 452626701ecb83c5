// Tests of the control plane: discovery, queries, refusals, registration, address handles, ibv_modify_qp, the end of
// rocid, and fork.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "fixture.hpp"

namespace roci::test {
namespace {

using abi::Op;

TEST(Discovery, WithoutRocidTheListIsEmptyAndNotNull) {
    setenv(abi::kSocketEnv, "/nonexistent/rocid.sock", 1);
    int count = 7;
    ibv_device** list = ibv_get_device_list(&count);
    ASSERT_NE(list, nullptr);
    EXPECT_EQ(count, 0);
    EXPECT_EQ(list[0], nullptr);
    ibv_free_device_list(list);
}

TEST(Discovery, AnotherAbiVersionIsSaidInASentence) {
    FakeRocid rocid;
    rocid.abi_min = 7;
    rocid.abi_max = 9;
    ::testing::internal::CaptureStderr();
    int count = 7;
    ibv_device** list = ibv_get_device_list(&count);
    const std::string said = ::testing::internal::GetCapturedStderr();
    ASSERT_NE(list, nullptr);
    EXPECT_EQ(count, 0);
    EXPECT_NE(said.find("speaks ABI version 7 to 9, this library speaks " + std::to_string(abi::kAbiVersion)), std::string::npos)
        << said;
    ibv_free_device_list(list);
}

TEST(Discovery, OneDeviceHasOnePointer) {
    FakeRocid rocid;
    ibv_device** a = ibv_get_device_list(nullptr);
    ibv_device** b = ibv_get_device_list(nullptr);
    EXPECT_EQ(a[0], b[0]);
    EXPECT_STREQ(ibv_get_device_name(a[0]), "roci0");
    EXPECT_STREQ(a[0]->ibdev_path, "/sys/class/infiniband/roci0");
    EXPECT_EQ(ibv_get_device_guid(a[0]), 0x8877665544332211u);
    EXPECT_EQ(a[0]->node_type, IBV_NODE_CA);
    EXPECT_EQ(a[0]->transport_type, IBV_TRANSPORT_IB);
    // libmlx5 and libefa read the word after the public struct as a pointer and dereference the pointer. So the word
    // must be a valid pointer.
    const void* const* ops = nullptr;
    std::memcpy(&ops, reinterpret_cast<const char*>(a[0]) + sizeof(ibv_device), sizeof ops);
    ASSERT_NE(ops, nullptr);
    EXPECT_EQ(ops[0], nullptr);
    ibv_free_device_list(a);
    ibv_free_device_list(b);
}

TEST_F(Client, OpensByNameAndSaysWhoItIs) {
    EXPECT_EQ(rocid.last_as<abi::OpenDeviceRequest>(Op::open_device).device, 3u);
    const auto hello = rocid.last_as<abi::HelloRequest>(Op::hello);
    EXPECT_EQ(hello.magic, abi::kHelloMagic);
    EXPECT_EQ(hello.abi_version, abi::kAbiVersion);
    EXPECT_STREQ(hello.program, program_invocation_short_name);
    EXPECT_EQ(context->num_comp_vectors, 2);
    EXPECT_GE(context->async_fd, 0);
}

TEST_F(Client, QueriesShowWhatRocidSays) {
    ibv_device_attr device{};
    ASSERT_EQ(ibv_query_device(context, &device), 0);
    EXPECT_EQ(device.max_qp, 100);
    EXPECT_STREQ(device.fw_ver, "0.1");
    ibv_device_attr_ex extended{};
    ASSERT_EQ(ibv_query_device_ex(context, nullptr, &extended), 0);
    EXPECT_EQ(extended.device_cap_flags_ex, uint64_t{1} << 34 | 1 << 20);
    EXPECT_EQ(extended.orig_attr.device_cap_flags, 1u << 20);
    EXPECT_EQ(extended.hca_core_clock, 1'000'000u);
    EXPECT_EQ(extended.phys_port_cnt_ex, 1u);

    ibv_port_attr port{};
    ASSERT_EQ(ibv_query_port(context, 1, &port), 0);
    EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
    EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    EXPECT_EQ(port.flags, IBV_QPF_GRH_REQUIRED);
    EXPECT_EQ(ibv_query_port(context, 2, &port), EINVAL);
    EXPECT_EQ(ibv_query_port(context, 0, &port), EINVAL);

    __be16 pkey = 0;
    EXPECT_EQ(ibv_query_pkey(context, 1, 0, &pkey), 0);
    EXPECT_EQ(pkey, 0xffff);
    EXPECT_EQ(ibv_query_pkey(context, 1, 1, &pkey), -1);
    EXPECT_EQ(ibv_get_pkey_index(context, 1, 0xffff), 0);
    EXPECT_EQ(ibv_get_pkey_index(context, 1, 0x8001), -1);
}

// Old programs pass a struct of 48 bytes to the exported function.
#undef ibv_query_port
TEST_F(Client, TheExportedQueryPortWritesNoMoreThanTheOldStruct) {
    unsigned char buffer[64];
    std::memset(buffer, 0xa5, sizeof buffer);
    ASSERT_EQ(ibv_query_port(context, 1, reinterpret_cast<_compat_ibv_port_attr*>(buffer)), 0);
    EXPECT_EQ(reinterpret_cast<ibv_port_attr*>(buffer)->state, IBV_PORT_ACTIVE);
    for (size_t i = 48; i < sizeof buffer; ++i) EXPECT_EQ(buffer[i], 0xa5) << i;
}

extern "C" int ibv_query_gid_type(ibv_context*, uint8_t, unsigned int, unsigned int*);

TEST_F(Client, GidTableHasHolesAndAnEnd) {
    ibv_gid gid{};
    EXPECT_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
    EXPECT_EQ(gid.raw[0], 0xfe);
    EXPECT_EQ(ibv_query_gid(context, 1, 1, &gid), 0);  // an empty entry reads as zeros
    EXPECT_EQ(gid.global.interface_id, 0u);
    EXPECT_EQ(ibv_query_gid(context, 1, 16, &gid), -1);
    ibv_gid_entry e{};
    EXPECT_EQ(ibv_query_gid_ex(context, 1, 3, &e, 0), 0);
    EXPECT_EQ(e.gid_type, uint32_t(IBV_GID_TYPE_ROCE_V2));
    EXPECT_EQ(e.gid_index, 3u);
    EXPECT_EQ(e.port_num, 1u);
    EXPECT_EQ(e.ndev_ifindex, 1u);  // "lo"
    EXPECT_EQ(ibv_query_gid_ex(context, 1, 1, &e, 0), ENODATA);
    EXPECT_EQ(ibv_query_gid_ex(context, 1, 99, &e, 0), EINVAL);
    EXPECT_EQ(ibv_query_gid_ex(context, 1, 0, &e, 1), EINVAL);
    ibv_gid_entry all[4];
    EXPECT_EQ(ibv_query_gid_table(context, all, 4, 0), 2);
    EXPECT_EQ(all[1].gid_index, 3u);
    EXPECT_EQ(ibv_query_gid_table(context, all, 1, 0), -EINVAL);
    unsigned int type = 9;
    EXPECT_EQ(ibv_query_gid_type(context, 1, 3, &type), 0);
    EXPECT_EQ(type, 1u);
}

TEST_F(Client, WhatHasNoOpIsExactlyNotSupported) {
    ibv_cq* cq = make_cq();
    ibv_qp* qp = make_qp(cq);
    const auto refused = [](const void* p) { return p == nullptr && errno == EOPNOTSUPP; };
    ibv_flow_attr flow{};
    EXPECT_TRUE(refused(ibv_create_flow(qp, &flow)));
    ibv_wq_init_attr wq{};
    EXPECT_TRUE(refused(ibv_create_wq(context, &wq)));
    ibv_rwq_ind_table_init_attr table{};
    EXPECT_TRUE(refused(ibv_create_rwq_ind_table(context, &table)));
    ibv_counters_init_attr counters{};
    EXPECT_TRUE(refused(ibv_create_counters(context, &counters)));
    EXPECT_TRUE(refused(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, 0)));
    EXPECT_TRUE(refused(ibv_import_device(0)));
    EXPECT_EQ(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, nullptr, 0), EINVAL) << "advice about nothing";
    ibv_ece ece{1, 0, 0};
    EXPECT_EQ(ibv_set_ece(qp, &ece), EOPNOTSUPP);
    EXPECT_EQ(ibv_query_ece(qp, &ece), EOPNOTSUPP);
    ibv_qp_rate_limit_attr rate{};
    EXPECT_EQ(ibv_modify_qp_rate_limit(qp, &rate), EOPNOTSUPP);
    ibv_srq_init_attr srq_attr{nullptr, {4, 1, 0}};
    ibv_srq* srq = ibv_create_srq(pd, &srq_attr);
    ibv_ops_wr ops{};
    ibv_ops_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_srq_ops(srq, &ops, &bad), EOPNOTSUPP);
    EXPECT_EQ(bad, &ops);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(Client, TheErrnoOfTheReplyIsWhatTheVerbReturns) {
    for (Op op : {Op::create_ah, Op::alloc_mw, Op::open_xrcd, Op::attach_mcast, Op::reg_mr, Op::create_srq, Op::create_cq})
        rocid.refuse(op, EOPNOTSUPP);
    rocid.refuse(Op::dealloc_pd, EBUSY);
    const auto refused = [](const void* p) { return p == nullptr && errno == EOPNOTSUPP; };
    ibv_ah_attr ah{};
    EXPECT_TRUE(refused(ibv_create_ah(pd, &ah)));
    EXPECT_TRUE(refused(ibv_alloc_mw(pd, IBV_MW_TYPE_1)));
    ibv_xrcd_init_attr xrcd{};
    xrcd.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    xrcd.fd = -1;
    EXPECT_TRUE(refused(ibv_open_xrcd(context, &xrcd)));
    char byte;
    EXPECT_TRUE(refused(ibv_reg_mr(pd, &byte, 1, 0)));
    ibv_srq_init_attr srq{};
    EXPECT_TRUE(refused(ibv_create_srq(pd, &srq)));
    EXPECT_TRUE(refused(make_cq()));
    EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
    rocid.refuse(Op::create_cq, 0);
    rocid.refuse(Op::dealloc_pd, 0);
    ibv_cq* cq = make_cq();
    ibv_qp* qp = make_qp(cq, IBV_QPT_UD);
    ibv_gid gid{};
    EXPECT_EQ(ibv_attach_mcast(qp, &gid, 0), EOPNOTSUPP);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(Client, RegistrationDescribesTheWholeRangeAndGivesItBack) {
    std::vector<char> memory(3 * 4096 + 100);
    ibv_mr* mr = ibv_reg_mr_iova(pd, memory.data() + 5, memory.size() - 5, 0x5000,
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(mr->addr, memory.data() + 5);
    EXPECT_EQ(mr->length, memory.size() - 5);
    EXPECT_EQ(mr->lkey, mr->handle << 8 | 1);
    EXPECT_EQ(mr->rkey, mr->handle << 8 | 2);
    const auto body = rocid.last(Op::reg_mr);
    abi::RegMrRequest request;
    std::memcpy(&request, body.data(), sizeof request);
    EXPECT_EQ(request.pd, pd->handle);
    // The library removes flags that are hints.
    EXPECT_EQ(request.access, uint32_t(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
    EXPECT_EQ(request.iova, 0x5000u);
    EXPECT_EQ(request.length, memory.size() - 5);
    ASSERT_GE(request.segments, 1u);
    ASSERT_EQ(body.size(), sizeof request + request.segments * sizeof(abi::MrSegment));
    uint64_t covered = 0;
    for (uint32_t i = 0; i < request.segments; ++i) {
        abi::MrSegment s;
        std::memcpy(&s, body.data() + sizeof request + i * sizeof s, sizeof s);
        if (s.region == abi::kNoHandle) {
            EXPECT_EQ(s.offset, uint64_t(uintptr_t(memory.data() + 5)) + covered);
        }
        covered += s.length;
    }
    EXPECT_EQ(covered, memory.size() - 5);
    EXPECT_EQ(rocid.received_fds(), rocid.count(Op::add_region));
    const uint32_t regions = rocid.count(Op::add_region);
    ibv_mr* again = ibv_reg_mr(pd, memory.data() + 5, memory.size() - 5, int(IBV_ACCESS_LOCAL_WRITE));
    ASSERT_NE(again, nullptr);
    EXPECT_EQ(rocid.count(Op::add_region), regions) << "the same file is handed over once";
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(rocid.count(Op::remove_region), 0u) << "still used by the other registration";
    EXPECT_EQ(ibv_dereg_mr(again), 0);
    EXPECT_EQ(rocid.count(Op::remove_region), regions);
    EXPECT_EQ(rocid.count(Op::dereg_mr), 2u);
}

TEST_F(Client, RegistrationRefusesNonsenseBeforeTouchingMemory) {
    char bytes[64];
    const auto refused = [](const void* p, int err) { return p == nullptr && errno == err; };
    EXPECT_TRUE(refused(ibv_reg_mr(pd, bytes, 64, int(IBV_ACCESS_REMOTE_WRITE)), EINVAL));
    EXPECT_TRUE(refused(ibv_reg_mr(pd, bytes, ~size_t{0}, int(IBV_ACCESS_LOCAL_WRITE)), EINVAL));
    EXPECT_TRUE(refused(ibv_reg_mr(pd, bytes, 64, 1 << 12), EINVAL));
    EXPECT_EQ(rocid.count(Op::reg_mr), 0u);
    ibv_mr* mr = ibv_reg_mr(pd, bytes, 64, 0);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(ibv_rereg_mr(mr, 0, nullptr, nullptr, 0, 0), int(IBV_REREG_MR_ERR_INPUT));
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 0, 0), int(IBV_REREG_MR_ERR_INPUT));
    const uint32_t old = mr->lkey;
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, bytes + 8, 16, 0), 0);
    EXPECT_NE(mr->lkey, old);
    EXPECT_EQ(mr->addr, bytes + 8);
    EXPECT_EQ(mr->length, 16u);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Client, ParentAndThreadDomainsAreBusyWhileInUse) {
    ibv_td_init_attr td_attr{};
    ibv_td* td = ibv_alloc_td(context, &td_attr);
    ASSERT_NE(td, nullptr);
    ibv_parent_domain_init_attr attr{};
    attr.pd = pd;
    attr.td = td;
    ibv_pd* parent = ibv_alloc_parent_domain(context, &attr);
    ASSERT_NE(parent, nullptr);
    EXPECT_EQ(parent->handle, pd->handle);
    EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
    EXPECT_EQ(ibv_dealloc_td(td), EBUSY);
    EXPECT_EQ(ibv_dealloc_pd(parent), 0);
    EXPECT_EQ(ibv_dealloc_td(td), 0);
    EXPECT_EQ(rocid.count(Op::dealloc_pd), 0u);
    attr.pd = nullptr;
    EXPECT_EQ(ibv_alloc_parent_domain(context, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(Client, CreateQpReportsWhatWasGrantedAndRefusesOversizeInline) {
    ibv_cq* cq = make_cq();
    ibv_qp_init_attr attr = qp_attr(cq);
    attr.cap.max_send_wr = 5;
    ibv_qp* qp = ibv_create_qp(pd, &attr);
    ASSERT_NE(qp, nullptr);
    EXPECT_EQ(attr.cap.max_send_wr, 8u);
    EXPECT_EQ(attr.cap.max_inline_data, 64u);
    EXPECT_EQ(ibv_qp_to_qp_ex(qp), nullptr);
    ibv_qp_attr now{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(qp, &now, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(now.sq_psn, 77u);
    EXPECT_EQ(qp->state, IBV_QPS_RTS);
    EXPECT_EQ(init.cap.max_send_wr, 8u);
    EXPECT_EQ(init.send_cq, cq);
    attr.cap.max_inline_data = 65;
    EXPECT_EQ(ibv_create_qp(pd, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(Client, RawClockCountsNanoseconds) {
    ibv_values_ex a{}, b{};
    a.comp_mask = b.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    ASSERT_EQ(ibv_query_rt_values_ex(context, &a), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_EQ(ibv_query_rt_values_ex(context, &b), 0);
    const int64_t passed = b.raw_clock.tv_nsec - a.raw_clock.tv_nsec;
    EXPECT_GE(passed, 5'000'000);
    EXPECT_LT(passed, 5'000'000'000);
}

/// Returns the first 40 bytes of a UD receive buffer for IPv4: 20 undefined bytes and the IPv4 header.
ibv_grh ipv4_grh(uint8_t undefined) {
    unsigned char raw[40];
    std::memset(raw, undefined, sizeof raw);
    const unsigned char header[20] = {0x45, 0x20, 0, 60, 0, 0, 0x40, 0, 33, 17, 0, 0, 10, 0, 0, 9, 10, 0, 0, 1};
    std::memcpy(raw + 20, header, 20);
    uint32_t sum = 0;
    for (int i = 0; i < 20; i += 2) sum += uint32_t(header[i]) << 8 | header[i + 1];
    sum = (sum & 0xffff) + (sum >> 16);
    const uint16_t checksum = uint16_t(~sum);
    raw[30] = uint8_t(checksum >> 8);
    raw[31] = uint8_t(checksum);
    ibv_grh grh;
    std::memcpy(&grh, raw, sizeof grh);
    return grh;
}

TEST_F(Client, AddressOfASenderIsReadFromTheDatagram) {
    ibv_wc wc{};
    wc.wc_flags = IBV_WC_GRH;
    // The undefined first byte 0x60 looks like IPv6. So the library must recognise the IPv4 header by its checksum.
    for (uint8_t undefined : {uint8_t{0x00}, uint8_t{0x60}, uint8_t{0x45}}) {
        ibv_grh grh = ipv4_grh(undefined);
        ibv_ah_attr attr{};
        ASSERT_EQ(ibv_init_ah_from_wc(context, 1, &wc, &grh, &attr), 0) << int(undefined);
        EXPECT_EQ(attr.is_global, 1);
        EXPECT_EQ(attr.grh.sgid_index, 3);
        EXPECT_EQ(attr.grh.hop_limit, 33);
        EXPECT_EQ(attr.grh.traffic_class, 0x20);
        EXPECT_EQ(attr.grh.dgid.raw[12], 10);
        EXPECT_EQ(attr.grh.dgid.raw[15], 9);
    }
    ibv_grh v6{};
    v6.version_tclass_flow = htobe32(6u << 28 | 0x12 << 20 | 0x34567);
    v6.next_hdr = 17;
    v6.hop_limit = 5;
    v6.dgid.raw[0] = 0xfe;
    v6.dgid.raw[1] = 0x80;
    v6.dgid.raw[15] = 1;
    v6.sgid.raw[15] = 7;
    ibv_ah_attr attr{};
    ASSERT_EQ(ibv_init_ah_from_wc(context, 1, &wc, &v6, &attr), 0);
    EXPECT_EQ(attr.grh.sgid_index, 0);
    EXPECT_EQ(attr.grh.traffic_class, 0x12);
    EXPECT_EQ(attr.grh.flow_label, 0x34567u);
    EXPECT_EQ(attr.grh.dgid.raw[15], 7);
    v6.dgid.raw[15] = 99;  // not an address of this device
    EXPECT_EQ(ibv_init_ah_from_wc(context, 1, &wc, &v6, &attr), -1);
    ibv_ah* ah = ibv_create_ah_from_wc(pd, &wc, &(v6.dgid.raw[15] = 1, v6), 1);
    ASSERT_NE(ah, nullptr);
    EXPECT_EQ(rocid.last_as<abi::CreateAhRequest>(Op::create_ah).attr.dgid.raw[15], 7);
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(Client, ModifyCarriesEveryField) {
    ibv_cq* cq = make_cq();
    ibv_qp* qp = make_qp(cq, IBV_QPT_RC, IBV_QPS_RESET);
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.path_mtu = IBV_MTU_1024;
    a.rq_psn = 0x123456;
    a.dest_qp_num = 17;
    a.ah_attr.is_global = 1;
    a.ah_attr.grh.hop_limit = 64;
    a.ah_attr.grh.dgid.raw[15] = 42;
    a.min_rnr_timer = 12;
    a.rnr_retry = 7;
    ASSERT_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU), 0);
    const auto r = rocid.last_as<abi::ModifyQpRequest>(Op::modify_qp);
    EXPECT_EQ(r.handle, qp->handle);
    EXPECT_EQ(r.mask, uint32_t(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU));
    EXPECT_EQ(r.attr.qp_state, uint32_t(IBV_QPS_INIT));
    EXPECT_EQ(r.attr.path_mtu, uint32_t(IBV_MTU_1024));
    EXPECT_EQ(r.attr.rq_psn, 0x123456u);
    EXPECT_EQ(r.attr.dest_qp_num, 17u);
    EXPECT_EQ(r.attr.ah.dgid.raw[15], 42);
    EXPECT_EQ(r.attr.ah.hop_limit, 64);
    EXPECT_EQ(r.attr.min_rnr_timer, 12);
    EXPECT_EQ(r.attr.rnr_retry, 7);
    EXPECT_EQ(qp->state, IBV_QPS_INIT);
    rocid.refuse(Op::modify_qp, EINVAL);
    a.qp_state = IBV_QPS_ERR;
    EXPECT_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE), EINVAL);
    EXPECT_EQ(qp->state, IBV_QPS_INIT);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(Client, WhenRocidDiesCallsFailAndObjectsCanStillBeDestroyed) {
    ibv_comp_channel* channel = ibv_create_comp_channel(context);
    ibv_cq* cq = make_cq(8, channel);
    ibv_qp* qp = make_qp(cq);
    char bytes[64];
    ibv_mr* mr = ibv_reg_mr(pd, bytes, sizeof bytes, int(IBV_ACCESS_LOCAL_WRITE));
    ASSERT_NE(mr, nullptr);
    rocid.die();
    ibv_port_attr port{};
    EXPECT_EQ(___ibv_query_port(context, 1, &port), EIO);
    ibv_qp_attr attr{};
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EIO);
    EXPECT_EQ(ibv_alloc_pd(context), nullptr);
    EXPECT_EQ(errno, EIO);
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_DEVICE_FATAL);
    ibv_ack_async_event(&event);
    EXPECT_EQ(ibv_get_async_event(context, &event), -1);
    EXPECT_EQ(errno, EIO);
    ibv_cq* which;
    void* user;
    EXPECT_EQ(ibv_get_cq_event(channel, &which, &user), -1);
    EXPECT_EQ(errno, EIO);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Client, AForksChildLeavesItsParentsObjectsAlone) {
    ibv_comp_channel* channel = ibv_create_comp_channel(context);
    ibv_cq* cq = make_cq(8, channel);
    ibv_qp* qp = make_qp(cq);
    char bytes[64];
    ibv_mr* mr = ibv_reg_mr(pd, bytes, sizeof bytes, int(IBV_ACCESS_LOCAL_WRITE));
    const pid_t child = fork();
    if (child == 0) {
        // Each step has its own exit code, which the child returns if the step fails.
        ibv_send_wr wr = send_wr(1);
        ibv_send_wr* bad = nullptr;
        ibv_port_attr port{};
        ibv_wc wc{};
        if (ibv_post_send(qp, &wr, &bad) != 0) _exit(1);  // the child posts to its private copy of the queue
        if (ibv_poll_cq(cq, 1, &wc) != 0) _exit(2);
        if (___ibv_query_port(context, 1, &port) != 0) _exit(3);  // the child opens a new session for this call
        if (ibv_dereg_mr(mr) != 0) _exit(4);
        if (ibv_destroy_qp(qp) != 0) _exit(5);
        if (ibv_destroy_cq(cq) != 0) _exit(6);
        if (ibv_destroy_comp_channel(channel) != 0) _exit(7);
        if (ibv_dealloc_pd(pd) != 0) _exit(8);
        if (ibv_close_device(context) != 0) _exit(9);
        ibv_device** list = ibv_get_device_list(nullptr);  // the child opens a new connection for this call
        if (list == nullptr || list[0] == nullptr) _exit(10);
        _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_EQ(rocid.qp(qp->handle).posted_sends(), 0u);
    for (Op op : {Op::dereg_mr, Op::destroy_qp, Op::destroy_cq, Op::destroy_channel, Op::dealloc_pd})
        EXPECT_EQ(rocid.count(op), 0u);
    ibv_port_attr port{};
    EXPECT_EQ(___ibv_query_port(context, 1, &port), 0);  // the parent's session still works
    ibv_send_wr wr = send_wr(1);
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(qp, &wr, &bad), 0);
    EXPECT_EQ(rocid.qp(qp->handle).posted_sends(), 1u);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST(Names, AndRates) {
    EXPECT_STREQ(ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded");
    EXPECT_STREQ(ibv_wc_status_str(ibv_wc_status(31)), "unknown");
    EXPECT_STREQ(ibv_node_type_str(IBV_NODE_CA), "InfiniBand channel adapter");
    EXPECT_STREQ(ibv_node_type_str(IBV_NODE_UNKNOWN), "unknown");
    EXPECT_STREQ(ibv_event_type_str(IBV_EVENT_GID_CHANGE), "GID table change");
    EXPECT_STREQ(ibv_port_state_str(IBV_PORT_ACTIVE), "active");
    EXPECT_EQ(ibv_rate_to_mult(IBV_RATE_40_GBPS), 16);
    EXPECT_EQ(ibv_rate_to_mult(IBV_RATE_100_GBPS), -1);
    EXPECT_EQ(mult_to_ibv_rate(16), IBV_RATE_40_GBPS);
    EXPECT_EQ(mult_to_ibv_rate(0), IBV_RATE_MAX);
    EXPECT_EQ(ibv_rate_to_mbps(IBV_RATE_100_GBPS), 103125);
    EXPECT_EQ(mbps_to_ibv_rate(103125), IBV_RATE_100_GBPS);
}

extern "C" int ibv_read_sysfs_file(const char*, const char*, char*, size_t);
TEST(Sysfs, AnswersTheRdmacmVersionAndReadsRealFiles) {
    char text[64];
    EXPECT_EQ(ibv_read_sysfs_file("/sys/class/misc", "rdma_cm/abi_version", text, sizeof text), 1);
    EXPECT_STREQ(text, "4");
    EXPECT_GT(ibv_read_sysfs_file("/proc/sys/kernel", "ostype", text, sizeof text), 0);
    EXPECT_STREQ(text, "Linux");
    EXPECT_EQ(ibv_read_sysfs_file("/proc/sys/kernel", "ostype", text, 5), -1);
    EXPECT_EQ(ibv_read_sysfs_file("/nonexistent", "file", text, sizeof text), -1);
    EXPECT_EQ(ibv_read_sysfs_file("/dev", "null", text, sizeof text), 0);
    EXPECT_STREQ(text, "");
}

}  // namespace
}  // namespace roci::test
