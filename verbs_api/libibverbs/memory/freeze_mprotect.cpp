#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "freeze.hpp"
#include "maps.hpp"

namespace roci::memory {
namespace {

/// The frozen range. room_mutex ensures that there is at most one frozen range. frozen_count is odd while a range is frozen.
/// Threads that wait for the end of the freeze sleep on frozen_count as a futex.
std::atomic<uint64_t> frozen_start{0}, frozen_end{0};
std::atomic<uint32_t> frozen_count{0};
std::atomic<pid_t> freezing_thread{0};  ///< the thread that must call thaw(); it must not wait for itself

pid_t own_thread() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

/// The SIGSEGV handlers that were installed before on_fault(). previous_index selects the current slot. install() writes the
/// other slot first and then changes the index.
struct sigaction previous[2];
std::atomic<unsigned> previous_index{0};
/// A record of the current call of the previous handler, to detect recursion. The previous handler may have saved on_fault() as
/// its own previous handler, and may call on_fault(). A recursive call has the same thread and the same siginfo_t as the record,
/// and its frame is deeper in the stack. If the previous handler leaves by longjmp(), the record remains. The next fault is then
/// not taken for a recursive call, because its frame is not deeper in the stack.
std::atomic<pid_t> chaining_thread{0};
std::atomic<const void*> chaining_info{nullptr};
std::atomic<uint64_t> chaining_frame{0};

long futex(std::atomic<uint32_t>& word, int op, uint32_t value) {
    return ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), op | FUTEX_PRIVATE_FLAG, value, nullptr, nullptr, 0);
}

bool is_write(const void* context) {
#if defined(__x86_64__)
    constexpr greg_t kWriteFault = 2;
    return static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWriteFault;
#else
    (void)context;
    return true;
#endif
}

/// Returns true if the current mapping permits the access that faulted. This is the case if the freeze has ended meanwhile, or if
/// another thread has mapped or unprotected the page.
bool now_permitted(uint64_t address, bool write) {
    char buffer[512];
    VmaFinder finder(buffer);
    Vma vma;
    return finder.opened() && finder.find(address, vma, false) && (write ? vma.write : vma.read);
}

/// Waits until the address is no longer frozen. Returns false if the address was not frozen at the time of the call, or if this
/// thread itself has frozen it.
bool wait_while_frozen(uint64_t address) {
    bool waited = false;
    for (;;) {
        const uint32_t count = frozen_count.load(std::memory_order_acquire);
        if (!(count & 1) || address < frozen_start.load(std::memory_order_relaxed) ||
            address >= frozen_end.load(std::memory_order_relaxed))
            return waited;
        if (freezing_thread.load(std::memory_order_relaxed) == own_thread()) return waited;
        futex(frozen_count, FUTEX_WAIT, count);
        waited = true;
    }
}

void default_action(int signal) {
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    ::sigaction(signal, &action, nullptr);  // the repeated fault then ends the process with the right core dump
}

/// Calls the previous SIGSEGV handler. If there is no previous handler, or the previous handler has called on_fault(), restores
/// the default action.
/// @param frame  stack address of on_fault()'s frame
void call_previous(int signal, siginfo_t* info, void* context, uint64_t frame) {
    const struct sigaction& action = previous[previous_index.load(std::memory_order_acquire)];
    const pid_t self = own_thread();
    const bool called_back = chaining_thread == self && chaining_info == info && frame < chaining_frame;
    if (called_back || action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) {
        default_action(signal);
        if (info->si_code <= 0) ::syscall(SYS_tgkill, getpid(), self, signal);  // sent by kill(): no fault will repeat the signal
        return;
    }
    chaining_thread = self;
    chaining_info = info;
    chaining_frame = frame;
    if (action.sa_flags & SA_SIGINFO)
        action.sa_sigaction(signal, info, context);
    else
        action.sa_handler(signal);
    chaining_thread = 0;  // this store also prevents a tail call, in which the handler would run at the stack depth of on_fault()
}

void on_fault(int signal, siginfo_t* info, void* context) {
    const int saved_errno = errno;
    const auto address = reinterpret_cast<uint64_t>(info->si_addr);
    const bool ours = info->si_code == SEGV_ACCERR && (wait_while_frozen(address) || now_permitted(address, is_write(context)));
    errno = saved_errno;
    if (!ours) call_previous(signal, info, context, reinterpret_cast<uint64_t>(__builtin_frame_address(0)));
}

/// Installs on_fault() as the SIGSEGV handler and saves the current handler in `previous`. on_fault() stays installed, because a
/// thread that has faulted may enter on_fault() long after the freeze has ended.
bool install() {
    struct sigaction current {};
    if (::sigaction(SIGSEGV, nullptr, &current) != 0) return false;
    if (current.sa_flags & SA_SIGINFO && current.sa_sigaction == on_fault) return true;
    const unsigned next = 1 - previous_index.load();
    previous[next] = current;
    previous_index.store(next, std::memory_order_release);
    struct sigaction ours {};
    ours.sa_sigaction = on_fault;
    ours.sa_mask = current.sa_mask;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (current.sa_flags & (SA_NODEFER | SA_RESTART));
    return ::sigaction(SIGSEGV, &ours, nullptr) == 0;
}

/// Returns true if the thread has SIGSEGV blocked, or if the state of a running thread cannot be read. If a thread with SIGSEGV
/// blocked wrote to a frozen page, the kernel would kill the process.
bool thread_blocks_sigsegv(const char* tid) {
    char path[64], text[4096];
    std::snprintf(path, sizeof path, "/proc/self/task/%.20s/status", tid);
    Fd fd(::open(path, O_RDONLY | O_CLOEXEC));
    if (!fd) return errno != ENOENT && errno != ESRCH;  // false if the thread has ended
    const ssize_t n = ::read(fd.get(), text, sizeof text - 1);
    if (n <= 0) return n < 0 && errno != ESRCH;
    text[n] = 0;
    const char* field = std::strstr(text, "SigBlk:");
    return !field || (std::strtoull(field + 7, nullptr, 16) >> (SIGSEGV - 1) & 1);
}

/// Returns the id of another thread that has SIGSEGV blocked, 0 if there is no such thread, or -1 if the threads cannot be
/// listed.
pid_t thread_that_blocks_sigsegv() {
    DIR* tasks = ::opendir("/proc/self/task");
    if (!tasks) return -1;
    const long self = own_thread();
    pid_t found = 0;
    while (const dirent* entry = ::readdir(tasks)) {
        const int tid = std::atoi(entry->d_name);
        if (tid == 0 || tid == self || !thread_blocks_sigsegv(entry->d_name)) continue;
        found = tid;
        break;
    }
    ::closedir(tasks);
    return found;
}

/// The state of a thread at one moment. A comparison of two successive states shows whether the thread waited for a CPU in
/// between. `started` distinguishes the thread from an earlier thread with the same id.
struct ThreadLook {
    char state = 0;
    uint64_t run_time = 0;  ///< nanoseconds
    uint64_t started = 0;
};

/// Returns field `n` (3 or higher) of /proc/…/stat. Counts the fields after the thread's name, because the name may contain
/// spaces.
const char* stat_field(const char* text, int n) {
    const char* at = std::strrchr(text, ')');
    for (int i = 2; at != nullptr && i < n; i++) {
        at = std::strchr(at, ' ');
        if (at != nullptr) at++;
    }
    return at;
}

bool read_text(const char* pattern, pid_t tid, char* text, size_t size) {
    char path[64];
    std::snprintf(path, sizeof path, pattern, static_cast<int>(tid));
    Fd fd(::open(path, O_RDONLY | O_CLOEXEC));
    const ssize_t n = fd ? ::read(fd.get(), text, size - 1) : -1;
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

ThreadLook look_at(pid_t tid) {
    ThreadLook look;
    char text[1024];
    constexpr int kState = 3, kStartTime = 22;
    if (read_text("/proc/self/task/%d/stat", tid, text, sizeof text)) {
        const char* state = stat_field(text, kState);
        const char* started = stat_field(text, kStartTime);
        if (state != nullptr) look.state = *state;
        if (started != nullptr) look.started = std::strtoull(started, nullptr, 10);
    }
    if (read_text("/proc/self/task/%d/schedstat", tid, text, sizeof text)) look.run_time = std::strtoull(text, nullptr, 10);
    return look;
}

/// Returns false if another thread keeps SIGSEGV blocked. A thread blocks all signals for a short time when it starts and in some
/// functions of the C library. So this function waits until no thread has SIGSEGV blocked, but at most 100 ms. The time in which
/// the blocking thread waits for a CPU does not count, up to 20 s. If an earlier call has waited for the same thread without
/// success, the function does not wait again.
bool nobody_blocks_sigsegv() {
    static pid_t known = 0;  // protected by room_mutex
    static uint64_t known_start = 0;
    constexpr int kTries = 200, kMostTries = 40'000;  // 100 ms without the waits for a CPU, 20 s in total
    const timespec pause{.tv_sec = 0, .tv_nsec = 500'000};
    pid_t blocker = 0;
    ThreadLook last;
    for (int own = 0, i = 0; own < kTries && i < kMostTries; i++) {
        blocker = thread_that_blocks_sigsegv();
        if (blocker == 0) return true;
        const ThreadLook now = look_at(blocker);
        if (blocker == known && now.started == known_start) return false;
        const bool starved = now.state == 'R' && now.started == last.started && now.run_time == last.run_time;
        own += !starved;
        last = now;
        ::nanosleep(&pause, nullptr);
    }
    known = blocker;
    known_start = last.started;
    return false;
}

class MprotectFreezer final : public Freezer {
public:
    bool cover(uint64_t, uint64_t, bool) override { return nobody_blocks_sigsegv() && install(); }

    bool holds_untouched() const override { return true; }

    bool freeze(uint64_t address, uint64_t length, int protection) override {
        if (!(protection & PROT_WRITE)) return true;
        frozen_start = address;
        frozen_end = address + length;
        freezing_thread = own_thread();
        frozen_count.fetch_add(1, std::memory_order_release);
        if (::mprotect(pointer(address), length, protection & ~PROT_WRITE) == 0) return true;
        thaw(address, length, protection, false);
        return false;
    }

    void thaw(uint64_t address, uint64_t length, int protection, bool replaced) override {
        if (!(protection & PROT_WRITE)) return;
        if (!replaced) ::mprotect(pointer(address), length, protection);
        frozen_count.fetch_add(1, std::memory_order_release);
        futex(frozen_count, FUTEX_WAKE, INT_MAX);
    }
};

}  // namespace

void reset_fault_handler() { chaining_thread = 0; }

std::unique_ptr<Freezer> make_mprotect_freezer() { return std::make_unique<MprotectFreezer>(); }

}  // namespace roci::memory
