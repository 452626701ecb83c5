// Creates the engines and the wrappers of their ports from the configuration, and runs the engines on lcores.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "captures.hpp"
#include "config.hpp"
#include "counter_page.hpp"
#include "engine/engine.hpp"
#include "event_pipes.hpp"
#include "pmd_glue/clock.hpp"
#include "pmd_glue/dpdk_port.hpp"
#include "pmd_glue/eal.hpp"
#include "pmd_glue/fault_port.hpp"
#include "pmd_glue/hairpin_port.hpp"
#include "pmd_glue/lcore_loop.hpp"
#include "pmd_glue/tap_writer.hpp"
#include "pmd_glue/udp_port.hpp"
#include "ports.hpp"
#include "qp/shared.hpp"

namespace roci::rocid {

class EngineHost final : public engine::CommandPort {
public:
    /// Throws pmd::StartError.
    EngineHost(const Config& config, pmd::Eal& eal, Ports& ports, qp::Shared& shared, abi::EnginePage& page,
               const CounterPage& counters, EventPipes& events);
    /// Stops the lcores.
    ~EngineHost() override;

    void start();
    uint32_t engines() const override { return uint32_t(workers_.size()); }
    engine::Ticket submit(uint32_t engine, const engine::Command& command) override;
    void wait(uint32_t engine, engine::Ticket ticket) override { workers_[engine]->loop->commands().wait(ticket); }
    void fence_all() override;

    std::vector<pmd::Sleeper*> sleepers();
    /// Returns the wake flags of the lcores, by engine.
    std::vector<pmd::WakeFlag*> wake_flags();
    std::vector<io::EventRing*> event_rings();
    /// Returns the taps of all ports, for captures.
    std::vector<TapPoint> taps();
    /// Returns the state of engines and ports as JSON, for `roci status`.
    std::string status_json() const;

private:
    using Loop = pmd::LcoreLoop<engine::Engine, pmd::Clock>;
    /// The port of one device on one engine, and the wrappers of the port. In the order from the wire to the engine, these are:
    /// DPDK port or UDP port; hairpin port; tap port; fault port if faults are configured. The engine uses the last of them,
    /// `top`.
    struct Stack {
        std::unique_ptr<pmd::DpdkPort> dpdk;  ///< nullptr if `udp` is used
        std::unique_ptr<pmd::UdpPort> udp;
        std::unique_ptr<pmd::HairpinPort> hairpin;
        std::unique_ptr<pmd::TapRing> ring;
        std::unique_ptr<pmd::TapPort> tap;
        std::unique_ptr<pmd::FaultPort> fault;
        io::Port* top = nullptr;
    };
    struct Worker {
        std::vector<Stack> stacks;  ///< by device
        std::unique_ptr<engine::Engine> engine;
        std::unique_ptr<Loop> loop;
        std::atomic<int> nice{0};  ///< nice value of the engine's thread
    };

    static void add_dpdk(nlohmann::json& j, const Stack& stack, const OpenPort& port);
    void start_taps();
    Stack make_stack(uint32_t device, uint32_t engine);
    void make_worker(uint32_t index, qp::Shared& shared, abi::EnginePage& page, const CounterPage& counters, EventPipes& events);
    void watch_ports(Worker& worker, uint32_t engine);
    void stop();

    const Config config_;
    pmd::Eal& eal_;
    const pmd::Clock clock_;
    Ports& ports_;
    Epoch epoch_;                                   ///< epoch of the tables that the conductor (rocid's control thread) writes
    std::vector<std::unique_ptr<Worker>> workers_;  ///< by engine
    std::unique_ptr<pmd::TapWriter> taps_;
    bool running_ = false;
};

}  // namespace roci::rocid
