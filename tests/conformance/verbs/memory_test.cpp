// Tests of memory: rights, protection domains, ranges, reregistration, on-demand paging, advice, device memory and
// null MRs.
#include <sys/mman.h>
#include <sys/shm.h>

#include <algorithm>

#include "fixture.hpp"

namespace verbs_test {
namespace {

class Memory : public Pair {
protected:
    ibv_device_attr_ex device() {
        ibv_device_attr_ex attr{};
        EXPECT_EQ(ibv_query_device_ex(b->context, nullptr, &attr), 0);
        return attr;
    }
    /// Executes a WRITE from a to b and returns its completion status. The default length is 64 bytes.
    ibv_wc_status write_status(uint64_t address, uint32_t rkey, uint32_t length = 64) {
        EXPECT_EQ(a->post(IBV_WR_RDMA_WRITE, 1, 0, length, [&](ibv_send_wr& wr) { wr.wr.rdma = {address, rkey}; }), 0);
        return a->poll().status;
    }
};

TEST_F(Memory, RegistrationChecksItsRights) {
    EXPECT_EQ(ibv_reg_mr(b->pd, b->memory.data(), 64, int(IBV_ACCESS_REMOTE_WRITE)), nullptr) << "needs local write";
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_reg_mr(b->pd, b->memory.data(), 64, int(IBV_ACCESS_REMOTE_ATOMIC)), nullptr);
    ibv_mr* relaxed = ibv_reg_mr(b->pd, b->memory.data(), 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
    ASSERT_NE(relaxed, nullptr);
    EXPECT_EQ(ibv_dereg_mr(relaxed), 0);
}

TEST_F(Memory, UnmappedMemoryCannotBeRegistered) {
    void* hole = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_EQ(munmap(hole, 8192), 0);
    errno = 0;
    EXPECT_EQ(ibv_reg_mr(b->pd, hole, 8192, int(IBV_ACCESS_LOCAL_WRITE)), nullptr);
    EXPECT_EQ(errno, EFAULT);
}

/// Programs with LMDB or persistent memory register shared mappings of files, and so do virtual machines with
/// file-backed memory. If the pages cannot be shared with rocid, rocid accesses them by address.
TEST_F(Memory, ASharedMappingOfARegularFileCanBeRegistered) {
    char path[] = "/var/tmp/roci-regular-XXXXXX";
    const int fd = mkstemp(path);
    ASSERT_GE(fd, 0);
    unlink(path);
    ASSERT_EQ(ftruncate(fd, 65536), 0);
    auto* file = static_cast<uint8_t*>(mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ASSERT_NE(file, MAP_FAILED);
    ibv_mr* mr = ibv_reg_mr(b->pd, file, 65536, kFullAccess);
    ASSERT_NE(mr, nullptr) << strerror(errno);
    connect();
    a->fill(0, 64, 3);
    EXPECT_EQ(write_status(uint64_t(uintptr_t(file + 8192)), mr->rkey), IBV_WC_SUCCESS);
    uint8_t back[64] = {};
    ASSERT_EQ(pread(fd, back, sizeof back, 8192), ssize_t(sizeof back));
    EXPECT_EQ(std::memcmp(back, a->memory.data(), sizeof back), 0) << "in the file, too";
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    munmap(file, 65536);
    close(fd);
}

/// Tests memory of the stack, initialised and uninitialised data, System V segments, and shared anonymous memory. If
/// memory cannot be shared with rocid, rocid accesses it by address.
TEST_F(Memory, EveryKindOfMemoryCanBeRegistered) {
    static uint8_t data[8192] = {1}, bss[8192];
    uint8_t stack[8192] = {};
    const int id = shmget(IPC_PRIVATE, 8192, IPC_CREAT | 0600);
    void* segment = id >= 0 ? shmat(id, nullptr, 0) : nullptr;
    if (id >= 0) shmctl(id, IPC_RMID, nullptr);
    void* anonymous = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    connect();
    a->fill(0, 64, 3);
    const std::pair<const char*, void*> kinds[] = {
        {"data", data}, {"bss", bss}, {"stack", stack}, {"System V", segment}, {"shared anonymous", anonymous}};
    for (const auto& [name, memory] : kinds) {
        SCOPED_TRACE(name);
        auto* bytes = static_cast<uint8_t*>(memory);
        ibv_mr* mr = ibv_reg_mr(b->pd, bytes, 8192, kFullAccess);
        ASSERT_NE(mr, nullptr) << strerror(errno);
        EXPECT_EQ(write_status(uint64_t(uintptr_t(bytes + 4090)), mr->rkey), IBV_WC_SUCCESS);
        EXPECT_EQ(std::memcmp(bytes + 4090, a->memory.data(), 64), 0);
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
    }
    shmdt(segment);
    munmap(anonymous, 8192);
}

/// Both ends register memory that no thread has touched. conformance/memory_cases.py runs this test with 1 GiB per
/// end and checks which control group is charged for the memory.
TEST_F(Memory, UntouchedMemoryIsReadAndWritten) {
    const char* text = std::getenv("ROCI_UNTOUCHED_MB");
    const size_t bytes = (text != nullptr ? std::strtoull(text, nullptr, 10) : 64) << 20;
    void* room[2];
    ibv_mr* mr[2];
    for (int i = 0; i < 2; ++i) {
        room[i] = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        ASSERT_NE(room[i], MAP_FAILED);
        mr[i] = ibv_reg_mr((i == 0 ? a : b)->pd, room[i], bytes, kFullAccess);
        ASSERT_NE(mr[i], nullptr) << strerror(errno);
    }
    connect();
    const auto transfer = [&](ibv_wr_opcode opcode, size_t at, uint32_t length) {
        ibv_sge s{uint64_t(uintptr_t(room[0])) + at, length, mr[0]->lkey};
        ibv_send_wr wr{}, *bad = nullptr;
        wr.opcode = opcode;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.sg_list = &s;
        wr.num_sge = 1;
        wr.wr.rdma = {uint64_t(uintptr_t(room[1])) + at, mr[1]->rkey};
        EXPECT_EQ(ibv_post_send(a->qp, &wr, &bad), 0);
        EXPECT_EQ(a->poll().status, IBV_WC_SUCCESS);
    };
    auto* from = static_cast<uint8_t*>(room[0]);
    const auto* to = static_cast<const uint8_t*>(room[1]);
    constexpr uint32_t kPart = 1 << 20;
    for (size_t at = 0; at < bytes; at += 8 * kPart) {
        for (uint32_t i = 0; i < kPart; ++i) from[at + i] = uint8_t(at / kPart + i * 11);
        transfer(IBV_WR_RDMA_WRITE, at, kPart);
        ASSERT_EQ(std::memcmp(from + at, to + at, kPart), 0) << at;
        std::memset(from + at + 2 * kPart, 0xff, kPart);
        transfer(IBV_WR_RDMA_READ, at + 2 * kPart, kPart);
        ASSERT_TRUE(std::all_of(from + at + 2 * kPart, from + at + 3 * kPart, [](uint8_t c) { return c == 0; })) << at;
    }
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(ibv_dereg_mr(mr[i]), 0);
        munmap(room[i], bytes);
    }
}

/// A program may remove pages of registered memory. The next access to such a page gives zeros.
/// conformance/memory_cases.py runs this test with 1 GiB and a rocid that is limited to 256 MiB. rocid must refuse an
/// access before its control group is charged for too many of these pages.
TEST_F(Memory, PagesThatWereRemovedAreZeroOrRefused) {
    const char* text = std::getenv("ROCI_REMOVED_MB");
    const size_t bytes = (text != nullptr ? std::strtoull(text, nullptr, 10) : 1) << 20;
    constexpr uint32_t kPart = 64 << 10;
    const int fd = memfd_create("removed", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(fd, off_t(bytes)), 0);
    auto* room = static_cast<uint8_t*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ASSERT_NE(room, MAP_FAILED);
    ibv_mr* mr = ibv_reg_mr(b->pd, room, bytes, kFullAccess);
    ASSERT_NE(mr, nullptr) << strerror(errno);
    ASSERT_EQ(madvise(room, bytes, MADV_REMOVE), 0);
    connect();
    a->fill(0, 64, 9);
    ibv_wc_status status = IBV_WC_SUCCESS;
    for (size_t at = 0; at < bytes && status == IBV_WC_SUCCESS; at += kPart) {
        const auto peer = [&](ibv_send_wr& wr) { wr.wr.rdma = {uint64_t(uintptr_t(room + at)), mr->rkey}; };
        const bool reads = at % (2 * kPart) == 0;
        if (reads) std::memset(&a->memory[0], 0xff, kPart);
        ASSERT_EQ(a->post(reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, at, 0, kPart, peer), 0);
        status = a->poll().status;
        if (reads && status == IBV_WC_SUCCESS) {
            EXPECT_TRUE(std::all_of(&a->memory[0], &a->memory[0] + kPart, [](auto c) { return c == decltype(c){}; })) << at;
        }
    }
    if (text == nullptr) {
        EXPECT_EQ(status, IBV_WC_SUCCESS);
    } else {
        // An access that reaches a missing page fails with REM_OP_ERR. If rocid has already found a missing page in the region,
        // it refuses the access with REM_ACCESS_ERR.
        EXPECT_TRUE(status == IBV_WC_REM_OP_ERR || status == IBV_WC_REM_ACCESS_ERR) << ibv_wc_status_str(status);
    }
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    munmap(room, bytes);
    close(fd);
}

TEST_F(Memory, TheLargestCqCanBeMade) {
    ibv_cq* cq = ibv_create_cq(b->context, device().orig_attr.max_cqe, nullptr, nullptr, 0);
    ASSERT_NE(cq, nullptr) << strerror(errno);
    EXPECT_GE(cq->cqe, 4'000'000);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(Memory, ARightThatWasNotGivenIsRefused) {
    ibv_mr* read_only = ibv_reg_mr(b->pd, b->memory.data(), 4096, int(IBV_ACCESS_REMOTE_READ));
    ASSERT_NE(read_only, nullptr);
    connect();
    EXPECT_EQ(write_status(b->address(), read_only->rkey), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dereg_mr(read_only), 0);
}

TEST_F(Memory, AnotherProtectionDomainIsRefused) {
    ibv_pd* other = ibv_alloc_pd(b->context);
    ibv_mr* mr = ibv_reg_mr(other, b->memory.data(), 4096, kFullAccess);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
    connect();
    EXPECT_EQ(write_status(b->address(), mr->rkey), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(Memory, OneByteTooFarIsRefused) {
    ibv_mr* mr = ibv_reg_mr(b->pd, b->memory.data(), 1000, kFullAccess);
    ASSERT_NE(mr, nullptr);
    connect();
    EXPECT_EQ(write_status(b->address(1000 - 64), mr->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(write_status(b->address(1001 - 64), mr->rkey), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Memory, ADeregisteredKeyIsDead) {
    ibv_mr* mr = ibv_reg_mr(b->pd, b->memory.data(), 4096, kFullAccess);
    ASSERT_NE(mr, nullptr);
    const uint32_t rkey = mr->rkey;
    ASSERT_EQ(ibv_dereg_mr(mr), 0);
    connect();
    EXPECT_EQ(write_status(b->address(), rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Memory, AWrongLocalKeyIsALocalError) {
    connect();
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 1, 0, 64,
                      [&](ibv_send_wr& wr) {
                          wr.sg_list->lkey ^= 0x99;
                          wr.wr.rdma = {b->address(), b->mr->rkey};
                      }),
              0);
    EXPECT_EQ(a->poll().status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(Memory, ReregistrationMovesAndRestricts) {
    std::vector<uint8_t> elsewhere(8192);
    ibv_mr* mr = ibv_reg_mr(b->pd, b->memory.data(), 4096, kFullAccess);
    ASSERT_NE(mr, nullptr);
    ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, elsewhere.data(), elsewhere.size(), 0), 0);
    connect();
    a->fill(0, 64, 55);
    EXPECT_EQ(write_status(uint64_t(uintptr_t(elsewhere.data())) + 4096, mr->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(elsewhere.data() + 4096, a->memory.data(), 64), 0);
    ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE), 0);
    EXPECT_EQ(write_status(uint64_t(uintptr_t(elsewhere.data())), mr->rkey), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Memory, OnDemandPagingSeesWhatIsMappedNow) {
    if ((device().odp_caps.general_caps & IBV_ODP_SUPPORT) == 0) GTEST_SKIP() << "no on-demand paging";
    constexpr size_t kBytes = 1 << 16;
    auto* p = static_cast<uint8_t*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ibv_mr* mr = ibv_reg_mr(b->pd, p, kBytes, kFullAccess | IBV_ACCESS_ON_DEMAND);
    ASSERT_NE(mr, nullptr);
    connect();
    a->fill(0, 64, 19);
    ASSERT_EQ(write_status(uint64_t(uintptr_t(p)) + 8000, mr->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(p + 8000, a->memory.data(), 64), 0);
    ASSERT_NE(mmap(p, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), MAP_FAILED);
    EXPECT_EQ(p[8000], 0);
    ASSERT_EQ(write_status(uint64_t(uintptr_t(p)) + 8000, mr->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(p + 8000, a->memory.data(), 64), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    munmap(p, kBytes);
}

/// Tests with on-demand memory at both ends. For each transport, the tests execute those of the operations SEND, WRITE, READ and
/// atomics that its on-demand paging capabilities include.
class OnDemand : public Memory {
protected:
    void SetUp() override {
        Memory::SetUp();
        caps = device().odp_caps;
        if ((caps.general_caps & IBV_ODP_SUPPORT) == 0) GTEST_SKIP() << "no on-demand paging";
        swap_regions();
    }
    void TearDown() override {
        if (ordinary.empty()) return;
        for (End* end : {a.get(), b.get()}) EXPECT_EQ(ibv_dereg_mr(end->mr), 0);
        a->mr = ordinary[0];
        b->mr = ordinary[1];
    }
    void swap_regions() {
        for (End* end : {a.get(), b.get()}) {
            ordinary.push_back(end->mr);
            end->mr = ibv_reg_mr(end->pd, end->memory.data(), end->memory.size(), kFullAccess | IBV_ACCESS_ON_DEMAND);
            ASSERT_NE(end->mr, nullptr);
        }
    }
    void try_all(ibv_qp_type type, uint32_t able) {
        Shape shape;
        shape.type = type;
        connect(shape);
        a->fill(0, 900, uint8_t(type));
        if ((able & IBV_ODP_SUPPORT_SEND) != 0 && (able & IBV_ODP_SUPPORT_RECV) != 0) message(type);
        if ((able & IBV_ODP_SUPPORT_WRITE) != 0) {
            ASSERT_EQ(a->write(*b, 3, 0, 900, 8192), 0);
            EXPECT_DONE(*a, 3);
            std::this_thread::sleep_for(20ms);  // the WRITE of a UC QP completes before it has arrived
            EXPECT_TRUE(same(*a, 0, *b, 8192, 900));
        }
        if ((able & IBV_ODP_SUPPORT_READ) != 0) {
            ASSERT_EQ(a->read(*b, 4, 4096, 900, 8192), 0);
            EXPECT_DONE(*a, 4);
            EXPECT_TRUE(same(*a, 4096, *b, 8192, 900));
        }
        if ((able & IBV_ODP_SUPPORT_ATOMIC) != 0) {
            ASSERT_EQ(a->post(IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 0, 8,
                              [&](ibv_send_wr& wr) {
                                  wr.wr.atomic = {b->address(8192), 1, 0, b->mr->rkey};
                              }),
                      0);
            EXPECT_DONE(*a, 5);
            EXPECT_TRUE(same(*a, 0, *a, 4096, 8)) << "the word that was there";
            EXPECT_FALSE(same(*a, 0, *b, 8192, 8));
        }
        for (End* end : {a.get(), b.get()}) {
            EXPECT_EQ(ibv_destroy_qp(end->qp), 0);
            end->qp = nullptr;
        }
    }
    void message(ibv_qp_type type) {
        ibv_ah_attr attr = End::address_of(*b);
        ibv_ah* ah = type == IBV_QPT_UD ? ibv_create_ah(a->pd, &attr) : nullptr;
        ASSERT_EQ(b->receive(1, 16384, 1024), 0);
        ASSERT_EQ(a->post(IBV_WR_SEND, 2, 0, 900,
                          [&](ibv_send_wr& wr) {
                              if (ah != nullptr) wr.wr.ud = {ah, b->qp->qp_num, kQkey};
                          }),
                  0);
        EXPECT_DONE(*a, 2);
        EXPECT_DONE(*b, 1);
        EXPECT_TRUE(same(*a, 0, *b, 16384 + (ah != nullptr ? kGrh : 0), 900));
        if (ah != nullptr) {
            EXPECT_EQ(ibv_destroy_ah(ah), 0);
        }
    }
    ibv_odp_caps caps{};
    std::vector<ibv_mr*> ordinary;
};

TEST_F(OnDemand, ServesRcAsItSays) { try_all(IBV_QPT_RC, caps.per_transport_caps.rc_odp_caps); }
TEST_F(OnDemand, ServesUcAsItSays) { try_all(IBV_QPT_UC, caps.per_transport_caps.uc_odp_caps); }
TEST_F(OnDemand, ServesUdAsItSays) { try_all(IBV_QPT_UD, caps.per_transport_caps.ud_odp_caps); }

TEST_F(Memory, AnImplicitRegionCoversAllAddresses) {
    if ((device().odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT) == 0) GTEST_SKIP() << "no implicit on-demand paging";
    ibv_mr* mr = ibv_reg_mr(b->pd, nullptr, SIZE_MAX, kFullAccess | IBV_ACCESS_ON_DEMAND);
    ASSERT_NE(mr, nullptr);
    connect();
    std::vector<uint8_t> anywhere(4096);
    a->fill(0, 64, 23);
    EXPECT_EQ(write_status(uint64_t(uintptr_t(anywhere.data())), mr->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(anywhere.data(), a->memory.data(), 64), 0);
    EXPECT_NE(write_status(16, mr->rkey), IBV_WC_SUCCESS) << "nothing is mapped there";
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Memory, AdviceIsChecked) {
    if ((device().odp_caps.general_caps & IBV_ODP_SUPPORT) == 0) GTEST_SKIP() << "no on-demand paging";
    ibv_mr* mr = ibv_reg_mr(b->pd, b->memory.data(), 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
    ASSERT_NE(mr, nullptr);
    ibv_sge good{b->address(), 8192, mr->lkey}, outside{b->address(4096), 8192, mr->lkey},
        unknown{b->address(), 64, mr->lkey ^ 0xff00};
    const auto advise = [&](ibv_sge& s, uint32_t flags) {
        return ibv_advise_mr(b->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, flags, &s, 1);
    };
    EXPECT_EQ(advise(good, IBV_ADVISE_MR_FLAG_FLUSH), 0);
    EXPECT_EQ(advise(good, 0), 0);
    EXPECT_NE(advise(outside, IBV_ADVISE_MR_FLAG_FLUSH), 0);
    EXPECT_NE(advise(unknown, IBV_ADVISE_MR_FLAG_FLUSH), 0);
    EXPECT_EQ(advise(good, 1 << 7), EINVAL);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Memory, DeviceMemoryIsReachedByCopyAndByRdma) {
    if (device().max_dm_size == 0) GTEST_SKIP() << "no device memory";
    ibv_alloc_dm_attr want{};
    want.length = 4096;
    ibv_dm* dm = ibv_alloc_dm(b->context, &want);
    ASSERT_NE(dm, nullptr);
    EXPECT_EQ(ibv_reg_dm_mr(b->pd, dm, 0, 4100, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE), nullptr);
    EXPECT_EQ(ibv_reg_dm_mr(b->pd, dm, 0, 4096, IBV_ACCESS_LOCAL_WRITE), nullptr) << "must be zero based";
    ibv_mr* mr = ibv_reg_dm_mr(b->pd, dm, 1024, 2048, IBV_ACCESS_ZERO_BASED | kFullAccess);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(ibv_free_dm(dm), EBUSY);
    connect();
    a->fill(0, 64, 91);
    EXPECT_EQ(write_status(64, mr->rkey), IBV_WC_SUCCESS);
    uint8_t seen[64];
    ASSERT_EQ(ibv_memcpy_from_dm(seen, dm, 1024 + 64, 64), 0);
    EXPECT_EQ(std::memcmp(seen, a->memory.data(), 64), 0);
    EXPECT_NE(ibv_memcpy_to_dm(dm, 4090, seen, 64), 0) << "beyond its end";
    EXPECT_EQ(write_status(2000, mr->rkey), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(Memory, TheNullRegionSwallowsAndGivesZeros) {
    ibv_mr* null = ibv_alloc_null_mr(b->pd);
    if (null == nullptr) GTEST_SKIP() << "no null MR";
    connect();
    ibv_sge s{0x1000, 512, null->lkey};
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = 3;
    wr.sg_list = &s;
    wr.num_sge = 1;
    ASSERT_EQ(ibv_post_recv(b->qp, &wr, &bad), 0);
    ASSERT_EQ(a->send(4, 0, 512), 0);
    EXPECT_DONE(*b, 3);
    EXPECT_DONE(*a, 4);
    a->fill(0, 512, 3);
    ASSERT_EQ(b->post(IBV_WR_RDMA_WRITE, 5, 0, 512,
                      [&](ibv_send_wr& w) {
                          *w.sg_list = s;
                          w.wr.rdma = {a->address(), a->mr->rkey};
                      }),
              0);
    EXPECT_DONE(*b, 5);
    EXPECT_EQ(std::count(a->memory.begin(), a->memory.begin() + 512, 0), 512);
    EXPECT_EQ(ibv_dereg_mr(null), 0);
}

/// Allocators clear memory by MADV_DONTNEED and expect zeros. With other providers the registration may be invalid
/// afterwards.
TEST_F(Memory, DontneedGivesZerosOnRegisteredMemoryToo) {
    connect();
    const size_t length = 64 * 4096;
    auto* p = static_cast<uint8_t*>(mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(p, MAP_FAILED);
    std::memset(p, 0x5a, length);
    ibv_mr* mr = ibv_reg_mr(b->pd, p, length, kFullAccess);
    ASSERT_NE(mr, nullptr);
    ASSERT_EQ(madvise(p, length, MADV_DONTNEED), 0);
    for (size_t i = 0; i < length; i += 512) ASSERT_EQ(p[i], 0) << i;
    a->fill(0, 5000, 17);
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 1, 0, 5000,
                      [&](ibv_send_wr& wr) {
                          wr.wr.rdma = {uint64_t(uintptr_t(p)) + 4096, mr->rkey};
                      }),
              0);
    EXPECT_DONE(*a, 1);
    EXPECT_EQ(std::memcmp(p + 4096, a->memory.data(), 5000), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    munmap(p, length);
}

}  // namespace
}  // namespace verbs_test
