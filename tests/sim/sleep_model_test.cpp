// A model checker for the protocols by which two sides of shared memory sleep and wake each other. The checker
// executes the steps of the threads in every order. Its processors have store buffers, as x86-TSO defines: other
// processors see a store later, and a full fence or a locked instruction waits until they have seen the store. A
// protocol is correct if no order makes a thread sleep forever while the thread has work.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace roci::sim {
namespace {

enum Word : uint8_t { entry, sleeping, sleeping2, doorbell, command, epoch, passed, cleared, freed, zero, words };
using Memory = std::array<uint8_t, words>;

struct Step {
    enum Kind : uint8_t {
        store,     ///< stores `value` to the word
        fence,     ///< waits until other threads see all stores
        swap_out,  ///< jumps to `target` if word == 0; otherwise stores 0 and continues
        skip_if,   ///< jumps to `target` if word == value
        /// If word == `value`, sleeps until a `wake`; stands for a futex, or for an eventfd whose writer changes the
        /// word.
        wait_while,
        wake,  ///< wakes all sleeping threads
        work,  ///< the thread has found work
    } kind;
    Word word = entry;
    uint8_t value = 0;
    uint8_t target = 0;
};
using Program = std::vector<Step>;

struct Thread {
    uint8_t at = 0;
    bool asleep = false, stopped = false, found = false;
    std::deque<std::pair<Word, uint8_t>> buffer;
    auto operator<=>(const Thread&) const = default;
};
struct World {
    Memory memory{};
    std::vector<Thread> threads;
    auto operator<=>(const World&) const = default;
};

class Explorer {
public:
    explicit Explorer(std::vector<Program> programs) : programs_(std::move(programs)) {}
    /// Indices of the threads that a SIGSTOP may stop forever before any of their steps.
    std::set<size_t> may_stop;

    /// Visits all reachable worlds. Calls `at_end` for each world in which no step is possible.
    void run(const std::function<void(const World&)>& at_end) {
        World start;
        start.threads.resize(programs_.size());
        std::vector<World> todo{start};
        seen_.insert(start);
        while (!todo.empty()) {
            const World w = todo.back();
            todo.pop_back();
            std::vector<World> next;
            for (size_t t = 0; t < programs_.size(); ++t) successors(w, t, next);
            const bool over = next.empty();
            if (over) at_end(w);
            for (World& n : next)
                if (seen_.insert(n).second) todo.push_back(std::move(n));
        }
    }
    size_t worlds() const { return seen_.size(); }

private:
    static uint8_t read(const World& w, const Thread& t, Word word) {
        for (auto i = t.buffer.rbegin(); i != t.buffer.rend(); ++i)
            if (i->first == word) return i->second;
        return w.memory[word];
    }
    void successors(const World& w, size_t t, std::vector<World>& out) const {
        const Thread& thread = w.threads[t];
        if (!thread.buffer.empty()) {  // the oldest store becomes visible
            World n = w;
            auto& buffer = n.threads[t].buffer;
            n.memory[buffer.front().first] = buffer.front().second;
            buffer.pop_front();
            out.push_back(std::move(n));
        }
        if (thread.asleep || thread.stopped || thread.at == programs_[t].size()) return;
        if (may_stop.contains(t)) {
            World n = w;
            n.threads[t].stopped = true;
            out.push_back(std::move(n));
        }
        World n = w;
        if (take(programs_[t][thread.at], n, t)) out.push_back(std::move(n));
    }
    /// Executes a step. Returns false if the step must wait.
    static bool take(const Step& s, World& n, size_t t) {
        Thread& thread = n.threads[t];
        const bool atomic =
            s.kind == Step::fence || s.kind == Step::swap_out || s.kind == Step::wait_while || s.kind == Step::wake;
        if (atomic && !thread.buffer.empty()) return false;
        ++thread.at;
        switch (s.kind) {
            case Step::store:
                thread.buffer.emplace_back(s.word, s.value);
                break;
            case Step::fence:
                break;
            case Step::swap_out:
                if (n.memory[s.word] == 0) thread.at = s.target;
                n.memory[s.word] = 0;
                break;
            case Step::skip_if:
                if (read(n, thread, s.word) == s.value) thread.at = s.target;
                break;
            case Step::wait_while:
                thread.asleep = n.memory[s.word] == s.value;
                break;
            case Step::wake:
                for (Thread& other : n.threads) other.asleep = false;
                break;
            case Step::work:
                thread.found = true;
                break;
        }
        return true;
    }

    std::vector<Program> programs_;
    std::set<World> seen_;
};

// ---- a program that polls, and sleeps on the word of its CQ (abi::CqShared::sleeping) -----------------------------------------

/// Models CqConsumer::prepare_sleep, the futex, and the poll after the futex.
Program poller(bool fenced) {
    Program p{{Step::store, sleeping, 1}};
    if (fenced) p.push_back({Step::fence});
    const auto end = uint8_t(p.size() + 2);
    p.push_back({Step::skip_if, entry, 1, end});
    p.push_back({Step::wait_while, sleeping, 1});
    p.push_back({Step::skip_if, entry, 0, uint8_t(0)});  // there is no entry yet: starts again
    p.push_back({Step::work});
    return p;
}
/// Models write_out and notify_all, followed by settle_sleepers in a round without work.
Program engine(bool settles) {
    Program p{{Step::store, entry, 1}, {Step::skip_if, sleeping, 0, 4}, {Step::store, sleeping, 0}, {Step::wake, sleeping}};
    if (!settles) return p;
    const auto end = uint8_t(p.size() + 4);
    p.insert(p.end(), {{Step::fence}, {Step::skip_if, sleeping, 0, end}, {Step::store, sleeping, 0}, {Step::wake, sleeping}});
    return p;
}
/// Counts the worlds in which the poller sleeps forever.
size_t lost(const Program& p, const Program& e) {
    Explorer x({p, e});
    size_t n = 0;
    x.run([&](const World& w) { n += w.threads[0].asleep ? 1 : 0; });
    EXPECT_GT(x.worlds(), 20u);
    return n;
}

TEST(SleepModel, AProgramThatSleepsWhileItPollsIsWoken) { EXPECT_EQ(lost(poller(true), engine(true)), 0u); }

TEST(SleepModel, TheModelFindsWhatFencesAreFor) {
    EXPECT_GT(lost(poller(false), engine(true)), 0u) << "without the program's fence";
    EXPECT_GT(lost(poller(true), engine(false)), 0u) << "without the engine's second look";
}

TEST(SleepModel, AProgramThatIsStoppedDelaysNobodyElse) {
    Explorer x({poller(true), engine(true)});
    x.may_stop = {0};
    x.run([](const World& w) { EXPECT_EQ(w.threads[1].at, engine(true).size()) << "the engine goes on"; });
}

// ---- an engine that sleeps, and clients that ring (abi::EnginePage, DoorbellPage) ---------------------------------------------

/// Models LcoreLoop::nap. The word `sleeping2` stands for the eventfd: a write to the eventfd stores 0 in the word.
Program lcore() {
    return {{Step::store, sleeping, 1},
            {Step::store, sleeping2, 1},
            {Step::fence},
            {Step::swap_out, doorbell, 0, 5},
            {Step::work},
            {Step::wait_while, sleeping2, 1}};
}
/// Models ring_doorbell, and the write to the eventfd.
Program ringer() {
    return {{Step::store, doorbell, 1},
            {Step::fence},
            {Step::skip_if, sleeping, 0, 5},
            {Step::store, sleeping2, 0},
            {Step::wake, sleeping2}};
}

TEST(SleepModel, AnEngineThatFallsAsleepHearsTheDoorbell) {
    Explorer x({lcore(), ringer()});
    x.run([](const World& w) {
        EXPECT_FALSE(w.threads[0].asleep && !w.threads[0].found && w.memory[doorbell] == 1) << "asleep with a doorbell rung";
    });
}

TEST(SleepModel, AStoppedClientThatOwesAWakeUpDelaysNoOtherClient) {
    Explorer x({lcore(), ringer(), ringer()});
    x.may_stop = {1};  // thread 1 may stop before any step, also between its doorbell and its wake-up
    x.run([](const World& w) {
        EXPECT_FALSE(w.threads[0].asleep && !w.threads[0].found && w.memory[doorbell] == 1 && w.threads[2].at == ringer().size())
            << "the other client's wake-up was enough";
    });
}

// ---- commands of the conductor, rocid's control thread (engine/command_ring.hpp, WakeFlag)
// ------------------------------------------------------------

/// Models LcoreLoop::nap, which reads the ring by a load (CommandRing::waiting).
Program commanded(bool fenced) {
    Program p{{Step::store, sleeping, 1}, {Step::store, sleeping2, 1}};
    if (fenced) p.push_back({Step::fence});
    const auto end = uint8_t(p.size() + 2);
    p.insert(p.end(), {{Step::skip_if, command, 0, end}, {Step::work}, {Step::wait_while, sleeping2, 1}});
    return p;
}
/// Models CommandRing::push and WakeFlag::notify.
Program commander(bool fenced) {
    Program p{{Step::store, command, 1}};
    if (fenced) p.push_back({Step::fence});
    const auto end = uint8_t(p.size() + 3);
    p.insert(p.end(), {{Step::skip_if, sleeping, 0, end}, {Step::store, sleeping2, 0}, {Step::wake, sleeping2}});
    return p;
}
/// Counts the worlds in which the lcore sleeps although its ring has a command that it has not executed.
size_t unheard(const Program& l, const Program& c) {
    Explorer x({l, c});
    size_t n = 0;
    x.run([&](const World& w) { n += w.threads[0].asleep && !w.threads[0].found ? 1 : 0; });
    return n;
}

TEST(SleepModel, AnLcoreThatFallsAsleepSeesTheCommand) {
    EXPECT_EQ(unheard(commanded(true), commander(true)), 0u);
    EXPECT_GT(unheard(commanded(false), commander(true)), 0u) << "without the lcore's fence";
    EXPECT_GT(unheard(commanded(true), commander(false)), 0u) << "without the conductor's";
}

// ---- fences of the conductor, and lcores that rest while they sleep (base/epoch.hpp) ------------------------------------------
//
// The word `passed` contains the value that EpochReader has published. `cleared` is 1 if the entry has been removed
// from the table. `freed` is 1 if the object of the entry has been freed.

constexpr uint8_t kResting = 0, kRoused = 1, kNoted = 2;

/// Publishes kRoused, reads the epoch, uses the entry if it exists, and publishes kResting. `found` means that the
/// reader has used a freed object.
Program reader(bool fenced) {
    Program p{{Step::store, passed, kRoused}};
    if (fenced) p.push_back({Step::fence});
    const auto at = [&](size_t n) { return uint8_t(p.size() + n); };
    const uint8_t table = at(2), end = at(5);
    p.insert(p.end(), {{Step::skip_if, epoch, 0, table},
                       {Step::store, passed, kNoted},
                       {Step::skip_if, cleared, 1, end},  // table
                       {Step::skip_if, freed, 0, end},
                       {Step::work},
                       {Step::store, passed, kResting}});  // end
    return p;
}
/// Clears the entry, advances the epoch, waits until the reader has passed the epoch, and frees the object.
Program fencer(bool fenced) {
    Program p{{Step::store, cleared, 1}, {Step::store, epoch, 1}};
    if (fenced) p.push_back({Step::fence});
    const auto again = uint8_t(p.size()), end = uint8_t(p.size() + 3);
    p.insert(p.end(), {{Step::skip_if, passed, kResting, end},
                       {Step::skip_if, passed, kNoted, end},
                       {Step::skip_if, zero, 0, again},
                       {Step::store, freed, 1}});  // end
    return p;
}
/// Counts the worlds in which the reader has used a freed object.
size_t misused(const Program& r, const Program& f) {
    Explorer x({r, f});
    size_t n = 0;
    x.run([&](const World& w) {
        n += w.threads[0].found ? 1 : 0;
        EXPECT_EQ(w.memory[freed], 1) << "the conductor waits for ever";
    });
    EXPECT_GT(x.worlds(), 20u);
    return n;
}

TEST(SleepModel, AnLcoreThatWakesDuringAFenceUsesNothingThatWasRemoved) { EXPECT_EQ(misused(reader(true), fencer(true)), 0u); }

TEST(SleepModel, TheModelFindsWhatTheFencesOfEpochsAreFor) {
    EXPECT_GT(misused(reader(false), fencer(true)), 0u) << "without the lcore's locked operation";
    EXPECT_GT(misused(reader(true), fencer(false)), 0u) << "without the conductor's";
}

/// Models an lcore that keeps references. It goes to sleep without publishing kResting. If it sees the new epoch before
/// it sleeps, it passes the epoch without sleeping. Otherwise it passes the epoch only after it has woken up.
Program keeper() {
    return {{Step::store, sleeping, 1},   {Step::store, sleeping2, 1},      {Step::fence},
            {Step::skip_if, epoch, 1, 5}, {Step::wait_while, sleeping2, 1}, {Step::skip_if, epoch, 0, uint8_t(0)},
            {Step::store, passed, kNoted}};
}
/// Models LcoreCommands::begin_fence and end_fence.
Program waker() {
    return {
        {Step::store, epoch, 1},     {Step::fence},          {Step::skip_if, passed, kNoted, 6}, {Step::skip_if, sleeping, 0, 6},
        {Step::store, sleeping2, 0}, {Step::wake, sleeping2}};
}

TEST(SleepModel, AFenceWakesAnLcoreThatSleepsWithReferences) {
    Explorer x({keeper(), waker()});
    x.run([](const World& w) { EXPECT_EQ(w.memory[passed], kNoted) << "the conductor waits for ever"; });
    EXPECT_GT(x.worlds(), 20u);
}

}  // namespace
}  // namespace roci::sim
