// Counts the moves of cache lines between cores and their reasons. It is a model of coherent, infinite caches (MESI without
// evictions), which gets every access. A line moves when a core reads bytes that another core has written since (a fetch), or
// writes to a line that another core holds (a take).
//
// A move is classified when the core loses the line again, by the bytes that it accessed meanwhile:
//   shared   bytes that another core wrote or reads: the purpose of shared memory
//   false    only bytes that no other core uses: they should be in another line
//   in vain  no bytes: the line was prefetched and not needed, or lost too soon
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>

namespace roci::sharing {

inline constexpr uint32_t kCores = 4, kLine = 64;

enum class Access : uint8_t { read, write, prefetch, prefetch_to_write };

/// The moves of a line.
struct Moves {
    uint64_t fetches = 0, takes = 0;
    uint64_t falsely = 0, in_vain = 0;  ///< of both
    uint64_t all() const { return fetches + takes; }
    void add(const Moves& m) {
        fetches += m.fetches, takes += m.takes;
        falsely += m.falsely, in_vain += m.in_vain;
    }
};

/// Bytes of a line, one bit per byte.
struct Bytes {
    uint64_t read = 0, written = 0;
    uint64_t any() const { return read | written; }
};

struct Line {
    /// From the moment when a core gets the line until another core takes it.
    struct Stay {
        bool moved = false;  ///< it came from another core while moves are counted
        Bytes touched;
    };
    uint8_t holders = 0;  ///< a bit a core
    uint8_t writer = 0;   ///< who wrote last
    std::array<Stay, kCores> stay;
    std::array<Bytes, kCores> ever;
    std::array<const void*, kCores> where{};                     ///< the code that last made it move to this core
    std::array<std::array<uint32_t, kCores>, kCores> between{};  ///< moves [to][from]
    Moves moves;
};

class Lines {
public:
    /// Accesses to bytes of one line; `bytes` has a bit each. What it was for the core: nothing, a fetch, a take.
    enum class Cost : uint8_t { none, fetch, take };
    Cost access(uint32_t core, uintptr_t line, uint64_t bytes, Access kind, const void* where);
    /// Counts from here on.
    void restart();
    /// Classifies the current moves, and stops counting.
    void stop();
    const std::unordered_map<uintptr_t, Line>& all() const { return lines_; }

private:
    std::unordered_map<uintptr_t, Line> lines_;
    bool stopped_ = false;
};

/// Bytes [from, from + n) of a line.
constexpr uint64_t byte_mask(uint32_t from, uint32_t n) { return (n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1) << from; }

}  // namespace roci::sharing
