// Tests with a whole engine. The check after each round must find an inconsistent QP. A QP must wait for its
// congestion controller.
#include "fixture.hpp"
#include "qp/shared.hpp"
#include "qp/state.hpp"

namespace roci::sim {
namespace {

struct Owners : PairTest {
    qp::Qp& inside() { return *world.host(0).shared().qps.find(qa.qpn); }
};

TEST_F(Owners, AWrongTransitionIsFoundInTheSameRound) {
    join();
    a.client.post_send(qa, a.rdma(WrOpcode::rdma_write, 1, 0, 4096, b.mr.address(), b.mr.rkey));
    world.run_for(1);
    const qp::SendWindow good = inside().requester.window;
    ASSERT_EQ(qp::check(inside()), nullptr);
    inside().requester.window.go_back();  // changes the window without the send queue
    try {
        world.run_for(1'000'000);
        FAIL() << "nobody noticed";
    } catch (const std::logic_error& e) {
        EXPECT_STREQ(e.what(), "the cursor is not at the next PSN");
    }
    inside().requester.window = good;
}

TEST_F(Owners, AQpIsHeldBackUntilItsController) {
    join();
    world.run_for(1'000'000);
    const Nanos until = world.now() + 5'000'000;
    inside().requester.congestion.not_before = until;
    a.client.post_send(qa, a.rdma(WrOpcode::rdma_write, 1, 0, 4096, b.mr.address(), b.mr.rkey));
    const uint64_t before = world.net().frames();
    world.run_for(4'900'000);
    EXPECT_EQ(world.net().frames(), before);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_GE(world.now(), until);
    EXPECT_LT(world.now(), until + 100'000);
}

}  // namespace
}  // namespace roci::sim
