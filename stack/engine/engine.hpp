// The engine does all work of one lcore, without I/O of its own. The inputs of the engine are frames, commands, doorbells and
// the time. Its outputs are frames, CQEs and events. One thread calls poll(). The engine never blocks. poll() itself makes no
// system call, except if a memory pool must grow, for example for frames that arrive out of order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/line_memory.hpp"
#include "base/time_source.hpp"
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
    uint32_t index = 0;            ///< number of this engine
    uint32_t rx_burst = 32;        ///< largest number of frames received from a port at once, 1..256
    uint32_t tx_burst = 32;        ///< largest number of frames passed to a port at once, 1..256
    uint32_t qp_quantum = 32;      ///< frames that a QP may send per turn (qp/run_queue.hpp)
    uint32_t max_inflight = 256;   ///< unacknowledged packets that a QP may have, 8..8192
    uint32_t ack_every = 32;       ///< a requester requests an ACK at least once per this number of packets
    bool loss_reports = false;     ///< exchanges loss reports with peers that support them
    bool selective_repeat = true;  ///< sends only lost packets again, if the peer keeps the packets behind a lost packet
    cc::Limits congestion{};       ///< the engine sets max_window to max_inflight
    std::vector<Nanos> targets{};  ///< by port: cc::Limits::target; empty: congestion.target for all ports
    uint32_t event_ring = 4096;
    uint32_t reorder_frames = 1024;  ///< distance from a missing PSN within which a QP keeps frames; rounded up to a power of two
    const TimeSource* clock = nullptr;  ///< clock of the caller of poll(), for ports whose bursts take long; nullptr: not needed
    uint64_t reorder_bytes = 32 << 20;  ///< bytes of memory for the kept frames of all QPs of the engine
};

/// External memory for the counters, such as a page that other processes may read. The engine does not own this memory. If
/// there is no external memory, the engine counts in memory of its own.
struct CounterPlaces {
    Counters* engine = nullptr;
    std::vector<qp::DeviceCounters*> devices;
};

/// The alignment prevents other threads from writing to the cache line that each call reads.
class alignas(64) Engine {
public:
    /// ports[i] belongs to device i. The ports are not owned and must outlive the engine.
    Engine(const Config& config, qp::Shared& shared, std::span<io::Port* const> ports, const CounterPlaces& counters = {});
    ~Engine();
    Engine(const Engine&) = delete;

    /// Runs one round: doorbells, transmission, frames of every port, and timers. Returns true if there was any work.
    bool poll(Nanos now);
    /// Executes one command. The thread that calls poll() calls this function. While that thread sleeps, another thread may
    /// call this function with `asleep` set.
    void execute(const Command& command, Nanos now, bool asleep = false);
    /// Returns true if the command leaves the engine no work, no events and no new references to CQs. Another thread may
    /// execute such a command while the engine's thread sleeps.
    bool is_quiet(const Command& command) const;
    /// Drops references that the engine keeps from one round to the next and whose objects may be freed soon. These objects are
    /// CQs without QPs, and QPs whose data the engine prefetches. Called by the thread that calls poll(), before this thread
    /// passes a fence (base/epoch.hpp).
    void let_go();
    /// Returns true if the engine must still notify clients about entries in CQs. These CQs must not be freed before let_go().
    bool keeps_cqs() const;
    /// Counts a command for which the conductor (rocid's control thread) had to wait because the ring was full. Called by the
    /// conductor, which is the only writer of this counter.
    void count_waited_command();
    /// Returns the next time at which poll() has work without new input. Returns kNever if only input causes work. If the result
    /// is not after `now`, there is work at once.
    Nanos next_deadline(Nanos now) const;
    /// Returns true if a doorbell is set, another engine has handed frames over, or a worker has completed a request for slow
    /// memory. Called after the lcore has set its sleeping flag.
    bool doorbell_pending() const;
    /// Returns a mask of engines. Bit e is set if frames were handed to engine e since the last call. The caller wakes those
    /// engines that sleep.
    uint32_t take_wake_mask();
    /// Returns the threads of clients that may sleep while they poll a CQ, and whose CQ has new entries. The caller wakes these
    /// threads after poll() and clears the list.
    LineVector<rings::Sleeper>& sleepers();
    /// Adds to sleepers() the threads that began to sleep while entries were written to their CQs. Also publishes the counters.
    /// Called before the lcore yields its CPU.
    void settle_sleepers();
    /// Removes QPs without work from the run queue in the next round. Their clients then ring the doorbell. Called before the
    /// engine sleeps.
    void stop_lingering();
    /// Reports that the lcore slept in this interval. `contested` means that other threads want the same CPU. Then a frame that
    /// wakes the lcore may wait long for the CPU.
    void slept(Nanos from, Nanos to, bool contested = false);
    /// Returns a number for the QP and the direction of the last message (qp::Context::latest).
    uint32_t latest() const;
    io::EventRing& events();
    /// Returns a description of a violated invariant of a QP, or nullptr. For tests, between rounds.
    const char* check() const;
    /// Any thread may read the counters. The counters of frames and messages are published every 128 rounds and by
    /// settle_sleepers().
    const Counters& counters() const;
    const qp::DeviceCounters& device_counters(uint32_t device) const;

    struct Impl;

private:
    std::unique_ptr<Impl> impl_;
};

}  // namespace roci::engine
