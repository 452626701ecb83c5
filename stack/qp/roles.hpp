// The roles of a QP: one file each, functions over the state.
#pragma once

#include "qp/context.hpp"
#include "wire/packet.hpp"

namespace roci::qp {

// ---- fetch.cpp: from the client's ring to the engine's
/// Copies and validates posted WQEs as long as there is room. True if any was taken.
bool fetch(Context& ctx, Qp& qp);
/// True if the client has posted WQEs that were not fetched yet.
bool posted(const Qp& qp);

// ---- requester.cpp: sending requests
/// Sends up to `quantum` request packets. Returns how many.
uint32_t send_requests(Context& ctx, Qp& qp, uint32_t quantum);
/// True if send_requests() would send something now (given room on the port).
bool has_requests(const Context& ctx, const Qp& qp);

// ---- completer.cpp: ACKs and responses to what we asked
/// Completes local operations (memory windows) that were done and are the oldest now.
void retire_local(Context& ctx, Qp& qp);
void receive_response(Context& ctx, Qp& qp, const wire::Packet& packet);

// ---- retry.cpp: timers and going back
/// Back to the oldest unacknowledged packet: everything from there on is sent again.
void roll_back(Context& ctx, Qp& qp);
/// Restarts the local ACK timer after progress, or stops it when nothing is awaited.
void restart_ack_timer(Context& ctx, Qp& qp);
/// Counts one retry. False: none is left, the QP has gone to ERR with `status` on the oldest WQE.
bool take_retry(Context& ctx, Qp& qp, uint8_t& left, abi::WcStatus status);
void on_timer(Context& ctx, Qp& qp);

// ---- responder.cpp: executing requests
void receive_request(Context& ctx, Qp& qp, const wire::Packet& packet);

// ---- ud.cpp: datagrams
/// Fills in where a datagram goes. nullptr: the address handle is not valid for this QP.
const wire::PathTemplate* address_datagram(Context& ctx, const Qp& qp, const abi::SendWqe& w, wire::TransportHeaders& h);
void receive_datagram(Context& ctx, Qp& qp, const wire::Packet& packet);

// ---- respond.cpp: READ responses, atomic responses, ACKs and NAKs
/// Sends what is due, up to `quantum` packets, in PSN order. Returns how many.
uint32_t send_responses(Context& ctx, Qp& qp, uint32_t quantum);
bool has_responses(const Qp& qp);

// ---- receive_queue.cpp: receive WQEs
enum class TakeRecv : uint8_t { ok, empty, malformed, no_queue };
/// Takes the next receive WQE of the QP's RQ or SRQ, or of the SRQ that the XRC packet names, into responder.recv.
TakeRecv take_recv(Context& ctx, Qp& qp, const wire::Packet* packet);
/// Raises SRQ_LIMIT_REACHED if fewer WQEs are left than the armed limit.
void check_srq_limit(Context& ctx, Srq& srq);
/// Receive WQEs posted and not taken.
uint32_t recv_available(const Qp& qp);

// ---- completion.cpp: CQEs, events, errors
void complete_send(Context& ctx, Qp& qp, uint32_t index, abi::WcStatus status);
void complete_recv(Context& ctx, Qp& qp, const wire::Packet* packet, abi::WcStatus status, uint32_t byte_len);
void raise(Context& ctx, Qp& qp, uint32_t ibv_event_type);
void raise_srq(Context& ctx, const Srq& srq, uint32_t ibv_event_type);
/// Oldest WQE completes with `status`, the QP goes to ERR (UC, UD: to SQE), everything else is flushed.
void fail_send(Context& ctx, Qp& qp, abi::WcStatus status);
void enter_error(Context& ctx, Qp& qp);
/// In SQD: tells the client once everything that was begun is complete.
void report_drained(Context& ctx, Qp& qp);
/// In ERR (SQE: of the send queue only): completes whatever is queued with WR_FLUSH_ERR.
void flush_queues(Context& ctx, Qp& qp);
/// Sends the completion events of this poll, and events that found the ring full.
void notify_all(Context& ctx);

// ---- lifecycle.cpp: RESET .. ERR as modify_qp asks, snapshots
int apply_change(Context& ctx, Qp& qp, const Change& change);
void snapshot(const Qp& qp, Snapshot& out);
/// Takes the QP out of every list of this engine.
void detach(Context& ctx, Qp& qp);

}  // namespace roci::qp
