// What one user may see of another, take from another, and use up: nothing, nothing, and its share.
#include <nlohmann/json.hpp>

#include "fixture.hpp"

namespace roci::host::test {
namespace {

using abi::Op;

class Strangers : public ConductorTest {
protected:
    static constexpr uint32_t kOther = 1001;
};

TEST_F(Strangers, ACaptureIsOfOnesOwnQueuePair) {
    const uint32_t qpn = qp().qpn;
    const uint32_t other = open(0, kOther);
    EXPECT_EQ(call_as(other, Op::start_capture, abi::StartCaptureRequest{0, qpn, 0, 0}).error, EPERM);
    EXPECT_EQ(call_as(other, Op::start_capture, abi::StartCaptureRequest{0, 0, 0, 0}).error, EPERM) << "a whole port";
    EXPECT_EQ(call(Op::start_capture, abi::StartCaptureRequest{1, qpn, 0, 0}).error, 0);
    EXPECT_EQ(platform.last_capture.qpn, qpn);
    EXPECT_EQ(platform.last_capture.device, 0u) << "that of the queue pair, whatever was named";
}

TEST_F(Strangers, AUserHasSomeCapturesAndLeavesPlacesForOthers) {
    const uint32_t qpn = qp().qpn;
    const abi::StartCaptureRequest request{0, qpn, 0, 0};
    const uint32_t second = open(), third = open();
    EXPECT_EQ(call(Op::start_capture, request).error, 0);
    EXPECT_EQ(call_as(second, Op::start_capture, request).error, 0);
    const Result r = call_as(third, Op::start_capture, request);
    EXPECT_EQ(r.error, EBUSY);
    EXPECT_TRUE(r.says("user 1000 has 2 captures")) << r.reason;
    EXPECT_EQ(call_as(open(0, 0), Op::start_capture, abi::StartCaptureRequest{0, 0, 0, 0}).error, 0) << "root looks on";
    EXPECT_EQ(call(Op::stop_capture).error, 0);
    EXPECT_EQ(call_as(third, Op::start_capture, request).error, 0);
}

}  // namespace
}  // namespace roci::host::test
