// The iterator over completions of ibv_cq_ex. start_poll takes the CQ's lock, and end_poll releases the lock.
#include <time.h>

#include "context.hpp"
#include "poller.hpp"

namespace roci::client {
namespace {

int advance(Cq& cq) {
    if (!take_entry(cq, *Context::from(cq.cq.context), cq.current)) return ENOENT;
    cq.cq.status = ibv_wc_status(cq.current.status);
    cq.cq.wr_id = cq.current.wr_id;
    return 0;
}

int start_poll(ibv_cq_ex* p, ibv_poll_cq_attr* attr) {
    if (attr != nullptr && attr->comp_mask != 0) return EINVAL;
    Cq& cq = *Cq::from(p);
    cq.lock.lock();
    const int err = advance(cq);
    if (err == 0) {
        polled();
        return 0;
    }
    cq.lock.unlock();  // after an error the program does not call end_poll
    look_after_rocid(*Context::from(cq.cq.context));
    polled_in_vain(cq);
    return err;
}
int next_poll(ibv_cq_ex* p) { return advance(*Cq::from(p)); }
void end_poll(ibv_cq_ex* p) { Cq::from(p)->lock.unlock(); }

const abi::Cqe& current(ibv_cq_ex* p) { return Cq::from(p)->current; }

ibv_wc_opcode read_opcode(ibv_cq_ex* p) { return ibv_wc_opcode(current(p).opcode); }
uint32_t read_vendor_err(ibv_cq_ex* p) { return current(p).vendor_err; }
unsigned int read_wc_flags(ibv_cq_ex* p) { return current(p).wc_flags; }
uint32_t read_byte_len(ibv_cq_ex* p) { return current(p).byte_len; }
__be32 read_imm_data(ibv_cq_ex* p) { return current(p).imm_or_inv; }
uint32_t read_qp_num(ibv_cq_ex* p) { return current(p).qpn; }
uint32_t read_src_qp(ibv_cq_ex* p) { return current(p).src_qp; }
uint8_t read_sl(ibv_cq_ex* p) { return current(p).sl; }
uint64_t read_completion_ts(ibv_cq_ex* p) { return current(p).timestamp; }

// The following four functions return 0: RoCE has no LIDs, and completions of rocid carry no VLAN and no flow tag.
uint32_t read_slid(ibv_cq_ex*) { return 0; }
uint8_t read_dlid_path_bits(ibv_cq_ex*) { return 0; }
uint16_t read_cvlan(ibv_cq_ex*) { return 0; }
uint32_t read_flow_tag(ibv_cq_ex*) { return 0; }

/// Returns true for a completion of a tagged buffer. In such a completion, src_qp has the app_ctx of the message's TMH.
bool is_tagged(const abi::Cqe& e) { return e.queue == abi::kCqeTag && e.opcode == abi::WcOpcode::tm_recv; }
void read_tm_info(ibv_cq_ex* p, ibv_wc_tm_info* info) { *info = {current(p).tag, is_tagged(current(p)) ? current(p).src_qp : 0}; }

uint64_t nanoseconds(clockid_t clock) {
    timespec t{};
    clock_gettime(clock, &t);
    return uint64_t(t.tv_sec) * 1'000'000'000u + uint64_t(t.tv_nsec);
}
/// Returns the offset of the wall clock from the monotonic clock, in nanoseconds. Time passes between the reads of the two
/// clocks. So the function reads the clocks 8 times and uses the reading that took the least time.
uint64_t wall_clock_lead() {
    uint64_t best = ~uint64_t{0}, lead = 0;
    for (int i = 0; i < 8; ++i) {
        const uint64_t before = nanoseconds(CLOCK_MONOTONIC);
        const uint64_t wall = nanoseconds(CLOCK_REALTIME);
        const uint64_t took = nanoseconds(CLOCK_MONOTONIC) - before;
        if (took >= best) continue;
        best = took;
        lead = wall - (before + took / 2);
    }
    return lead;
}

/// The process computes the offset of the wall clock only once. So the wall-clock times of completions have the same order and
/// the same differences as the timestamps, in all threads. A later step of the wall clock has no effect on the returned times.
uint64_t read_completion_wallclock_ns(ibv_cq_ex* p) {
    static const uint64_t lead = wall_clock_lead();
    return current(p).timestamp + lead;
}

}  // namespace

void set_cq_ex_functions(Cq& cq, uint64_t wc_flags) {
    ibv_cq_ex& f = cq.cq;
    f.start_poll = start_poll;
    f.next_poll = next_poll;
    f.end_poll = end_poll;
    f.read_opcode = read_opcode;
    f.read_vendor_err = read_vendor_err;
    f.read_wc_flags = read_wc_flags;
    const auto set = [&](uint64_t flag, auto& slot, auto function) {
        if ((wc_flags & flag) != 0) slot = function;
    };
    set(IBV_WC_EX_WITH_BYTE_LEN, f.read_byte_len, read_byte_len);
    set(IBV_WC_EX_WITH_IMM, f.read_imm_data, read_imm_data);
    set(IBV_WC_EX_WITH_QP_NUM, f.read_qp_num, read_qp_num);
    set(IBV_WC_EX_WITH_SRC_QP, f.read_src_qp, read_src_qp);
    set(IBV_WC_EX_WITH_SLID, f.read_slid, read_slid);
    set(IBV_WC_EX_WITH_SL, f.read_sl, read_sl);
    set(IBV_WC_EX_WITH_DLID_PATH_BITS, f.read_dlid_path_bits, read_dlid_path_bits);
    set(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, f.read_completion_ts, read_completion_ts);
    set(IBV_WC_EX_WITH_CVLAN, f.read_cvlan, read_cvlan);
    set(IBV_WC_EX_WITH_FLOW_TAG, f.read_flow_tag, read_flow_tag);
    set(IBV_WC_EX_WITH_TM_INFO, f.read_tm_info, read_tm_info);
    set(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, f.read_completion_wallclock_ns, read_completion_wallclock_ns);
}

}  // namespace roci::client
