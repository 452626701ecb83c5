#include "machine.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <latch>
#include <system_error>
#include <thread>
#include <vector>

#include "event_pipes.hpp"
#include "pmd_glue/eal.hpp"

namespace roci::rocid {
namespace {

constexpr unsigned kOtherThreads = 1     // EAL: interrupts
                                   + 1   // events
                                   + 2;  // at least one thread that closes descriptors, and one that accesses memory by address

int make_memfd() { return memfd_create("rocid-probe", MFD_CLOEXEC | MFD_ALLOW_SEALING); }

void check_sys(const std::string& sys) {
    const unsigned cpu = pmd::allowed_cpus().front();
    const std::string file = fmt::format("{}/devices/system/cpu/cpu{}/topology/core_id", sys, cpu);
    if (access(file.c_str(), R_OK) == 0) return;
    throw pmd::StartError(
        fmt::format("cannot read {} ({}): DPDK finds the CPUs there; mount -t sysfs sysfs /sys", file, std::strerror(errno)));
}

void check_memfd(int (*make)()) {
    const int fd = make();
    if (fd < 0)
        throw pmd::StartError(
            fmt::format("memfd_create is refused here ({}): rocid shares memory with programs by it; permit it in "
                        "the seccomp profile of the container",
                        std::strerror(errno)));
    close(fd);
}

/// Checks that rocid can start `wanted` threads: starts them and ends them again. If DPDK itself could not start a thread, DPDK
/// would abort the process and report no error.
void check_threads(unsigned wanted) {
    std::latch all(1);
    std::vector<std::thread> threads;
    threads.reserve(wanted);
    try {
        while (threads.size() < wanted) threads.emplace_back([&all] { all.wait(); });
    } catch (const std::system_error&) {
    }
    const size_t started = threads.size();
    all.count_down();
    for (std::thread& t : threads) t.join();
    if (started == wanted) return;
    throw pmd::StartError(
        fmt::format("only {} of {} threads can be started: raise the limit (pids limit of the container, TasksMax= of the unit, "
                    "ulimit -u), or lower engine.count",
                    started, wanted));
}

}  // namespace

MachineNeeds needs_of(unsigned engines) { return {"/sys", make_memfd, engines + EventPipes::kVectors - 1 + kOtherThreads}; }

void check_machine(const MachineNeeds& needs) {
    check_sys(needs.sys);
    check_memfd(needs.make_memfd);
    check_threads(needs.threads);
}

}  // namespace roci::rocid
