/// Threads write to memory while the memory is being registered. Each method that blocks writers must lose no update.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <atomic>
#include <csetjmp>
#include <random>
#include <thread>

#include "freeze.hpp"
#include "helper.hpp"

using namespace roci::memory;

namespace {

/// Each writer increments its own word of every page and counts the increments. At the end each word must be equal to
/// its count.
struct Storm {
    static constexpr size_t kWriters = 3;

    explicit Storm(char* memory, size_t page_count) : base(memory), pages(page_count), expected(kWriters * page_count) {
        for (size_t w = 0; w < kWriters; w++) threads.emplace_back([this, w] { write(w); });
        while (rounds < kWriters) std::this_thread::yield();
    }
    void write(size_t w) {
        for (size_t i = 0; !stop.load(std::memory_order_relaxed); i = (i + 1) % pages) {
            *word(w, i) = *word(w, i) + 1;
            expected[w * pages + i]++;
            if (i == pages - 1) rounds++;
        }
    }
    volatile uint64_t* word(size_t w, size_t page) {
        return reinterpret_cast<volatile uint64_t*>(base + page * kPage + 8 * w + 512);
    }
    ~Storm() { end(); }
    void end() {
        stop = true;
        for (auto& thread : threads) thread.join();
        threads.clear();
    }
    size_t lost() {
        end();
        size_t count = 0;
        for (size_t w = 0; w < kWriters; w++) {
            for (size_t i = 0; i < pages; i++) count += *word(w, i) != expected[w * pages + i];
        }
        return count;
    }

    char* base;
    size_t pages;
    std::vector<uint64_t> expected;
    std::atomic<bool> stop{false};
    std::atomic<size_t> rounds{0};
    std::vector<std::thread> threads;
};

bool storm_round(size_t pages) {
    char* p = map_anonymous(pages * kPage);
    Storm storm(p, pages);
    bool good = true;
    {
        Registration r(p, pages * kPage);
        good = r.error == 0 && r.all_shared();
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        const size_t lost = storm.lost();
        EXPECT_EQ(lost, 0u);
        const auto seen = r.read_back();
        good = good && lost == 0 && std::memcmp(seen.data(), p, seen.size()) == 0;
    }
    ::munmap(p, pages * kPage);
    return good;
}

/// Registers 100 bytes in each page, one page after the other, while threads write to other bytes of all pages.
bool storm_page_by_page(size_t pages) {
    char* p = map_anonymous(pages * kPage);
    Storm storm(p, pages);
    bool good = true;
    std::vector<uint64_t> tokens(pages);
    std::vector<Piece> pieces;
    for (size_t i = 0; i < pages; i++)
        good = acquire(p + i * kPage + 7, 100, true, pieces, tokens[i]) == 0 && pieces[0].fd >= 0 && good;
    good = storm.lost() == 0 && good;
    for (const uint64_t token : tokens) release(token);
    ::munmap(p, pages * kPage);
    return good;
}

bool many_rounds() {
    for (const size_t pages : {4096, 1, 3, 64, 1024, 600, 4096, 2048}) {
        if (!storm_round(pages)) return false;
    }
    for (int i = 0; i < 60; i++) {
        if (!storm_round(16)) return false;
    }
    return storm_page_by_page(500);
}

/// A thread touches untouched pages in scattered order, while the whole range is being registered.
bool first_touches() {
    constexpr size_t kBytes = 256 << 20, kStride = 16 * kPage, kTouches = kBytes / kStride, kStep = 2039;
    static_assert(kTouches % kStep != 0);  // kStep is a prime, so the thread touches every page
    char* p = map_anonymous(kBytes);
    std::atomic<size_t> touched{0};
    std::thread writer([&] {
        for (size_t i = 0; i < kTouches; i++) {
            const size_t page = i * kStep % kTouches;
            std::memcpy(p + page * kStride, &page, sizeof page);
            touched = i + 1;
        }
    });
    while (touched < 2) std::this_thread::yield();
    bool good = true;
    {
        Registration r(p, kBytes);
        writer.join();
        good = r.error == 0 && r.all_shared();
        for (size_t page = 0; page < kTouches && good; page++) {
            size_t here = 0, there = 0;
            std::memcpy(&here, p + page * kStride, sizeof here);
            std::memcpy(&there, r.at(page * kStride), sizeof there);
            good = here == page && there == page;
        }
    }
    ::munmap(p, kBytes);
    return good;
}

bool with_way(const char* way, const std::function<bool()>& body) {
    return in_child_process([&] {
        ::setenv("ROCI_ADOPT", way, 1);
        return body();
    });
}

/// Makes the system call userfaultfd fail, as in a container with Docker's default profile.
bool deny_userfaultfd() {
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),  // seccomp_data.nr
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{.len = std::size(code), .filter = code};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 &&
           ::syscall(SYS_userfaultfd, 0) < 0 && errno == EPERM;
}

bool drop_privileges() {
    return ::geteuid() != 0 ||
           (::setresgid(65534, 65534, 65534) == 0 && ::setresuid(65534, 65534, 65534) == 0 && ::prctl(PR_SET_DUMPABLE, 1) == 0);
}

}  // namespace

TEST(Writers, NothingLostByUserfaultfd) { EXPECT_TRUE(with_way("uffd", many_rounds)); }

TEST(Writers, FirstTouchesOfALongRangeAreNotLost) {
    for (const char* way : {"uffd", "mprotect"}) {
        EXPECT_TRUE(with_way(way, [] {
            for (int i = 0; i < 5; i++)
                if (!first_touches()) return false;
            return true;
        })) << way;
    }
    EXPECT_TRUE(with_way("uffd", [] { return drop_privileges() && first_touches(); })) << "without privilege";
}

TEST(Writers, NothingLostByUserfaultfdWithoutPrivilege) {
    EXPECT_TRUE(with_way("uffd", [] { return drop_privileges() && many_rounds(); }));
}

TEST(Writers, NothingLostByMprotect) { EXPECT_TRUE(with_way("mprotect", many_rounds)); }

TEST(Writers, NothingLostUnderAProfileThatDeniesUserfaultfd) {
    EXPECT_TRUE(with_way("", [] { return drop_privileges() && deny_userfaultfd() && many_rounds(); }));
    EXPECT_TRUE(with_way("uffd", [] {
        if (!deny_userfaultfd()) return false;
        char* p = map_anonymous(kPage);
        Registration r(p, kPage);
        return r.error == 0 && r.none_shared();
    })) << "and where only userfaultfd is allowed, nothing is adopted";
}

/// Four threads register parts of one mapping, and memory of malloc(), at the same time. Returns true if all memory was shared
/// and no byte changed.
static bool threads_register() {
    const size_t bytes = 64 * kPage;
    char* p = map_anonymous(bytes);
    fill(p, bytes);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (unsigned t = 0; t < 4; t++) {
        threads.emplace_back([&, t] {
            std::mt19937 random(t);
            for (int i = 0; i < 300; i++) {
                const size_t start = random() % (bytes - 1), length = 1 + random() % (bytes - start);
                std::vector<Piece> pieces;
                uint64_t token = 0;
                if (acquire(p + start, length, true, pieces, token) != 0) wrong++;
                for (const Piece& piece : pieces) {
                    char byte = 0;
                    if (piece.fd < 0 || ::pread(piece.fd, &byte, 1, static_cast<off_t>(piece.fd_offset)) != 1) wrong++;
                    if (byte != *reinterpret_cast<char*>(piece.address)) wrong++;
                }
                release(token);
                char* own = static_cast<char*>(std::malloc(1 + random() % 60'000));
                own[0] = static_cast<char>(i);
                if (acquire(own, 1, true, pieces, token) != 0 || own[0] != static_cast<char>(i)) wrong++;
                release(token);
                std::free(own);
            }
        });
    }
    for (auto& thread : threads) thread.join();
    const bool good = wrong == 0 && filled(p, bytes);
    ::munmap(p, bytes);
    return good;
}

TEST(Writers, ThreadsRegisterAtTheSameTime) { EXPECT_TRUE(threads_register()); }
TEST(Writers, ThreadsRegisterAtTheSameTimeByMprotect) { EXPECT_TRUE(with_way("mprotect", threads_register)); }

/// A system call writes to a page while the page is moved. If the library has the privilege for userfaultfd, the
/// kernel waits. Otherwise the call may fail with EFAULT. In both cases no data may be lost silently.
static void receive_during_adoption(unsigned& faults, unsigned& wrong) {
    const size_t pages = 2048;
    char* p = map_anonymous(pages * kPage);
    fill(p, pages * kPage);
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    std::atomic<bool> stop{false};
    std::atomic<unsigned> fault_count{0}, wrong_count{0}, calls{0};
    std::thread reader([&] {
        for (size_t i = 0; !stop; i = (i + 1) % pages) {
            const uint64_t sent = i * 977 + 5;
            if (::send(ends[0], &sent, sizeof sent, 0) != sizeof sent) wrong_count++;
            char* to = p + i * kPage + 64;
            if (::recv(ends[1], to, sizeof sent, 0) < 0) {
                fault_count += errno == EFAULT;
                wrong_count += errno != EFAULT;
            } else if (std::memcmp(to, &sent, sizeof sent) != 0) {
                wrong_count++;
            }
            calls++;
        }
    });
    while (calls < 100) std::this_thread::yield();
    {
        Registration r(p, pages * kPage);
        EXPECT_TRUE(r.all_shared());
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    stop = true;
    reader.join();
    faults = fault_count;
    wrong = wrong_count;
    ::close(ends[0]);
    ::close(ends[1]);
    ::munmap(p, pages * kPage);
}

TEST(Writers, SystemCallsWaitWithPrivilege) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs CAP_SYS_PTRACE";
    unsigned faults = 0, wrong = 0;
    for (int i = 0; i < 10; i++) {
        receive_during_adoption(faults, wrong);
        EXPECT_EQ(faults, 0u);
        EXPECT_EQ(wrong, 0u);
    }
}

TEST(Writers, SystemCallsAreNeverSilentlyLost) {
    for (const char* way : {"uffd", "mprotect"}) {
        EXPECT_TRUE(with_way(way, [way] {
            if (!drop_privileges()) return false;
            unsigned faults = 0, wrong = 0, all = 0;
            for (int i = 0; i < 10; i++) {
                receive_during_adoption(faults, wrong);
                if (wrong) return false;
                all += faults;
            }
            std::printf("[          ] %s: %u calls answered EFAULT in 10 registrations of 8 MiB\n", way, all);
            return true;
        }));
    }
}

// ---- the fault handler of the mprotect method ----------------------------------------------------------------------

/// A thread writes to a page that it has frozen itself. The fault handler must not wait, because only this thread can call
/// thaw(). The handler restores the default action, and the repeated fault ends the process with SIGSEGV.
TEST(Writers, AThreadThatWritesToAPageThatItFrozeIsKilled) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(30);
        char* p = map_anonymous(kPage);
        const auto freezer = make_mprotect_freezer();
        constexpr int kProtection = PROT_READ | PROT_WRITE;
        if (!freezer->cover(number(p), kPage, false) || !freezer->freeze(number(p), kPage, kProtection)) ::_exit(3);
        *static_cast<volatile char*>(p) = 'x';
        ::_exit(4);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << status;
}

namespace {

sigjmp_buf back;
volatile sig_atomic_t program_faults = 0;
void program_handler(int, siginfo_t*, void*) {
    program_faults = program_faults + 1;
    siglongjmp(back, 1);
}

bool register_one() {
    char* p = map_anonymous(64 * kPage);
    Storm storm(p, 64);
    Registration r(p, 64 * kPage);
    return r.all_shared() && storm.lost() == 0;
}

/// Returns true if an access to `bad` calls the handler of the program. `bad` may be null, so UBSan's check for null
/// pointers is disabled.
__attribute__((no_sanitize("null"))) bool fault_reaches_program(char* bad, bool write) {
    const int before = program_faults;
    if (sigsetjmp(back, 1) == 0) {
        if (write)
            *const_cast<volatile char*>(bad) = 1;
        else
            (void)*const_cast<volatile char*>(bad);
        return false;
    }
    return program_faults == before + 1;
}

void set_program_handler() {
    struct sigaction action {};
    action.sa_sigaction = program_handler;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace

TEST(Writers, OtherFaultsGoToTheProgramsHandler) {
    EXPECT_TRUE(with_way("mprotect", [] {
        set_program_handler();
        if (!register_one()) return false;
        char* readonly = map_anonymous(kPage, PROT_READ);
        char* none = map_anonymous(kPage, PROT_NONE);
        if (!fault_reaches_program(readonly, true) || !fault_reaches_program(none, false) ||
            !fault_reaches_program(nullptr, true))
            return false;
        set_program_handler();  // replaces the library's handler; the next registration must install the library's handler again
        return register_one() && fault_reaches_program(readonly, true);
    }));
}

TEST(Writers, AFaultThatNobodyHandlesStillKills) {
    const pid_t pid = ::fork();
    if (pid == 0) {
        ::setenv("ROCI_ADOPT", "mprotect", 1);
        if (!register_one()) ::_exit(1);
        *const_cast<volatile char*>(map_anonymous(kPage, PROT_READ)) = 1;
        ::_exit(2);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << status;
}

TEST(Writers, AHandlerThatCallsOursBackDoesNotLoop) {
    const pid_t pid = ::fork();
    if (pid == 0) {
        ::setenv("ROCI_ADOPT", "mprotect", 1);
        static struct sigaction saved;
        if (!register_one()) ::_exit(1);
        ::sigaction(SIGSEGV, nullptr, &saved);  // stores the library's handler in `saved`
        struct sigaction chained {};
        chained.sa_sigaction = [](int signal, siginfo_t* info, void* context) { saved.sa_sigaction(signal, info, context); };
        chained.sa_flags = SA_SIGINFO;
        ::sigaction(SIGSEGV, &chained, nullptr);
        if (!register_one()) ::_exit(2);
        *const_cast<volatile char*>(map_anonymous(kPage, PROT_READ)) = 1;
        ::_exit(3);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << status;
}

TEST(Writers, AThreadThatBlocksSigsegvIsNotKilled) {
    EXPECT_TRUE(with_way("mprotect", [] {
        const size_t pages = 256;
        char* p = map_anonymous(pages * kPage);
        std::atomic<bool> stop{false}, ready{false};
        std::thread writer([&] {
            sigset_t all;
            sigfillset(&all);
            pthread_sigmask(SIG_SETMASK, &all, nullptr);
            ready = true;
            for (size_t i = 0; !stop; i = (i + 1) % pages) p[i * kPage]++;
        });
        while (!ready) std::this_thread::yield();
        Registration r(p, pages * kPage);
        stop = true;
        writer.join();
        return r.error == 0 && r.covers() && r.none_shared();
    }));
}
