// Adds up the moves of cache lines per data structure. Compares the moves per message with the permitted numbers.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lines.hpp"

namespace roci::sharing {

/// The permitted number of moves per message of the lines of a structure, and the reason.
struct Limit {
    const char* structure;
    double most;
    const char* why;
};

class Account {
public:
    /// Counts the moves during `messages` messages, after a warm-up of `warm_up` messages. The first `engines` cores
    /// run engines.
    Account(uint32_t engines, uint64_t warm_up, uint64_t messages) : engines_(engines), warm_up_(warm_up), messages_(messages) {}
    Lines& lines() { return lines_; }

    /// Gives a name to a range of memory. Lines without a name are counted as kUnnamed and must not move.
    void name(const void* from, size_t bytes, const char* structure);
    /// Must be called once per message, when the message is complete.
    void completed();
    /// Returns true if all messages of the measurement are complete.
    bool over() const { return done_ >= warm_up_ + messages_; }

    /// Returns the moves by structure.
    std::map<std::string, Moves> rows() const;
    /// Returns the number of wrong moves, which should be 0. Wrong moves are false moves and moves between engines. If
    /// a line has both kinds, only the larger of its two numbers is added.
    uint64_t wrong() const;
    double a_message(uint64_t moves) const { return double(moves) / double(messages_); }
    /// Returns one text per violation of the limits.
    std::vector<std::string> faults(std::span<const Limit> limits) const;

private:
    struct Range {
        uintptr_t end;
        const char* structure;
    };
    std::string structure_of(uintptr_t line) const;
    std::string describe(uintptr_t at, const Line& line) const;
    uint64_t between_engines(const Line& line) const;

    Lines lines_;
    std::map<uintptr_t, Range> names_;  ///< key: address of the first byte
    const uint32_t engines_;
    const uint64_t warm_up_, messages_;
    uint64_t done_ = 0;
};

inline constexpr const char* kUnnamed = "unnamed";

}  // namespace roci::sharing
