// ibv_post_srq_ops: posts operations on the tag list of a tag matching SRQ.
#include <unistd.h>

#include "context.hpp"

namespace roci::client {
namespace {

int describe(const ibv_ops_wr& wr, abi::TagOp& op) {
    uint32_t opcode;
    std::memcpy(&opcode, &wr.opcode, sizeof opcode);  // the program's value may be outside the enum
    if (opcode > IBV_WR_TAG_SYNC || (uint32_t(wr.flags) & ~uint32_t(IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC)) != 0) return EINVAL;
    op.wr_id = wr.wr_id;
    op.opcode = abi::TagOpcode(opcode);
    op.flags = uint8_t(wr.flags);
    op.handle = wr.tm.handle;
    op.unexpected_count = wr.tm.unexpected_cnt;
    if (opcode != IBV_WR_TAG_ADD) return 0;
    if (wr.tm.add.num_sge < 0 || uint32_t(wr.tm.add.num_sge) > abi::kMaxTagSge) return EINVAL;
    op.recv_wr_id = wr.tm.add.recv_wr_id;
    op.tag = wr.tm.add.tag;
    op.mask = wr.tm.add.mask;
    op.num_sge = uint16_t(wr.tm.add.num_sge);
    if (op.num_sge != 0) std::memcpy(op.sges, wr.tm.add.sg_list, op.num_sge * sizeof(abi::Sge));
    return 0;
}

int post_one(Srq& srq, ibv_ops_wr& wr) {
    abi::TagOp op{};
    if (const int err = describe(wr, op); err != 0) return err;
    if (const int err = srq.tags.post(op); err != 0) return err;
    if (op.opcode == abi::TagOpcode::add) wr.tm.handle = op.handle;
    return 0;
}

void ring_bell(Context& c, const abi::TagQueue& q) {
    const abi::DoorbellTarget bell{reinterpret_cast<abi::DoorbellPage*>(c.doorbells.base + q.engine * c.doorbell_stride),
                                   &reinterpret_cast<const abi::EnginePage*>(c.engine_page.base)->engine[q.engine]};
    if (!abi::ring_doorbell(bell, q.slot) || c.wake_fd[q.engine] < 0) return;
    const int saved = errno;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(c.wake_fd[q.engine], &one, sizeof one);  // EAGAIN: the engine is awake already
    errno = saved;
}

}  // namespace

int post_srq_ops(ibv_srq* p, ibv_ops_wr* wr, ibv_ops_wr** bad) {
    Srq& srq = *Srq::from(p);
    Context& c = *Context::from(p->context);
    std::lock_guard guard(srq.lock);
    const bool usable = srq.tags.valid() && !c.inherited;
    int err = usable ? 0 : srq.tags.valid() ? EIO : EOPNOTSUPP;
    for (; err == 0 && wr != nullptr; wr = wr->next) {
        err = post_one(srq, *wr);
        if (err != 0) break;
    }
    if (usable && srq.tags.publish()) ring_bell(c, srq.tags.shape());
    if (err != 0) *bad = wr;
    return err;
}

}  // namespace roci::client
