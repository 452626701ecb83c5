// Functions that several files of this library use, grouped by the file that implements them. Most of these functions are verbs
// to which a context has pointers (ibv_context.ops and verbs_context).
#pragma once

#include "objects.hpp"

namespace roci::client {

// query.cpp
int query_device_ex(ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex*, size_t);
int query_port_ex(ibv_context*, uint8_t port, ibv_port_attr*, size_t);
int query_rt_values(ibv_context*, ibv_values_ex*);
// mr.cpp
int advise_mr(ibv_pd*, ibv_advise_mr_advice, uint32_t flags, ibv_sge*, uint32_t count);
ibv_mr* alloc_null_mr(ibv_pd*);
/// Fills in the public part of a new MR and adds the MR to the tables.
void publish(Mr& mr, ibv_pd* pd, void* addr, size_t length);
// dm.cpp
ibv_dm* alloc_dm(ibv_context*, ibv_alloc_dm_attr*);
int free_dm(ibv_dm*);
ibv_mr* reg_dm_mr(ibv_pd*, ibv_dm*, uint64_t offset, size_t length, unsigned int access);
// pd.cpp
ibv_td* alloc_td(ibv_context*, ibv_td_init_attr*);
int dealloc_td(ibv_td*);
ibv_pd* alloc_parent_domain(ibv_context*, ibv_parent_domain_init_attr*);
ibv_xrcd* open_xrcd(ibv_context*, ibv_xrcd_init_attr*);
int close_xrcd(ibv_xrcd*);
// mw.cpp
ibv_mw* alloc_mw(ibv_pd*, ibv_mw_type);
int dealloc_mw(ibv_mw*);
int bind_mw(ibv_qp*, ibv_mw*, ibv_mw_bind*);
// cq.cpp
int poll_cq(ibv_cq*, int, ibv_wc*);
int req_notify_cq(ibv_cq*, int solicited_only);
ibv_cq_ex* create_cq_ex(ibv_context*, ibv_cq_init_attr_ex*);
int modify_cq(ibv_cq*, ibv_modify_cq_attr*);
/// Marks the remaining entries of a QP or an SRQ in the ring of a CQ as dead, so that no poll returns them. purge_qp() also frees
/// the SRQ slots of the entries.
void purge_qp(Cq& cq, Context& context, uint32_t qpn);
void purge_srq(Cq& cq, uint32_t srq_handle);
/// Copies the next entry to `out`, removes it from the ring and frees its queue slots. Returns false if the ring is empty. The
/// caller holds the CQ's lock.
bool take_entry(Cq& cq, Context& context, abi::Cqe& out);
// end_of_rocid.cpp
/// Checks at most once per 4 ms whether rocid still runs. Called after an empty poll, without the CQ's lock.
void look_after_rocid(Context& context);
/// Returns true if rocid still serves the session. May be called only if the device page is mapped. Detects the end of rocid at
/// once and without a system call. If rocid runs but has ended only this session, detects the end of the session within 4 ms.
bool rocid_serves(Context& context);
/// Reads the result of a query from the device page. Returns 0, EIO if rocid has ended (also sets errno), or EAGAIN if the caller
/// must send a control call.
template <class Answer>
int ask_page(Context& context, Answer& out) {
    if (!context.page.mapped()) return EAGAIN;
    if (!rocid_serves(context)) return refuse(EIO);
    return context.page.read(out) ? 0 : EAGAIN;
}
/// Makes further posts fail and outstanding requests complete with flush errors. Called by a thread that has detected the end of
/// rocid.
void rocid_ended(Context& context);
/// Sets `out` to a flush error for the next outstanding request of the CQ and frees the request's slot. Returns false if no
/// request of the CQ is outstanding. Called only if Context::flushes is true. The caller holds the CQ's lock.
bool take_flushed(Cq& cq, Context& context, abi::Cqe& out);
// cq_ex.cpp
void set_cq_ex_functions(Cq& cq, uint64_t wc_flags);
// srq.cpp
ibv_srq* create_srq_ex(ibv_context*, ibv_srq_init_attr_ex*);
int get_srq_num(ibv_srq*, uint32_t*);
// tag_matching.cpp
int post_srq_ops(ibv_srq*, ibv_ops_wr*, ibv_ops_wr** bad);
// qp.cpp
ibv_qp* create_qp_ex(ibv_context*, ibv_qp_init_attr_ex*);
ibv_qp* open_qp(ibv_context*, ibv_qp_open_attr*);
// qp_attr.cpp
abi::AhAttr to_abi(const ibv_ah_attr&);
abi::QpAttr to_abi(const ibv_qp_attr&);
void from_abi(const abi::QpAttr&, ibv_qp_attr&);
// post.cpp
int post_send(ibv_qp*, ibv_send_wr*, ibv_send_wr** bad);
int post_recv(ibv_qp*, ibv_recv_wr*, ibv_recv_wr** bad);
int post_srq_recv(ibv_srq*, ibv_recv_wr*, ibv_recv_wr** bad);
/// Returns the opcodes that a QP type may post: bit n stands for number n of enum ibv_wr_opcode.
uint32_t sendable_opcodes(ibv_qp_type type);
/// Publishes the filled slots of the send queue. If the QP was idle, rings the doorbell. If the engine also sleeps, wakes the
/// engine. The caller holds sq_lock.
void ring(Qp& qp);
/// Returns true in the states in which send work requests may be posted (IBA 10.8.2: RTS, SQD, SQE and Error).
bool takes_sends(ibv_qp_state state);
/// Returns the errno of a refused post: EIO if rocid has ended, else `otherwise`.
int refusal(const ibv_context* context, int otherwise);
// qp_ex.cpp
void set_qp_ex_functions(Qp& qp);
/// Returns the IBV_QP_EX_WITH_* flags that a QP type offers.
uint64_t offered_send_ops(ibv_qp_type type);
// fork.cpp
void remember_context(Context*);
/// Decrements the number of opens of the context. If the number is then 0, removes the context from the table and returns true.
bool forget_context(Context*);
/// Finds the open context of this process whose cmd_fd is the same socket as `fd`, and increments the context's number of opens.
/// Returns nullptr if no context has this socket.
Context* find_by_cmd_fd(int fd);
/// Returns the context for requests that need no object of the parent. Normally this is the context itself. If a fork's child
/// inherited the context, returns a new context, which the first such call opens. Returns nullptr if the new context cannot be
/// opened.
Context* serving(Context&);

}  // namespace roci::client
