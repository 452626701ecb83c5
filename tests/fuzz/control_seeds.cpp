#include "control_seeds.hpp"

#include <infiniband/verbs.h>

#include "connector.hpp"
#include "records.hpp"
#include "targets.hpp"

namespace roci::fuzz::control {
namespace {

using abi::Op;

/// Two clients whose requests are recorded.
struct Recorder {
    Rig rig{1, 2};
    Bytes bytes;
    Client a{rig.host(), 0, kHostile}, b{(open(0), rig.host()), 1, kHostile};

    Recorder() {
        open(1);
        a.set_watch([this](Op op, std::span<const std::byte> body) { add(op, 0, body); });
        b.set_watch([this](Op op, std::span<const std::byte> body) { add(op, 1, body); });
    }
    void add(Op op, uint8_t session, std::span<const std::byte> body) {
        const uint8_t descriptors = op == Op::add_region ? 1 : 0;
        append(bytes, uint8_t(op),
               Body().put(session).put(descriptors).put({reinterpret_cast<const uint8_t*>(body.data()), body.size()}));
    }
    /// Records the requests that the constructor of a client has sent.
    void open(uint8_t session) {
        const abi::HelloRequest hello{abi::kHelloMagic, abi::kAbiVersion, "simulator"};
        const abi::OpenDeviceRequest device{session, 0};
        add(Op::hello, session, std::as_bytes(std::span(&hello, 1)));
        add(Op::open_device, session, std::as_bytes(std::span(&device, 1)));
    }
    void pass(uint16_t microseconds) {
        append(bytes, kRun, Body().put(microseconds));
        rig.world().run_for(1'000 * uint64_t(microseconds));
    }
    uint32_t handle(Op op, const auto& request) {
        abi::HandleReply r{};
        require(a.try_call(op, request, r) == 0, "a seed of the control target is valid");
        return r.handle;
    }
    void call(Op op, const auto& request) { require(a.try_call(op, request) == 0, "a seed of the control target is valid"); }
    void call(Op op, uint32_t handle) { call(op, abi::HandleRequest{handle, 0}); }
};

Bytes memory() {
    Recorder r;
    for (const Op op : {Op::list_devices, Op::query_device, Op::query_port, Op::query_gid_table}) r.call(op, abi::Empty{});
    const uint32_t pd = r.a.alloc_pd();
    Mr& mr = r.a.reg_mr(pd, Party::kBytes, {.segments = 2, .iova = Party::kAddress});
    r.call(Op::rereg_mr, abi::ReregMrRequest{mr.handle, IBV_REREG_MR_CHANGE_ACCESS, {pd, IBV_ACCESS_LOCAL_WRITE, 0, 0, 0, 0}});
    r.call(Op::dealloc_mw, r.a.alloc_mw(pd, IBV_MW_TYPE_2).handle);
    const uint32_t dm = r.handle(Op::alloc_dm, abi::AllocDmRequest{4096, 6, 0});
    const uint32_t dm_mr =
        r.handle(Op::reg_dm_mr, abi::RegDmMrRequest{pd, dm, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED, 0, 0, 64});
    const uint32_t null_mr = r.handle(Op::alloc_null_mr, abi::HandleRequest{pd, 0});
    for (const uint32_t h : {dm_mr, null_mr}) r.call(Op::dereg_mr, h);
    r.call(Op::free_dm, dm);
    r.a.dereg_mr(mr);
    r.call(Op::remove_region, mr.region);
    r.call(Op::dealloc_pd, pd);
    return r.bytes;
}

Bytes diagnosis() {
    Recorder r;
    const uint32_t pd = r.a.alloc_pd();
    Cq& cq = r.a.create_cq(16);
    const Qp& qp = r.a.create_qp(pd, cq, cq);
    r.call(Op::status, abi::Empty{});
    r.call(Op::why, abi::WhyRequest{qp.qpn, 0});
    r.call(Op::why, abi::WhyRequest{0, 1});
    (void)r.a.try_call(Op::counters, abi::Empty{});
    (void)r.a.try_call(Op::start_capture, abi::StartCaptureRequest{0, 0, 128, 0});
    (void)r.a.try_call(Op::stop_capture, abi::Empty{});
    const abi::AddChunkRequest chunk{1 << 20};
    const uint8_t of_memory = 1 | 2 << 2;
    append(r.bytes, uint8_t(Op::add_chunk), Body().put(uint8_t(0)).put(of_memory).put(chunk));
    append(r.bytes, kRaw, Body().put(uint8_t(0)).put(uint8_t(0)).put(uint16_t(3)));
    append(r.bytes, kClose, Body().put(uint8_t(0)).put(uint8_t(0)));
    return r.bytes;
}

Bytes completion_queues() {
    Recorder r;
    Cq& cq = r.a.create_cq(16, true);
    require(r.a.try_resize(cq, 64) == 0, "a CQ can be resized");
    r.call(Op::modify_cq, abi::ModifyCqRequest{cq.handle, 4, 10, 0});
    r.call(Op::destroy_cq, cq.handle);
    r.call(Op::destroy_channel, cq.channel);
    return r.bytes;
}

Bytes shared_receive_queues() {
    Recorder r;
    const uint32_t pd = r.a.alloc_pd(), xrcd = r.a.open_xrcd();
    Cq& cq = r.a.create_cq(64);
    Srq& srq = r.a.create_srq(pd, 16);
    r.a.set_srq_limit(srq, 4);
    require(r.a.try_resize(srq, 64) == 0, "an SRQ can be resized");
    const Srq& xrc = r.a.create_xrc_srq(pd, xrcd, cq, 16);
    const Srq& tags = r.a.create_tag_srq(pd, cq, 16, 8, 8);
    const Qp& target = r.a.create_qp(pd, cq, cq, {.type = IBV_QPT_XRC_RECV, .xrcd = xrcd});
    r.call(Op::query_srq, srq.handle);
    const uint32_t again = r.handle(Op::open_qp, abi::OpenQpRequest{xrcd, target.qpn, IBV_QPT_XRC_RECV, 0});
    for (const uint32_t qp : {again, target.handle}) r.call(Op::destroy_qp, qp);
    for (const uint32_t h : {srq.handle, xrc.handle, tags.handle}) r.call(Op::destroy_srq, h);
    r.call(Op::close_xrcd, xrcd);
    return r.bytes;
}

Bytes queue_pairs() {
    Recorder r;
    const uint32_t pd = r.a.alloc_pd();
    Cq& cq = r.a.create_cq(64);
    Qp &one = r.a.create_qp(pd, cq, cq), &other = r.a.create_qp(pd, cq, cq),
       &ud = r.a.create_qp(pd, cq, cq, {.type = IBV_QPT_UD});
    sim::connect(r.a, one, r.a, other);
    r.a.to_init(ud, 0x1111);
    const Gid group{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3}};
    for (const Op op : {Op::attach_mcast, Op::detach_mcast}) require(r.a.try_mcast(op, ud, group) == 0, "a QP can join a group");
    r.call(Op::send_posted, ud.handle);
    r.call(Op::destroy_ah, r.a.create_ah(pd, r.a.self(other)));
    r.a.query(one);
    for (const uint32_t state : {uint32_t(IBV_QPS_ERR), uint32_t(IBV_QPS_RESET)}) r.a.to_state(one, state);
    for (Qp* qp : {&one, &other, &ud}) r.a.destroy_qp(*qp);
    r.call(Op::destroy_cq, cq.handle);
    return r.bytes;
}

/// A QP towards an address without a known MAC address. The reply comes after the resolution has failed.
Bytes unknown_neighbour() {
    Recorder r;
    const uint32_t pd = r.a.alloc_pd();
    sim::Peer nobody = {1, r.rig.host().device(0).gids[0], {}};
    nobody.gid.bytes[15] = 88;
    try {
        r.a.create_ah(pd, nobody);
    } catch (const std::exception&) {
    }
    append(r.bytes, kRun, Body().put(uint16_t(60'000)));
    return r.bytes;
}

struct Connected {
    Recorder& r;
    Connector from{r.a, [this] { r.pass(50); }}, to{r.b, [this] { r.pass(50); }};
    const Gid& own = r.rig.host().device(0).gids[0];
    const Gid& peer = r.rig.host().device(1).gids[0];
    uint32_t pd_a = r.a.alloc_pd(), pd_b = r.b.alloc_pd();
    Cq &cq_a = r.a.create_cq(16), &cq_b = r.b.create_cq(16);
    Qp& qp_a(uint32_t type = IBV_QPT_RC) { return r.a.create_qp(pd_a, cq_a, cq_a, {.type = type}); }
    Qp& qp_b(uint32_t type = IBV_QPT_RC) { return r.b.create_qp(pd_b, cq_b, cq_b, {.type = type}); }
};

Bytes connections() {
    Recorder r;
    Connected c{r};
    c.to.listen(c.peer);
    const auto [id, child] = connect(c.from, c.to, c.qp_a(), c.qp_b());
    for (const uint32_t state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) r.call(Op::cm_qp_attr, abi::CmQpAttrRequest{id, state});
    r.call(Op::cm_query, id);
    abi::CmOptionRequest tos{id, 0, 0, 1, {8}};
    r.call(Op::cm_set_option, tos);
    r.call(Op::cm_write_event, abi::CmWriteEventRequest{id, 18, 0, 0, 5});
    (void)c.from.event();
    r.call(Op::cm_migrate, abi::CmMigrateRequest{id, r.handle(Op::cm_open_channel, abi::Empty{})});
    r.call(Op::cm_disconnect, id);
    r.pass(100);
    (void)c.to.call(Op::cm_disconnect, child);
    r.call(Op::cm_destroy_id, id);
    r.call(Op::cm_close_channel, c.from.channel());
    return r.bytes;
}

/// Two connection requests: the first is rejected, and the first message of the second arrives before the RTU.
Bytes other_connections() {
    Recorder r;
    Connected c{r};
    c.to.listen(c.peer);
    Qp &qp_a = c.qp_a(), &qp_b = c.qp_b();
    const uint32_t refused = c.from.resolve(c.own, r.b.self(qp_b));
    (void)c.from.connect(Op::cm_connect, refused, qp_a.qpn);
    abi::CmRejectRequest reject{};
    reject.id = c.to.event().id;
    (void)r.b.try_call(Op::cm_reject, reject);
    (void)c.from.event();
    const uint32_t id = c.from.resolve(c.own, r.b.self(qp_b));
    (void)c.from.connect(Op::cm_connect, id, qp_a.qpn);
    const uint32_t child = c.to.event().id;
    (void)c.to.connect(Op::cm_accept, child, qp_b.qpn);
    require(r.b.try_call(Op::cm_notify, abi::CmNotifyRequest{child, IBV_EVENT_COMM_EST}) == 0, "a first message can be reported");
    (void)c.from.event();
    r.call(Op::cm_establish, id);
    return r.bytes;
}

Bytes datagrams() {
    Recorder r;
    Connected c{r};
    c.to.listen(c.peer, Connector::kUdp);
    Qp &qp_a = c.qp_a(IBV_QPT_UD), &qp_b = c.qp_b(IBV_QPT_UD);
    const uint32_t id = c.from.resolve(c.own, r.b.self(qp_b), Connector::kUdp);
    (void)c.from.connect(Op::cm_connect, id, qp_a.qpn);
    (void)c.to.connect(Op::cm_accept, c.to.event().id, qp_b.qpn);
    (void)c.from.event();
    abi::CmJoinRequest join{id, 0, {2, 0, 0, {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3}}}};
    const uint32_t group = r.handle(Op::cm_join, join);
    (void)c.from.event();
    r.call(Op::cm_leave, abi::CmLeaveRequest{id, group});
    return r.bytes;
}

}  // namespace

std::vector<Bytes> seeds() {
    return {memory(),      diagnosis(),         completion_queues(), shared_receive_queues(), queue_pairs(), unknown_neighbour(),
            connections(), other_connections(), datagrams()};
}

}  // namespace roci::fuzz::control
