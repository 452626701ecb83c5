#include "host/sessions/dispatch.hpp"

#include <algorithm>

#include "abi/op_names.hpp"
#include "host/objects/handlers.hpp"
#include "host/rdma_cm/service.hpp"
#include "host/sessions/handlers.hpp"
#include "host/sessions/quotas.hpp"

namespace roci::host::sessions {
namespace {

using abi::Op;
using namespace objects;

template <class T>
constexpr uint32_t kSize = std::is_empty_v<T> ? 0 : uint32_t(sizeof(T));

/// Creates the rule of an operation with a fixed body. By default the operation needs an open device and takes no descriptors.
template <class Body>
constexpr OpRule op(Outcome (*handler)(Call&), Stage stage = Stage::device, uint32_t fds = 0) {
    return {kSize<Body>, kSize<Body>, fds, stage, handler};
}

/// The body of hello needs only the magic and the version (8 bytes), so that rocid can refuse clients of other versions with a
/// clear error.
constexpr OpRule kHello{8, kVariable, 0, Stage::connected, hello};
constexpr OpRule kRegMr{sizeof(abi::RegMrRequest), kVariable, 0, Stage::device, reg_mr};
constexpr OpRule kReregMr{sizeof(abi::ReregMrRequest), kVariable, 0, Stage::device, rereg_mr};
constexpr OpRule kModifyQp{sizeof(abi::ModifyQpRequest), kVariable, 0, Stage::device, modify_qp};
constexpr OpRule kQueryPort{0, sizeof(abi::HandleRequest), 0, Stage::device, query_port};
constexpr OpRule kOpenDevice{sizeof(abi::OpenDeviceRequest), sizeof(abi::OpenDeviceRequest), 0, Stage::greeted, open_device, 1};
constexpr OpRule kOpenXrcd{sizeof(abi::OpenXrcdRequest), sizeof(abi::OpenXrcdRequest), 0, Stage::device, open_xrcd, 1};

struct Entry {
    Op number;
    OpRule rule;
};
constexpr Entry kOps[] = {
    {Op::hello, kHello},
    {Op::list_devices, op<abi::Empty>(list_devices, Stage::greeted)},
    {Op::open_device, kOpenDevice},
    {Op::query_device, op<abi::Empty>(query_device)},
    {Op::query_port, kQueryPort},
    {Op::query_gid_table, op<abi::Empty>(query_gid_table)},
    {Op::alloc_pd, op<abi::Empty>(alloc_pd)},
    {Op::dealloc_pd, op<abi::HandleRequest>(dealloc_pd)},
    {Op::add_region, op<abi::AddRegionRequest>(add_region, Stage::device, 1)},
    {Op::remove_region, op<abi::HandleRequest>(remove_region)},
    {Op::reg_mr, kRegMr},
    {Op::rereg_mr, kReregMr},
    {Op::dereg_mr, op<abi::HandleRequest>(dereg_mr)},
    {Op::create_channel, op<abi::Empty>(create_channel)},
    {Op::destroy_channel, op<abi::HandleRequest>(destroy_channel)},
    {Op::create_cq, op<abi::CreateCqRequest>(create_cq)},
    {Op::resize_cq, op<abi::ResizeCqRequest>(resize_cq)},
    {Op::modify_cq, op<abi::ModifyCqRequest>(modify_cq)},
    {Op::destroy_cq, op<abi::HandleRequest>(destroy_cq)},
    {Op::create_srq, op<abi::CreateSrqRequest>(create_srq)},
    {Op::modify_srq, op<abi::ModifySrqRequest>(modify_srq)},
    {Op::query_srq, op<abi::HandleRequest>(query_srq)},
    {Op::destroy_srq, op<abi::HandleRequest>(destroy_srq)},
    {Op::create_qp, op<abi::CreateQpRequest>(create_qp)},
    {Op::modify_qp, kModifyQp},
    {Op::query_qp, op<abi::HandleRequest>(query_qp)},
    {Op::destroy_qp, op<abi::HandleRequest>(destroy_qp)},
    {Op::create_ah, op<abi::CreateAhRequest>(create_ah)},
    {Op::destroy_ah, op<abi::HandleRequest>(destroy_ah)},
    {Op::attach_mcast, op<abi::McastRequest>(attach_mcast)},
    {Op::detach_mcast, op<abi::McastRequest>(detach_mcast)},
    {Op::alloc_mw, op<abi::AllocMwRequest>(alloc_mw)},
    {Op::dealloc_mw, op<abi::HandleRequest>(dealloc_mw)},
    {Op::open_xrcd, kOpenXrcd},
    {Op::close_xrcd, op<abi::HandleRequest>(close_xrcd)},
    {Op::status, op<abi::Empty>(status, Stage::greeted)},
    {Op::alloc_dm, op<abi::AllocDmRequest>(alloc_dm)},
    {Op::free_dm, op<abi::HandleRequest>(free_dm)},
    {Op::reg_dm_mr, op<abi::RegDmMrRequest>(reg_dm_mr)},
    {Op::alloc_null_mr, op<abi::HandleRequest>(alloc_null_mr)},
    {Op::cm_open_channel, op<abi::Empty>(rdma_cm::open_channel, Stage::greeted)},
    {Op::cm_close_channel, op<abi::HandleRequest>(rdma_cm::close_channel, Stage::greeted)},
    {Op::cm_create_id, op<abi::CmCreateIdRequest>(rdma_cm::create_id, Stage::greeted)},
    {Op::cm_destroy_id, op<abi::HandleRequest>(rdma_cm::destroy_id, Stage::greeted)},
    {Op::cm_bind, op<abi::CmBindRequest>(rdma_cm::bind, Stage::greeted)},
    {Op::cm_resolve_addr, op<abi::CmResolveRequest>(rdma_cm::resolve_addr, Stage::greeted)},
    {Op::cm_resolve_route, op<abi::HandleRequest>(rdma_cm::resolve_route, Stage::greeted)},
    {Op::cm_listen, op<abi::CmListenRequest>(rdma_cm::listen, Stage::greeted)},
    {Op::cm_connect, op<abi::CmConnectRequest>(rdma_cm::connect, Stage::greeted)},
    {Op::cm_accept, op<abi::CmConnectRequest>(rdma_cm::accept, Stage::greeted)},
    {Op::cm_establish, op<abi::HandleRequest>(rdma_cm::establish, Stage::greeted)},
    {Op::cm_reject, op<abi::CmRejectRequest>(rdma_cm::reject, Stage::greeted)},
    {Op::cm_notify, op<abi::CmNotifyRequest>(rdma_cm::notify, Stage::greeted)},
    {Op::cm_disconnect, op<abi::HandleRequest>(rdma_cm::disconnect, Stage::greeted)},
    {Op::cm_get_event, op<abi::HandleRequest>(rdma_cm::get_event, Stage::greeted)},
    {Op::cm_qp_attr, op<abi::CmQpAttrRequest>(rdma_cm::qp_attr, Stage::greeted)},
    {Op::cm_query, op<abi::HandleRequest>(rdma_cm::query, Stage::greeted)},
    {Op::cm_set_option, op<abi::CmOptionRequest>(rdma_cm::set_option, Stage::greeted)},
    {Op::cm_migrate, op<abi::CmMigrateRequest>(rdma_cm::migrate, Stage::greeted)},
    {Op::cm_join, op<abi::CmJoinRequest>(rdma_cm::join, Stage::greeted)},
    {Op::cm_leave, op<abi::CmLeaveRequest>(rdma_cm::leave, Stage::greeted)},
    {Op::cm_write_event, op<abi::CmWriteEventRequest>(rdma_cm::write_event, Stage::greeted)},
    {Op::start_capture, op<abi::StartCaptureRequest>(start_capture, Stage::greeted)},
    {Op::stop_capture, op<abi::Empty>(stop_capture, Stage::greeted)},
    {Op::open_qp, op<abi::OpenQpRequest>(open_qp)},
    {Op::counters, op<abi::Empty>(counters, Stage::greeted)},
    {Op::why, op<abi::WhyRequest>(why, Stage::greeted)},
    {Op::add_chunk, op<abi::AddChunkRequest>(add_chunk, Stage::device, 1)},
    {Op::send_posted, op<abi::HandleRequest>(send_posted)},
};

/// Returns true if kOps contains all operations in the order of their numbers. find_op() uses the number as an index.
constexpr bool complete() {
    for (size_t i = 0; i < std::size(kOps); ++i) {
        if (size_t(kOps[i].number) != i + 1) return false;
    }
    return std::size(kOps) + 1 == size_t(Op::last_op);
}
static_assert(complete());

Outcome check_stage(const Call& call, const OpRule& rule, const char* name) {
    if (rule.stage >= Stage::greeted && !call.session.greeted)
        return fail(EPROTO, "{} before hello: hello must be the first message", name);
    if (rule.stage == Stage::device && !call.session.device)
        return fail(ENODEV, "{} needs an open device: send open_device first", name);
    return done();
}

Outcome check_shape(const Call& call, const OpRule& rule, const char* name) {
    if (call.request.size() < rule.min_body) {
        return fail(EINVAL, "{}: body of {} bytes, at least {} are needed", name, call.request.size(), rule.min_body);
    }
    // A newer client may send fields that this rocid does not know. Such a field must be 0, which means that the client does not
    // use the field.
    const auto unknown = rule.known_body == kVariable ? std::span<const std::byte>{} : call.after(rule.known_body);
    if (std::any_of(unknown.begin(), unknown.end(), [](std::byte b) { return b != std::byte{0}; })) {
        return fail(E2BIG, "{}: body has fields beyond byte {} that this rocid does not know; update rocid", name,
                    rule.known_body);
    }
    if (call.received.count() < rule.fds)
        return fail(EBADF, "{}: {} file descriptors received, {} needed", name, call.received.count(), rule.fds);
    if (call.received.count() > rule.fds + rule.optional_fds)
        return fail(EINVAL, "{}: {} file descriptors received, {} needed", name, call.received.count(), rule.fds);
    return done();
}

}  // namespace

const OpRule* find_op(Op number) {
    const size_t index = size_t(number) - 1;
    return index < std::size(kOps) ? &kOps[index].rule : nullptr;
}

Outcome dispatch(Call& call, Op number) {
    const OpRule* rule = find_op(number);
    if (rule == nullptr)
        return fail(EOPNOTSUPP, "operation {} is not known to this rocid (ABI version {})", unsigned(number), abi::kAbiVersion);
    const char* name = abi::op_name(number);
    if (Outcome o = check_stage(call, *rule, name); o.failed()) return o;
    if (Outcome o = check_shape(call, *rule, name); o.failed()) return o;
    if (Outcome o = check_quota(call, number); o.failed()) return o;
    Outcome o = rule->handler(call);
    if (o.failed() && !o.waits_for) rdma_cm::note_refusal(call.state, call.session, call.request, name, o.reason);
    return o;
}

}  // namespace roci::host::sessions
