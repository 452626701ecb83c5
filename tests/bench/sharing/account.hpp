// Assigns the moved lines to data structures, per message, and compares them with the permitted numbers.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lines.hpp"

namespace roci::sharing {

/// How many lines of a structure may move per message, and why.
struct Limit {
    const char* structure;
    double most;
    const char* why;
};

class Account {
public:
    /// Counts `messages` after `warm_up`. The first `engines` cores are engines.
    Account(uint32_t engines, uint64_t warm_up, uint64_t messages) : engines_(engines), warm_up_(warm_up), messages_(messages) {}
    Lines& lines() { return lines_; }

    /// Names a range of memory. Lines without a name are not in the table.
    void name(const void* from, size_t bytes, const char* structure);
    /// Called when a program has the completion of a message.
    void completed();
    bool over() const { return done_ >= warm_up_ + messages_; }

    /// By structure.
    std::map<std::string, Moves> rows() const;
    /// Moves of lines falsely shared, or shared by engines: there should be none.
    uint64_t wrong() const;
    double a_message(uint64_t moves) const { return double(moves) / double(messages_); }
    /// A text with all violations; empty: there are none.
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
    std::map<uintptr_t, Range> names_;  ///< by first byte
    const uint32_t engines_;
    const uint64_t warm_up_, messages_;
    uint64_t done_ = 0;
};

inline constexpr const char* kUnnamed = "unnamed";

}  // namespace roci::sharing
