// The functions by which a simulated client creates, changes and destroys objects.
#include <infiniband/verbs.h>

#include <cstring>
#include <stdexcept>

#include "sim/client.hpp"
#include "sim/world.hpp"

namespace roci::sim {

uint32_t Client::alloc_pd() {
    abi::HandleReply r{};
    return must(try_call(abi::Op::alloc_pd, abi::Empty{}, r), r, "alloc_pd").handle;
}

Mr& Client::reg_mr(uint32_t pd, uint64_t length, const MrOptions& o) {
    auto mr = std::make_unique<Mr>();
    mr->length = length;
    mr->iova = o.iova;
    const uint64_t all = length + 2 * Mr::kGuard;
    mr->memory = std::make_unique<std::byte[]>(all);
    std::memset(mr->memory.get(), Mr::kGuardByte, all);
    std::memset(mr->data(), 0, length);
    if (!o.slow) {
        const int fd = host_.platform().lend(mr->memory.get(), all);
        abi::AddRegionRequest add{all, o.writable ? 1u : 0u, 0};
        abi::HandleReply region{};
        must(call(abi::Op::add_region, std::as_bytes(std::span(&add, 1)), std::as_writable_bytes(std::span(&region, 1)),
                  std::span(&fd, 1)),
             "add_region");
        mr->region = region.handle;
    }
    const uint64_t start = o.slow ? reinterpret_cast<uint64_t>(mr->data()) : Mr::kGuard;
    const uint32_t parts = uint32_t(std::min<uint64_t>(o.segments, length));
    std::vector<std::byte> request(sizeof(abi::RegMrRequest) + parts * sizeof(abi::MrSegment));
    const abi::RegMrRequest head{pd, o.access, mr->address(), length, parts, 0};
    std::memcpy(request.data(), &head, sizeof head);
    for (uint32_t i = 0; i < parts; ++i) {
        const uint64_t from = length * i / parts, to = length * (i + 1) / parts;
        const abi::MrSegment s{mr->region, 0, start + from, to - from};
        std::memcpy(request.data() + sizeof head + i * sizeof s, &s, sizeof s);
    }
    abi::RegMrReply reply{};
    must(call(abi::Op::reg_mr, request, std::as_writable_bytes(std::span(&reply, 1))), "reg_mr");
    mr->handle = reply.handle;
    mr->lkey = reply.lkey;
    mr->rkey = reply.rkey;
    mrs_.push_back(std::move(mr));
    return *mrs_.back();
}

void Client::dereg_mr(Mr& mr) { must(try_call(abi::Op::dereg_mr, abi::HandleRequest{mr.handle, 0}), "dereg_mr"); }

void Client::place_ring(Cq& cq, const abi::CreateCqReply& r) {
    cq.ring.shared = reinterpret_cast<abi::CqShared*>(at(r.where));
    cq.ring.lane_base = at(r.where) + sizeof(abi::CqShared);
    cq.ring.lanes = r.lanes;
    cq.ring.depth = r.depth;
}

Cq& Client::create_cq(uint32_t entries, bool with_channel) {
    auto cq = std::make_unique<Cq>();
    if (with_channel) {
        abi::HandleReply c{};
        cq->channel = must(try_call(abi::Op::create_channel, abi::Empty{}, c), c, "create_channel").handle;
    }
    abi::CreateCqReply r{};
    must(try_call(abi::Op::create_cq, abi::CreateCqRequest{entries, cq->channel, 0, 0}, r), "create_cq");
    cq->handle = r.handle;
    cq->generation = r.generation;
    place_ring(*cq, r);
    cqs_.push_back(std::move(cq));
    return *cqs_.back();
}

Srq& Client::add_srq(const abi::CreateSrqRequest& q) {
    abi::CreateSrqReply r{};
    must(try_call(abi::Op::create_srq, q, r), "create_srq");
    auto srq = std::make_unique<Srq>();
    srq->handle = r.handle;
    srq->generation = r.generation;
    srq->srqn = r.srqn;
    srq->ring = {reinterpret_cast<abi::RqShared*>(at(r.where)), at(r.where) + sizeof(abi::RqShared), r.depth, r.stride};
    if (r.tags.depth != 0) {
        srq->tags = abi::TagProducer(at(r.tags.where), r.tags);
        srq->tag_ring = reinterpret_cast<abi::TagShared*>(at(r.tags.where));
    }
    srqs_.push_back(std::move(srq));
    return *srqs_.back();
}

namespace {

abi::CreateSrqRequest srq_request(uint32_t pd, uint32_t type, uint32_t max_wr, uint32_t max_sge) {
    abi::CreateSrqRequest q{};
    q.pd = pd;
    q.type = type;
    q.max_wr = max_wr;
    q.max_sge = max_sge;
    q.xrcd = q.cq = abi::kNoHandle;
    return q;
}

}  // namespace

Srq& Client::create_srq(uint32_t pd, uint32_t max_wr, uint32_t max_sge) {
    return add_srq(srq_request(pd, IBV_SRQT_BASIC, max_wr, max_sge));
}

Srq& Client::create_xrc_srq(uint32_t pd, uint32_t xrcd, Cq& cq, uint32_t max_wr) {
    abi::CreateSrqRequest q = srq_request(pd, IBV_SRQT_XRC, max_wr, 4);
    q.xrcd = xrcd;
    q.cq = cq.handle;
    return add_srq(q);
}

Srq& Client::create_tag_srq(uint32_t pd, Cq& cq, uint32_t max_wr, uint32_t max_tags, uint32_t max_ops) {
    abi::CreateSrqRequest q = srq_request(pd, IBV_SRQT_TM, max_wr, 4);
    q.cq = cq.handle;
    q.tm_max_tags = max_tags;
    q.tm_max_ops = max_ops;
    return add_srq(q);
}

void Client::set_srq_limit(Srq& srq, uint32_t limit) {
    must(try_call(abi::Op::modify_srq, abi::ModifySrqRequest{srq.handle, IBV_SRQ_LIMIT, 0, limit}), "modify_srq");
}

uint32_t Client::open_xrcd() {
    abi::HandleReply r{};
    return must(try_call(abi::Op::open_xrcd, abi::OpenXrcdRequest{abi::kXrcdCreate, 0}, r), r, "open_xrcd").handle;
}

Window Client::alloc_mw(uint32_t pd, uint32_t type) {
    abi::AllocMwReply r{};
    must(try_call(abi::Op::alloc_mw, abi::AllocMwRequest{pd, type}, r), "alloc_mw");
    return {r.handle, r.rkey};
}

int Client::try_mcast(abi::Op op, const Qp& qp, const Gid& group) {
    abi::McastRequest q{qp.handle, 0, {}};
    std::memcpy(q.gid.raw, group.bytes.data(), sizeof q.gid.raw);
    return try_call(op, q);
}

int Client::try_resize(Cq& cq, uint32_t entries) {
    abi::ResizeCqRequest q{cq.handle, entries, {}};
    std::memcpy(q.consumer, cq.ring.index, sizeof q.consumer);
    abi::CreateCqReply r{};
    if (const int error = try_call(abi::Op::resize_cq, q, r); error != 0) return error;
    const uint32_t armed = cq.ring.shared->arm;
    cq.ring = {};
    place_ring(cq, r);
    cq.ring.shared->arm = armed;
    return 0;
}

int Client::try_resize(Srq& srq, uint32_t entries) {
    abi::ModifySrqReply r{};
    const abi::ModifySrqRequest q{srq.handle, IBV_SRQ_MAX_WR, entries, 0};
    if (const int error = try_call(abi::Op::modify_srq, q, r); error != 0 || r.depth == 0) return error;
    srq.ring.shared = reinterpret_cast<abi::RqShared*>(at(r.where));
    srq.ring.slots = at(r.where) + sizeof(abi::RqShared);
    srq.ring.depth = r.depth;
    return 0;
}

Qp& Client::create_qp(uint32_t pd, Cq& send_cq, Cq& recv_cq, const QpOptions& o) {
    const bool sends = o.type != IBV_QPT_XRC_RECV, receives = sends && o.type != IBV_QPT_XRC_SEND && o.srq == nullptr;
    abi::CreateQpRequest q{};
    q.pd = sends ? pd : abi::kNoHandle;
    q.type = o.type;
    q.send_cq = sends ? send_cq.handle : abi::kNoHandle;
    q.recv_cq = sends && o.type != IBV_QPT_XRC_SEND ? recv_cq.handle : abi::kNoHandle;
    q.srq = o.srq != nullptr ? o.srq->handle : abi::kNoHandle;
    q.xrcd = o.xrcd;
    q.sq_sig_all = o.signal_all ? 1 : 0;
    if (sends) q.cap = {o.max_send_wr, 0, o.max_send_sge, 0, o.max_inline, 0};
    if (receives) q.cap.max_recv_wr = o.max_recv_wr, q.cap.max_recv_sge = o.max_recv_sge;
    abi::CreateQpReply r{};
    must(try_call(abi::Op::create_qp, q, r), "create_qp");
    auto qp = std::make_unique<Qp>();
    qp->handle = r.handle;
    qp->generation = r.generation;
    qp->qpn = r.qpn;
    qp->engine = r.engine;
    qp->slot = r.slot;
    qp->cap = r.cap;
    qp->srq = o.srq;
    qp->type = o.type;
    if (r.sq_depth != 0) {
        qp->sq.shared = reinterpret_cast<abi::SqShared*>(at(r.sq));
        qp->sq.slots = at(r.sq) + sizeof(abi::SqShared);
        qp->sq.depth = r.sq_depth;
        qp->sq.stride = r.sq_stride;
    }
    if (r.rq_depth != 0)
        qp->rq = {reinterpret_cast<abi::RqShared*>(at(r.rq)), at(r.rq) + sizeof(abi::RqShared), r.rq_depth, r.rq_stride};
    by_qpn_[qp->qpn] = qp.get();
    qps_.push_back(std::move(qp));
    return *qps_.back();
}

void Client::destroy_qp(Qp& qp) {
    must(try_call(abi::Op::destroy_qp, abi::HandleRequest{qp.handle, 0}), "destroy_qp");
    by_qpn_.erase(qp.qpn);
}

}  // namespace roci::sim
