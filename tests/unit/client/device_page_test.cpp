// Tests of queries that the client library answers from the device page. The library must make no control call, must
// return current values, and must fail after the end of rocid with the same errors as control calls.
#include "fixture.hpp"

namespace roci::test {
namespace {

using abi::Op;

abi::DeviceSnapshot snapshot(uint8_t last_byte) {
    abi::DeviceSnapshot s{};
    s.port = {.state = IBV_PORT_ACTIVE, .max_mtu = 5, .active_mtu = 5, .gid_table_length = 16, .pkey_table_length = 1};
    s.gids.count = 2;
    s.gids.entry[0] = {{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}}, 0, 2, "lo"};
    s.gids.entry[1] = {{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last_byte}}, 3, 2, "lo"};
    return s;
}

class DevicePage : public Client {
protected:
    DevicePage() { rocid.make_device_page(snapshot(1)); }
    uint32_t control_calls() const {
        return rocid.count(Op::query_device) + rocid.count(Op::query_port) + rocid.count(Op::query_gid_table);
    }
};

TEST_F(DevicePage, AnswersEveryQueryWithoutAControlCall) {
    const uint32_t before = control_calls();
    ibv_device_attr device{};
    EXPECT_EQ(ibv_query_device(context, &device), 0);
    EXPECT_EQ(device.max_qp, 100);
    ibv_device_attr_ex extended{};
    EXPECT_EQ(ibv_query_device_ex(context, nullptr, &extended), 0);
    EXPECT_EQ(extended.hca_core_clock, 1'000'000u);
    ibv_port_attr port{};
    EXPECT_EQ(ibv_query_port(context, 1, &port), 0);
    EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
    EXPECT_EQ(port.gid_tbl_len, 16);
    EXPECT_EQ(ibv_query_port(context, 2, &port), EINVAL);
    ibv_gid gid{};
    EXPECT_EQ(ibv_query_gid(context, 1, 3, &gid), 0);
    EXPECT_EQ(gid.raw[15], 1);
    EXPECT_EQ(ibv_query_gid(context, 1, 1, &gid), 0);  // an empty entry reads as zeros
    EXPECT_EQ(gid.global.interface_id, 0u);
    EXPECT_EQ(ibv_query_gid(context, 1, 16, &gid), -1);
    EXPECT_EQ(errno, EINVAL);
    ibv_gid_entry entry{};
    EXPECT_EQ(ibv_query_gid_ex(context, 1, 3, &entry, 0), 0);
    EXPECT_EQ(entry.gid_type, uint32_t(IBV_GID_TYPE_ROCE_V2));
    EXPECT_NE(entry.ndev_ifindex, 0u);
    EXPECT_EQ(ibv_query_gid_ex(context, 1, 1, &entry, 0), ENODATA);
    ibv_gid_entry all[4];
    EXPECT_EQ(ibv_query_gid_table(context, all, 4, 0), 2);
    EXPECT_EQ(all[1].gid_index, 3u);
    EXPECT_EQ(all[1].ndev_ifindex, entry.ndev_ifindex);
    __be16 pkey = 0;
    EXPECT_EQ(ibv_query_pkey(context, 1, 0, &pkey), 0);
    EXPECT_EQ(ibv_get_pkey_index(context, 1, pkey), 0);
    EXPECT_EQ(control_calls(), before);
}

TEST_F(DevicePage, ShowsAChangedGidWhenTheEventArrives) {
    const uint32_t before = control_calls();
    for (uint8_t n = 2; n < 100; ++n) {
        rocid.device_record().write(snapshot(n));
        abi::AsyncEventRecord record{};
        record.event_type = IBV_EVENT_GID_CHANGE;
        record.handle = 1;
        rocid.send_async_event(record);
        ibv_async_event event{};
        ASSERT_EQ(ibv_get_async_event(context, &event), 0);
        EXPECT_EQ(event.event_type, IBV_EVENT_GID_CHANGE);
        ibv_ack_async_event(&event);
        ibv_gid gid{};
        ASSERT_EQ(ibv_query_gid(context, 1, 3, &gid), 0);
        EXPECT_EQ(gid.raw[15], n);
    }
    EXPECT_EQ(control_calls(), before);
}

TEST_F(DevicePage, AsksRocidWhileTheRecordIsBeingWritten) {
    const uint32_t before = control_calls();
    ++rocid.device_record().version;
    ibv_gid gid{};
    ASSERT_EQ(ibv_query_gid(context, 1, 3, &gid), 0);
    EXPECT_EQ(gid.raw[15], 1);
    ibv_port_attr port{};
    EXPECT_EQ(ibv_query_port(context, 1, &port), 0);
    EXPECT_EQ(port.active_speed, 64) << "the value of the control call";
    EXPECT_EQ(control_calls(), before + 2);
}

TEST_F(DevicePage, QueriesFailWhenTheKernelHasClearedTheOwnerWord) {
    std::atomic_ref(rocid.page_owner()).store(0x40000000);  // FUTEX_OWNER_DIED: the owner of the word has ended
    ibv_gid gid{};
    errno = 0;
    EXPECT_EQ(ibv_query_gid(context, 1, 3, &gid), -1);
    EXPECT_EQ(errno, EIO);
    ibv_gid_entry entry{};
    EXPECT_EQ(ibv_query_gid_ex(context, 1, 3, &entry, 0), EIO);
    EXPECT_EQ(ibv_query_gid_table(context, &entry, 1, 0), -EIO);
    ibv_port_attr port{};
    errno = 0;
    EXPECT_EQ(ibv_query_port(context, 1, &port), EIO);
    EXPECT_EQ(errno, EIO);
    ibv_device_attr device{};
    errno = 0;
    EXPECT_EQ(ibv_query_device(context, &device), EIO);
    EXPECT_EQ(errno, EIO);
    rocid.die();
}

TEST_F(DevicePage, QueriesFailWhenOnlyTheSessionHasEnded) {
    rocid.die();  // the owner word still contains the id of a thread
    ibv_gid gid{};
    while (ibv_query_gid(context, 1, 3, &gid) == 0) {
    }
    EXPECT_EQ(errno, EIO);
}

}  // namespace
}  // namespace roci::test
