// Epoch-based reclamation. The writer of shared tables determines when no reader can use a removed entry any more. The writer
// removes entries, advances the epoch and waits. The wait ends when each reader has noted the new epoch or is idle. A reader
// notes the epoch between two rounds of work, when it holds no reference. A sleeping reader may be idle. The writer does not
// wait for an idle reader and does not wake an idle reader.
//
// The order of memory accesses: - note() loads the epoch with acquire order, so the reader sees all removals that precede
// advance(). If the writer finds that a reader has noted the epoch or is idle, all earlier accesses of that reader have ended.
// - A reader that wakes up first stores that it is active (rouse), then loads the epoch (note). The writer first advances the
// epoch, then loads the reader's state. All four accesses are sequentially consistent. Therefore either the writer finds the
// reader active, or the reader loads the new epoch and sees all removals.
#pragma once

#include <atomic>
#include <cstdint>

namespace roci {

/// The epoch, which the writer advances.
class Epoch {
public:
    using Number = uint64_t;
    /// Starts a new epoch and returns its number.
    Number advance() { return now_.fetch_add(1, std::memory_order_seq_cst) + 1; }
    Number now() const { return now_.load(std::memory_order_seq_cst); }

private:
    alignas(64) std::atomic<Number> now_{1};
};

/// One reader. A new reader is idle.
class alignas(64) EpochReader {
public:
    /// Called by the reader between two rounds. Records the number of the current epoch. If the epoch is new, first calls
    /// `let_go`, which must drop all references that the reader keeps from one round to the next.
    template <class LetGo>
    void note(const Epoch& epoch, LetGo&& let_go) {
        const Epoch::Number now = epoch.now();
        if (now == noted_) return;
        let_go();
        noted_ = now;
        passed_.store(now, std::memory_order_release);
    }
    /// Called by the reader when it holds no reference. Marks the reader as idle. The reader reads no table until rouse().
    void rest() { passed_.store(kAtRest, std::memory_order_release); }
    /// Called by the reader. Marks the reader as active. The reader must call note() before it reads a table.
    void rouse() {
        noted_ = 0;
        passed_.exchange(0, std::memory_order_seq_cst);
    }
    /// Called by the writer. Returns true if the reader uses no entry that was removed before `epoch` began.
    bool passed(Epoch::Number epoch) const { return passed_.load(std::memory_order_seq_cst) >= epoch; }

private:
    static constexpr Epoch::Number kAtRest = ~Epoch::Number{0};
    std::atomic<Epoch::Number> passed_{kAtRest};
    Epoch::Number noted_ = 0;  ///< the last epoch that this reader noted
};

}  // namespace roci
