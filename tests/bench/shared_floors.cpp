// Measures reference values for ./dev bench shared: the cost of a message between processes without a transport, as
// half round trips. The processes use the same CPUs as rocid and its programs.
//
//   shared_floors yield|futex LOOKS ROUNDS     two programs and an engine between them. Each step sets one word of shared memory.
//                                              A waiting process reads the word LOOKS times. Then it yields after each further
//                                              read, or sleeps on the word
//   shared_floors spin ROUNDS                  two programs without an engine. A waiting program reads the word all the time, as
//                                              over an RDMA NIC
//   shared_floors tcp ROUNDS                   64 bytes over a TCP connection of the loopback interface. A waiting program sleeps
//                                              in recv
//
// With the last argument "sessions", each further process runs in a separate session, as programs of different
// terminals do. The kernel then schedules each session as a group (sched_autogroup_enabled).
#include <arpa/inet.h>
#include <linux/futex.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "histogram.hpp"
#include "report.hpp"

namespace roci::bench {
namespace {

struct alignas(64) Word {
    std::atomic<uint32_t> value{0};
    std::atomic<uint32_t> asleep{0};
};
/// The steps of a round trip. Each step has a word, which a process increments when it has done the step.
enum Step : uint32_t { ask, deliver_ask, answer, deliver_answer, steps };
using Words = std::array<Word, steps>;

struct Chain {
    Words* words;
    bool sleeps;
    uint32_t looks;

    void put(Step s, uint32_t v) const {
        Word& w = (*words)[s];
        w.value.store(v, std::memory_order_seq_cst);
        if (sleeps && w.asleep.load(std::memory_order_seq_cst) != 0) futex(w, FUTEX_WAKE, 1);
    }
    void await(Step s, uint32_t v) const {
        Word& w = (*words)[s];
        for (uint32_t n = 0; w.value.load(std::memory_order_acquire) != v; ++n) {
            if (n < looks) continue;
            if (sleeps)
                sleep(w, v - 1);
            else
                sched_yield();
        }
    }

private:
    static void futex(Word& w, int op, uint32_t v) { syscall(SYS_futex, &w.value, op, v, nullptr, nullptr, 0); }
    static void sleep(Word& w, uint32_t old) {
        w.asleep.store(1, std::memory_order_seq_cst);
        if (w.value.load(std::memory_order_seq_cst) == old) futex(w, FUTEX_WAIT, old);
        w.asleep.store(0, std::memory_order_relaxed);
    }
};

bool own_sessions = false;

/// Runs `work` in a new process. The process ends when `work` returns, or when its parent ends.
pid_t in_process(const std::function<void()>& work) {
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid != 0) return pid;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(1);
    if (own_sessions) setsid();
    work();
    _exit(0);
}

/// Makes `rounds` round trips after a warm-up. Prints quantiles of half the round trip.
void measure(const std::string& name, uint32_t rounds, const std::function<void(uint32_t)>& round_trip) {
    const uint32_t warm = rounds / 10;
    const auto half = std::make_unique<Histogram>();
    for (uint32_t i = 1; i <= warm + rounds; ++i) {
        const uint64_t start = now_ns();
        round_trip(i);
        if (i > warm) half->add((now_ns() - start) / 2);
    }
    report(name + ".p50", double(half->quantile(0.5)), "ns");
    report(name + ".p99", double(half->quantile(0.99)), "ns");
}

Words* share_words() {
    void* shared = mmap(nullptr, sizeof(Words), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? nullptr : new (shared) Words;
}

uint32_t with_warm_up(uint32_t rounds) { return rounds + rounds / 10; }

int chain(bool sleeps, uint32_t looks, uint32_t rounds) {
    const Chain c{share_words(), sleeps, looks};
    if (c.words == nullptr) return 1;
    const uint32_t last = with_warm_up(rounds);
    const pid_t engine = in_process([&] {
        for (uint32_t i = 1; i <= last; ++i) {
            c.await(ask, i);
            c.put(deliver_ask, i);
            c.await(answer, i);
            c.put(deliver_answer, i);
        }
    });
    const pid_t peer = in_process([&] {
        for (uint32_t i = 1; i <= last; ++i) {
            c.await(deliver_ask, i);
            c.put(answer, i);
        }
    });
    if (engine < 0 || peer < 0) return 1;
    measure(std::string("chain.") + (sleeps ? "futex" : "yield"), rounds, [&](uint32_t i) {
        c.put(ask, i);
        c.await(deliver_answer, i);
    });
    while (wait(nullptr) > 0) continue;
    return 0;
}

int spin(uint32_t rounds) {
    const Chain c{share_words(), false, ~0u};
    if (c.words == nullptr) return 1;
    const pid_t peer = in_process([&] {
        for (uint32_t i = 1; i <= with_warm_up(rounds); ++i) {
            c.await(ask, i);
            c.put(answer, i);
        }
    });
    if (peer < 0) return 1;
    measure("spin", rounds, [&](uint32_t i) {
        c.put(ask, i);
        c.await(answer, i);
    });
    while (wait(nullptr) > 0) continue;
    return 0;
}

using Message = std::array<char, 64>;

bool send_message(int fd, const Message& m) { return send(fd, m.data(), m.size(), MSG_NOSIGNAL) == ssize_t(m.size()); }
bool take_message(int fd, Message& m) { return recv(fd, m.data(), m.size(), MSG_WAITALL) == ssize_t(m.size()); }

int no_delay(int fd) {
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

int tcp(uint32_t rounds) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0), fd = no_delay(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in at{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t length = sizeof at;
    auto* const address = reinterpret_cast<sockaddr*>(&at);
    if (bind(listener, address, length) != 0 || listen(listener, 1) != 0 || getsockname(listener, address, &length) != 0)
        return 1;
    Message m{};
    const pid_t peer = in_process([&] {
        close(fd);
        const int mine = no_delay(accept(listener, nullptr, nullptr));
        while (take_message(mine, m) && send_message(mine, m)) continue;
    });
    if (peer < 0 || connect(fd, address, length) != 0) return 1;
    bool good = true;
    measure("tcp", rounds, [&](uint32_t) { good = good && send_message(fd, m) && take_message(fd, m); });
    close(fd);
    while (wait(nullptr) > 0) continue;
    return good ? 0 : 1;
}

}  // namespace
}  // namespace roci::bench

int main(int argc, char** argv) {
    using namespace roci::bench;
    const std::string what = argc > 1 ? argv[1] : "";
    const auto number = [&](int i) { return uint32_t(std::strtoul(argv[i], nullptr, 10)); };
    if (argc > 2 && std::strcmp(argv[argc - 1], "sessions") == 0) {
        own_sessions = true;
        --argc;
    }
    if (what == "tcp" && argc == 3) return tcp(number(2));
    if (what == "spin" && argc == 3) return spin(number(2));
    if ((what == "yield" || what == "futex") && argc == 4) return chain(what == "futex", number(2), number(3));
    std::fputs("usage: shared_floors yield|futex LOOKS ROUNDS, or shared_floors spin|tcp ROUNDS; then \"sessions\" or nothing\n",
               stderr);
    return 2;
}
