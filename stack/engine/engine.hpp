// The engine: all work of one lcore, sans-IO. Its inputs are frames, commands, doorbells and `now`; its outputs are frames, CQEs
// and events. One thread calls poll(). The engine never blocks, makes no system call, and allocates memory only during
// construction and commands.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cc/controller.hpp"
#include "engine/command.hpp"
#include "io/event.hpp"
#include "io/port.hpp"
#include "mem/memory_region.hpp"
#include "qp/counters.hpp"
#include "qp/shared.hpp"
#include "rings/queues.hpp"

namespace roci::engine {

struct Counters;  // counters.hpp

struct Config {
    uint32_t index = 0;            ///< which engine this is
    uint32_t rx_burst = 32;        ///< frames taken from a port at once, 1..256
    uint32_t tx_burst = 32;        ///< frames handed to a port at once, 1..256
    uint32_t qp_quantum = 32;      ///< frames a QP may send before the next one has its turn
    uint32_t max_inflight = 256;   ///< unacknowledged packets a QP may have, 8..8192
    uint32_t ack_every = 32;       ///< a requester asks for an ACK at least every so many packets
    bool selective_repeat = true;  ///< lost packets alone are sent again where the peer keeps the others
    cc::Limits congestion{};       ///< its window follows max_inflight
    uint32_t event_ring = 4096;
    uint32_t reorder_frames = 1024;     ///< PSNs behind a missing one for which a QP keeps frames, a power of two; 0: none
    uint64_t reorder_bytes = 32 << 20;  ///< memory for kept frames of all QPs
};

/// Where an engine counts, if not in memory of its own: in a page that others may read. Kept, not owned.
struct CounterPlaces {
    Counters* engine = nullptr;
    std::vector<qp::DeviceCounters*> devices;
};

class Engine {
public:
    /// ports[i] is device i; kept, not owned.
    Engine(const Config& config, qp::Shared& shared, std::span<io::Port* const> ports, const CounterPlaces& counters = {});
    ~Engine();
    Engine(const Engine&) = delete;

    /// One round: doorbells, frames of every port, timers, transmission. True if there was anything to do.
    bool poll(Nanos now);
    /// Runs one command now. Called by the thread that polls.
    void execute(const Command& command, Nanos now);
    /// Gives up references that the engine keeps from round to round to objects about to be freed: CQs without QPs, and QPs whose
    /// data it prefetches. Called by the thread that polls, before it notes a new epoch (base/epoch.hpp).
    void let_go();
    /// True: the engine still has to notify somebody of entries in CQs. These must not be freed before let_go().
    bool keeps_cqs() const;
    /// Called by the conductor's thread, the only writer of this counter.
    void count_waited_command();
    /// The next time at which poll() has work without new input. kNever: only with input; <= now: at once.
    Nanos next_deadline(Nanos now) const;
    /// True if a doorbell is set, another engine has handed frames over, or a worker has reached slow memory: checked after the
    /// sleeping flag was raised.
    bool doorbell_pending() const;
    /// Bit e: frames were handed to engine e since the last call; wake it if it sleeps.
    uint32_t take_wake_mask();
    /// Threads of clients that sleep while they poll, to be woken after poll(); the caller clears the list.
    std::vector<rings::Sleeper>& sleepers();
    /// Called before the lcore yields its CPU: checks once more for such threads.
    void settle_sleepers();
    /// Called before the engine sleeps: from the next round on it does not watch QPs without work; their clients ring the
    /// doorbell.
    void stop_lingering();
    /// The lcore was asleep.
    void slept(Nanos from, Nanos to);
    io::EventRing& events();
    /// For tests, between rounds: the violated invariant of a QP, or nullptr.
    const char* check() const;
    /// Readable from any thread.
    const Counters& counters() const;
    const qp::DeviceCounters& device_counters(uint32_t device) const;

    struct Impl;

private:
    std::unique_ptr<Impl> impl_;
};

}  // namespace roci::engine
