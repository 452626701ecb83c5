#include "cores.hpp"

#include <ucontext.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace roci::sharing {
namespace {

/// A core makes two accesses per nanosecond. A fetch of a line takes 60 ns.
constexpr uint64_t kTicksPerNs = 2, kFetchTicks = 120;
/// The clock of a core may be ahead of the other clocks by a random number of ticks below kAhead.
constexpr uint64_t kAhead = 24;
/// A store waits in the store buffer for its cache line. Later stores to this line are executed together with it. So
/// the core makes kTogether accesses after the line has arrived, before another core may take the line.
constexpr uint64_t kTogether = 16;
constexpr size_t kStack = 1 << 20;

struct Core {
    ucontext_t context{};
    std::function<void()> body;
    std::unique_ptr<std::byte[]> stack;
    uint64_t clock = 0;
    bool over = false;
};

struct Machine {
    Lines& lines;
    std::vector<Core> cores;
    ucontext_t outside{};
    uint32_t current = 0;
    uint64_t leave_at = 0;  ///< clock value at which the current core must stop and another core runs
    uint64_t random = 0x9e3779b97f4a7c15;
    bool inside = false;  ///< the model or the benchmark makes accesses, which are not reported

    uint64_t jitter() {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        return random % kAhead;
    }
    /// Chooses the core with the earliest clock among the cores that have not ended. This core may run until its
    /// clock is some ticks ahead of the next clock. Returns false if all cores have ended.
    bool elect() {
        uint64_t first = UINT64_MAX, second = UINT64_MAX;
        for (uint32_t i = 0; i < cores.size(); ++i) {
            if (cores[i].over) continue;
            const uint64_t clock = cores[i].clock;
            second = std::min(second, std::max(first, clock));
            if (clock < first) first = clock, current = i;
        }
        leave_at = second == UINT64_MAX ? UINT64_MAX : second + jitter();
        return first != UINT64_MAX;
    }
    void give_way() {
        Core& from = cores[current];
        elect();
        if (&cores[current] != &from) swapcontext(&from.context, &cores[current].context);
    }
};
Machine* machine = nullptr;

void start() {
    Machine& m = *machine;
    m.cores[m.current].body();
    m.cores[m.current].over = true;
    setcontext(m.elect() ? &m.cores[m.current].context : &m.outside);
}

}  // namespace

void run_cores(Lines& lines, std::vector<std::function<void()>> bodies) {
    Machine m{.lines = lines, .cores = std::vector<Core>(bodies.size())};
    for (uint32_t i = 0; i < bodies.size(); ++i) {
        Core& c = m.cores[i];
        c.body = std::move(bodies[i]);
        c.stack = std::make_unique<std::byte[]>(kStack);
        getcontext(&c.context);
        c.context.uc_stack.ss_sp = c.stack.get();
        c.context.uc_stack.ss_size = kStack;
        makecontext(&c.context, start, 0);
    }
    machine = &m;
    m.elect();
    swapcontext(&m.outside, &m.cores[m.current].context);
    machine = nullptr;
}

void touch(const void* p, uint64_t n, Access kind, const void* where) {
    Machine* m = machine;
    if (m == nullptr || m->inside || n == 0) return;
    // If the clock of this core is too far ahead, the other cores run first. No other core may run between the access
    // in the model and the access to memory.
    if (++m->cores[m->current].clock > m->leave_at) m->give_way();
    m->inside = true;
    const auto at = reinterpret_cast<uintptr_t>(p);
    for (uintptr_t line = at / kLine * kLine; line < at + n; line += kLine) {
        const uintptr_t from = std::max(at, line), to = std::min(at + n, line + kLine);
        const Lines::Cost cost =
            m->lines.access(m->current, line, byte_mask(uint32_t(from - line), uint32_t(to - from)), kind, where);
        if (cost == Lines::Cost::fetch) m->cores[m->current].clock += kFetchTicks;
        if (cost == Lines::Cost::take) m->leave_at = std::max(m->leave_at, m->cores[m->current].clock + kTogether);
    }
    m->inside = false;
}

Unseen::Unseen() {
    if (machine != nullptr) was_ = std::exchange(machine->inside, true);
}
Unseen::~Unseen() {
    if (machine != nullptr) machine->inside = was_;
}

uint64_t core_now() { return machine != nullptr ? machine->cores[machine->current].clock / kTicksPerNs : 0; }

}  // namespace roci::sharing
