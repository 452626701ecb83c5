// Tests of the functions that rdma-core added after release 44, and of the private version nodes of rdma-core's
// releases.
#include "newer.hpp"

#include <dlfcn.h>

#include "fixture.hpp"

namespace roci::test {
namespace {

using abi::Op;

constexpr int kLocal = IBV_ACCESS_LOCAL_WRITE;

class Buffers : public Client {
protected:
    static constexpr size_t kSize = 10000;
    client::Buf* buf = nullptr;
    std::byte* memory = nullptr;

    void SetUp() override {
        Client::SetUp();
        memory = static_cast<std::byte*>(client::alloc_buf(pd, kSize, &buf));
        ASSERT_NE(memory, nullptr);
    }
    void TearDown() override {
        client::free_buf(buf);
        Client::TearDown();
    }
    client::MrInitAttr attr(uint64_t mask) {
        client::MrInitAttr a{};
        a.comp_mask = mask;
        a.length = kSize;
        a.access = kLocal;
        a.addr = memory;
        a.iova = 0x1000;
        a.fd = -1;
        a.buf = buf;
        return a;
    }
    /// Tries to register memory. Returns 0, or the errno of the refusal.
    int refused(const client::MrInitAttr& a, ibv_pd* by = nullptr) {
        errno = 0;
        ibv_mr* mr = client::reg_mr_ex(by != nullptr ? by : pd, &a);
        if (mr == nullptr) return errno;
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
        return 0;
    }
};

TEST_F(Buffers, AreWholePagesAndCanBeRegisteredInParts) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0u);
    memory[kSize - 1] = std::byte(1);
    ibv_mr* whole = client::reg_buf_mr(pd, buf, memory, kSize, kLocal);
    ASSERT_NE(whole, nullptr);
    ibv_mr* part = client::reg_buf_mr(pd, buf, memory + 100, kSize - 100, kLocal);
    ASSERT_NE(part, nullptr);
    EXPECT_EQ(part->addr, memory + 100);
    EXPECT_EQ(part->length, kSize - 100);
    EXPECT_EQ(memory[kSize - 1], std::byte(1));
    EXPECT_EQ(ibv_dereg_mr(whole), 0);
    EXPECT_EQ(ibv_dereg_mr(part), 0);
    errno = 0;
    EXPECT_EQ(client::export_buf_dmabuf_fd(buf), -1);
    EXPECT_EQ(errno, ENODATA);
}

TEST_F(Buffers, OutsideOfTheBufferIsRefused) {
    for (const auto& [offset, length] :
         {std::pair<int, size_t>{-1, 1}, {0, kSize + 1}, {1, kSize}, {int(kSize) + 1, 0}, {0, SIZE_MAX}}) {
        errno = 0;
        EXPECT_EQ(client::reg_buf_mr(pd, buf, memory + offset, length, kLocal), nullptr) << offset << " " << length;
        EXPECT_EQ(errno, EINVAL);
    }
    ibv_pd* other = ibv_alloc_pd(context);
    EXPECT_EQ(refused(attr(client::kRegAddr | client::kRegBuf), other), EINVAL);
    EXPECT_EQ(ibv_dealloc_pd(other), 0);
    client::Buf* none = nullptr;
    EXPECT_EQ(client::alloc_buf(pd, SIZE_MAX, &none), nullptr);
    EXPECT_EQ(errno, ENOMEM);
}

TEST_F(Buffers, MasksOfRegMrEx) {
    using namespace client;
    const struct {
        uint64_t mask;
        int error;
    } rows[] = {
        {kRegAddr, 0},
        {kRegAddr | kRegIova, 0},
        {kRegAddr | kRegBuf, 0},
        {kRegAddr | kRegBuf | kRegIova, 0},
        {0, EINVAL},
        {kRegIova, EINVAL},
        {kRegBuf, EINVAL},
        {kRegAddr | kRegFdOffset, EINVAL},
        {kRegAddr | kRegFd | kRegFdOffset | kRegIova, EINVAL},
        {kRegFd | kRegIova, EINVAL},
        {kRegFd | kRegFdOffset, EINVAL},
        {kRegAddr | kRegBuf | kRegFd, EINVAL},
        {kRegFd | kRegFdOffset | kRegIova, EOPNOTSUPP},
        {kRegAddr | kRegDmah, EOPNOTSUPP},
        {kRegAddr | 64, EOPNOTSUPP},
    };
    for (const auto& r : rows) EXPECT_EQ(refused(attr(r.mask)), r.error) << "mask " << r.mask;
}

TEST_F(Buffers, TheIovaOfRegMrExReachesRocid) {
    ASSERT_EQ(refused(attr(client::kRegAddr | client::kRegIova)), 0);
    EXPECT_EQ(rocid.last_as<abi::RegMrRequest>(Op::reg_mr).iova, 0x1000u);
    ASSERT_EQ(refused(attr(client::kRegAddr)), 0);
    EXPECT_EQ(rocid.last_as<abi::RegMrRequest>(Op::reg_mr).iova, uint64_t(reinterpret_cast<uintptr_t>(memory)));
}

TEST_F(Client, PortSpeedIsThatOfThePortAttributes) {
    uint64_t speed = 0;
    EXPECT_EQ(client::query_port_speed(context, 1, &speed), 0);
    EXPECT_EQ(speed, 2000u) << "4 lanes of 50 Gb/s in units of 100 Mb/s";
    EXPECT_EQ(client::query_port_speed(context, 2, &speed), EINVAL);
    EXPECT_EQ(client::query_port_speed(context, 257, &speed), EINVAL);
}

TEST_F(Client, HardwareFunctionsAreRefused) {
    client::CompCntrCaps caps{1, 1, 1};
    EXPECT_EQ(client::query_comp_cntr_caps(context, &caps, sizeof caps), EOPNOTSUPP);
    EXPECT_EQ(caps.max_value + caps.max_counters + caps.supported_qp_attach_ops, 0u);
    errno = 0;
    EXPECT_EQ(client::create_comp_cntr(context, nullptr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    errno = 0;
    EXPECT_EQ(client::alloc_dmah(context, nullptr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    errno = 0;
    EXPECT_EQ(client::dm_export_dmabuf_fd(nullptr), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
}

template <class Function>
Function* in_node(const char* name, int node) {
    return reinterpret_cast<Function*>(dlvsym(RTLD_DEFAULT, name, ("IBVERBS_PRIVATE_" + std::to_string(node)).c_str()));
}

TEST_F(Client, EveryPrivateNodeHasItsFunctions) {
    for (const int node : {33, 34, 57, 59, 64, 65}) {
        auto* type_of = in_node<int(ibv_context*, uint8_t, unsigned, unsigned*)>("ibv_query_gid_type", node);
        ASSERT_NE(type_of, nullptr) << node;
        unsigned type = 7;
        EXPECT_EQ(type_of(context, 1, 0, &type), 0) << node;
        EXPECT_LE(type, 1u);
        auto* command = in_node<int()>("ibv_cmd_alloc_pd", node);
        ASSERT_NE(command, nullptr) << node;
        EXPECT_EQ(command(), EOPNOTSUPP);
        auto* registers = in_node<void(const void*)>(("verbs_register_driver_" + std::to_string(node)).c_str(), node);
        ASSERT_NE(registers, nullptr) << node;
        registers(nullptr);
        EXPECT_EQ(in_node<bool>("verbs_allow_disassociate_destroy", node), in_node<bool>("verbs_allow_disassociate_destroy", 33));
    }
    auto* opcode = in_node<const char*(uint32_t)>("ibv_wr_opcode_str", 34);
    ASSERT_NE(opcode, nullptr);
    EXPECT_STREQ(opcode(0), "rdma-write");
    EXPECT_STREQ(opcode(14), "flush");
    EXPECT_STREQ(opcode(15), "atomic-write");
    EXPECT_STREQ(opcode(16), "unknown");
    auto* export_fd = in_node<int()>("ibv_cmd_export_dmabuf_fd", 59);
    ASSERT_NE(export_fd, nullptr);
    EXPECT_EQ(export_fd(), -1) << "the result is a descriptor";
    auto* heap = in_node<void*()>("ibv_dmabuf_heap_cc_shared_init", 65);
    ASSERT_NE(heap, nullptr);
    EXPECT_EQ(heap(), nullptr);
}

}  // namespace
}  // namespace roci::test
