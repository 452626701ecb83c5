// Tests of functions that only programs for newer releases of rdma-core use: public functions since release 59, and
// private functions of each release. The program is linked with Rocinante's libraries, because the libraries of
// Debian 12 do not have these symbol versions.
#include "newer.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <cstring>

#include "abi/link_speed.hpp"

extern "C" {
int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service, const rdma_addrinfo* hints);
int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info);
int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status, uint64_t arg);

// Declares one name per version of the same function. The dynamic linker must find all versions before the program
// starts.
#define GID_TYPE_IN(node)                                                            \
    __asm__(".symver gid_type_" #node ",ibv_query_gid_type@IBVERBS_PRIVATE_" #node); \
    int gid_type_##node(ibv_context* context, uint8_t port, unsigned int index, unsigned int* type);
GID_TYPE_IN(33)
GID_TYPE_IN(34)
GID_TYPE_IN(57)
GID_TYPE_IN(59)
GID_TYPE_IN(64)
GID_TYPE_IN(65)
}

namespace {

namespace newer = roci::client;

class Newer : public ::testing::Test {
protected:
    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    void SetUp() override {
        ibv_device** list = ibv_get_device_list(nullptr);
        ASSERT_NE(list[0], nullptr);
        context = ibv_open_device(list[0]);
        ibv_free_device_list(list);
        ASSERT_NE(context, nullptr);
        pd = ibv_alloc_pd(context);
        ASSERT_NE(pd, nullptr);
    }
    void TearDown() override {
        EXPECT_EQ(ibv_dealloc_pd(pd), 0);
        EXPECT_EQ(ibv_close_device(context), 0);
    }
};

TEST_F(Newer, EachPrivateNodeAnswersTheTypeOfAGid) {
    constexpr unsigned kRoceV2 = 1;
    for (const auto type_of : {gid_type_33, gid_type_34, gid_type_57, gid_type_59, gid_type_64, gid_type_65}) {
        unsigned type = 7;
        EXPECT_EQ(type_of(context, 1, 1, &type), 0);
        EXPECT_EQ(type, kRoceV2);
    }
}

TEST_F(Newer, MemoryByAttributesAndBuffersIsRegistered) {
    newer::Buf* buf = nullptr;
    void* memory = newer::alloc_buf(pd, 8192, &buf);
    ASSERT_NE(memory, nullptr);
    ibv_mr* mr = newer::reg_buf_mr(pd, buf, memory, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    ASSERT_NE(mr, nullptr);
    EXPECT_NE(mr->rkey, 0u);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    newer::MrInitAttr attr{};
    attr.comp_mask = newer::kRegAddr | newer::kRegIova;
    attr.addr = memory;
    attr.length = 4096;
    attr.iova = 0x10000;
    attr.access = IBV_ACCESS_LOCAL_WRITE;
    mr = newer::reg_mr_ex(pd, &attr);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    newer::free_buf(buf);
}

TEST_F(Newer, PortSpeedIsThatOfWidthAndSpeed) {
    uint64_t speed = 0;
    ASSERT_EQ(newer::query_port_speed(context, 1, &speed), 0);
    ibv_port_attr attr{};
    ASSERT_EQ(___ibv_query_port(context, 1, &attr), 0);
    EXPECT_EQ(speed, roci::abi::link_rate(attr.active_width, attr.active_speed));
    EXPECT_GE(speed, 25u);
}

/// A fixture with an event channel and an id.
class NewerEvents : public ::testing::Test {
protected:
    rdma_event_channel* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    void SetUp() override { ASSERT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0); }
    void TearDown() override {
        EXPECT_EQ(rdma_destroy_id(id), 0);
        rdma_destroy_event_channel(channel);
    }
    bool readable() {
        pollfd p{channel->fd, POLLIN, 0};
        return poll(&p, 1, 5000) == 1;
    }
    void expect(uint32_t type, int status, uint64_t* arg = nullptr) {
        ASSERT_TRUE(readable());
        rdma_cm_event* e = nullptr;
        ASSERT_EQ(rdma_get_cm_event(channel, &e), 0);
        EXPECT_EQ(uint32_t(e->event), type);
        EXPECT_EQ(e->status, status);
        EXPECT_EQ(e->id, id);
        if (arg != nullptr) std::memcpy(arg, &e->param, sizeof *arg);
        EXPECT_EQ(rdma_ack_cm_event(e), 0);
    }
};

constexpr uint32_t kResolved = 16, kError = 17, kUser = 18;
rdma_cm_event_type event_type(uint32_t number) {
    rdma_cm_event_type type{};
    std::memcpy(&type, &number, sizeof type);
    return type;
}

TEST_F(NewerEvents, AWrittenEventArrivesWithItsArgument) {
    ASSERT_EQ(rdma_write_cm_event(id, event_type(kUser), -7, 0xfedcba9876543210), 0);
    uint64_t arg = 0;
    expect(kUser, -7, &arg);
    EXPECT_EQ(arg, 0xfedcba9876543210u);
    errno = 0;
    EXPECT_EQ(rdma_write_cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0), -1);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(NewerEvents, AddressesAreResolvedWithAnEvent) {
    rdma_addrinfo* info = nullptr;
    EXPECT_EQ(rdma_query_addrinfo(id, &info), -1);
    EXPECT_EQ(errno, ENOENT);
    ASSERT_EQ(rdma_resolve_addrinfo(id, "127.0.0.2", "7471", nullptr), 0);
    EXPECT_EQ(rdma_resolve_addrinfo(id, "127.0.0.3", "7471", nullptr), -1) << "the first result is not fetched yet";
    EXPECT_EQ(errno, EBUSY);
    expect(kResolved, 0);
    ASSERT_EQ(rdma_query_addrinfo(id, &info), 0);
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->ai_family, AF_INET);
    rdma_freeaddrinfo(info);
    ASSERT_EQ(rdma_resolve_addrinfo(id, "127.0.0.4", "7471", nullptr), 0);
    expect(kResolved, 0);  // TearDown() must destroy the id while it has this result
}

TEST_F(NewerEvents, AFailedResolutionIsAnEvent) {
    rdma_addrinfo hints{};
    hints.ai_flags = RAI_NUMERICHOST;
    ASSERT_EQ(rdma_resolve_addrinfo(id, "no number", "7471", &hints), 0);
    expect(kError, -ENOENT);
    rdma_addrinfo* info = nullptr;
    EXPECT_EQ(rdma_query_addrinfo(id, &info), -1);
    hints.ai_flags = 0x10;  // RAI_SA: RoCE has no subnet administrator
    EXPECT_EQ(rdma_resolve_addrinfo(id, nullptr, "7471", &hints), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(NewerEvents, SynchronousIdsGetTheResultAtOnce) {
    rdma_cm_id* sync = nullptr;
    ASSERT_EQ(rdma_create_id(nullptr, &sync, nullptr, RDMA_PS_UDP), 0);
    ASSERT_EQ(rdma_resolve_addrinfo(sync, "127.0.0.2", "7471", nullptr), 0);
    rdma_addrinfo* info = nullptr;
    EXPECT_EQ(rdma_query_addrinfo(sync, &info), 0);
    rdma_freeaddrinfo(info);
    EXPECT_EQ(rdma_destroy_id(sync), 0);
}

}  // namespace
