// Hierarchical timing wheel: O(1) arm and cancel, no allocation. A timer fires at the first tick at or after its deadline.
#pragma once

#include <bit>
#include <cstdint>

#include "base/types.hpp"

namespace roci {

/// A timer is embedded in the object that uses it. The wheel does not use `owner`; the callback of advance() may read `owner`.
struct Timer {
    Timer* next = nullptr;
    Timer** link = nullptr;  ///< the pointer that points to this timer; nullptr if the timer is not armed
    Nanos deadline = kNever;
    void* owner = nullptr;
    uint8_t level = 0, slot = 0;
    bool armed() const { return link != nullptr; }
};

class TimerWheel {
public:
    static constexpr Nanos kTick = 4096;  ///< in ns; the granularity of IBA's local ACK timeout
    static constexpr uint32_t kLevels = 6, kSlots = 64;

    void start(Nanos now) { tick_ = now / kTick; }

    /// Arms a timer or changes its deadline. The deadline kNever cancels the timer.
    void arm(Timer& t, Nanos deadline) {
        cancel(t);
        if (deadline == kNever) return;
        t.deadline = deadline;
        insert(t, tick_ + 1);
    }
    void cancel(Timer& t) {
        if (!t.armed()) return;
        *t.link = t.next;
        if (t.next != nullptr) t.next->link = t.link;
        if (heads_[t.level][t.slot] == nullptr) occupied_[t.level] &= ~(uint64_t{1} << t.slot);
        t.link = nullptr;
        t.next = nullptr;
    }
    /// Calls fire(Timer&) for each timer that is due. A fired timer is no longer armed; fire() may arm it again.
    template <class Fire>
    unsigned advance(Nanos now, Fire&& fire) {
        const uint64_t target = now / kTick;
        unsigned fired = 0;
        while (tick_ < target) {
            const uint64_t next = next_busy_tick();
            if (next > target) {
                tick_ = target;
                break;
            }
            tick_ = next;
            cascade();
            fired += fire_slot(fire);
        }
        return fired;
    }
    /// Returns a time at or before the first tick at which a timer fires. Returns kNever if no timer is armed.
    Nanos next_deadline() const {
        const uint64_t t = next_busy_tick();
        return t == ~uint64_t{0} ? kNever : t * kTick;
    }

private:
    static constexpr uint32_t kShift = 6;

    /// Puts the timer into the slot of its deadline. `earliest` is the first tick that may still fire.
    void insert(Timer& t, uint64_t earliest) {
        const uint64_t due = t.deadline / kTick + (t.deadline % kTick != 0);
        const uint64_t when = due > earliest ? due : earliest;
        uint32_t level = 0;
        const uint64_t differ = when ^ tick_;
        if (differ >= kSlots) level = (63u - uint32_t(std::countl_zero(differ))) / kShift;
        if (level >= kLevels) level = kLevels - 1;
        t.level = uint8_t(level);
        t.slot = uint8_t(when >> (level * kShift) & (kSlots - 1));
        Timer*& head = heads_[level][t.slot];
        t.next = head;
        t.link = &head;
        if (head != nullptr) head->link = &t.next;
        head = &t;
        occupied_[level] |= uint64_t{1} << t.slot;
    }
    /// Returns the first tick after tick_ at which a nonempty slot begins. This slot is in the lowest level that has a nonempty
    /// slot ahead of tick_.
    uint64_t next_busy_tick() const {
        for (uint32_t level = 0; level < kLevels; ++level) {
            if (occupied_[level] == 0) continue;
            const uint32_t shift = level * kShift;
            const uint32_t here = uint32_t(tick_ >> shift & (kSlots - 1));
            const uint64_t base = (tick_ >> shift) - here;
            const uint64_t ahead = here == kSlots - 1 ? 0 : occupied_[level] & (~uint64_t{0} << (here + 1));
            if (ahead != 0) return (base + uint32_t(std::countr_zero(ahead))) << shift;
            // only the top level wraps around
            if (level == kLevels - 1) return (base + kSlots + uint32_t(std::countr_zero(occupied_[level]))) << shift;
        }
        return ~uint64_t{0};
    }
    /// Moves the timers of each higher-level slot that begins at tick_ to lower levels.
    void cascade() {
        for (uint32_t level = kLevels - 1; level > 0; --level) {
            const uint32_t shift = level * kShift;
            if ((tick_ & ((uint64_t{1} << shift) - 1)) != 0) continue;
            const uint32_t slot = uint32_t(tick_ >> shift & (kSlots - 1));
            Timer* list = take(level, slot);
            while (list != nullptr) {
                Timer* t = list;
                list = t->next;
                t->link = nullptr;
                t->next = nullptr;
                insert(*t, tick_);
            }
        }
    }
    Timer* take(uint32_t level, uint32_t slot) {
        Timer* list = heads_[level][slot];
        heads_[level][slot] = nullptr;
        occupied_[level] &= ~(uint64_t{1} << slot);
        if (list != nullptr) list->link = nullptr;
        return list;
    }
    template <class Fire>
    unsigned fire_slot(Fire& fire) {
        unsigned fired = 0;
        const uint32_t slot = uint32_t(tick_ & (kSlots - 1));
        while (Timer* t = heads_[0][slot]) {
            cancel(*t);
            fire(*t);
            ++fired;
        }
        return fired;
    }

    uint64_t tick_ = 0;  ///< all ticks up to and including tick_ have been processed
    uint64_t occupied_[kLevels] = {};
    Timer* heads_[kLevels][kSlots] = {};
};

}  // namespace roci
