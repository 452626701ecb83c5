// Hosts on one network with one virtual clock. A host has a conductor (rocid's control thread), engines and devices, as a rocid
// has.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/slab.hpp"
#include "engine/command_ring.hpp"
#include "engine/counters.hpp"
#include "engine/engine.hpp"
#include "host/conductor.hpp"
#include "sim/client.hpp"
#include "sim/network.hpp"
#include "sim/platform.hpp"

namespace roci::sim {

/// Times in which the threads of a host's engines have no CPU.
struct Pauses {
    Nanos apart = 0;    ///< longest time from the end of a pause to the next one; 0: no pauses
    Nanos longest = 0;  ///< longest pause
};

struct WorldOptions {
    uint64_t seed = 1;
    uint32_t hosts = 2;
    uint32_t devices = 1;     ///< per host
    uint32_t engines = 1;     ///< per host
    uint32_t users = 1;       ///< number of uids, which clients get in turn; 1: every client is root
    uint32_t tx_pool = 1024;  ///< frames per port
    uint32_t rx_lends = 256;  ///< received frames that an engine may keep per port
    uint32_t best_burst = 1;  ///< frames per burst that each port prefers; larger: bursts are expensive
    Nanos round_cost = 200;   ///< virtual time that a round of an engine takes
    /// If true, commands pass through rings, and the engines run rounds while a conductor waits for a command. If
    /// false, a command is executed at once.
    bool commands_travel = false;
    engine::Config engine{};  ///< the host sets the member `index`
    host::Resolver resolver = host::Resolver::none;
    uint16_t vlan = 0;                                 ///< VLAN of every device
    uint8_t traffic_class = 0;                         ///< traffic class of every device
    cc::Policy congestion = cc::Policy::fixed_window;  ///< congestion control of every device
    bool port_sums = false;                            ///< the ports of the network compute and check IPv4 header checksums
    bool port_icrc = false;                            ///< the ports of the network compute the ICRC
    /// Creates the port of an endpoint and an engine. This port replaces the port of the network (for benchmarks).
    std::function<io::Port*(uint32_t endpoint, uint32_t engine)> port;
    bool checks = true;  ///< the invariants of the engines are checked after every round
    ChunkSource* chunks = &HeapChunks::instance();
    host::Limits limits{.max_sessions = 64, .max_qps = 4096, .max_keys = 4096, .max_ahs = 256};
};

class World;

/// A host with a conductor and engines, as one rocid has.
class Host final : public engine::CommandPort {
public:
    Host(World& world, uint32_t number, const WorldOptions& o);
    ~Host() override;

    host::Conductor& conductor() { return *conductor_; }
    /// Returns the conductor after it has processed expired timers, as rocid does before each request.
    host::Conductor& serviced();
    void close_session(uint32_t session);
    SimPlatform& platform() { return platform_; }
    const host::DeviceConfig& device(uint32_t d) const { return devices_[d]; }
    uint32_t endpoint(uint32_t device) const { return first_endpoint_ + device; }
    engine::Engine& engine(uint32_t e) { return *engines_[e]; }
    uint64_t counter(engine::Counter c) const;
    uint64_t counter(wire::Verdict v) const;
    qp::Shared& shared() { return *shared_; }
    uint32_t user_of(int pid) const { return users_ == 1 ? 0 : 1000 + uint32_t(pid) % users_; }

    // The interface CommandPort.
    uint32_t engines() const override { return uint32_t(engines_.size()); }
    engine::Ticket submit(uint32_t engine, const engine::Command& command) override;
    void wait(uint32_t engine, engine::Ticket ticket) override;
    void fence_all() override;

    /// Executes one round of every engine, passes events on, and runs the conductor if its deadline has come. Returns true if an
    /// engine, a worker or the conductor had work.
    bool poll();
    /// Executes one round of every engine, without the conductor. Returns true if an engine or a worker had work.
    bool poll_engines();
    /// Returns true if an engine has events that were not passed on yet.
    bool has_events() const;
    Nanos next_deadline() const;
    /// Runs the world until a deferred reply is ready.
    host::Reply await_reply(uint32_t session);
    void add_client(uint32_t session, Client* c) { clients_[session] = c; }
    void remove_client(uint32_t session) { clients_.erase(session); }
    /// The engines execute no round before the time `until`.
    void pause(Nanos until) { paused_until_ = until; }
    /// Pauses the engines at random times. The same seed of the world causes the same pauses.
    void pause_at_random(const Pauses& p);
    /// Reports to the engines that they slept from `slept_from` to `now`. Does nothing if the engines had no CPU at
    /// `slept_from`.
    void wake(Nanos slept_from, Nanos now);
    /// Stops the host. Returns a text about leaks, which is empty if there are none.
    std::string shut_down();

private:
    bool run_commands(uint32_t engine);
    bool poll_engine(uint32_t engine);
    bool has_cpu();
    void drain_events(uint32_t engine);
    World& world_;
    const bool commands_travel_, checks_;
    std::vector<std::unique_ptr<engine::CommandRing>> commands_;  ///< by engine
    uint32_t first_endpoint_ = 0, users_ = 1;
    Pauses pauses_;
    Rng pause_rng_;
    Nanos paused_until_ = 0, next_pause_ = kNever;
    std::vector<host::DeviceConfig> devices_;
    std::vector<io::PortAddresses> addresses_;
    std::unique_ptr<qp::Shared> shared_;
    SimPlatform platform_;
    std::vector<std::unique_ptr<engine::Engine>> engines_;
    std::unique_ptr<host::Conductor> conductor_;
    std::map<uint32_t, Client*> clients_;
};

class World {
public:
    explicit World(const WorldOptions& o = {});
    ~World();

    Host& host(uint32_t h) { return *hosts_[h]; }
    uint32_t hosts() const { return uint32_t(hosts_.size()); }
    Network& net() { return net_; }
    Rng& rng() { return rng_; }
    Nanos now() const { return now_; }
    const Nanos& clock() const { return now_; }

    /// Runs until `done` returns true, until no further event can occur, or until `at_most` has passed. Returns true
    /// only if `done` has returned true.
    bool run_until(const std::function<bool()>& done, Nanos at_most = 100'000'000'000);
    /// Runs for at least `time`.
    void run_for(Nanos time);
    /// Runs until no event can occur without new input.
    bool run_idle(Nanos at_most = 100'000'000'000) {
        return run_until([] { return false; }, at_most), idle_;
    }
    /// Executes one round of all engines. Called while a conductor waits for the engines.
    void run_engines();
    bool idle() const { return idle_; }
    uint64_t rounds() const { return rounds_; }

    /// Stops all hosts. Returns a text about leaked objects, frames or memory, which is empty if there are none.
    std::string shut_down();

private:
    bool round();
    /// If the last round had work, advances the clock by the cost of a round. Otherwise advances the clock to the
    /// next event, and returns false if there is none.
    bool advance(bool worked, Nanos end);

    Rng rng_;
    Nanos now_ = 1'000'000;
    WorldOptions options_;
    Network net_;
    std::vector<std::unique_ptr<Host>> hosts_;
    bool idle_ = false;
    uint64_t rounds_ = 0;
};

}  // namespace roci::sim
