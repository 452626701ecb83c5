// Keeps frames that arrive too early and executes them in order. Requests pass through it before the responder, and responses
// before the completer. Both therefore process packets in PSN order.
#pragma once

#include <vector>

#include "qp/context.hpp"

namespace roci::qp {

/// Called for a request behind the expected PSN. Returns true if the gap is not reported yet, because the missing packet may only
/// be late.
bool keep_request(Context& ctx, Qp& qp, const wire::Packet& p);
/// Called after a request was executed. Executes the kept requests that follow it.
void hand_over_requests(Context& ctx, Qp& qp);

/// Called for a response or ACK that arrives after a gap. Returns true if the QP does not request the missing response again yet,
/// because it may only be late.
bool keep_response(Context& ctx, Qp& qp, const wire::Packet& p);
void hand_over_responses(Context& ctx, Qp& qp);
/// Called before everything from the oldest unacknowledged PSN on is sent again: what a kept NAK names is a part of that.
void forget_nak(Context& ctx, Qp& qp);

// ---- missing.cpp: which responses are to be requested again
/// Called when the first response of a gap is kept, and when none is kept any more.
void forget_missing(Qp& qp);
/// A response, ACK or NAK with this PSN was kept. True: a response is to be requested again.
bool learn_missing(Context& ctx, Qp& qp, Psn psn);
/// The oldest gap was closed, or time has passed. True: a response is to be requested again.
bool look_for_missing(Context& ctx, Qp& qp);
/// Requests are sent again from the oldest unacknowledged PSN on: that includes what is missing.
void missing_go_back(const Context& ctx, Qp& qp);
/// Nothing has arrived for so long that the repeated requests, or their answers, are lost, too.
void ask_for_all_missing(const Context& ctx, Qp& qp);
/// The first missing responses in [from, end) that are to be requested, of one request. Length 0: there are none.
Hole unasked_responses(const Context& ctx, const Qp& qp, Psn from, Psn end);
/// Number of PSNs from the oldest expected one to the end of what is to be requested again.
uint32_t missing_span(const Qp& qp);

// ---- loss_reports.cpp: which requests the peer lacks
/// Sends an inquiry if the peer may know loss reports and has not answered yet. Called when a loss was found.
void inquire(Context& ctx, Qp& qp);
/// Handles an inquiry or a report of the QP's peer.
void receive_report(Context& ctx, Qp& qp, const wire::Packet& p);
/// Returns true if losses of requests are repaired by the peer's reports.
bool uses_reports(const Context& ctx, const Qp& qp);
/// The first PSNs in [from, end) that the peer lacks and that are not under way again. Length 0: there are none.
Hole unrepeated_request(const Qp& qp, Psn from, Psn end);
/// Number of PSNs from the oldest unacknowledged one to the end of what the newest report covers.
uint32_t reported_span(const Qp& qp);
/// The peer's newest report no longer tells what is missing. Losses are repaired one by one until the next report.
void forget_report(Qp& qp);
/// Called when the first request behind a gap is kept.
void begin_reports(Qp& qp);
/// Called when the request with this PSN was kept or executed, while others are missing, or when time has passed. Decides whether
/// a report is due.
void look_for_news(Context& ctx, Qp& qp, Psn psn);
/// Returns true if the QP has a report to send.
bool report_due(const Qp& qp);
/// Sends the report. Returns false if the port has no room.
bool send_report(Context& ctx, Qp& qp);
/// Returns the reorder state of the QP. Returns nullptr if memory is exhausted or the engine keeps no frames.
Reorder* reorder_of(Context& ctx, Qp& qp);

/// Called for a frame whose PSN was processed before.
void note_repeated(Context& ctx, Backlog& b, Psn psn);
/// Called when the time limit for a gap has expired.
void look_at_kept(Context& ctx, Qp& qp);
/// Number of kept frames of the QP.
uint32_t kept_frames(const Qp& qp);
/// Frees the kept frames. Called when the QP is reset, enters the error state or is destroyed.
void forget_kept(Context& ctx, Qp& qp);

/// The violated invariant of kept frames between rounds of the engine, or nullptr (check.cpp).
const char* check_kept(const Context& ctx, const Qp& qp);

}  // namespace roci::qp
