// Tests of epochs (base/epoch.hpp). After a writer has removed an object and fenced, no reader may use the object.
// The tests with threads need -Db_sanitize=thread to detect all races.
#include "base/epoch.hpp"

#include <gtest/gtest.h>

#include <array>
#include <thread>

namespace roci {
namespace {

const auto nothing = [] {};

TEST(Epoch, AReaderPassesWhenItNotesTheNewEpoch) {
    Epoch epoch;
    EpochReader reader;
    reader.rouse();
    reader.note(epoch, nothing);
    const Epoch::Number now = epoch.advance();
    EXPECT_FALSE(reader.passed(now));
    reader.note(epoch, nothing);
    EXPECT_TRUE(reader.passed(now));
    EXPECT_FALSE(reader.passed(epoch.advance())) << "the next one is another matter";
}

TEST(Epoch, AReaderAtRestHasPassedEveryEpoch) {
    Epoch epoch;
    EpochReader reader;
    EXPECT_TRUE(reader.passed(epoch.advance())) << "before it begins";
    reader.rouse();
    reader.note(epoch, nothing);
    reader.rest();
    EXPECT_TRUE(reader.passed(epoch.advance()));
    EXPECT_TRUE(reader.passed(epoch.advance()));
}

TEST(Epoch, AReaderThatIsRousedHasPassedNothingUntilItNotesTheEpoch) {
    Epoch epoch;
    EpochReader reader;
    reader.rouse();
    reader.note(epoch, nothing);
    const Epoch::Number now = epoch.advance();
    reader.rest();
    reader.rouse();
    EXPECT_FALSE(reader.passed(now));
    EXPECT_FALSE(reader.passed(now - 1));
    reader.note(epoch, nothing);
    EXPECT_TRUE(reader.passed(now));
}

TEST(Epoch, AReaderLetsGoBeforeItPassesAndOnlyThen) {
    Epoch epoch;
    EpochReader reader;
    int times = 0;
    reader.rouse();
    reader.note(epoch, [&] { ++times; });
    EXPECT_EQ(times, 1) << "it may keep something from before its rest";
    reader.note(epoch, [&] { ++times; });
    EXPECT_EQ(times, 1);
    const Epoch::Number now = epoch.advance();
    reader.note(epoch, [&] {
        ++times;
        EXPECT_FALSE(reader.passed(now));
    });
    EXPECT_EQ(times, 2);
}

/// A table with one entry. The writer replaces the object, fences, and then writes to the old object. If a reader
/// still uses the old object, the reader reads a != b, or the thread sanitizer reports the race.
struct Table {
    struct Object {
        uint64_t a = 0, b = 0;  ///< equal while the object is in the table
    };
    std::array<Object, 2> objects;
    std::atomic<Object*> entry{&objects[0]};
};

/// Two readers use the table while this thread replaces the object of the table. Each reader rests after every
/// `rests`-th round. 0 means never.
void use_while_it_changes(uint32_t rests) {
    constexpr uint64_t kFences = 3000;
    Table table;
    Epoch epoch;
    std::array<EpochReader, 2> readers;
    std::atomic<bool> stop{false};
    std::array<uint64_t, 2> wrong{};
    const auto read = [&](size_t which) {
        EpochReader& reader = readers[which];
        const Table::Object* kept = nullptr;  // the reader keeps this reference from round to round
        reader.rouse();
        for (uint32_t round = 1; !stop.load(std::memory_order_relaxed); ++round) {
            reader.note(epoch, [&] { kept = nullptr; });
            if (kept == nullptr) kept = table.entry.load(std::memory_order_acquire);
            wrong[which] += kept->a != kept->b;
            if (round % 64 == 0) std::this_thread::yield();
            if (rests == 0 || round % rests != 0) continue;
            reader.rest();
            if (round % 2 == 0) std::this_thread::yield();
            reader.rouse();
        }
        reader.rest();
    };
    std::thread a([&] { read(0); }), b([&] { read(1); });
    for (uint64_t i = 1; i <= kFences; ++i) {
        Table::Object& fresh = table.objects[i % 2];
        Table::Object& old = table.objects[(i + 1) % 2];
        table.entry.store(&fresh, std::memory_order_release);
        const Epoch::Number now = epoch.advance();
        for (const EpochReader& r : readers)
            while (!r.passed(now)) std::this_thread::yield();
        old.a = i;
        old.b = i + 1;
        old.b = i;
    }
    stop = true;
    a.join();
    b.join();
    EXPECT_EQ(wrong[0] + wrong[1], 0u);
}

TEST(Epoch, NoReaderUsesWhatWasRemovedBeforeAFence) { use_while_it_changes(0); }
TEST(Epoch, NorDoesOneThatRestsNowAndThen) { use_while_it_changes(7); }
TEST(Epoch, NorOneThatRestsAfterEachRound) { use_while_it_changes(1); }

}  // namespace
}  // namespace roci
