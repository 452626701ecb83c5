// Epochs tell the writer of shared tables when no reader can still use what the writer has removed from them. The writer removes
// entries, advances the epoch and waits until all readers have passed it: each has noted the new epoch since, or is at rest.
// Readers note the epoch between two rounds of work, when they hold no reference, and rest while they sleep. The writer therefore
// waits for all of them at once and wakes none that rests.
//
// The order of memory accesses:
//   - A reader that notes an epoch reads what advance() wrote with acquire order, and so sees everything the writer has removed
//     before. The writer that finds the epoch noted, or the reader at rest, sees that the reader's earlier accesses are over.
//   - A reader that stops resting tells so first (rouse), then loads the epoch (note). The writer advances the epoch, then looks
//     whether the reader rests. All four are sequentially consistent: so the writer finds the reader awake, or the reader finds
//     the new epoch and with it everything that was removed.
#pragma once

#include <atomic>
#include <cstdint>

namespace roci {

/// The writer's end.
class Epoch {
public:
    using Number = uint64_t;
    /// Starts a new epoch and returns it.
    Number advance() { return now_.fetch_add(1, std::memory_order_seq_cst) + 1; }
    Number now() const { return now_.load(std::memory_order_seq_cst); }

private:
    alignas(64) std::atomic<Number> now_{1};
};

/// One reader. It is at rest when it is made.
class alignas(64) EpochReader {
public:
    /// Reader, between two rounds: notes the epoch. If it is a new one, calls `let_go` first, which must give up references that
    /// the reader keeps from round to round.
    template <class LetGo>
    void note(const Epoch& epoch, LetGo&& let_go) {
        const Epoch::Number now = epoch.now();
        if (now == noted_) return;
        let_go();
        noted_ = now;
        passed_.store(now, std::memory_order_release);
    }
    /// Reader: it keeps no reference and reads no table until rouse().
    void rest() { passed_.store(kAtRest, std::memory_order_release); }
    /// Reader: ends the rest. It must note() the epoch before it reads a table.
    void rouse() {
        noted_ = 0;
        passed_.exchange(0, std::memory_order_seq_cst);
    }
    /// Writer: true if the reader uses nothing that was removed before `epoch` began.
    bool passed(Epoch::Number epoch) const { return passed_.load(std::memory_order_seq_cst) >= epoch; }

private:
    static constexpr Epoch::Number kAtRest = ~Epoch::Number{0};
    std::atomic<Epoch::Number> passed_{kAtRest};
    Epoch::Number noted_ = 0;  ///< the reader's own copy
};

}  // namespace roci
