// The reorder buffer keeps frames that arrive too early. It passes requests to the responder and responses to the completer when
// the frames before them have arrived, so both process packets in PSN order.
#pragma once

#include <vector>

#include "qp/context.hpp"

namespace roci::qp {

/// Called for a request whose PSN is after the expected one. Returns true if the request is kept; the reorder buffer then
/// reports the gap when a limit is exceeded. Returns false if the caller must report the gap.
bool keep_request(Context& ctx, Qp& qp, const wire::Packet& p);
/// Called after a request was executed. Executes the kept requests that follow it.
void hand_over_requests(Context& ctx, Qp& qp);

/// Called for a response, ACK or NAK that arrives after a gap. Returns false if the missing response is to be requested again
/// now. Returns true if the missing response may only be late.
bool keep_response(Context& ctx, Qp& qp, const wire::Packet& p);
void hand_over_responses(Context& ctx, Qp& qp);
/// Drops a kept NAK. Called before all packets from the oldest unacknowledged PSN on are sent again, because these include the
/// packet that the NAK reports as missing.
void forget_nak(Context& ctx, Qp& qp);

// ---- missing.cpp: which responses are to be requested again
/// Clears the state of the missing responses.
void forget_missing(Qp& qp);
/// Called when a response, ACK or NAK with this PSN was kept. Returns true if a response is to be requested again.
bool learn_missing(Context& ctx, Qp& qp, Psn psn);
/// Called when the oldest gap was closed or a time limit expired. Returns true if a response is to be requested again.
bool look_for_missing(Context& ctx, Qp& qp);
/// Called when the QP goes back to the oldest unacknowledged PSN. Records that all outstanding PSNs are requested again.
void missing_go_back(const Context& ctx, Qp& qp);
/// Called when nothing has arrived for so long that the repeated requests or their answers are lost too. Selects all missing
/// responses to be requested again.
void ask_for_all_missing(const Context& ctx, Qp& qp);
/// Returns the first missing responses in [from, end) that were not requested again, all of one request. If there are none, the
/// length is 0.
Hole unasked_responses(const Context& ctx, const Qp& qp, Psn from, Psn end);
/// Returns the number of PSNs from the oldest unacknowledged one to the end of the packets that are to be requested or sent
/// again.
uint32_t missing_span(const Qp& qp);

// ---- loss_reports.cpp: which requests the peer lacks
/// Sends an inquiry if the peer may know loss reports and has not answered yet. Called when a loss was found.
void inquire(Context& ctx, Qp& qp);
/// Handles an inquiry or a report of the QP's peer.
void receive_report(Context& ctx, Qp& qp, const wire::Packet& p);
/// Returns true if losses of requests are repaired by the peer's reports.
bool uses_reports(const Context& ctx, const Qp& qp);
/// Returns the first PSN in [from, end) that the peer lacks and that is not under way again. If there is none, the length is 0.
Hole unrepeated_request(const Qp& qp, Psn from, Psn end);
/// Returns the number of PSNs from the oldest unacknowledged one to the end of what the newest report covers.
uint32_t reported_span(const Qp& qp);
/// Discards the peer's newest report, because it no longer shows what is missing. Until the next report, losses are repaired
/// one by one.
void forget_report(Qp& qp);
/// Called when the first request behind a gap is kept.
void begin_reports(Qp& qp);
/// Called when the request with this PSN was kept or executed, while other requests are missing, or when time has passed.
/// Decides whether a report is due.
void look_for_news(Context& ctx, Qp& qp, Psn psn);
/// Returns true if the QP has a report to send.
bool report_due(const Qp& qp);
/// Sends the report. Returns false if the port accepts no frame.
bool send_report(Context& ctx, Qp& qp);
/// Returns the reorder state of the QP. Returns nullptr if memory is exhausted or the engine keeps no frames.
Reorder* reorder_of(Context& ctx, Qp& qp);

/// Called for a frame whose PSN was processed before. Records that the first copy was late if it had been reported as missing.
void note_repeated(Context& ctx, Backlog& b, Psn psn);
/// Called by the timers of the QP and for an inquiry. Checks the time limits of the gaps.
void look_at_kept(Context& ctx, Qp& qp);
/// Returns the number of kept frames of the QP.
uint32_t kept_frames(const Qp& qp);
/// Frees the kept frames. Called when the QP is reset, enters the error state or is destroyed.
void forget_kept(Context& ctx, Qp& qp);

/// Returns a description of an invariant of the kept frames that is violated between rounds of the engine, or nullptr
/// (check.cpp).
const char* check_kept(const Context& ctx, const Qp& qp);

}  // namespace roci::qp
