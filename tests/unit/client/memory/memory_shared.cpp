/// For memory that is already shared, the library must pass the existing file. Memory that cannot be shared must get
/// a piece without a descriptor.

#include <sys/prctl.h>
#include <sys/shm.h>

#include <string>
#include <thread>

#include "helper.hpp"

using namespace roci::memory;

namespace {

char* map_fd(int fd, size_t bytes, off_t offset = 0, int protection = PROT_READ | PROT_WRITE) {
    void* p = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, offset);
    return p == MAP_FAILED ? nullptr : static_cast<char*>(p);
}

bool drop_privileges() {
    return ::geteuid() != 0 ||
           (::setresgid(65534, 65534, 65534) == 0 && ::setresuid(65534, 65534, 65534) == 0 && ::prctl(PR_SET_DUMPABLE, 1) == 0);
}

char initialised[3 * kPage] = "in the data section";
char uninitialised[64 * kPage];

}  // namespace

TEST(Shared, MemfdOfTheProgram) {
    EXPECT_TRUE(in_child_process([] {
        if (!drop_privileges()) return false;
        const int fd = ::memfd_create("program", 0);
        if (::ftruncate(fd, 100 * kPage) != 0) return false;
        char* p = map_fd(fd, 50 * kPage, 20 * kPage);
        fill(p, 50 * kPage);
        Registration r(p + 1000, 10 * kPage);
        if (!r.all_shared() || !r.covers() || !r.mirrors() || r.pieces.size() != 1) return false;
        EXPECT_EQ(r.pieces[0].fd_offset, 20 * kPage + 1000);
        EXPECT_EQ(r.pieces[0].fd_length, 100 * kPage);
        EXPECT_TRUE(r.pieces[0].writable);
        Registration same(p, kPage);
        EXPECT_EQ(same.pieces[0].id, r.pieces[0].id);
        r.end();
        same.end();
        EXPECT_EQ(usage().files, 0u) << "not ours to keep open";
        return true;
    }));
}

TEST(Shared, ReadOnlyMapping) {
    const int fd = ::memfd_create("program", 0);
    ASSERT_EQ(::ftruncate(fd, 4 * kPage), 0);
    char* p = map_fd(fd, 4 * kPage, 0, PROT_READ);
    EXPECT_EQ(Registration(p, kPage, true).error, EFAULT);
    Registration r(p, kPage, false);
    EXPECT_TRUE(r.all_shared());
    EXPECT_FALSE(r.pieces[0].writable) << "the program asked for reading only";
    ::munmap(p, 4 * kPage);
    ::close(fd);
}

TEST(Shared, DescriptorClosedButFileHasAName) {
    EXPECT_TRUE(in_child_process([] {
        const std::string path = "/dev/shm/roci_memory_test_" + std::to_string(::getpid());
        if (!drop_privileges()) return false;
        const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
        if (fd < 0 || ::ftruncate(fd, 8 * kPage) != 0) return false;
        char* p = map_fd(fd, 8 * kPage);
        ::close(fd);
        fill(p, 8 * kPage);
        const bool named = [&] {
            Registration r(p, 8 * kPage);
            return r.all_shared() && r.mirrors();
        }();
        ::unlink(path.c_str());
        Registration nameless(p, 8 * kPage);
        return named && nameless.error == 0 && nameless.covers() &&
               (nameless.all_shared() ? nameless.mirrors() : nameless.none_shared());
    }));
}

TEST(Shared, BeyondTheEndOfTheFile) {
    const int fd = ::memfd_create("program", 0);
    ASSERT_EQ(::ftruncate(fd, 2 * kPage), 0);
    char* p = map_fd(fd, 4 * kPage);
    EXPECT_EQ(Registration(p + 2 * kPage, kPage).error, EFAULT);
    Registration inside(p, 2 * kPage);
    EXPECT_TRUE(inside.all_shared());
    inside.end();
    EXPECT_EQ(usage().files, 0u);
    ::munmap(p, 4 * kPage);
    ::close(fd);
}

TEST(Shared, AnonymousAndSysV) {
    auto* p = static_cast<char*>(::mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    const int segment = ::shmget(IPC_PRIVATE, 4 * kPage, 0600 | IPC_CREAT);
    auto* q = static_cast<char*>(::shmat(segment, nullptr, 0));
    ::shmctl(segment, IPC_RMID, nullptr);
    for (char* memory : {p, q}) {
        fill(memory, 4 * kPage);
        Registration r(memory, 4 * kPage);
        ASSERT_EQ(r.error, 0);
        EXPECT_TRUE(r.covers());
        if (::geteuid() == 0) {
            EXPECT_TRUE(r.all_shared() && r.mirrors()) << "reopened with privilege";
        } else {
            EXPECT_TRUE(r.none_shared());
        }
        EXPECT_TRUE(in_child_process([&] {
            if (!drop_privileges()) return false;
            Registration unprivileged(memory, 4 * kPage);
            memory[0] = 'c';
            return unprivileged.error == 0 && unprivileged.covers() && unprivileged.none_shared();
        }));
        EXPECT_EQ(memory[0], 'c') << "the program's own sharing with its child stays";
    }
    ::munmap(p, 4 * kPage);
    ::shmdt(q);
}

TEST(Shared, Hugepages) {
    constexpr size_t kHuge = 2 << 20;
    const int fd = ::memfd_create("huge", MFD_HUGETLB);
    if (fd < 0 || ::ftruncate(fd, 2 * kHuge) != 0) GTEST_SKIP() << "no hugepages";
    char* p = map_fd(fd, 2 * kHuge);
    if (!p) GTEST_SKIP() << "no hugepages";
    p[kHuge + 5] = 'h';
    Registration r(p + 5, kHuge + 100);
    ASSERT_TRUE(r.all_shared());
    EXPECT_EQ(*r.at(kHuge), 'h');
    EXPECT_TRUE(r.mirrors());
    ::munmap(p, 2 * kHuge);
    ::close(fd);
    auto* q =
        static_cast<char*>(::mmap(nullptr, kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0));
    if (q == MAP_FAILED) GTEST_SKIP() << "no private hugepages";
    q[3] = 'q';
    Registration private_huge(q, kHuge);
    EXPECT_EQ(private_huge.error, 0);
    EXPECT_TRUE(private_huge.none_shared() && private_huge.covers());
    EXPECT_EQ(q[3], 'q');
    ::munmap(q, kHuge);
}

TEST(Shared, StacksAreLeftAlone) {
    char buffer[3 * kPage];
    std::memset(buffer, 's', sizeof buffer);
    {
        Registration r(buffer, sizeof buffer);
        EXPECT_EQ(r.error, 0);
        EXPECT_TRUE(r.none_shared() && r.covers());
        EXPECT_TRUE(r.pieces[0].writable);
    }
    std::thread([] {
        char mine[3 * kPage];
        static thread_local char local[64];
        std::memset(mine, 't', sizeof mine);
        Registration r(mine, sizeof mine), tls(local, sizeof local);
        EXPECT_TRUE(r.none_shared() && r.covers());
        EXPECT_TRUE(tls.none_shared());
        EXPECT_TRUE(in_child_process([&] {
            mine[0] = 'c';
            return true;
        }));
        EXPECT_EQ(mine[0], 't');
    }).join();
    static thread_local char local[64];
    Registration tls(local, sizeof local);
    EXPECT_EQ(tls.error, 0);
    EXPECT_TRUE(in_child_process([] { return true; }));
}

TEST(Shared, ProgramsData) {
    Registration data(initialised, sizeof initialised);
    EXPECT_EQ(data.error, 0);
    EXPECT_TRUE(data.covers());
    EXPECT_STREQ(initialised, "in the data section");
    fill(uninitialised, sizeof uninitialised);
    Registration bss(uninitialised, sizeof uninitialised);
    EXPECT_EQ(bss.error, 0);
    EXPECT_TRUE(bss.covers());
    EXPECT_TRUE(filled(uninitialised, sizeof uninitialised));
    EXPECT_GE(*bss.at(40 * kPage), 1);
    Registration code(reinterpret_cast<void*>(&acquire), 100, false);
    EXPECT_TRUE(code.none_shared());
}

TEST(Shared, MixedRange) {
    const int fd = ::memfd_create("program", 0);
    ASSERT_EQ(::ftruncate(fd, 4 * kPage), 0);
    char* p = map_anonymous(12 * kPage);
    ASSERT_EQ(::mmap(p + 4 * kPage, 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0), p + 4 * kPage);
    fill(p, 12 * kPage);
    Registration r(p + 10, 12 * kPage - 20);
    ASSERT_TRUE(r.all_shared());
    EXPECT_EQ(r.pieces.size(), 3u);
    EXPECT_TRUE(r.covers() && r.mirrors());
    EXPECT_TRUE(filled(p, 12 * kPage));
    const auto seen = r.read_back();
    EXPECT_EQ(std::memcmp(seen.data(), p + 10, seen.size()), 0);
    ::munmap(p, 12 * kPage);
    ::close(fd);
}
