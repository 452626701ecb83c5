// The memory of the explorer, after the operational models of C++ with views (Kang et al., POPL 2017, without promises). Each
// location has its stored values in modification order. A thread has a view: per location, the oldest value that it may still
// load. A value that was stored with release order carries the view of its thread, and a load with acquire order adds this view
// to the loading thread's.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "explorer.hpp"

namespace roci::weak {

inline constexpr size_t kMostThreads = 4, kMostLocations = 48;  // at most 64 locations: `read` and `news` are sets of bits

/// What a thread knows: the oldest value per location that the thread may load, and the earlier operations that happened before
/// its current operation (a vector clock).
struct Knowledge {
    std::array<uint16_t, kMostLocations> view{};
    std::array<uint16_t, kMostThreads> clock{};
};

struct Value {
    uint64_t bits = 0;
    uint16_t rank = 0;     ///< position in the modification order of the location
    bool updated = false;  ///< an update has read this value, so the update's value is the next one in modification order
    Knowledge carries;
};

struct Location {
    uintptr_t address;
    size_t size;
    std::vector<Value> values;    ///< in the order in which they were stored; views contain indices of this vector
    std::vector<uint16_t> order;  ///< the indices in modification order
};

struct ThreadState {
    Knowledge now;
    Knowledge acquired;  ///< what an acquire fence adds to `now`
    Knowledge released;  ///< what relaxed stores carry since the last release fence
    uint64_t read = 0;   ///< locations that this thread has read since the start of its last try (until)
    uint64_t news = 0;   ///< locations that other threads have changed since then
    const char* step = "";
};

/// Chooses one of `n` possibilities. The explorer calls the program again until each possibility was chosen.
using Choose = std::function<uint32_t(uint32_t n)>;

class Memory {
public:
    Memory(Choose choose, std::vector<std::pair<void*, size_t>> shared, size_t count);
    bool contains(uintptr_t address) const;

    uint64_t load(size_t thread, Access a, bool newest);
    void store(size_t thread, Access a, uint64_t value);
    uint64_t update(size_t thread, Access a, const Change& change, int order_of_failure, bool newest);
    void fence(size_t thread, int order);
    void plain(size_t thread, uintptr_t address, size_t size, bool writes);

    std::array<ThreadState, kMostThreads> threads;
    uint64_t stores = 0;  ///< number of stores and updates so far
    std::string race;     ///< the first data race

private:
    enum Use : uint8_t { plain_read, plain_write, atomic_read, atomic_write, kUses };
    struct Byte {
        std::array<std::array<uint16_t, kMostThreads>, kUses> used{};  ///< the clock of each thread's last use, 0: none
        std::array<const char*, kMostThreads> step{};
    };
    size_t at(const Access& a);
    uint16_t oldest(size_t thread, size_t location, int order) const;
    void join(Knowledge& to, const Knowledge& from, bool clock = true) const;
    void see(size_t thread, size_t location, uint16_t value, int order);
    void put(size_t thread, size_t location, uint16_t rank, uint64_t bits, int order, const Value* after);
    void use(size_t thread, uintptr_t address, size_t size, Use use);

    Choose choose_;
    std::vector<std::pair<void*, size_t>> shared_;
    size_t thread_count_;
    std::vector<Location> locations_;
    std::array<uint16_t, kMostLocations> sequential_{};  ///< the view of all sequentially consistent operations
    std::unordered_map<uintptr_t, Byte> bytes_;
};

}  // namespace roci::weak
