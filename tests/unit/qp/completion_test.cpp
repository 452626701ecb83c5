#include <gtest/gtest.h>

#include "../rings/fixture.hpp"
#include "qp/roles.hpp"

namespace roci::qp {
namespace {

// A program that gets an event and then polls must find the earlier completions. An engine writes the completions of
// a round at the end of the round, but the event thread does not wait for this end. So the completions must be
// written before the event.
TEST(Events, FollowWhatWasCompletedBefore) {
    rings::CqPair cq(1, 8);
    io::EventRing events(8);
    Context ctx;
    ctx.events = &events;
    const Srq srq{.spec = {.cq = &cq.cq}};
    abi::Cqe e{};
    e.wr_id = 5;
    e.byte_len = 15;
    complete_tag(ctx, srq, nullptr, e, false);
    raise_srq(ctx, srq, abi::AsyncEvent::srq_limit_reached);
    io::Event told;
    ASSERT_TRUE(events.pop(told));
    EXPECT_EQ(told.type, uint32_t(abi::AsyncEvent::srq_limit_reached));
    EXPECT_EQ(cq.poll(), 5);
}

}  // namespace
}  // namespace roci::qp
