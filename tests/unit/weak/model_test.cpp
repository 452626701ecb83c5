// Tests of the explorer itself: small programs whose possible results are known from the memory model of C++20.
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "explorer.hpp"

namespace roci::weak {
namespace {

constexpr auto relaxed = std::memory_order_relaxed, acquire = std::memory_order_acquire, release = std::memory_order_release,
               acq_rel = std::memory_order_acq_rel, seq_cst = std::memory_order_seq_cst;

struct Shared {
    std::atomic<int> x{0}, y{0}, z{0};
    int data = 0;
} s;
int r[4];

using Threads = std::vector<std::function<void()>>;
using Outcome = std::vector<int>;

/// Returns all outcomes of the program. An outcome consists of the first `n` numbers in r.
std::set<Outcome> outcomes(const Threads& threads, int n, std::string* bug = nullptr) {
    std::set<Outcome> found;
    const Report report = explore([&] {
        s.x = s.y = s.z = 0;
        s.data = 0;
        std::fill(r, r + 4, -1);
        return Program{threads, [&] { found.emplace(r, r + n); }, {{&s, sizeof s}}};
    });
    if (bug != nullptr)
        *bug = report.bug;
    else
        EXPECT_EQ(report.bug, "");
    return found;
}

bool has(const std::set<Outcome>& all, const Outcome& one) { return all.contains(one); }

void full_fence() { std::atomic_thread_fence(seq_cst); }

}  // namespace

TEST(Model, StoreBuffering) {
    const auto weak = outcomes(
        {[] { s.x.store(1, release), r[0] = s.y.load(acquire); }, [] { s.y.store(1, release), r[1] = s.x.load(acquire); }}, 2);
    EXPECT_EQ(weak, (std::set<Outcome>{{0, 0}, {0, 1}, {1, 0}, {1, 1}}));
    const auto sc = outcomes(
        {[] { s.x.store(1, seq_cst), r[0] = s.y.load(seq_cst); }, [] { s.y.store(1, seq_cst), r[1] = s.x.load(seq_cst); }}, 2);
    EXPECT_EQ(sc, (std::set<Outcome>{{0, 1}, {1, 0}, {1, 1}}));
    const auto fenced = outcomes({[] { s.x.store(1, relaxed), full_fence(), r[0] = s.y.load(relaxed); },
                                  [] { s.y.store(1, relaxed), full_fence(), r[1] = s.x.load(relaxed); }},
                                 2);
    EXPECT_EQ(fenced, sc);
    const auto half = outcomes({[] { s.x.store(1, relaxed), full_fence(), r[0] = s.y.load(relaxed); },
                                [] { s.y.store(1, relaxed), std::atomic_thread_fence(acq_rel), r[1] = s.x.load(relaxed); }},
                               2);
    EXPECT_EQ(half, weak);
}

TEST(Model, FencesAndSequentialAccessesMix) {
    const auto mixed = outcomes({[] { s.x.store(1, seq_cst), r[0] = s.y.load(seq_cst); },
                                 [] { s.y.store(1, relaxed), full_fence(), r[1] = s.x.load(relaxed); }},
                                2);
    EXPECT_FALSE(has(mixed, {0, 0}));
}

TEST(Model, MessagePassing) {
    for (const auto order : {relaxed, release}) {
        const auto all = outcomes({[=] { s.x.store(1, relaxed), s.y.store(1, order); },
                                   [] {
                                       r[0] = s.y.load(acquire);
                                       r[1] = s.x.load(relaxed);
                                   }},
                                  2);
        EXPECT_EQ(has(all, {1, 0}), order == relaxed);
    }
    const auto by_fences = outcomes({[] { s.x.store(1, relaxed), std::atomic_thread_fence(release), s.y.store(1, relaxed); },
                                     [] {
                                         r[0] = s.y.load(relaxed);
                                         std::atomic_thread_fence(acquire);
                                         r[1] = s.x.load(relaxed);
                                     }},
                                    2);
    EXPECT_FALSE(has(by_fences, {1, 0}));
    EXPECT_TRUE(has(by_fences, {0, 1}));
}

TEST(Model, AnUpdateContinuesAReleaseSequence) {
    const Threads chain = {[] { s.x.store(1, relaxed), s.y.store(1, release); }, [] { s.y.fetch_add(1, relaxed); },
                           [] {
                               r[0] = s.y.load(acquire);
                               r[1] = s.x.load(relaxed);
                           }};
    const auto all = outcomes(chain, 2);
    EXPECT_FALSE(has(all, {2, 0}));
    EXPECT_TRUE(has(all, {1, 1}) && has(all, {2, 1})) << "2: before and after the update";
}

TEST(Model, ReadersOfIndependentWritesMayDisagreeWithoutFences) {
    for (const bool fence : {false, true}) {
        const auto reader = [=](std::atomic<int>& first, std::atomic<int>& second, int at) {
            r[at] = first.load(acquire);
            if (fence) full_fence();
            r[at + 1] = second.load(acquire);
        };
        const auto all = outcomes({[] { s.x.store(1, release); }, [] { s.y.store(1, release); }, [=] { reader(s.x, s.y, 0); },
                                   [=] { reader(s.y, s.x, 2); }},
                                  4);
        EXPECT_EQ(has(all, {1, 0, 1, 0}), !fence);
    }
}

TEST(Model, StoresMayBeOrderedAgainstTheirExecution) {
    const auto all =
        outcomes({[] { s.x.store(1, relaxed), s.y.store(2, relaxed); }, [] { s.y.store(1, relaxed), s.x.store(2, relaxed); },
                  [] { until([] { return (r[0] = s.x.load(relaxed)) != 0 && (r[1] = s.y.load(relaxed)) != 0; }); }},
                 2);
    EXPECT_TRUE(has(all, {1, 1}));
}

TEST(Model, ALocationIsCoherentAndUpdatesAreAtomic) {
    const auto coherent = outcomes({[] { s.x.store(1, relaxed), s.x.store(2, relaxed); },
                                    [] {
                                        r[0] = s.x.load(relaxed);
                                        r[1] = s.x.load(relaxed);
                                    }},
                                   2);
    EXPECT_EQ(coherent, (std::set<Outcome>{{0, 0}, {0, 1}, {0, 2}, {1, 1}, {1, 2}, {2, 2}}));
    const auto counted = outcomes({[] { s.x.fetch_add(1, relaxed); }, [] { s.x.fetch_add(1, relaxed); },
                                   [] {
                                       int old = 0;
                                       r[1] = s.x.compare_exchange_strong(old, 7, relaxed);
                                   }},
                                  2);
    EXPECT_EQ(counted.size(), 2u) << "the exchange happens or not; r[0] is unused";
    const auto sum = outcomes({[] { r[0] = s.x.fetch_add(1, relaxed); }, [] { r[1] = s.x.fetch_add(1, relaxed); }}, 2);
    EXPECT_EQ(sum, (std::set<Outcome>{{0, 1}, {1, 0}}));
}

TEST(Model, FindsDataRaces) {
    std::string bug;
    const auto program = [](std::memory_order order) -> Threads {
        return {[=] {
                    step("write");
                    s.data = 1;
                    s.x.store(1, order);
                },
                [] {
                    until([] { return s.x.load(acquire) != 0; });
                    step("read");
                    r[0] = s.data;
                }};
    };
    EXPECT_EQ(outcomes(program(release), 1, &bug), (std::set<Outcome>{{1}}));
    EXPECT_EQ(bug, "");
    outcomes(program(relaxed), 1, &bug);
    EXPECT_EQ(bug, "data race: read in step read, write in step write");
}

TEST(Model, AThreadThatWaitsWithoutHopeEndsTheExecution) {
    const auto all = outcomes({[] {
                                   r[0] = 1;
                                   until([] { return s.x.load(acquire) != 0; });
                                   r[0] = 2;
                               },
                               [] { s.y.store(1, release); }},
                              1);
    EXPECT_EQ(all, (std::set<Outcome>{{1}}));
}

}  // namespace roci::weak
