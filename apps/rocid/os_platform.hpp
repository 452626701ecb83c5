// Implements host::Platform on Linux by memfds, mappings, pipes and eventfds.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "captures.hpp"
#include "device_page.hpp"
#include "event_pipes.hpp"
#include "hole_filler.hpp"
#include "host/conductor.hpp"
#include "memory_budget.hpp"
#include "pmd_glue/eal.hpp"
#include "pmd_glue/sleeper.hpp"
#include "reaper.hpp"
#include "slow_threads.hpp"

namespace roci::rocid {

/// The shared memory of the engine page, which contains the engines' sleeping flags. Only rocid can write to the page.
class EnginePageMemory {
public:
    /// Throws pmd::StartError.
    EnginePageMemory();
    ~EnginePageMemory();
    EnginePageMemory(const EnginePageMemory&) = delete;
    abi::EnginePage& page() { return *page_; }
    int fd() const { return fd_; }

private:
    int fd_ = -1;
    abi::EnginePage* page_ = nullptr;
};

/// Returns true if `length` is at most half of `available`, because rocid leaves the other half to other programs. Also returns
/// true if `available` is 0 (unknown).
bool leaves_enough(uint64_t length, uint64_t available);

class OsPlatform final : public host::Platform {
public:
    OsPlatform(EventPipes& pipes, EnginePageMemory& engine_page, pmd::Hugepages hugepages, Reaper& reaper, MemoryBudget& budget)
        : pipes_(pipes), engine_page_(engine_page), hugepages_(hugepages), budget_(budget), reaper_(reaper) {
        watch_budget();
    }
    ~OsPlatform() override;

    /// Sets the sleepers of the engines, by engine. make_wake_fd() adds eventfds to the sleepers.
    void set_sleepers(std::vector<pmd::Sleeper*> sleepers) { sleepers_ = std::move(sleepers); }
    /// Functions that query routes and neighbours of the kernel. The first argument is the device.
    struct KernelHooks {
        std::function<int(uint32_t, const Gid&, const Gid&, Gid&)> route;
        std::function<void(uint32_t, const Gid&)> solicit;
    };
    void set_follow_group(std::function<int(uint32_t, const Gid&, bool)> f) { follow_group_ = std::move(f); }
    void set_kernel(KernelHooks hooks) { kernel_ = std::move(hooks); }
    void set_status(std::function<std::string()> status) { status_ = std::move(status); }
    /// Sets the threads that access clients' memory by address. Without these threads, rocid does not access memory by address.
    void set_slow_threads(SlowThreads* threads) { slow_threads_ = threads; }
    void set_captures(Captures* captures) { captures_ = captures; }
    void set_counter_page(int fd) { counter_page_ = fd; }
    void set_device_page(DevicePage* page) { device_page_ = page; }
    /// Sets the client whose request or disconnection the conductor (rocid's control thread) handles next.
    void set_current_client(const host::Client& c) { current_ = c; }

    uint64_t random() override;
    host::SharedMemory make_memory(uint64_t length, std::string& why) override;
    host::SharedMemory map_chunk(int fd, uint64_t length, std::string& why) override;
    bool has_memory(uint64_t bytes, std::string& why) override;
    uint32_t client_flags() override;
    void free_memory(const host::SharedMemory&) override;
    bool is_lost(const host::SharedMemory&) const override;
    std::unique_ptr<mem::MappedRegion> map_region(int fd, uint64_t length, bool writable, std::string& why) override;
    void unmap_region(mem::MappedRegion&) override;
    bool identify_file(int fd, host::FileIdentity& out) override;
    void close_fd(int fd) override;
    std::unique_ptr<mem::RemoteProcess> remote_process(int pid) override;
    std::unique_ptr<mem::RemoteProcess> process_memory(int fd) override;
    int make_event_pipe(uint32_t session, uint32_t channel) override { return pipes_.make(session, channel); }
    void close_event_pipe(uint32_t session, uint32_t channel) override { pipes_.close(session, channel); }
    void send_async(uint32_t session, const abi::AsyncEventRecord& record) override { pipes_.send_async(session, record); }
    void signal_channel(uint32_t session, uint32_t channel, uint32_t number) override { pipes_.signal(session, channel, number); }
    int make_wake_fd(uint32_t session, uint32_t engine) override;
    void close_wake_fds(uint32_t session) override;
    int route(uint32_t device, const Gid& source, const Gid& dest, Gid& next) override {
        return kernel_.route ? kernel_.route(device, source, dest, next) : ENETUNREACH;
    }
    void solicit(uint32_t device, const Gid& address) override {
        if (kernel_.solicit) kernel_.solicit(device, address);
    }
    int follow_group(uint32_t device, const Gid& group, bool joined) override {
        return follow_group_ ? follow_group_(device, group, joined) : 0;
    }
    int engine_page_fd() override { return engine_page_.fd(); }
    int counter_page_fd() override { return counter_page_; }
    int device_page_fd() override { return device_page_ != nullptr ? device_page_->fd() : -1; }
    void publish_device(uint32_t device, const abi::DeviceSnapshot& now) override {
        if (device_page_ != nullptr) device_page_->publish(device, now);
    }
    std::string host_status_json() override { return status_ ? status_() : "{}"; }
    int make_text_fd(const std::string& text) override;
    uint32_t uid() const override { return geteuid(); }
    int start_capture(uint32_t session, const host::CaptureSpec& spec, std::string& why) override {
        return captures_->start(session, spec, why);
    }
    host::CaptureCounts stop_capture(uint32_t session) override { return captures_->stop(session); }

    /// Returns HoleFiller::users().
    size_t hole_users() const { return holes_.users(); }
    /// Returns a descriptor that becomes readable when renew_hole_credit() should be called.
    int hole_timer_fd() const { return holes_.timer_fd(); }
    /// Computes the memory that rocid may use for pages that clients have removed from registered memory (HoleFiller::renew).
    void renew_hole_credit();

    uint64_t mapped_regions() const { return mapped_lengths_.size(); }

private:
    void watch_budget();
    std::unique_ptr<mem::MappedRegion> map_shared(int fd, uint64_t length, bool writable, std::string& why);
    struct WakeFd {
        uint32_t engine;
        int fd;
    };
    EventPipes& pipes_;
    EnginePageMemory& engine_page_;
    const pmd::Hugepages hugepages_;
    MemoryBudget& budget_;
    HoleFiller holes_;
    bool fills_holes_ = false;  ///< watch_budget() has found a memory limit
    Reaper& reaper_;
    std::vector<pmd::Sleeper*> sleepers_;
    std::unordered_map<uint32_t, std::vector<WakeFd>> wake_fds_;
    std::unordered_map<const std::byte*, uint64_t> mapped_lengths_;                  ///< rounded length of each mapping, by base
    std::unordered_map<const std::byte*, std::unique_ptr<mem::MappedRegion>> made_;  ///< results of make_memory() and map_chunk()
    std::function<std::string()> status_;
    KernelHooks kernel_;
    std::function<int(uint32_t, const Gid&, bool)> follow_group_;
    host::Client current_;
    Captures* captures_ = nullptr;
    SlowThreads* slow_threads_ = nullptr;
    int counter_page_ = -1;
    DevicePage* device_page_ = nullptr;
};

}  // namespace roci::rocid
