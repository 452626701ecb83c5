// A fuzz target: a function that accepts any bytes as its input. The deterministic driver (fuzz.cpp) and libFuzzer
// (libfuzzer.cpp) run the targets of one table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/rng.hpp"

namespace roci::fuzz {

using sim::Rng;
using Bytes = std::vector<uint8_t>;
using Input = std::span<const uint8_t>;

/// Prints the property that an input violates, and aborts. The driver then prints the input.
[[noreturn]] void fail(const char* what);
inline void require(bool holds, const char* what) {
    if (!holds) fail(what);
}

/// Counts the outcomes of inputs, so that a test can show that its inputs reach the code behind the first checks.
class Reach {
public:
    void operator()(size_t outcome, uint64_t times = 1) {
        if (outcome >= seen_.size()) seen_.resize(outcome + 1);
        seen_[outcome] += times;
    }
    uint64_t of(size_t outcome) const { return outcome < seen_.size() ? seen_[outcome] : 0; }

private:
    std::vector<uint64_t> seen_;
};

struct Outcome {
    size_t number;
    std::string name;
};
/// Returns one outcome per name, numbered from 0.
std::vector<Outcome> numbered(const std::vector<std::string>& names);

/// The form of a target's inputs, which decides how they are mutated.
enum class Shape : uint8_t {
    bytes,    ///< one message
    text,     ///< lines
    records,  ///< a sequence of records (records.hpp)
};

struct Target {
    const char* name;
    Shape shape;
    /// Runs the input. If a property does not hold, calls fail() or throws. The result depends only on the input.
    void (*run)(Input, Reach&);
    /// Returns valid inputs, which mutations start from in addition to the files of the corpus.
    std::vector<Bytes> (*seeds)();
    /// Returns the outcomes that must occur in a test.
    std::vector<Outcome> (*outcomes)();
    /// Corrects lengths and checksums after a mutation, so that inputs pass the first checks. nullptr if inputs have no
    /// such fields.
    void (*repair)(Bytes&, Rng&);
};

std::span<const Target> targets();
const Target* find_target(const std::string& name);

}  // namespace roci::fuzz
