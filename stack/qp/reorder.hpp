// Frames that arrive before others that were sent earlier are kept, and executed when their turn has come: whatever is behind
// sees packets in order. Requests: in front of the responder; responses: in front of the completer.
#pragma once

#include <vector>

#include "qp/context.hpp"

namespace roci::qp {

/// A request behind the expected PSN. True: nothing is to be said about the gap yet; the missing one may be on its way.
bool keep_request(Context& ctx, Qp& qp, const wire::Packet& p);
/// After a request was executed: those that were kept and have their turn now are executed too.
void hand_over_requests(Context& ctx, Qp& qp);

/// A response (or ACK) behind one that is awaited. True: nothing is to be asked for yet.
bool keep_response(Context& ctx, Qp& qp, const wire::Packet& p);
void hand_over_responses(Context& ctx, Qp& qp);
/// The READs or atomics that lack responses: which PSNs of [from, end) are missing before the last one that is kept.
Hole missing_response(const Context& ctx, const Qp& qp, Psn from);
/// PSNs from the oldest awaited one to the end of the last hole; 0: none is known.
uint32_t missing_responses(const Context& ctx, const Qp& qp);

/// A frame came whose PSN was dealt with before.
void note_repeated(Context& ctx, Backlog& b, Psn psn);
/// The time is up for something that is missed.
void look_at_kept(Context& ctx, Qp& qp);
/// Frames that the QP keeps.
uint32_t kept_frames(const Qp& qp);
/// The QP is reset, in error or goes.
void forget_kept(Context& ctx, Qp& qp);

}  // namespace roci::qp
