/// After fork() returns, the child must have its own copy of registered memory.

#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "helper.hpp"

using namespace roci::memory;

namespace {

bool ended_well(pid_t pid) {
    int status = 0;
    return ::waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST(Fork, WritesReachNeitherSide) {
    const size_t bytes = 40 << 20;  // large enough for its own file; `small` is in a file that several blocks share
    char* big = map_anonymous(bytes);
    char* small = static_cast<char*>(std::malloc(10'000));
    fill(big, bytes);
    fill(small, 10'000, 9);
    Registration a(big, bytes), b(small, 10'000);
    ASSERT_TRUE(a.all_shared() && b.all_shared());
    int go[2];
    ASSERT_EQ(::pipe(go), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
        char byte;
        bool good = ::read(go[0], &byte, 1) == 1;  // waits until the parent has written to the memory
        good = good && filled(big, bytes) && filled(small, 10'000, 9);
        std::memset(big, 'c', bytes);
        std::memset(small, 'c', 10'000);
        ::_exit(good ? 0 : 1);
    }
    std::memset(big, 'p', bytes);
    std::memset(small, 'p', 10'000);
    ASSERT_EQ(::write(go[1], "", 1), 1);
    EXPECT_TRUE(ended_well(pid));
    EXPECT_EQ(big[0], 'p');
    EXPECT_EQ(big[bytes - 1], 'p');
    EXPECT_EQ(small[5000], 'p');
    EXPECT_TRUE(a.mirrors() && b.mirrors()) << "the parent's registration is as it was";
    EXPECT_EQ(*a.at(bytes / 2), 'p');
    ::munmap(big, bytes);
    std::free(small);
}

TEST(Fork, ProtectionAndHolesAreKeptInTheChild) {
    const size_t bytes = 32 << 20;
    char* p = map_anonymous(bytes);
    p[9 * kPage] = 7;
    Registration r(p, bytes);
    ASSERT_TRUE(r.all_shared());
    ::mprotect(p + 9 * kPage, kPage, PROT_READ);
    ::mprotect(p + 20 * kPage, kPage, PROT_NONE);
    EXPECT_TRUE(in_child_process([&] {
        if (p[9 * kPage] != 7 || p[0] != 0) return false;
        ::mprotect(p + 20 * kPage, kPage, PROT_READ | PROT_WRITE);
        p[20 * kPage] = 1;
        return true;
    }));
    struct stat st {};
    ::fstat(r.pieces[0].fd, &st);
    EXPECT_LE(st.st_blocks * 512, 32 * 4096) << "the child's copying allocates nothing in the parent's file";
    ::mprotect(p, bytes, PROT_READ | PROT_WRITE);
    EXPECT_EQ(p[20 * kPage], 0);
    ::munmap(p, bytes);
}

TEST(Fork, ChildCanRegisterAndForkAgain) {
    char* p = static_cast<char*>(std::malloc(50'000));
    fill(p, 50'000);
    Registration parent(p, 50'000);
    ASSERT_TRUE(parent.all_shared());
    EXPECT_TRUE(in_child_process([&] {
        if (usage().tokens != 0 || usage().files != 0) return false;
        release(parent.token);  // a token of the parent must have no effect in the child
        Registration mine(p, 50'000);
        if (!mine.all_shared() || !mine.mirrors() || !filled(p, 50'000)) return false;
        if (mine.token == parent.token || mine.pieces[0].id == parent.pieces[0].id) return false;
        std::memset(p, 'k', 50'000);
        const bool grandchild = in_child_process([&] {
            const bool same = p[1] == 'k';
            std::memset(p, 'g', 50'000);
            return same;
        });
        return grandchild && p[1] == 'k' && *mine.at(1) == 'k';
    }));
    EXPECT_TRUE(filled(p, 50'000));
    EXPECT_TRUE(parent.mirrors());
    std::free(p);
}

/// After a raw fork system call the library must read the table of the child's mappings, and not that of the parent.
/// The test registers no heap memory, because both processes would write to this memory.
TEST(Fork, ChildWithoutHandlersCanRegister) {
    EXPECT_TRUE(in_child_process([] {
        char* before = map_anonymous(kPage);
        fill(before, kPage);
        if (!Registration(before, kPage).all_shared()) return false;
        const auto pid = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
        if (pid != 0) return ended_well(pid);
        char* p = map_anonymous(4 * kPage);
        fill(p, 4 * kPage);
        Registration r(p, 4 * kPage);
        ::_exit(r.all_shared() && r.covers() && r.mirrors() && filled(p, 4 * kPage) ? 0 : 1);
    }));
}

/// After fork() both processes must continue to use the heap, although many of its pages are registered.
TEST(Fork, HeapGoesOnInBoth) {
    struct Object {
        char* p;
        size_t size;
        unsigned seed;
    };
    std::vector<Object> objects;
    std::vector<uint64_t> tokens;
    std::mt19937 random(11);
    const auto churn = [&](unsigned rounds) {
        for (unsigned i = 0; i < rounds; i++) {
            if (objects.size() > 2000 || (!objects.empty() && random() % 2)) {
                const size_t k = random() % objects.size();
                if (!filled(objects[k].p, objects[k].size, objects[k].seed)) return false;
                std::free(objects[k].p);
                objects[k] = objects.back();
                objects.pop_back();
            }
            Object o{nullptr, 16 + random() % 2000, static_cast<unsigned>(random() % 1000)};
            o.p = static_cast<char*>(std::malloc(o.size));
            fill(o.p, o.size, o.seed);
            objects.push_back(o);
        }
        for (const Object& o : objects) {
            if (!filled(o.p, o.size, o.seed)) return false;
        }
        return true;
    };
    ASSERT_TRUE(churn(3000));
    for (size_t i = 0; i < objects.size(); i += 3) {
        std::vector<Piece> pieces;
        tokens.emplace_back();
        ASSERT_EQ(acquire(objects[i].p, objects[i].size, true, pieces, tokens.back()), 0);
    }
    std::vector<pid_t> children;
    for (int n = 0; n < 6; n++) {
        const pid_t pid = ::fork();
        if (pid == 0) {
            random.seed(static_cast<unsigned>(n) + 100);
            ::_exit(churn(4000) ? 0 : 1);
        }
        children.push_back(pid);
        ASSERT_TRUE(churn(2000));
    }
    for (const pid_t pid : children) EXPECT_TRUE(ended_well(pid));
    ASSERT_TRUE(churn(1000));
    for (const uint64_t token : tokens) release(token);
    for (const Object& o : objects) std::free(o.p);
}

TEST(Fork, WhileOtherThreadsRegister) {
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::thread worker([&] {
        while (!stop) {
            char* p = map_anonymous(64 * kPage);
            fill(p, 64 * kPage);
            std::vector<Piece> pieces;
            uint64_t token = 0;
            if (acquire(p, 64 * kPage, true, pieces, token) != 0 || !filled(p, 64 * kPage)) wrong++;
            release(token);
            ::munmap(p, 64 * kPage);
        }
    });
    char* p = map_anonymous(512 * kPage);
    fill(p, 512 * kPage);
    Registration r(p, 512 * kPage);
    for (int i = 0; i < 50; i++) {
        EXPECT_TRUE(in_child_process([&] {
            const bool same = filled(p, 512 * kPage);
            std::memset(p, 0, 512 * kPage);
            return same;
        }));
    }
    stop = true;
    worker.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_TRUE(filled(p, 512 * kPage));
    ::munmap(p, 512 * kPage);
}

TEST(Fork, ReleasedAndGivenUpMemoryIsPrivateInTheChildToo) {
    const size_t bytes = kIdleBytes + (32 << 20);
    char* p = map_anonymous(bytes);
    std::memset(p, 'a', bytes);
    {
        Registration r(p, bytes);
        ASSERT_TRUE(r.all_shared());
    }
    EXPECT_EQ(usage().files, 0u) << "more than is kept idle: the descriptor is closed";
    EXPECT_TRUE(in_child_process([&] {
        const bool same = p[0] == 'a' && p[bytes - 1] == 'a';
        std::memset(p, 'c', bytes);
        return same;
    }));
    EXPECT_EQ(p[0], 'a');
    EXPECT_EQ(p[bytes - 1], 'a');
    ::munmap(p, bytes);
}

/// A child aborts if it cannot copy the memory. The aborted child must not block its parent.
TEST(Fork, ParentSurvivesTheChildsDeath) {
    const size_t bytes = 64 << 20;
    char* p = map_anonymous(bytes);
    fill(p, bytes);
    Registration r(p, bytes);
    EXPECT_TRUE(in_child_process([&] {
        Registration own(p, bytes);
        rlimit limit{1 << 20, 1 << 20};  // the child cannot allocate its copy
        ::setrlimit(RLIMIT_AS, &limit);
        const auto start = std::chrono::steady_clock::now();
        ::freopen("/dev/null", "w", stderr);
        const pid_t pid = ::fork();
        if (pid == 0) ::_exit(0);
        int status = 0;
        ::waitpid(pid, &status, 0);
        const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
        return killed && std::chrono::steady_clock::now() - start < std::chrono::seconds(5) && own.mirrors();
    }));
    EXPECT_TRUE(r.mirrors());
    ::munmap(p, bytes);
}

TEST(Fork, SpawnAndVforkNeedNothing) {
    char* p = map_anonymous(16 * kPage);
    fill(p, 16 * kPage);
    Registration r(p, 16 * kPage);
    pid_t pid = 0;
    char name[] = "true";
    char* arguments[] = {name, nullptr};
    ASSERT_EQ(::posix_spawn(&pid, "/bin/true", nullptr, nullptr, arguments, environ), 0);
    EXPECT_TRUE(ended_well(pid));
    EXPECT_EQ(std::system("true"), 0);
    EXPECT_TRUE(filled(p, 16 * kPage));
    EXPECT_TRUE(r.mirrors());
    ::munmap(p, 16 * kPage);
}

TEST(Fork, FromAThreadWithItsOwnArena) {
    std::thread([] {
        char* p = static_cast<char*>(std::malloc(100));  // a block near the head of the arena
        char* q = static_cast<char*>(std::malloc(30'000));
        fill(p, 100);
        fill(q, 30'000, 5);
        Registration a(p, 100), b(q, 30'000);
        EXPECT_EQ(a.error, 0);
        EXPECT_TRUE(a.covers() && b.covers());
        EXPECT_TRUE(b.mirrors() || b.pieces[0].fd < 0);
        EXPECT_TRUE(in_child_process([&] {
            const bool same = filled(p, 100) && filled(q, 30'000, 5);
            std::memset(p, 'c', 100);
            std::memset(q, 'c', 30'000);
            for (int i = 0; i < 100; i++) std::free(std::malloc(static_cast<size_t>(i) * 50));
            return same;
        }));
        EXPECT_TRUE(filled(p, 100) && filled(q, 30'000, 5));
        std::free(p);
        std::free(q);
    }).join();
}
