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
/// For READs and atomics that lack responses: returns the missing PSNs in [from, end) that precede the last kept response.
Hole missing_response(const Context& ctx, const Qp& qp, Psn from);
/// Returns the number of PSNs from the oldest expected one to the end of the last hole, or 0 if no hole is known.
uint32_t missing_responses(const Context& ctx, const Qp& qp);

/// Called for a frame whose PSN was processed before.
void note_repeated(Context& ctx, Backlog& b, Psn psn);
/// Called when the time limit for a gap has expired.
void look_at_kept(Context& ctx, Qp& qp);
/// Number of kept frames of the QP.
uint32_t kept_frames(const Qp& qp);
/// Frees the kept frames. Called when the QP is reset, enters the error state or is destroyed.
void forget_kept(Context& ctx, Qp& qp);

}  // namespace roci::qp
