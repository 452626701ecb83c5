// The daemon: creates all parts of rocid, runs the main loop, and destroys the parts in the right order.
#pragma once

#include <memory>

#include "config.hpp"
#include "control_socket.hpp"
#include "engine_host.hpp"
#include "kernel_net.hpp"
#include "metrics.hpp"
#include "os_platform.hpp"
#include "pmd_glue/huge_chunks.hpp"

namespace roci::rocid {

struct RunOptions {
    int ready_fd = -1;              ///< rocid writes "ready\n" to this descriptor when programs can connect
    uint32_t exit_when_idle_s = 0;  ///< rocid ends after this many seconds without a connection; 0: never
    bool verbose = false;
};

/// Returns a descriptor from which termination signals can be read. Ignores SIGPIPE, raises the soft limit of descriptors to the
/// hard limit, and installs the handler of SIGBUS. Must be called before any thread starts. Throws pmd::StartError.
int prepare_process();

class Daemon {
public:
    /// `signals` is the result of prepare_process(). Throws pmd::StartError.
    Daemon(const Config& config, const RunOptions& options, int signals);
    ~Daemon();

    /// Serves until a signal arrives, or until rocid had no connection for RunOptions::exit_when_idle_s.
    void run();

private:
    host::Reply handle(uint32_t session, const host::Client& who, std::span<const std::byte> packet, std::span<const int> fds,
                       bool& close);
    std::string status_json() const;
    void begin();
    /// Ends all parts that exist, in an order in which no thread uses a part that is gone. Also called if begin() fails.
    void end();
    void serve_metrics();
    std::string metrics();
    /// Calls Conductor::service() and sends deferred replies.
    void service();
    void end_robbed_sessions();
    /// If a port has a kernel interface: starts to receive the kernel's reports about links, addresses and neighbours, and
    /// connects the conductor (rocid's control thread) to the kernel's routes, neighbour table and multicast groups.
    void follow_kernel();
    void follow_addresses(int index);
    void serve_addresses(uint32_t device, std::span<const Gid> gids);
    void follow_links();
    void say_ready();
    SessionHandler session_handler();
    int wait_ms(int most) const;
    void on_signal();

    Config config_;  ///< without the devices whose port could not be opened
    const RunOptions options_;
    const int signals_;
    int huge_page_error_ = 0;  ///< the result of try_huge_page() at the start
    bool stop_ = false;
    int gsi_wake_ = -1;  ///< readable when management datagrams wait for the conductor

    Reaper reaper_;                          // destroyed after the members that use it
    MemoryBudget budget_;                    // also destroyed after the members that use it
    std::unique_ptr<ControlSocket> socket_;  // created before the EAL, so that rocid ends early if the socket is in use
    std::unique_ptr<pmd::Eal> eal_;
    std::unique_ptr<EnginePageMemory> page_;
    std::unique_ptr<CounterPage> counters_;
    std::unique_ptr<DevicePage> device_page_;
    std::unique_ptr<EventPipes> events_;
    pmd::HugeChunks chunks_;
    std::unique_ptr<qp::Shared> shared_;
    std::unique_ptr<Ports> ports_;
    std::unique_ptr<EngineHost> engines_;
    std::unique_ptr<Captures> captures_;
    std::unique_ptr<SlowThreads> slow_threads_;
    std::unique_ptr<OsPlatform> platform_;
    std::unique_ptr<KernelNet> kernel_;
    std::vector<std::vector<host::DeviceAddress>> followed_;  ///< last known addresses of the interface, by device
    std::unique_ptr<host::Conductor> conductor_;
    std::unique_ptr<TextRequest> status_request_;  ///< passes status texts from the control thread to the metrics thread
    std::unique_ptr<MetricsServer> metrics_;
};

}  // namespace roci::rocid
