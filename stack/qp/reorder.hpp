// The reorder buffer keeps frames that arrive before an earlier frame. When the frames before a kept frame have
// arrived, the reorder buffer passes a request to the responder and a response to the completer. Both therefore process packets
// in PSN order.
#pragma once

#include <vector>

#include "qp/context.hpp"

namespace roci::qp {

/// Returns true if the ICRC of the packet is to be checked by hand_over_requests(), before the packet is executed. Until then
/// its payload leaves the nearest cache, so an earlier check would load the payload twice. The first packet behind
/// each gap is checked on arrival, because a damaged PSN there would make later packets count as missing.
inline bool checked_later(const Qp& qp, const wire::Packet& p) {
    return qp.keeps_requests && !qp.waits_requests && p.info->has(wire::kRequest) &&
           p.psn.distance_from(qp.responder.sequence.expected()) > 0 && p.psn.distance_from(qp.reorder->requests.end) <= 0;
}

/// Called for a request whose PSN is higher than the expected PSN. Returns true if the request is kept. In this case the
/// reorder buffer reports the gap later, when a limit of Patience is exceeded. Returns false if the caller must report the gap.
bool keep_request(Context& ctx, Qp& qp, const wire::Packet& p);
/// Called after a request was executed. Executes the kept requests that follow this request. Drops a kept request whose ICRC is
/// wrong. The dropped request then counts as missing.
void hand_over_requests(Context& ctx, Qp& qp);

/// Called for a response, ACK or NAK that arrives while an earlier response is missing. Returns false if the missing response
/// is to be requested again now. Returns true if the missing response may only be late.
bool keep_response(Context& ctx, Qp& qp, const wire::Packet& p);
void hand_over_responses(Context& ctx, Qp& qp);
/// Drops a kept NAK. Called before all packets from the oldest unacknowledged PSN on are sent again, because these packets
/// include the packet that the NAK reports as missing.
void forget_nak(Context& ctx, Qp& qp);

// ---- missing.cpp: which responses are to be requested again
/// Resets Reorder::missing: no response counts as missing or as requested again.
void forget_missing(Qp& qp);
/// Called when a response, ACK or NAK with this PSN was kept. Returns true if a response is to be requested again.
bool learn_missing(Context& ctx, Qp& qp, Psn psn);
/// Called when the oldest gap was closed or a time limit expired. Returns true if a response is to be requested again.
bool look_for_missing(Context& ctx, Qp& qp);
/// Called when the QP goes back to the oldest unacknowledged PSN. Records that all outstanding PSNs are requested again.
void missing_go_back(const Context& ctx, Qp& qp);
/// Called when no packet has arrived for so long that the repeated requests or their answers must be lost too. Selects all
/// missing responses to be requested again.
void ask_for_all_missing(const Context& ctx, Qp& qp);
/// Returns the first range of missing responses in [from, end) that were not requested again. All PSNs of the range belong to
/// one request. If there is no such range, the result has length 0.
Hole unasked_responses(const Context& ctx, const Qp& qp, Psn from, Psn end);
/// Returns the number of PSNs from the oldest unacknowledged PSN to the last PSN that is to be requested or sent again.
uint32_t missing_span(const Qp& qp);

// ---- loss_reports.cpp: which requests the peer has not received
/// Called when a loss was detected. Sends an inquiry, which requests loss reports, if the peer has not sent a report yet. The
/// number and the rate of inquiries are limited.
void inquire(Context& ctx, Qp& qp);
/// Handles an inquiry or a report of the QP's peer.
void receive_report(Context& ctx, Qp& qp, const wire::Packet& p);
/// Returns true if the requester uses the peer's loss reports to find lost requests.
bool uses_reports(const Context& ctx, const Qp& qp);
/// Returns the first PSN in [from, end) that the peer has not received according to its report, and that was not sent again. If
/// there is no such PSN, the result has length 0.
Hole unrepeated_request(const Qp& qp, Psn from, Psn end);
/// Returns the number of PSNs from the oldest unacknowledged PSN to the end of the newest report's bitmap.
uint32_t reported_span(const Qp& qp);
/// Discards the peer's newest report, because the report no longer shows which packets are missing. Until the next report,
/// losses are repaired one by one.
void forget_report(Qp& qp);
/// Resets the responder's state of the loss reports. Called when the first request behind a gap is kept.
void begin_reports(Qp& qp);
/// Called when the request with this PSN was kept or executed while other requests are missing. Also called when a time limit
/// is checked. Schedules a loss report if there is something new to report.
void look_for_news(Context& ctx, Qp& qp, Psn psn);
/// Returns true if the QP has a report to send.
bool report_due(const Qp& qp);
/// Sends a loss report. Returns false if the port accepts no frame.
bool send_report(Context& ctx, Qp& qp);
/// Returns the reorder state of the QP and allocates this state at the first call. Returns nullptr if memory is exhausted or
/// the engine keeps no frames.
Reorder* reorder_of(Context& ctx, Qp& qp);

/// Called for a frame whose PSN was processed before. If the first copy of the frame had been reported as missing, records that
/// this copy was only late.
void note_repeated(Context& ctx, Backlog& b, Psn psn);
/// Called by the timers of the QP and for an inquiry. Checks the time limits of the gaps.
void look_at_kept(Context& ctx, Qp& qp);
/// Returns the number of kept frames of the QP.
uint32_t kept_frames(const Qp& qp);
/// Frees the kept frames. Called when the QP is reset, enters the error state or is destroyed.
void forget_kept(Context& ctx, Qp& qp);

/// Checks the invariants of the kept frames between two rounds of the engine (check.cpp). Returns a description of a violated
/// invariant, or nullptr.
const char* check_kept(const Context& ctx, const Qp& qp);

}  // namespace roci::qp
