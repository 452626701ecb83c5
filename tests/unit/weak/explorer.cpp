#include "explorer.hpp"

#include <ucontext.h>

#include <array>
#include <memory>

#include "memory.hpp"

namespace roci::weak {
namespace {

constexpr size_t kStack = 128 * 1024;

/// The choices of an execution. The next execution repeats these choices up to the last choice with an untried
/// possibility, and there takes the next possibility.
class Trail {
public:
    void begin() { at_ = 0; }
    uint32_t choose(uint32_t n) {
        if (n == 1) return 0;
        if (at_ == choices_.size()) choices_.push_back({0, n});
        return choices_[at_++].taken;
    }
    /// Returns false if all executions are done.
    bool next() {
        while (!choices_.empty() && ++choices_.back().taken == choices_.back().of) choices_.pop_back();
        return !choices_.empty();
    }

private:
    struct Choice {
        uint32_t taken, of;
    };
    std::vector<Choice> choices_;
    size_t at_ = 0;
};

/// What a thread does next.
struct Next {
    enum class What : uint8_t { access, retry, end } what = What::end;
    Access access{};
};

/// Returns false if the result does not depend on the order of the two operations. A sequentially consistent operation affects
/// what a later sequentially consistent fence sees.
bool depend(const Next& a, const Next& b) {
    if (a.what != Next::What::access || b.what != Next::What::access) return false;
    const bool fences[] = {a.access.kind == Kind::fence, b.access.kind == Kind::fence};
    constexpr int kSequential = int(std::memory_order_seq_cst);
    const bool both_sequential = a.access.order == kSequential && b.access.order == kSequential;
    if (fences[0] || fences[1]) return both_sequential;
    const bool loads = a.access.kind == Kind::load && b.access.kind == Kind::load;
    return a.access.address == b.access.address && (!loads || both_sequential);
}

struct Fiber {
    ucontext_t context{};
    std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStack);
    const std::function<void()>* body = nullptr;
    Next next;
    bool asleep = false;          ///< the execution in which this thread continues now is examined elsewhere ("sleep set")
    bool fresh = false;           ///< loads return the newest value
    uint64_t hopeless_since = 0;  ///< number of stores, plus 1, when a try with the newest values failed
};

/// One execution.
class Run {
public:
    Run(Program program, Trail& trail, const std::optional<Weakening>& weakening, std::vector<Fiber>& fibers)
        : program_(std::move(program)),
          trail_(trail),
          weakening_(weakening),
          fibers_(fibers),
          memory_([this](uint32_t n) { return trail_.choose(n); }, program_.shared, program_.threads.size()) {}

    /// Returns true if the execution is complete. Returns false if it was stopped, because it is equivalent to an
    /// execution that was examined before.
    bool go();

    size_t thread() const { return running_; }
    Memory& memory() { return memory_; }
    Fiber& fiber() { return fibers_[running_]; }
    void pause(Next next) {
        fiber().next = next;
        go_on(fiber().context);
    }
    /// Waits until the explorer chooses this access as the next one. Returns the access. Its order is relaxed if
    /// `weakening_` names its step and kind.
    Access turn(Access a) {
        if (weakening_ && weakening_->kind == a.kind && weakening_->step == memory_.threads[running_].step)
            a.order = int(std::memory_order_relaxed);
        pause({Next::What::access, a});
        return a;
    }
    [[noreturn]] void fail(std::string what) {
        bug = std::move(what);
        swapcontext(&fiber().context, &main_);
        __builtin_unreachable();
    }
    void check_race() {
        if (!memory_.race.empty()) fail(memory_.race);
    }
    std::string bug;
    bool at_end = false;

private:
    void begin(size_t t);
    void go_on(ucontext_t& from);
    bool hopes(size_t t) const;
    std::optional<size_t> pick();

    Program program_;
    Trail& trail_;
    const std::optional<Weakening>& weakening_;
    std::vector<Fiber>& fibers_;
    Memory memory_;
    ucontext_t main_{};
    bool begun_ = false;
    size_t running_ = 0;
};

Run* now = nullptr;
/// True while a thread executes code of the program. The explorer may execute instrumented code, too: if the linker has kept
/// the instrumented copy of an inline function, the explorer also calls this copy.
bool in_program = false;

/// While an object of this class exists, the thread executes code of the explorer (in_program is false).
class Outside {
public:
    Outside() { in_program = false; }
    ~Outside() { in_program = true; }
    Outside(const Outside&) = delete;
};

void enter() {
    in_program = true;
    (*now->fiber().body)();
    in_program = false;
    now->pause({});
}

void Run::begin(size_t t) {
    Fiber& f = fibers_[t];
    f.body = &program_.threads[t];
    f.asleep = f.fresh = false;
    f.hopeless_since = 0;
    getcontext(&f.context);
    f.context.uc_stack = {.ss_sp = f.stack.get(), .ss_flags = 0, .ss_size = kStack};
    f.context.uc_link = nullptr;
    makecontext(&f.context, enter, 0);
    running_ = t;
    swapcontext(&main_, &f.context);
}

/// Switches from the context of a thread, or from the main context, to the next thread. If no thread can continue, switches to
/// the main context.
void Run::go_on(ucontext_t& from) {
    ucontext_t* to = &main_;
    if (const auto t = begun_ ? pick() : std::nullopt) {
        for (Fiber& f : fibers_)
            if (depend(f.next, fibers_[*t].next)) f.asleep = false;
        running_ = *t;
        to = &fibers_[*t].context;
    }
    if (to != &from) swapcontext(&from, to);
}

bool Run::hopes(size_t t) const {
    const ThreadState& state = memory_.threads[t];
    if (fibers_[t].next.what == Next::What::retry) return (state.read & state.news) != 0;
    return fibers_[t].next.what == Next::What::access;
}

/// Chooses the next thread. A waiting thread tries again after another thread has changed a value that the last try has read.
/// If all threads wait, each of them tries once more with the newest values, because stores become visible in finite time.
std::optional<size_t> Run::pick() {
    std::array<size_t, kMostThreads> able{};
    uint32_t count = 0;
    bool any = false;
    for (size_t t = 0; t < program_.threads.size(); ++t) {
        if (!hopes(t)) continue;
        any = true;
        if (!fibers_[t].asleep) able[count++] = t;
    }
    if (count != 0) {
        const uint32_t taken = trail_.choose(count);
        for (uint32_t i = 0; i < taken; ++i) fibers_[able[i]].asleep = true;
        return able[taken];
    }
    for (size_t t = 0; !any && t < program_.threads.size(); ++t)
        if (Fiber& f = fibers_[t]; f.next.what == Next::What::retry && f.hopeless_since != memory_.stores + 1) {
            f.hopeless_since = memory_.stores + 1;
            f.fresh = true;
            return t;
        }
    at_end = !any;
    return std::nullopt;
}

bool Run::go() {
    now = this;
    for (size_t t = 0; t < program_.threads.size() && bug.empty(); ++t) begin(t);
    begun_ = true;
    if (bug.empty()) go_on(main_);
    if (bug.empty() && at_end && program_.at_end) program_.at_end();
    now = nullptr;
    return at_end || !bug.empty();
}

}  // namespace

Report explore(const std::function<Program()>& make, const std::optional<Weakening>& weakening) {
    Report report;
    Trail trail;
    std::vector<Fiber> fibers(kMostThreads);
    do {
        trail.begin();
        Run run(make(), trail, weakening, fibers);
        for (Fiber& f : fibers) f.next = {};
        if (run.go()) ++report.executions;
        report.bug = run.bug;
    } while (report.bug.empty() && trail.next());
    return report;
}

void step(const char* name) {
    const Outside outside;
    now->memory().threads[now->thread()].step = name;
}

void require(bool condition, const char* what) {
    if (condition) return;
    const bool in_thread = std::exchange(in_program, false);
    if (in_thread) now->fail(what);
    if (now->bug.empty()) now->bug = what;
}

void until(const std::function<bool()>& done) {
    const Outside outside;
    for (Fiber& f = now->fiber();; now->pause({Next::What::retry})) {
        ThreadState& state = now->memory().threads[now->thread()];
        state.read = state.news = 0;
        in_program = true;
        const bool ok = done();
        in_program = false;
        f.fresh = false;
        if (ok) return;
    }
}

bool examines(const void* address) {
    if (!in_program) return false;
    const Outside outside;
    return now->memory().contains(reinterpret_cast<uintptr_t>(address));
}

uint64_t atomic_load(Access access) {
    const Outside outside;
    access = now->turn(access);
    const uint64_t value = now->memory().load(now->thread(), access, now->fiber().fresh);
    now->check_race();
    return value;
}

void atomic_store(Access access, uint64_t value) {
    const Outside outside;
    access = now->turn(access);
    now->memory().store(now->thread(), access, value);
    now->check_race();
}

uint64_t atomic_update(Access access, const Change& change, int order_of_failure) {
    const Outside outside;
    access = now->turn(access);
    const uint64_t old = now->memory().update(now->thread(), access, change, order_of_failure, now->fiber().fresh);
    now->check_race();
    return old;
}

void atomic_fence(int order) {
    if (!in_program) return;
    const Outside outside;
    const Access access = now->turn({Kind::fence, order});
    now->memory().fence(now->thread(), access.order);
}

void plain_access(const void* address, size_t size, bool writes) {
    if (!in_program) return;
    const Outside outside;
    now->memory().plain(now->thread(), reinterpret_cast<uintptr_t>(address), size, writes);
    now->check_race();
}

}  // namespace roci::weak
