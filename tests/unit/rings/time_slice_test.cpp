// Tests of the request for short time slices. A thread keeps its time slice, so each test makes the request in a new
// thread.
#include "abi/time_slice.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace roci::abi {
namespace {

struct Attributes {  // struct sched_attr; linux/sched/types.h would also declare a second sched_param
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

Attributes attributes() {
    Attributes a{};
    EXPECT_EQ(syscall(SYS_sched_getattr, 0, &a, sizeof a, 0), 0);
    return a;
}

TEST(TimeSlice, AThreadKeepsItsPolicyAndItsNiceValue) {
    std::thread([] {
        const Attributes before = attributes();
        const bool shortened = shorten_time_slice();
        const Attributes after = attributes();
        EXPECT_EQ(after.policy, before.policy);
        EXPECT_EQ(after.nice, before.nice);
        EXPECT_EQ(after.flags, before.flags);
        if (shortened)
            EXPECT_LE(after.runtime, kShortSlice);
        else
            EXPECT_EQ(after.runtime, before.runtime) << "a kernel before 6.12";
        EXPECT_EQ(shorten_time_slice(), shortened);
    }).join();
}

TEST(TimeSlice, AThreadWithAnotherPolicyStaysAsItIs) {
    std::thread([] {
        const sched_param none{};
        ASSERT_EQ(sched_setscheduler(0, SCHED_BATCH, &none), 0);
        const Attributes before = attributes();
        EXPECT_FALSE(shorten_time_slice());
        const Attributes after = attributes();
        EXPECT_EQ(after.policy, uint32_t(SCHED_BATCH));
        EXPECT_EQ(after.runtime, before.runtime);
    }).join();
}

}  // namespace
}  // namespace roci::abi
