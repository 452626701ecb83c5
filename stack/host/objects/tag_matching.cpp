#include "host/objects/tag_matching.hpp"

#include <bit>

namespace roci::host::objects {
namespace {

Outcome check_tag_size(const abi::CreateSrqRequest& in) {
    if (in.tm_max_tags == 0 || in.tm_max_tags > kTagCaps.max_num_tags)
        return fail(EINVAL, "tag matching SRQ with {} tags: 1 to {} are possible", in.tm_max_tags, kTagCaps.max_num_tags);
    if (in.tm_max_ops == 0 || in.tm_max_ops > kTagCaps.max_ops)
        return fail(EINVAL, "tag matching SRQ with {} operations: 1 to {} are possible", in.tm_max_ops, kTagCaps.max_ops);
    return done();
}

qp::TagSpec locate(std::byte* base, const abi::TagQueue& q) {
    qp::TagSpec t;
    t.shared = reinterpret_cast<abi::TagShared*>(base);
    t.shared->idle = 1;  // engines do not poll a new ring, so the first post must ring the doorbell
    t.ops = reinterpret_cast<const abi::TagOp*>(base + sizeof(abi::TagShared));
    t.given_back = reinterpret_cast<uint32_t*>(base + sizeof(abi::TagShared) + q.depth * sizeof(abi::TagOp));
    t.depth = q.depth;
    t.handles = q.handles;
    t.max_tags = q.max_tags;
    t.slot = q.slot;
    return t;
}

}  // namespace

Outcome add_tag_matching(Call& c, const abi::CreateSrqRequest& in, Srq& srq, qp::SrqSpec& spec, abi::TagQueue& reply) {
    if (in.type != kTagMatchingSrq) return done();
    if (Outcome o = check_tag_size(in); o.failed()) return o;
    Cq* cq;
    if (Outcome o = look_up(c.session.cqs, in.cq, "CQ", cq); o.failed()) return o;
    const auto slot = c.session.tag_slots.allocate();
    if (!slot) return fail(ENOMEM, "session has {} tag matching SRQs, the limit", abi::kTagSlots);
    srq.tag_slot = TagSlot(c.session.tag_slots, *slot);
    reply.max_tags = in.tm_max_tags;
    reply.max_ops = in.tm_max_ops;
    reply.depth = std::bit_ceil(in.tm_max_ops);
    reply.handles = std::bit_ceil(in.tm_max_tags);
    reply.engine = spec.engine;
    reply.slot = abi::kFirstTagSlot + *slot;
    if (Outcome o = c.session.arena.allocate(abi::tag_queue_bytes(reply.depth, reply.handles), srq.tags); o.failed()) return o;
    reply.where = srq.tags.where();
    spec.tags = locate(srq.tags.base(), reply);
    spec.cq = &cq->ring;
    srq.cq = Use(cq->ring.use_count);
    return done();
}

Outcome check_tag_qp(const abi::CreateQpRequest& in, const Pd& pd, const Srq* srq) {
    if (!matches_tags(srq)) return done();
    if (in.type != uint32_t(qp::Type::rc)) return fail(EINVAL, "a tag matching SRQ serves RC QPs only");
    if (srq->spec().pd != pd.number) return fail(EINVAL, "a QP must have the PD of its tag matching SRQ");
    return done();
}

abi::QpCap rendezvous_cap() {
    abi::QpCap cap{};
    cap.max_send_wr = qp::kRendezvous;
    cap.max_send_sge = abi::kMaxTagSge;
    cap.max_inline_data = qp::kRndvBytes;
    return cap;
}

}  // namespace roci::host::objects
