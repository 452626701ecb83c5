// A model of the caches of a few cores. It counts the moves of cache lines between cores, and their reasons. The caches are
// coherent (MESI) and never evict a line. The caller passes every access to the model. A line moves in two cases:
//   fetch    a core reads or prefetches a line that it does not hold and another core holds
//   take     a core writes a line that another core holds, or prefetches such a line for writing
//
// The stay of a line at a core ends when any core takes the line. The model then classifies the move that began the
// stay. The class depends on the bytes that the core accessed during the stay:
//   shared   the core read bytes that another core writes, or wrote bytes that another core reads or writes
//   false    the core accessed only bytes that are not shared in this way: they should be in another line
//   in vain  the core accessed no byte: the line was prefetched and not needed, or was lost too soon
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>

namespace roci::sharing {

inline constexpr uint32_t kCores = 4, kLine = 64;

enum class Access : uint8_t { read, write, prefetch, prefetch_to_write };

/// The number of moves of a line.
struct Moves {
    uint64_t fetches = 0, takes = 0;
    uint64_t falsely = 0, in_vain = 0;  ///< moves of the class "false" and of the class "in vain"
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
    /// The time from the arrival of the line at a core until any core takes the line.
    struct Stay {
        bool moved = false;  ///< the line came from another core while moves were counted
        Bytes touched;
    };
    uint8_t holders = 0;  ///< cores that hold the line, one bit per core
    uint8_t writer = 0;   ///< the core that wrote last
    std::array<Stay, kCores> stay;
    std::array<Bytes, kCores> ever;
    std::array<const void*, kCores> where{};                     ///< the code that last moved the line to this core
    std::array<const void*, kCores> written_by{};                ///< the code of the last write while moves were counted
    std::array<std::array<uint32_t, kCores>, kCores> between{};  ///< moves by core, [to][from]
    Moves moves;
};

class Lines {
public:
    /// The cost of an access: nothing, a fetch or a take. The argument `bytes` of access() has one bit per accessed
    /// byte of the line.
    enum class Cost : uint8_t { none, fetch, take };
    Cost access(uint32_t core, uintptr_t line, uint64_t bytes, Access kind, const void* where);
    /// Resets the numbers of moves to zero.
    void restart();
    /// Ends all stays, classifies their moves, and stops counting.
    void stop();
    const std::unordered_map<uintptr_t, Line>& all() const { return lines_; }

private:
    std::unordered_map<uintptr_t, Line> lines_;
    bool stopped_ = false;
};

/// Returns the mask of bytes [from, from + n) of a line.
constexpr uint64_t byte_mask(uint32_t from, uint32_t n) { return (n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1) << from; }

}  // namespace roci::sharing
