// The loop of an engine lcore. The lcore polls the engine, executes the commands of the conductor (rocid's control thread) and
// notifies the event thread. If there is no work, the lcore sleeps, unless IdlePolicy::sleeps is false. Before a sleep, the lcore
// checks all doorbells again, so it misses no doorbell. Fences do not wait for a sleeping lcore whose engine keeps no references
// to CQs.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

#include "abi/cpu_pace.hpp"
#include "abi/relax_cpu.hpp"
#include "lcore_commands.hpp"
#include "spin_memory.hpp"
#include "spin_time.hpp"
#include "wake_flag.hpp"

namespace roci::pmd {

struct IdlePolicy {
    bool sleeps = true;    ///< false: the lcore never sleeps
    bool adaptive = true;  ///< CpuPace determines when the lcore yields its CPU; false: `share_cpu` determines it
    /// Time without work after which the lcore sleeps. With `adaptive`, SpinTime makes it up to SpinTime::kMost times as long, or
    /// longer on a slow processor.
    Nanos spin = 50'000;
    Nanos max_sleep = kNever;
    Nanos look = 200'000;   ///< longest sleep while a waker cannot wake the lcore
    bool share_cpu = true;  ///< without `adaptive`: the lcore yields its CPU once per kMostLooks idle rounds
};

/// The lcore writes these counters. Any thread may read them.
struct LoopCounters {
    std::atomic<uint64_t> polls{0}, busy_polls{0}, sleeps{0}, commands{0};
    static void add(std::atomic<uint64_t>& c, uint64_t n) {
        c.store(c.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    }
};

/// `EngineT` is engine::Engine, or a fake in tests. `sleeping_for_clients` is the engine's flag `sleeping` in abi::EnginePage,
/// which clients read.
template <class EngineT, class ClockT>
class LcoreLoop {
public:
    /// `epoch` is the epoch of the tables that the engine reads.
    LcoreLoop(EngineT& engine, const ClockT& clock, const IdlePolicy& policy, uint32_t& sleeping_for_clients, WakeFlag& events,
              const Epoch& epoch)
        : engine_(engine),
          clock_(clock),
          policy_(policy),
          spin_(policy.spin, abi::syscall_ns()),
          sleeping_for_clients_(sleeping_for_clients),
          events_(events),
          epoch_(epoch) {}

    /// Runs until stop(). The calling thread becomes the engine's thread.
    void run() {
        lcore_.reader.rouse();
        seen_ = engine_.events().pushed();
        idle_since_ = clock_.now();
        while (!stop_.load(std::memory_order_relaxed)) {
            const Nanos now = clock_.now();
            if (round(now)) {
                found_work(now);
            } else {
                relax(now);
            }
        }
        end();
    }
    /// Ends run(). May be called by any thread.
    void stop() {
        stop_.store(true, std::memory_order_seq_cst);
        lcore_.wake.sleeper.wake();
    }
    /// Sets the wake flags of all lcores, by engine. The engine passes frames to other engines and wakes them. Called before
    /// run().
    void set_peers(std::vector<WakeFlag*> peers) { peers_ = std::move(peers); }
    /// Sets the ports whose before_sleep() and after_sleep() the lcore calls at each sleep. Called before run().
    void set_wakers(std::vector<Waker*> wakers) { wakers_ = std::move(wakers); }
    /// Sets a function that the lcore calls after a round with events, instead of waking the event thread. Called before run().
    void set_on_events(std::function<void()> f) { on_events_ = std::move(f); }
    WakeFlag& wake_flag() { return lcore_.wake; }
    Sleeper& sleeper() { return lcore_.wake.sleeper; }
    /// The interface by which the conductor controls this lcore.
    LcoreCommands& commands() { return lcore_; }
    /// Called by the conductor's thread. Executes the command without waking the lcore. Returns false and does nothing if the
    /// lcore is awake, if earlier commands wait, or if the command could cause work for the engine (is_quiet()).
    bool execute_asleep(const engine::Command& command) {
        if (!lcore_.loan.borrow()) return false;
        const bool next = !lcore_.ring.waiting() && engine_.is_quiet(command);
        if (next) {
            engine_.execute(command, clock_.now(), true);
            LoopCounters::add(counters_.commands, 1);
        }
        lcore_.loan.give_back();
        return next;
    }
    /// Returns the CpuPace object, which tests may change before run().
    abi::CpuPace& pace() { return pace_; }
    const LoopCounters& counters() const { return counters_; }

private:
    /// Largest number of rounds without work before a yield. With `adaptive`, the lcore yields earlier if another thread needs
    /// the CPU.
    static constexpr uint32_t kMostLooks = 64;
    /// Largest number of commands per round, so that many commands do not delay packets.
    static constexpr uint32_t kMostCommands = 4;

    void found_work(Nanos now) {
        if (idle_ && spins_) memory_.paid_off(message_);
        idle_ = false;
        idle_since_ = now;
        pace_.found();
    }
    /// Called in the first round without work, and after a sleep. Decides whether the lcore polls or sleeps at once. If work can
    /// arrive without waking the lcore, the lcore polls.
    void become_idle(Nanos now) {
        idle_ = true;
        polls_since_ = now;
        message_ = engine_.latest();
        spins_ = !policy_.adaptive || longest_sleep() <= policy_.look || memory_.worth(message_);
    }
    void relax(Nanos now) {
        abi::relax_cpu();
        if (!idle_) become_idle(now);
        contested_ = spins_ && (policy_.adaptive ? give_up_cpu() : share_cpu());
        const bool long_idle = now - idle_since_ >= spin_.get();
        if (!policy_.sleeps || !(contested_ || long_idle || !spins_)) return;
        if (contested_ || !spins_) engine_.stop_lingering();
        if (nap()) idle_since_ = clock_.now();
        idle_ = false;
    }
    /// Yields the CPU if CpuPace requires it. Returns true if the lcore should sleep because a busy program uses the same CPU.
    bool give_up_cpu() {
        const abi::CpuPace::Way way = pace_.in_vain();
        if (way == abi::CpuPace::Way::yield) {
            settle_sleepers();
            abi::yield_cpu(pace_);
        }
        return way == abi::CpuPace::Way::sleep;
    }
    bool share_cpu() {
        if (policy_.share_cpu && ++idle_rounds_ % kMostLooks == 0) {
            settle_sleepers();
            sched_yield();
        }
        return false;
    }
    bool round(Nanos now) {
        lcore_.reader.note(epoch_, [this] { engine_.let_go(); });
        bool worked = run_commands(now, kMostCommands);
        worked |= engine_.poll(now);
        wake_sleepers();
        announce_events();
        wake_peers();
        LoopCounters::add(counters_.polls, 1);
        if (worked) LoopCounters::add(counters_.busy_polls, 1);
        return worked;
    }
    bool run_commands(Nanos now, uint32_t most) {
        const uint32_t n = lcore_.ring.execute(most, [&](const engine::Command& c) { engine_.execute(c, now, false); });
        if (n != 0) LoopCounters::add(counters_.commands, n);
        return n != 0;
    }
    /// Called after the last round. Executes the commands in the ring, and closes the ring. The conductor refuses later commands.
    void end() {
        run_commands(clock_.now(), engine::CommandRing::kSize);
        engine_.settle_sleepers();  // publishes the counters
        lcore_.reader.rest();
        lcore_.ring.close();
    }
    void wake_sleepers() {
        if (engine_.sleepers().empty()) return;
        for (const rings::Sleeper& s : engine_.sleepers()) s.woke(wake_futex(s.word));
        engine_.sleepers().clear();
    }
    void settle_sleepers() {
        engine_.settle_sleepers();
        wake_sleepers();
    }
    void announce_events() {
        const uint32_t pushed = engine_.events().pushed();
        if (pushed == seen_) return;
        seen_ = pushed;
        if (on_events_) {
            on_events_();
        } else {
            events_.notify();
        }
    }
    void wake_peers() {
        for (uint32_t mask = engine_.take_wake_mask(); mask != 0; mask &= mask - 1)
            peers_[uint32_t(std::countr_zero(mask))]->notify();
    }
    void say_sleeping(uint32_t v) {
        std::atomic_ref(sleeping_for_clients_).store(v, std::memory_order_relaxed);
        lcore_.wake.sleeping.store(v, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    /// Sets the sleeping flags, checks every source of work again, and sleeps if there is no work. Returns false if the sleep
    /// ended at its time limit.
    bool nap() {
        say_sleeping(1);
        for (Waker* w : wakers_) w->before_sleep();
        const Waker::Slept how = sleep_if_still_idle();
        for (Waker* w : wakers_) w->after_sleep(how);
        say_sleeping(0);
        return how != Waker::Slept::until_time_was_up;
    }
    Waker::Slept sleep_if_still_idle() {
        using enum Waker::Slept;
        const Nanos now = clock_.now();
        if (lcore_.ring.waiting() || engine_.doorbell_pending() || round(now)) return not_at_all;
        settle_sleepers();
        const Nanos next = engine_.next_deadline(now);
        if (next <= now || stop_.load(std::memory_order_seq_cst)) return not_at_all;
        LoopCounters::add(counters_.sleeps, 1);
        const bool woken = sleep_at_rest(std::min(next - now, longest_sleep()));
        const Nanos end = clock_.now();
        engine_.slept(now, end, contested_);
        if (policy_.adaptive && spins_) learn(woken, now - polls_since_, end - now);
        return woken ? until_woken : until_time_was_up;
    }
    /// Called after a sleep that followed polling.
    void learn(bool woken, Nanos polled, Nanos slept) {
        if (woken && !contested_ && spin_.is_longest()) memory_.slept(message_, polled, slept);
        spin_.slept(slept);
    }
    /// Sleeps. If the engine keeps references to CQs, a fence must wake the lcore. Otherwise fences ignore the lcore during the
    /// sleep, and the conductor may borrow the engine. Returns true if the lcore was woken before the time limit.
    bool sleep_at_rest(Nanos time) {
        if (engine_.keeps_cqs()) return lcore_.wake.sleeper.sleep(time);
        lcore_.reader.rest();
        lcore_.loan.offer();
        const bool woken = lcore_.wake.sleeper.sleep(time);
        lcore_.loan.take_back();
        lcore_.reader.rouse();
        return woken;
    }
    Nanos longest_sleep() const {
        const bool all_wake = std::ranges::all_of(wakers_, [](const Waker* w) { return w->wakes(); });
        return all_wake ? policy_.max_sleep : std::min(policy_.max_sleep, policy_.look);
    }

    EngineT& engine_;
    const ClockT& clock_;
    const IdlePolicy policy_;
    SpinTime spin_;
    SpinMemory memory_;
    bool idle_ = false;      ///< become_idle() was called, and since then the lcore had no work and did not sleep
    bool spins_ = true;      ///< idle: the lcore polls before it sleeps
    uint32_t message_ = 0;   ///< idle: the last message (Engine::latest())
    Nanos polls_since_ = 0;  ///< idle: time of become_idle()
    uint32_t& sleeping_for_clients_;
    bool contested_ = false;  ///< a busy program uses the lcore's CPU
    WakeFlag& events_;
    std::function<void()> on_events_;
    const Epoch& epoch_;
    std::vector<WakeFlag*> peers_;
    std::vector<Waker*> wakers_;
    LcoreCommands lcore_;
    LoopCounters counters_;
    abi::CpuPace pace_{kMostLooks};
    Nanos idle_since_ = 0;
    uint32_t idle_rounds_ = 0;
    uint32_t seen_ = 0;
    std::atomic<bool> stop_{false};
};

}  // namespace roci::pmd
