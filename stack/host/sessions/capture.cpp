// Captures of frames for a client (roci pcap): permissions, and the selection of a QP's frames.
#include "host/sessions/handlers.hpp"

namespace roci::host::sessions {
namespace {

/// Limit of captures per user, because each capture uses time of an lcore. Root and the user of rocid have no such limit.
constexpr uint32_t kCapturesPerUser = 2;

Outcome has_room_for_capture(const Call& c) {
    const uint32_t uid = c.session.who.uid;
    if (uid == 0 || uid == c.state.platform.uid()) return done();
    uint32_t n = 0;
    for (const auto& [id, s] : c.state.sessions) n += s->captures && s->who.uid == uid ? 1 : 0;
    if (n >= kCapturesPerUser) return fail(EBUSY, "user {} has {} captures, the limit; end one", uid, n);
    return done();
}

const Session* owner_of(const State& state, uint32_t qpn) {
    const Session* found = nullptr;
    for (const auto& [id, s] : state.sessions)
        s->qps.each([&, &session = *s](uint32_t, const Qp& qp) {
            if (qp.spec().qpn.value == qpn) found = &session;
        });
    return found;
}

/// Checks whether the caller may capture a QP of the user `owner`. A whole port, which carries the traffic of all users, has no
/// owner. So only root and the user of rocid may capture a whole port.
Outcome may_see(const Call& c, uint32_t owner) {
    const uint32_t uid = c.session.who.uid;
    if (uid == 0 || uid == c.state.platform.uid() || uid == owner) return done();
    return fail(EPERM, "user {} may capture its own queue pairs only (--qp); a whole port is for root and the user of rocid",
                uid);
}

Outcome describe_qp(const Call& c, uint32_t qpn, CaptureSpec& spec) {
    const Session* owner = owner_of(c.state, qpn);
    if (owner == nullptr) return fail(ENOENT, "no queue pair has the number {}; `roci status` lists them", qpn);
    if (Outcome o = may_see(c, owner->who.uid); o.failed()) return o;
    spec.qpn = qpn;
    spec.device = owner->device.value();
    return done();
}

}  // namespace

Outcome start_capture(Call& c) {
    const auto in = c.in<abi::StartCaptureRequest>();
    if (c.session.captures) return fail(EBUSY, "this session captures already");
    if (in.device != abi::kNoHandle && in.device >= c.state.devices.size())
        return fail(ENODEV, "device {}: there are {}", in.device, c.state.devices.size());
    CaptureSpec spec{.device = in.device, .snap_length = in.snap_length};
    constexpr uint32_t kNobody = ~uint32_t{0};
    if (Outcome o = in.qpn != 0 ? describe_qp(c, in.qpn, spec) : may_see(c, kNobody); o.failed()) return o;
    if (Outcome o = has_room_for_capture(c); o.failed()) return o;
    std::string why;
    const int fd = c.state.platform.start_capture(c.session.id, spec, why);
    if (fd < 0) return fail(-fd, "{}", why);
    c.session.captures = true;
    c.give(fd, false);
    return done();
}

Outcome stop_capture(Call& c) {
    if (!c.session.captures) return fail(ENOENT, "this session captures nothing");
    const CaptureCounts counts = c.state.platform.stop_capture(c.session.id);
    c.session.captures = false;
    c.answer(abi::StopCaptureReply{counts.captured, counts.missed});
    return done();
}

}  // namespace roci::host::sessions
