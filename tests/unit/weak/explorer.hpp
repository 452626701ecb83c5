// Runs a small program of a few threads once per execution that the memory model of C++20 permits, and reports the first
// execution with a bug. The threads run the code of the rings itself: the compiler inserts a call before each access to memory
// (-fsanitize=thread), and hooks.cpp passes accesses to shared memory to the explorer.
//
// An atomic load may return each value that the memory model permits, also old values. The explorer also reports data races. As
// in most models with an operational description, a load never returns a value that is stored later in the same execution ("load
// buffering").
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace roci::weak {

enum class Kind : uint8_t { load, store, update, fence };

/// Operations that the explorer executes with relaxed order (or not at all, if they are fences), to show that a program needs the
/// order.
struct Weakening {
    std::string step;
    Kind kind;
};

struct Program {
    std::vector<std::function<void()>> threads;
    /// Called after each execution, when every thread has ended or waits forever. Checks the result by require().
    std::function<void()> at_end;
    /// The shared memory: address and size of each part. Accesses to other memory are not examined.
    std::vector<std::pair<void*, size_t>> shared;
};

struct Report {
    uint64_t executions = 0;  ///< number of complete executions
    std::string bug;          ///< empty if no execution has a bug
};

/// Explores all executions of a program. `make` creates the program anew for each execution. Executions that differ only in
/// the order of independent operations count as one.
Report explore(const std::function<Program()>& make, const std::optional<Weakening>& weakening = {});

// ---- called by the threads of a program

/// Names the operations that follow in this thread.
void step(const char* name);
/// If the condition is false, ends the execution and reports `what` as its bug.
void require(bool condition, const char* what);
/// Waits until `done` returns true. The execution ends when every thread has ended or waits forever.
void until(const std::function<bool()>& done);

// ---- called by hooks.cpp

struct Access {
    Kind kind;
    int order;  ///< a value of std::memory_order
    uintptr_t address = 0;
    size_t size = 0;
};
/// Returns the new value for an old value. Returns nothing if the operation must store nothing.
using Change = std::function<std::optional<uint64_t>(uint64_t)>;
/// Returns true if code of a program runs and the address is in the program's shared memory.
bool examines(const void* address);
uint64_t atomic_load(Access access);
void atomic_store(Access access, uint64_t value);
/// Reads the old value and stores the result of `change`. If `change` returns nothing, stores nothing and uses the order
/// `order_of_failure`. Returns the old value.
uint64_t atomic_update(Access access, const Change& change, int order_of_failure);
void atomic_fence(int order);
void plain_access(const void* address, size_t size, bool writes);

}  // namespace roci::weak
