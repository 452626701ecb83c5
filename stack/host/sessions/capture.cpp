// Captures of frames for a client (roci pcap): who may see what, and which frames are a QP's.
#include <optional>

#include "host/sessions/handlers.hpp"

namespace roci::host::sessions {
namespace {

struct Found {
    const Session* owner;
    const Qp* qp;
};

std::optional<Found> find_qp(const State& state, uint32_t qpn) {
    std::optional<Found> found;
    for (const auto& [id, s] : state.sessions)
        s->qps.each([&, &session = *s](uint32_t, const Qp& qp) {
            if (qp.spec.qpn.value == qpn) found = {&session, &qp};
        });
    return found;
}

/// A port carries everybody's traffic: it is for root and for the user that rocid runs as. A QP's is for its owner too.
Outcome may_see(const Call& c, uint32_t owner) {
    const uint32_t uid = c.session.who.uid;
    if (uid == 0 || uid == c.state.platform.uid() || uid == owner) return done();
    return fail(EPERM, "user {} may capture its own queue pairs only (--qp); a whole port is for root and the user of rocid",
                uid);
}

Outcome describe_qp(const Call& c, uint32_t qpn, CaptureSpec& spec) {
    const auto found = find_qp(c.state, qpn);
    if (!found) return fail(ENOENT, "no queue pair has the number {}; `roci status` lists them", qpn);
    if (Outcome o = may_see(c, found->owner->who.uid); o.failed()) return o;
    const Qp& qp = *found->qp;
    spec.qpn = qpn;
    spec.device = found->owner->device.value();
    if (qp.spec.type == qp::Type::ud) return done();
    if (qp.attr.dest_qp_num == 0)
        return fail(ENOTCONN, "queue pair {} is not connected yet: which frames go to its peer is not known", qpn);
    spec.peer_qpn = qp.attr.dest_qp_num;
    std::memcpy(spec.peer_gid.bytes.data(), &qp.attr.ah.dgid, sizeof spec.peer_gid.bytes);
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
