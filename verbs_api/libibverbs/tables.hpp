// Tables that map numbers to objects. IndexTable is for posts and polls: a lookup takes no lock. HandleMap is for events: a
// lookup increments the object's event counter under the table's lock. Registry is for rare lookups.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>

namespace roci::client {

/// Maps a 24-bit number (QPN, SRQ handle) to an object. The table is an array of 4096 pointers to leaves of 4096 entries.
/// insert() allocates a leaf at its first use. Only the destructor frees leaves.
template <class T>
class IndexTable {
public:
    static constexpr uint32_t kLimit = 1u << 24;

    IndexTable() = default;
    IndexTable(const IndexTable&) = delete;
    IndexTable& operator=(const IndexTable&) = delete;
    ~IndexTable() {
        for (auto& leaf : root_) delete leaf.load(std::memory_order_relaxed);
    }

    T* find(uint32_t index) const {
        if (index >= kLimit) return nullptr;
        const Leaf* leaf = root_[index >> kBits].load(std::memory_order_acquire);
        return leaf != nullptr ? leaf->slot[index & kMask].load(std::memory_order_acquire) : nullptr;
    }
    /// Returns false if the number is too large or memory ran out.
    bool insert(uint32_t index, T* object) {
        if (index >= kLimit) return false;
        std::lock_guard guard(mutex_);
        auto& entry = root_[index >> kBits];
        Leaf* leaf = entry.load(std::memory_order_relaxed);
        if (leaf == nullptr) {
            leaf = new (std::nothrow) Leaf();
            if (leaf == nullptr) return false;
            entry.store(leaf, std::memory_order_release);
        }
        leaf->slot[index & kMask].store(object, std::memory_order_release);
        return true;
    }
    /// Removes `object`. Does nothing if another object now has this number.
    void erase(uint32_t index, T* object) {
        if (find(index) == nullptr) return;
        Leaf* leaf = root_[index >> kBits].load(std::memory_order_acquire);
        leaf->slot[index & kMask].compare_exchange_strong(object, nullptr, std::memory_order_acq_rel);
    }

private:
    static constexpr uint32_t kBits = 12;
    static constexpr uint32_t kMask = (1u << kBits) - 1;
    struct Leaf {
        std::array<std::atomic<T*>, 1u << kBits> slot{};
    };
    std::array<std::atomic<Leaf*>, 1u << kBits> root_{};
    std::mutex mutex_;
};

/// Maps a number to an object. All accesses take the lock.
template <class T>
class Registry {
public:
    void insert(uint32_t number, T* object) {
        std::lock_guard guard(mutex_);
        objects_[number] = object;
    }
    void erase(uint32_t number, T* object) {
        std::lock_guard guard(mutex_);
        if (auto it = objects_.find(number); it != objects_.end() && it->second == object) objects_.erase(it);
    }
    /// Calls f(object) under the lock, or f(nullptr) if no object has this number. No thread can erase the object during the
    /// call.
    template <class F>
    auto with(uint32_t number, F&& f) {
        std::lock_guard guard(mutex_);
        const auto it = objects_.find(number);
        return f(it != objects_.end() ? it->second : nullptr);
    }

private:
    std::mutex mutex_;
    std::unordered_map<uint32_t, T*> objects_;
};

/// Maps handles to objects that can have events. T has a field `uint32_t generation`.
template <class T>
class HandleMap {
public:
    void insert(uint32_t handle, T* object) {
        std::lock_guard guard(mutex_);
        objects_[handle] = object;
    }
    /// Removes `object`, so that no further event is delivered for it.
    void erase(uint32_t handle, T* object) {
        std::lock_guard guard(mutex_);
        if (auto it = objects_.find(handle); it != objects_.end() && it->second == object) objects_.erase(it);
    }
    /// Finds the object of an event record and increments the object's `counter`. Returns nullptr if the object was destroyed.
    T* deliver(uint32_t handle, uint32_t generation, uint32_t T::*counter) {
        std::lock_guard guard(mutex_);
        const auto it = objects_.find(handle);
        if (it == objects_.end() || it->second->generation != generation) return nullptr;
        ++(it->second->*counter);
        return it->second;
    }
    /// Calls f(object) under the lock for each object, until f returns true. Returns false if no call returned true.
    template <class F>
    bool any(F&& f) {
        std::lock_guard guard(mutex_);
        for (const auto& [handle, object] : objects_)
            if (f(*object)) return true;
        return false;
    }

private:
    std::mutex mutex_;
    std::unordered_map<uint32_t, T*> objects_;
};

}  // namespace roci::client
