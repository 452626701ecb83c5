// A fixture with an OsPlatform, the objects that the platform needs, and a function that makes memory of a client.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "apps/rocid/event_pipes.hpp"
#include "apps/rocid/os_platform.hpp"

namespace roci::rocid {

inline constexpr uint64_t kPage = 4096;

inline int client_memory(uint64_t length, char fill = 'x') {
    const int fd = memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const std::string bytes(length, fill);
    EXPECT_EQ(write(fd, bytes.data(), length), ssize_t(length));
    return fd;
}

inline int open_descriptors() {
    int n = 0;
    for (int fd = 0; fd < 256; ++fd) n += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return n;
}

struct Platform : testing::Test {
    EventPipes pipes;
    EnginePageMemory page;
    pmd::Sleeper sleeper;
    Reaper reaper;
    MemoryBudget budget;
    OsPlatform platform{pipes, page, pmd::Hugepages::never, reaper, budget};
    std::string why;
    pmd::WakeFlag lcore;
    SlowThreads slow_threads{{&lcore}};
    void SetUp() override {
        platform.set_sleepers({&sleeper});
        platform.set_slow_threads(&slow_threads);
    }
    void TearDown() override { pipes.stop(); }
    int settled_descriptors() const {
        EXPECT_TRUE(reaper.drain(10'000));
        return open_descriptors();
    }
};

}  // namespace roci::rocid
