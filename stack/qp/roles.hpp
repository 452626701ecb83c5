// The functions that process a QP. The functions of one role, for example the requester, are in one source file.
// work_source.hpp declares the source of send work, and receive_source.hpp declares the source of receive buffers.
#pragma once

#include "qp/context.hpp"
#include "qp/work_source.hpp"
#include "wire/packet.hpp"

namespace roci::qp {

// ---- tag_matching.cpp
/// Decrements the count of unexpected messages. Called when an unexpected message was not received completely.
void forget_unexpected(TagSrq& t);
/// Drops the current message and the outstanding rendezvous. Called when the QP is reset or removed.
void forget_tagged(Qp& qp);
/// Called for a doorbell. Executes the operations that the client has posted for the tag list of the SRQ. Returns true if
/// operations may remain. The caller then calls this function again.
bool take_tag_operations(Context& ctx, Srq& srq);

// ---- rendezvous.cpp: READ and FIN, by the QP's own requester
/// Adds a rendezvous: the QP will READ the data of the message into the buffer of `entry`. The caller has checked that
/// TagQp::free is not empty.
void begin_rendezvous(Context& ctx, Qp& qp, const TagEntry& entry, const wire::Packet& packet);

// ---- requester.cpp: sending requests
/// Sends up to `quantum` request packets, including retransmissions, and executes local operations. Returns the number of
/// packets and operations.
uint32_t send_requests(Context& ctx, Qp& qp, uint32_t quantum);
/// Returns true if send_requests() would send a packet now, provided that the port accepts frames.
bool has_requests(const Context& ctx, const Qp& qp);
/// Like has_requests(), but also returns true if the congestion controller delays the requests.
bool has_requests_unpaced(const Context& ctx, const Qp& qp);
/// Returns true if send_requests() would find nothing to do: all posted requests are sent, and none must be sent again. The
/// engine calls this function for each QP that remains on the run queue without work.
inline bool all_requests_sent(const Qp& qp) {
    return qp.requester.queue.all_sent() && !qp.requester.window.repair_due() && !posted(qp);
}
/// Returns true if the congestion controller delays the QP. In this case, also sets the QP's timer, which adds the QP to the
/// run queue again.
bool hold_back(Context& ctx, Qp& qp);

// ---- local_operations.cpp: binds and invalidations of memory windows
enum class LocalResult : uint8_t {
    done,
    waits,    ///< an access still uses the window, or another QP is binding it; the caller must try again later
    refused,  ///< SendRecord::fault contains the status
};
/// Executes the local operation `r`, unless it was executed already. Local operations are executed in order, before any later
/// request is sent (IBA 10.8.3.3).
LocalResult execute_local(Context& ctx, Qp& qp, SendRecord& r);

// ---- completer.cpp: ACKs and responses to our requests
/// Completes the executed local operations (memory windows) at the head of the send queue.
void retire_local(Context& ctx, Qp& qp);
void receive_response(Context& ctx, Qp& qp, const wire::Packet& packet);
/// Executes one response, but not the kept responses behind this response. `kept` is true if the packet was counted when it
/// arrived.
void execute_response(Context& ctx, Qp& qp, const wire::Packet& packet, bool kept = false);
/// Completes a response that waited for slow memory. `good` is false if its bytes could not be stored.
void finish_response(Context& ctx, Qp& qp, const wire::Packet& packet, bool good);
/// Called when a later packet shows that a response is lost. Requests the response again. If no retry is left, fails the oldest
/// work request.
void implied_nak(Context& ctx, Qp& qp);

// ---- retry.cpp: timers and retransmission from the oldest packet on
// Goes back to the oldest unacknowledged packet: this packet and all packets behind it are sent again.
void roll_back(Context& ctx, Qp& qp);
/// Restarts the local ACK timer and the deadline of the probe. Stops both if nothing is outstanding.
void restart_ack_timer(Context& ctx, Qp& qp);
/// Like restart_ack_timer(), but does not change the deadline of the probe.
void extend_ack_timer(Context& ctx, Qp& qp);
// ---- repair.cpp: retransmission of lost packets only
/// Called when the peer reports the oldest unacknowledged packet as missing. Begins to send the packet again, unless the
/// retransmission is already in progress.
void request_lost(Context& ctx, Qp& qp);
/// Called when a later response arrived but earlier responses are missing. Requests the missing responses again.
void response_lost(Context& ctx, Qp& qp);
/// Called when the peer reports request `psn` as missing while responses to earlier requests are missing. If the peer keeps
/// packets behind a lost packet, begins to send the request again now.
void later_request_lost(Context& ctx, Qp& qp, Psn psn);
/// Called when a loss report arrives. Begins to send the packets that the peer has not received, except packets that were
/// already sent again.
void repeat_reported(Context& ctx, Qp& qp);
/// Called when a loss report shows that the packet `newest` has arrived. Measures the round trip with the packet whose send time
/// is known and that was sent last before `newest`, or with `newest` itself. A cumulative ACK behind a missing packet comes only
/// after the repair. If the report was sent when a time limit expired, the measured time includes this limit.
void measure_reported(Context& ctx, Qp& qp, Psn newest);
/// Called after an acknowledgement. Ends a measurement of the round trip. If the acknowledgement completes a repair, determines
/// what the repair shows about the peer.
void observe_repair(Context& ctx, Qp& qp);
/// Restarts the deadline of the probe. The caller updates the timer.
void arm_probe(Context& ctx, Qp& qp);
/// Begins to send a probe. Called after a few round trips without progress.
void probe(Context& ctx, Qp& qp);

// ---- retry.cpp
/// Decrements `left`, the number of retries, and returns true. If no retry is left, completes the oldest WQE with `status`,
/// moves the QP to ERR and returns false.
bool take_retry(Context& ctx, Qp& qp, uint8_t& left, abi::WcStatus status);
void on_timer(Context& ctx, Qp& qp);

// ---- responder.cpp: executing requests
void receive_request(Context& ctx, Qp& qp, const wire::Packet& packet);
/// Executes one request, but not the kept requests behind this request.
void execute_request(Context& ctx, Qp& qp, const wire::Packet& packet);
/// Completes a request that waited for slow memory. `good` is false if its bytes could not be accessed. For an atomic,
/// `original` is the value in memory before the operation.
void finish_request(Context& ctx, Qp& qp, const wire::Packet& packet, bool good, uint64_t original);
/// Schedules a sequence NAK, unless a NAK was already scheduled for the packet with the expected PSN (C9-113).
void nak_gap(Context& ctx, Qp& qp);

// ---- replay.cpp
/// Schedules the responses to a repeated READ, atomic, ATOMIC WRITE or FLUSH, from the requested PSN on. Replays do not count
/// against max_dest_rd_atomic. A separate limit of the same size applies to replays. A replay beyond this limit is dropped, and
/// the requester repeats its request.
void answer_again(Context& ctx, Qp& qp, ResponderJob job);

// ---- ud.cpp: datagrams
/// Fills in the destination QP, the source QP and the Q_Key of a datagram. Returns the path, or nullptr if the address handle
/// is not valid for this QP.
const wire::PathTemplate* address_datagram(Context& ctx, const Qp& qp, const abi::SendWqe& w, wire::TransportHeaders& h);
/// Adds to Context::copies the number of QPs of this rocid that receive a copy of the multicast datagram.
void count_copies(Context& ctx, const abi::SendWqe& w);
void receive_datagram(Context& ctx, Qp& qp, const wire::Packet& packet);
void finish_datagram(Context& ctx, Qp& qp, const wire::Packet& packet, bool good);

// ---- respond.cpp: READ responses, atomic responses, ACKs and NAKs
/// Sends up to `quantum` packets: responses in PSN order, then a due ACK or NAK. A due loss report is sent before the
/// responses. Returns the number of packets sent.
uint32_t send_responses(Context& ctx, Qp& qp, uint32_t quantum);
bool has_responses(const Qp& qp);
/// Returns true if the responder must send an ACK and nothing else.
bool owes_only_ack(const Qp& qp);
/// Sends a packet without payload that is not in the counters of a QP (commit_alone). Returns false if the port accepts no frame.
bool send_headers(Context& ctx, uint32_t port, const wire::PathTemplate& path, const wire::TransportHeaders& h, uint32_t sender);
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
    lost,   ///< the packet had to wait for slow memory, but could not be kept; the packet is treated as not received
};
/// Takes the next receive WQE of the QP's RQ or SRQ, or of the SRQ that the XRC packet names. Copies this WQE to
/// responder.recv. If the buffers of the WQE have fewer than `least` bytes, leaves the WQE in the queue and returns too_short.
TakeRecv take_recv(Context& ctx, Qp& qp, const wire::Packet* packet, uint64_t least = 0);
/// Raises SRQ_LIMIT_REACHED and disarms the limit if fewer WQEs than the armed limit are left.
void check_srq_limit(Context& ctx, Srq& srq);
/// Returns the number of receive WQEs that are posted and not taken.
uint32_t recv_available(const Qp& qp);
/// Returns the number of receives that an ACK may announce for a QP's own queue. Uses the client's index that was read last.
/// Reads the client's index again only if fewer than half of the receives at the last read are left.
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
/// Completes the oldest send WQE with `status` and moves the QP to ERR (UC, UD: to SQE). The other WQEs are then flushed. In
/// SQE, only WQEs of the send queue are flushed.
void fail_send(Context& ctx, Qp& qp, abi::WcStatus status);
void enter_error(Context& ctx, Qp& qp);
/// Raises SQ_DRAINED if the QP is in SQD, all started requests are complete and the client requested the event.
void report_drained(Context& ctx, Qp& qp);
/// Completes a limited number of queued WQEs with WR_FLUSH_ERR. In SQE, these are only WQEs of the send queue. Does nothing
/// while a worker thread may still write buffers of the QP (flush_waits).
void flush_queues(Context& ctx, Qp& qp);
/// Writes the completions of this round to the CQs. Then sends the events for which the event ring was full earlier. Then sends
/// the due completion events and collects sleeping threads that poll these CQs.
void notify_all(Context& ctx);
/// Executes a full fence, then checks once more for sleeping threads that poll CQs with new entries. The fence waits until all
/// stores have reached the cache. Therefore this function is not called in every round.
void settle_sleepers(Context& ctx);

// ---- journal.cpp: unusual events, for `roci why`. These functions are not on the hot path. With ROCI_UNRECORDED, note() does
// nothing, so that the cost of the journal can be measured.
#ifdef ROCI_UNRECORDED
inline void note(Context&, Qp&, Happening, Psn, uint8_t = 0, abi::Reason = abi::Reason::none) {}
#else
[[gnu::cold]] void note(Context& ctx, Qp& qp, Happening what, Psn psn, uint8_t code = 0, abi::Reason reason = abi::Reason::none);
#endif
/// Records a refused access. Returns the reason. The function fills in the fields of the key's region.
[[gnu::cold]] abi::Reason note_access(Context& ctx, Qp& qp, const RefusedAccess& refused, bool remote);
/// Records that a request of the peer is refused. Returns the reason.
[[gnu::cold]] abi::Reason note_fault(Context& ctx, Qp& qp, RequestFault fault);
/// Records that the oldest send WQE fails. Returns the reason.
[[gnu::cold]] abi::Reason note_failure(Context& ctx, Qp& qp, abi::WcStatus status);

// ---- lifecycle.cpp: state transitions by modify_qp, snapshots
/// Executes a legal transition to the state `next`. Returns 0, or EAGAIN if the caller must try again. A reset must be tried
/// again while a worker thread may still write buffers of the QP (slow_memory.hpp). The transition from SQE to RTS must be
/// tried again until the send queue is flushed.
int apply_change(Context& ctx, Qp& qp, const Change& change, State next);
void snapshot(const Qp& qp, Snapshot& out);
/// Reserves the engine's memory for the send work requests of the QP. Returns false if memory is exhausted.
[[nodiscard]] bool attach(Context& ctx, Qp& qp);
/// Removes the QP from the timers and run queues of the engine, and frees the engine's memory of the QP.
void detach(Context& ctx, Qp& qp);

}  // namespace roci::qp
