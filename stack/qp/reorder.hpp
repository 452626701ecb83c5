// Keeps frames that arrive before frames that were sent earlier, and executes them in order. It is placed before the responder
// for requests and before the completer for responses, so both see packets in order.
#pragma once

#include <vector>

#include "qp/context.hpp"

namespace roci::qp {

/// Called for a request behind the expected PSN. True: the gap is not reported yet, because the missing packet may only be late.
bool keep_request(Context& ctx, Qp& qp, const wire::Packet& p);
/// Called after a request was executed: executes kept requests that follow it.
void hand_over_requests(Context& ctx, Qp& qp);

/// Called for a response or ACK that arrives after a gap. Returns true if the QP does not request the missing response again yet,
/// because it may only be late.
bool keep_response(Context& ctx, Qp& qp, const wire::Packet& p);
void hand_over_responses(Context& ctx, Qp& qp);
/// For READs and atomics without all responses: the missing PSNs of [from, end) before the last kept one.
Hole missing_response(const Context& ctx, const Qp& qp, Psn from);
/// Number of PSNs from the oldest expected one to the end of the last hole; 0: there is no known hole.
uint32_t missing_responses(const Context& ctx, const Qp& qp);

/// Called for a frame whose PSN was processed before.
void note_repeated(Context& ctx, Backlog& b, Psn psn);
/// Called when the patience for a gap has ended.
void look_at_kept(Context& ctx, Qp& qp);
/// Number of kept frames of the QP.
uint32_t kept_frames(const Qp& qp);
/// Frees kept frames: the QP is reset, in error or being destroyed.
void forget_kept(Context& ctx, Qp& qp);

}  // namespace roci::qp
