// The roles of a QP: one file each, functions over the state. For fetching see work_source.hpp, for the buffers of
// messages receive_source.hpp.
#pragma once

#include "qp/context.hpp"
#include "qp/work_source.hpp"
#include "wire/packet.hpp"

namespace roci::qp {

// ---- tag_matching.cpp
/// An incomplete unexpected message is not counted.
void forget_unexpected(TagSrq& t);
/// Drops the current message and outstanding rendezvous: the QP is reset or being destroyed.
void forget_tagged(Qp& qp);
/// Called for a doorbell: executes operations on the list that the client has posted. True: there are more, call again.
bool take_tag_operations(Context& ctx, Srq& srq);

// ---- rendezvous.cpp: READ and FIN, by the QP's own requester
/// Adds a rendezvous with the matched buffer. The caller has checked that there is room.
void begin_rendezvous(Context& ctx, Qp& qp, const TagEntry& entry, const wire::Packet& packet);

// ---- requester.cpp: sending requests
/// Sends up to `quantum` request packets. Returns how many.
uint32_t send_requests(Context& ctx, Qp& qp, uint32_t quantum);
/// True if send_requests() would send a packet now (if the port has room).
bool has_requests(const Context& ctx, const Qp& qp);
/// True: the congestion controller holds the QP back. The timer adds it to the run queue again.
bool hold_back(Context& ctx, Qp& qp);

// ---- completer.cpp: ACKs and responses to what we asked
/// Completes executed local operations (memory windows) that are the oldest now.
void retire_local(Context& ctx, Qp& qp);
void receive_response(Context& ctx, Qp& qp, const wire::Packet& packet);
/// The same for one packet, without those that it was holding up.
void execute_response(Context& ctx, Qp& qp, const wire::Packet& packet);
/// The bytes of a response that waited for slow memory are in place, or cannot be (not `good`).
void finish_response(Context& ctx, Qp& qp, const wire::Packet& packet, bool good);
/// A response is lost: it is asked for again.
void implied_nak(Context& ctx, Qp& qp);

// ---- retry.cpp: timers and going back
/// Goes back to the oldest unacknowledged packet: all packets from there on are sent again.
void roll_back(Context& ctx, Qp& qp);
/// Restarts the local ACK timer after progress, or stops it if nothing is outstanding.
void restart_ack_timer(Context& ctx, Qp& qp);
/// The same without progress: the probe is still due when it was.
void extend_ack_timer(Context& ctx, Qp& qp);
// ---- repair.cpp: sending what was lost again, and nothing else
/// Called when the peer reports the oldest unacknowledged packet as missing.
void request_lost(Context& ctx, Qp& qp);
/// Called when a later response arrived but earlier ones are missing.
void response_lost(Context& ctx, Qp& qp);
/// Called when the peer reports that a request is missing, while responses to earlier requests are missing. If the peer keeps
/// packets, the request is sent again now.
void later_request_lost(Context& ctx, Qp& qp, Psn psn);
/// Something was acknowledged: what does that say of the repair? Returns the round trip that was measured by it, or 0.
uint32_t observe_repair(Context& ctx, Qp& qp);
/// The deadline of the probe starts anew; the caller updates the timer.
void arm_probe(Context& ctx, Qp& qp);
/// Called after a few round trips without progress.
void probe(Context& ctx, Qp& qp);

// ---- retry.cpp
/// Counts one retry. False: none is left, so the QP went to ERR, with `status` for the oldest WQE.
bool take_retry(Context& ctx, Qp& qp, uint8_t& left, abi::WcStatus status);
void on_timer(Context& ctx, Qp& qp);

// ---- responder.cpp: executing requests
void receive_request(Context& ctx, Qp& qp, const wire::Packet& packet);
/// The same for one packet, without those that it was holding up.
void execute_request(Context& ctx, Qp& qp, const wire::Packet& packet);
/// The bytes of a request that waited for slow memory are in place, or cannot be (not `good`). `original`: before an atomic.
void finish_request(Context& ctx, Qp& qp, const wire::Packet& packet, bool good, uint64_t original);
/// One sequence NAK until the expected PSN arrives (C9-113).
void nak_gap(Context& ctx, Qp& qp);

// ---- replay.cpp
/// Answers a repeated READ or atomic from the requested PSN on. Replays do not count against the agreed number of READs, but
/// their own limit is equal. A further one is dropped, and its requester repeats it.
void answer_again(Context& ctx, Qp& qp, ResponderJob job);

// ---- ud.cpp: datagrams
/// Fills in the destination of a datagram. nullptr: the address handle is not valid for this QP.
const wire::PathTemplate* address_datagram(Context& ctx, const Qp& qp, const abi::SendWqe& w, wire::TransportHeaders& h);
void receive_datagram(Context& ctx, Qp& qp, const wire::Packet& packet);
void finish_datagram(Context& ctx, Qp& qp, const wire::Packet& packet, bool good);

// ---- respond.cpp: READ responses, atomic responses, ACKs and NAKs
/// Sends due responses in PSN order, up to `quantum` packets. Returns how many.
uint32_t send_responses(Context& ctx, Qp& qp, uint32_t quantum);
bool has_responses(const Qp& qp);
/// A congestion notification packet for the peer (RoCEv2 annex A17.9.3). False: no room; the next marked frame is as good.
bool send_notification(Context& ctx, Qp& qp);

// ---- receive_queue.cpp: receive WQEs
enum class TakeRecv : uint8_t {
    ok,
    empty,
    malformed,
    no_queue,
    refused,
    too_short,
    waits,  ///< for slow memory: the packet takes effect later
    lost,   ///< there was no room to keep it
};
/// Takes the next receive WQE of the QP's RQ or SRQ, or of the SRQ that the XRC packet names, into responder.recv. One
/// of less than `least` bytes stays where it is: too_short.
TakeRecv take_recv(Context& ctx, Qp& qp, const wire::Packet* packet, uint64_t least = 0);
/// Raises SRQ_LIMIT_REACHED if fewer WQEs are left than the armed limit.
void check_srq_limit(Context& ctx, Srq& srq);
/// Receive WQEs posted and not taken.
uint32_t recv_available(const Qp& qp);
/// Number of receives that an ACK may announce for a QP's own queue: the known ones, which are at least half of the posted ones.
uint32_t recv_credits(Qp& qp);

// ---- completion.cpp: CQEs, events, errors
/// Completes the oldest send WQE.
void complete_send(Context& ctx, Qp& qp, abi::WcStatus status, abi::Reason reason = abi::Reason::none);
void complete_recv(Context& ctx, Qp& qp, const wire::Packet* packet, abi::WcStatus status, uint32_t byte_len,
                   abi::Reason reason = abi::Reason::none);
/// A completion of the SRQ itself, or of a tagged buffer (`qp` nullptr: of none).
void complete_tag(Context& ctx, const Srq& srq, Qp* qp, abi::Cqe& e, bool solicited);
void raise(Context& ctx, Qp& qp, abi::AsyncEvent event);
void raise_srq(Context& ctx, const Srq& srq, abi::AsyncEvent event);
/// Oldest WQE completes with `status`, the QP goes to ERR (UC, UD: to SQE), everything else is flushed.
void fail_send(Context& ctx, Qp& qp, abi::WcStatus status);
void enter_error(Context& ctx, Qp& qp);
/// In SQD: raises an event once all started requests are complete.
void report_drained(Context& ctx, Qp& qp);
/// In ERR (SQE: of the send queue only): completes whatever is queued with WR_FLUSH_ERR.
void flush_queues(Context& ctx, Qp& qp);
/// Writes out the completions of this poll, sends their events, and events that found the ring full.
void notify_all(Context& ctx);
/// After a full fence, checks once more for sleeping threads that poll CQs with new entries. The fence waits until all stores
/// have reached the cache, so it is not executed in every round.
void settle_sleepers(Context& ctx);

// ---- journal.cpp: what went wrong, for `roci why`. None of it is for every packet.
[[gnu::cold]] void note(Context& ctx, Qp& qp, Happening what, Psn psn, uint8_t code = 0, abi::Reason reason = abi::Reason::none);
/// Looks why memory may not be used, and writes that down. none: it may.
[[gnu::cold]] abi::Reason note_access(Context& ctx, Qp& qp, Key key, uint32_t pd, uint64_t va, uint64_t length, uint32_t needed,
                                      bool remote);
/// A request of the peer is refused.
[[gnu::cold]] abi::Reason note_fault(Context& ctx, Qp& qp, RequestFault fault);
/// The oldest send WQE fails.
[[gnu::cold]] abi::Reason note_failure(Context& ctx, Qp& qp, abi::WcStatus status);

// ---- lifecycle.cpp: RESET .. ERR as modify_qp asks, snapshots
/// Carries out a legal step to the state `next`. 0, or EAGAIN: the QP cannot be reset while a worker may write its buffers
/// (slow_memory.hpp).
int apply_change(Context& ctx, Qp& qp, const Change& change, State next);
void snapshot(const Qp& qp, Snapshot& out);
/// Adds the QP to the engine. False: no memory for its work requests.
[[nodiscard]] bool attach(Context& ctx, Qp& qp);
/// Removes the QP from the engine.
void detach(Context& ctx, Qp& qp);

}  // namespace roci::qp
