// Counts the moves of cache lines between cores, and their reasons. It models coherent, infinite caches (MESI without evictions)
// and gets every access. A line moves in two cases: a core reads bytes that another core has written since (a fetch), or a core
// writes to a line that another core holds (a take).
//
// A move is classified when the core loses the line again, by the bytes that the core accessed meanwhile:
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
    uint64_t falsely = 0, in_vain = 0;  ///< fetches and takes of the classes "false" and "in vain"
    uint64_t all() const { return fetches + takes; }
    void add(const Moves& m) {
        fetches += m.fetches, takes += m.takes;
        falsely += m.falsely, in_vain += m.in_vain;
    }
};

/// The accessed bytes of a line, one bit per byte.
struct Bytes {
    uint64_t read = 0, written = 0;
    uint64_t any() const { return read | written; }
};

struct Line {
    /// The time from the moment at which a core gets the line until another core takes it.
    struct Stay {
        bool moved = false;  ///< true if the line came from another core while moves were counted
        Bytes touched;
    };
    uint8_t holders = 0;  ///< one bit per core
    uint8_t writer = 0;   ///< the core that wrote last
    std::array<Stay, kCores> stay;
    std::array<Bytes, kCores> ever;
    std::array<const void*, kCores> where{};                     ///< the code that last moved the line to this core
    std::array<std::array<uint32_t, kCores>, kCores> between{};  ///< moves by core, [to][from]
    Moves moves;
};

class Lines {
public:
    /// What an access cost the core: nothing, a fetch or a take. `bytes` has one bit per accessed byte of the line.
    enum class Cost : uint8_t { none, fetch, take };
    Cost access(uint32_t core, uintptr_t line, uint64_t bytes, Access kind, const void* where);
    /// Counts from now on.
    void restart();
    /// Classifies the current moves, and stops counting.
    void stop();
    const std::unordered_map<uintptr_t, Line>& all() const { return lines_; }

private:
    std::unordered_map<uintptr_t, Line> lines_;
    bool stopped_ = false;
};

/// Returns the mask of bytes [from, from + n) of a line.
constexpr uint64_t byte_mask(uint32_t from, uint32_t n) { return (n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1) << from; }

}  // namespace roci::sharing
