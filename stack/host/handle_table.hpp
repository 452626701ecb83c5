// Stores a session's objects of one kind by handle. A handle is a small number, so that clients can use handles as indices. The
// generation of a slot increases when the slot's object is erased. A freed slot is not reused until kRest other slots have been
// freed.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

namespace roci::host {

template <class T, class Pointer = std::unique_ptr<T>>
class HandleTable {
public:
    static constexpr size_t kRest = 64;

    struct Place {
        uint32_t handle, generation;
    };

    /// Returns the handle and the generation that the next put() will assign. Some objects contain their own handle, so the
    /// caller needs these values before put().
    Place next() const {
        if (reuse()) return {free_.front(), slots_[free_.front()].generation};
        return {uint32_t(slots_.size()), 1};
    }
    T& put(Pointer object) {
        const Place p = next();
        if (p.handle == slots_.size()) {
            slots_.emplace_back();
        } else {
            free_.pop_front();
        }
        slots_[p.handle].object = std::move(object);
        ++count_;
        return *slots_[p.handle].object;
    }
    T* find(uint32_t handle) const { return handle < slots_.size() ? slots_[handle].object.get() : nullptr; }
    uint32_t generation(uint32_t handle) const { return slots_[handle].generation; }
    void erase(uint32_t handle) {
        slots_[handle].object.reset();
        ++slots_[handle].generation;
        free_.push_back(handle);
        --count_;
    }
    void clear() {
        slots_.clear();
        free_.clear();
        count_ = 0;
    }
    uint32_t count() const { return count_; }

    /// Calls f(handle, object) for each object, in order of handles.
    template <class F>
    void each(F&& f) const {
        for (uint32_t h = 0; h < slots_.size(); ++h) {
            if (slots_[h].object) f(h, *slots_[h].object);
        }
    }

private:
    struct Slot {
        Pointer object;
        uint32_t generation = 1;
    };
    bool reuse() const { return free_.size() > kRest; }

    std::vector<Slot> slots_;
    std::deque<uint32_t> free_;
    uint32_t count_ = 0;
};

}  // namespace roci::host
