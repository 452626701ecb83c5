// The ring of commands from the conductor (rocid's control thread) to one engine lcore.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "engine/command_port.hpp"

namespace roci::engine {

class CommandRing {
public:
    static constexpr uint32_t kSize = 64;

    // ---- called by the conductor's thread

    /// Returns false if the ring is full.
    bool push(const Command& command, Ticket& ticket) {
        const Ticket n = pushed_.load(std::memory_order_relaxed);
        if (n - executed_.load(std::memory_order_acquire) >= kSize) return false;
        slots_[n % kSize] = command;
        pushed_.store(n + 1, std::memory_order_release);
        ticket = n + 1;
        return true;
    }
    bool done(Ticket ticket) const { return executed_.load(std::memory_order_acquire) >= ticket; }
    /// Returns true if the lcore has ended and executes no more commands.
    bool closed() const { return closed_.load(std::memory_order_acquire); }
    /// Refuses all commands that remain in a closed ring.
    void refuse_all(int error) {
        execute(kSize, [=](const Command& c) { refuse(c, error); });
    }

    // ---- called by the lcore

    bool waiting() const { return pushed_.load(std::memory_order_acquire) != executed_.load(std::memory_order_relaxed); }
    /// Calls `run` for at most `most` commands that are in the ring at the time of the call. Ignores commands that are pushed
    /// later. Returns the number of commands executed.
    template <class Run>
    uint32_t execute(uint32_t most, Run&& run) {
        Ticket n = executed_.load(std::memory_order_relaxed);
        const auto due = uint32_t(std::min<Ticket>(pushed_.load(std::memory_order_acquire) - n, most));
        for (uint32_t i = 0; i < due; ++i) {
            run(slots_[n % kSize]);
            executed_.store(++n, std::memory_order_release);
        }
        return due;
    }
    /// Closes the ring. This call is the lcore's last access to the ring.
    void close() { closed_.store(true, std::memory_order_release); }

private:
    alignas(64) std::atomic<Ticket> pushed_{0};
    alignas(64) std::atomic<Ticket> executed_{0};
    std::atomic<bool> closed_{false};
    std::array<Command, kSize> slots_;
};

}  // namespace roci::engine
