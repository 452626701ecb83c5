// Tests the cache model with memory layouts whose costs are known.
#include "self_test.hpp"

#include <atomic>
#include <cstdio>

#include "cores.hpp"

namespace roci::sharing {
namespace {

constexpr uint64_t kRounds = 500;
constexpr Limit kThereAndBack[] = {{"memory", 2.1, "a line there and back"}}, kOneWay[] = {{"memory", 1.5, "too little"}};

/// A bad layout: each of two cores uses a different word, but both words are in the same line.
struct alignas(kLine) TwoWritersInALine {
    uint32_t first = 0, second = 0;
};
struct alignas(kLine) TwoWriters {
    alignas(kLine) uint32_t first = 0;
    alignas(kLine) uint32_t second = 0;
};

void count_up(uint32_t& word, Account& account) {
    while (!account.over()) {
        std::atomic_ref(word).fetch_add(1, std::memory_order_relaxed);
        account.completed();
    }
}

/// Runs `first` and `second` on two cores. The first `engines` cores count as engines. Returns the violations.
std::vector<std::string> faults_of(uint32_t engines, std::span<const Limit> limits, void* memory, size_t bytes,
                                   const std::function<void(Account&)>& first, const std::function<void(Account&)>& second) {
    Account account(engines, kRounds, kRounds);
    account.name(memory, bytes, "memory");
    run_cores(account.lines(), {[&] { first(account); }, [&] { second(account); }});
    return account.faults(limits);
}

template <class Layout>
std::vector<std::string> faults_of_writers(uint32_t engines) {
    Layout x;
    return faults_of(
        engines, kThereAndBack, &x, sizeof x, [&](Account& a) { count_up(x.first, a); },
        [&](Account& a) { count_up(x.second, a); });
}

/// One core sets a word, and the other core resets it, in turn. Each change costs a fetch and a take. Returns the
/// violations.
std::vector<std::string> faults_of_flag(std::span<const Limit> limits) {
    alignas(kLine) uint32_t flag = 0;
    const auto turn = [&flag](Account& a, uint32_t mine) {
        while (!a.over()) {
            if (std::atomic_ref(flag).load(std::memory_order_acquire) != mine) continue;
            std::atomic_ref(flag).store(1 - mine, std::memory_order_release);
            a.completed();
        }
    };
    return faults_of(
        0, limits, &flag, sizeof flag, [&](Account& a) { turn(a, 0); }, [&](Account& a) { turn(a, 1); });
}

/// Returns true if the model detects a useless move. One core prefetches a line, and the other core takes the line
/// back before the first core uses it.
bool sees_what_is_in_vain() {
    Lines lines;
    lines.access(0, 0, 1, Access::write, nullptr);
    lines.access(1, 0, 1, Access::prefetch, nullptr);
    lines.access(0, 0, 1, Access::write, nullptr);
    const Moves& m = lines.all().at(0).moves;
    return m.fetches == 1 && m.takes == 1 && m.in_vain == 1 && m.falsely == 0;
}

bool has(const std::vector<std::string>& faults, const char* beginning) {
    for (const std::string& f : faults)
        if (f.starts_with(beginning)) return true;
    return false;
}

}  // namespace

bool model_is_right() {
    struct Row {
        const char* what;
        bool right;
    };
    const Row rows[] = {
        {"two writers in a line are found", has(faults_of_writers<TwoWritersInALine>(0), "falsely shared")},
        {"two engines in a line are found", has(faults_of_writers<TwoWritersInALine>(2), "line between engines")},
        {"two writers with a line each are right", faults_of_writers<TwoWriters>(2).empty()},
        {"a flag costs what it must", faults_of_flag(kThereAndBack).empty()},
        {"what goes beyond its limit is found", has(faults_of_flag(kOneWay), "memory moves")},
        {"what has no limit is found", has(faults_of_flag({}), "memory moves")},
        {"a line fetched in vain is seen", sees_what_is_in_vain()},
    };
    bool good = true;
    for (const Row& r : rows)
        if (!r.right) good = false, std::fprintf(stderr, "the model is wrong: not so: %s\n", r.what);
    return good;
}

}  // namespace roci::sharing
