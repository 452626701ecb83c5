// The roles of a QP: functions over its state, one file per role. work_source.hpp declares the source of send work, and
// receive_source.hpp declares the source of receive buffers.
#pragma once

#include "qp/context.hpp"
#include "qp/work_source.hpp"
#include "wire/packet.hpp"

namespace roci::qp {

// ---- tag_matching.cpp
/// Removes an unexpected message that was not received completely from the count of unexpected messages.
void forget_unexpected(TagSrq& t);
/// Drops the current message and the outstanding rendezvous. Called when the QP is reset or removed.
void forget_tagged(Qp& qp);
/// Called for a doorbell. Executes list operations that the client has posted. Returns true if operations may remain; the
/// caller then calls again.
bool take_tag_operations(Context& ctx, Srq& srq);

// ---- rendezvous.cpp: READ and FIN, by the QP's own requester
/// Adds a rendezvous with the matched buffer. The caller has checked that a job of the QP is free.
void begin_rendezvous(Context& ctx, Qp& qp, const TagEntry& entry, const wire::Packet& packet);

// ---- requester.cpp: sending requests
/// Sends up to `quantum` request packets. Returns the number sent.
uint32_t send_requests(Context& ctx, Qp& qp, uint32_t quantum);
/// Returns true if send_requests() would send a packet now, provided that the port accepts frames.
bool has_requests(const Context& ctx, const Qp& qp);
/// Returns true if the congestion controller delays the QP. The QP's timer then puts it on the run queue again.
bool hold_back(Context& ctx, Qp& qp);

// ---- completer.cpp: ACKs and responses to our requests
/// Completes the executed local operations (memory windows) at the head of the send queue.
void retire_local(Context& ctx, Qp& qp);
void receive_response(Context& ctx, Qp& qp, const wire::Packet& packet);
/// Executes one response only, without the kept responses behind it. `kept`: the packet was counted when it arrived.
void execute_response(Context& ctx, Qp& qp, const wire::Packet& packet, bool kept = false);
/// Completes a response that waited for slow memory. `good` is false if its bytes could not be stored.
void finish_response(Context& ctx, Qp& qp, const wire::Packet& packet, bool good);
/// Called when a later packet shows that a response is lost. Requests the response again, if a retry is left.
void implied_nak(Context& ctx, Qp& qp);

// ---- retry.cpp: timers and retransmission from the oldest packet on
/// Goes back to the oldest unacknowledged packet: all packets from there on are sent again.
void roll_back(Context& ctx, Qp& qp);
/// Restarts the local ACK timer and the deadline of the probe. Stops both if nothing is outstanding.
void restart_ack_timer(Context& ctx, Qp& qp);
/// Like restart_ack_timer(), but does not change the deadline of the probe.
void extend_ack_timer(Context& ctx, Qp& qp);
// ---- repair.cpp: retransmission of lost packets only
/// Called when the peer reports the oldest unacknowledged packet as missing.
void request_lost(Context& ctx, Qp& qp);
/// Called when a later response arrived but earlier responses are missing. Requests the missing responses again.
void response_lost(Context& ctx, Qp& qp);
/// Called when the peer reports request `psn` as missing while responses to earlier requests are missing. If the peer keeps
/// packets behind a lost one, sends the request again now.
void later_request_lost(Context& ctx, Qp& qp, Psn psn);
/// Called for a loss report. Begins to send again what the peer lacks and what is not under way.
void repeat_reported(Context& ctx, Qp& qp);
/// Called after an acknowledgement. Measures the round trip and determines what the acknowledgement shows about the repair.
void observe_repair(Context& ctx, Qp& qp);
/// Restarts the deadline of the probe. The caller updates the timer.
void arm_probe(Context& ctx, Qp& qp);
/// Sends a probe. Called after a few round trips without progress.
void probe(Context& ctx, Qp& qp);

// ---- retry.cpp
/// Takes one of the retries that are `left`. If none is left, completes the oldest WQE with `status`, moves the QP to ERR and
/// returns false.
bool take_retry(Context& ctx, Qp& qp, uint8_t& left, abi::WcStatus status);
void on_timer(Context& ctx, Qp& qp);

// ---- responder.cpp: executing requests
void receive_request(Context& ctx, Qp& qp, const wire::Packet& packet);
/// Executes one request only, without the kept requests behind it.
void execute_request(Context& ctx, Qp& qp, const wire::Packet& packet);
/// Completes a request that waited for slow memory. `good` is false if its bytes could not be accessed. `original` is the value
/// before an atomic.
void finish_request(Context& ctx, Qp& qp, const wire::Packet& packet, bool good, uint64_t original);
/// Schedules a sequence NAK, unless a NAK was scheduled since the expected PSN last arrived (C9-113).
void nak_gap(Context& ctx, Qp& qp);

// ---- replay.cpp
/// Answers a repeated READ or atomic from the requested PSN on. Replays do not count against max_dest_rd_atomic; a separate limit
/// of the same size applies to them. Replays beyond this limit are dropped, and the requester repeats its request.
void answer_again(Context& ctx, Qp& qp, ResponderJob job);

// ---- ud.cpp: datagrams
/// Fills in the destination of a datagram. Returns nullptr if the address handle is not valid for this QP.
const wire::PathTemplate* address_datagram(Context& ctx, const Qp& qp, const abi::SendWqe& w, wire::TransportHeaders& h);
/// Adds the number of QPs of this rocid that receive copies of a multicast datagram to Context::copies.
void count_copies(Context& ctx, const abi::SendWqe& w);
void receive_datagram(Context& ctx, Qp& qp, const wire::Packet& packet);
void finish_datagram(Context& ctx, Qp& qp, const wire::Packet& packet, bool good);

// ---- respond.cpp: READ responses, atomic responses, ACKs and NAKs
/// Sends due responses in PSN order, then a due ACK or NAK, then a due loss report, up to `quantum` packets. Returns the number
/// sent.
uint32_t send_responses(Context& ctx, Qp& qp, uint32_t quantum);
bool has_responses(const Qp& qp);
/// Sends a congestion notification packet to the peer (RoCEv2 annex A17.9.3). Returns false if the port accepts no frame; the
/// next marked frame then causes another notification.
bool send_notification(Context& ctx, Qp& qp);

// ---- receive_queue.cpp: receive WQEs
enum class TakeRecv : uint8_t {
    ok,
    empty,
    malformed,
    no_queue,
    refused,
    too_short,
    waits,  ///< waits for slow memory; the packet takes effect later
    lost,   ///< the packet had to wait for slow memory, but could not be kept; it is treated as not received
};
/// Takes the next receive WQE of the QP's RQ or SRQ, or of the SRQ that the XRC packet names, and stores it in responder.recv. If
/// the buffers of the WQE have fewer than `least` bytes, leaves the WQE in the queue and returns too_short.
TakeRecv take_recv(Context& ctx, Qp& qp, const wire::Packet* packet, uint64_t least = 0);
/// Raises SRQ_LIMIT_REACHED if fewer WQEs than the armed limit are left.
void check_srq_limit(Context& ctx, Srq& srq);
/// Returns the number of receive WQEs that are posted and not taken.
uint32_t recv_available(const Qp& qp);
/// Returns the number of receives that an ACK may announce for a QP's own queue. Counts the receives that the engine knows of.
/// Reads the client's index only if fewer than half of the receives at the last read are left.
uint32_t recv_credits(Qp& qp);

// ---- completion.cpp: CQEs, events, errors
/// Completes the oldest send WQE.
void complete_send(Context& ctx, Qp& qp, abi::WcStatus status, abi::Reason reason = abi::Reason::none);
void complete_recv(Context& ctx, Qp& qp, const wire::Packet* packet, abi::WcStatus status, uint32_t byte_len,
                   abi::Reason reason = abi::Reason::none);
/// Writes a completion of an operation on the SRQ's list or of a tagged buffer. `qp` is nullptr if the completion belongs to no
/// QP.
void complete_tag(Context& ctx, const Srq& srq, Qp* qp, abi::Cqe& e, bool solicited);
void raise(Context& ctx, Qp& qp, abi::AsyncEvent event);
void raise_srq(Context& ctx, const Srq& srq, abi::AsyncEvent event);
/// Completes the oldest send WQE with `status` and moves the QP to ERR (UC, UD: to SQE). The other WQEs are then flushed, in SQE
/// only those of the send queue.
void fail_send(Context& ctx, Qp& qp, abi::WcStatus status);
void enter_error(Context& ctx, Qp& qp);
/// Raises SQ_DRAINED if the QP is in SQD, all started requests are complete and the client asked for the event.
void report_drained(Context& ctx, Qp& qp);
/// Completes a limited number of queued WQEs with WR_FLUSH_ERR, in SQE only those of the send queue. Does nothing while a worker
/// may still write buffers of the QP.
void flush_queues(Context& ctx, Qp& qp);
/// Writes out the completions of this poll, then sends the events for which the ring was full earlier, then the completion
/// events.
void notify_all(Context& ctx);
/// Executes a full fence, then checks once more for sleeping threads that poll CQs with new entries. The fence waits until all
/// stores have reached the cache, so it is not executed in every round.
void settle_sleepers(Context& ctx);

// ---- journal.cpp: unusual events, for `roci why`. These functions are not on the hot path. With ROCI_UNRECORDED, note() does
// nothing, so that the cost of the journal can be measured.
#ifdef ROCI_UNRECORDED
inline void note(Context&, Qp&, Happening, Psn, uint8_t = 0, abi::Reason = abi::Reason::none) {}
#else
[[gnu::cold]] void note(Context& ctx, Qp& qp, Happening what, Psn psn, uint8_t code = 0, abi::Reason reason = abi::Reason::none);
#endif
/// Determines why memory may not be accessed and records the reason. Returns none if the memory may be accessed.
[[gnu::cold]] abi::Reason note_access(Context& ctx, Qp& qp, Key key, uint32_t pd, uint64_t va, uint64_t length, uint32_t needed,
                                      bool remote);
/// Records that a request of the peer is refused. Returns the reason.
[[gnu::cold]] abi::Reason note_fault(Context& ctx, Qp& qp, RequestFault fault);
/// Records that the oldest send WQE fails. Returns the reason.
[[gnu::cold]] abi::Reason note_failure(Context& ctx, Qp& qp, abi::WcStatus status);

// ---- lifecycle.cpp: state transitions by modify_qp, snapshots
/// Executes a legal transition to the state `next`. Returns 0, or EAGAIN if the caller must try again: a worker may still write
/// the buffers of a QP that is to be reset (slow_memory.hpp), or the send queue of a QP in SQE is not flushed yet.
int apply_change(Context& ctx, Qp& qp, const Change& change, State next);
void snapshot(const Qp& qp, Snapshot& out);
/// Adds the QP to the engine. Returns false if there is no memory for its work requests.
[[nodiscard]] bool attach(Context& ctx, Qp& qp);
/// Removes the QP from the engine.
void detach(Context& ctx, Qp& qp);

}  // namespace roci::qp
