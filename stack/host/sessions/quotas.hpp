// Checks the limits of each user and those of all users together. A limit of a user applies to all sessions of the user together.
#pragma once

#include <optional>
#include <vector>

#include "host/call.hpp"

namespace roci::host::sessions {

/// Fails with ENOMEM if the request would exceed a limit of the user or of rocid; the text names the limit. The limits of users
/// do not apply to root and the user of rocid.
Outcome check_quota(Call&, abi::Op);
/// One resource of one user, for `roci status`.
struct QuotaLine {
    const char* resource;
    uint64_t used;
    std::optional<uint64_t> limit = {};
    uint64_t refused = 0;  ///< number of refused requests; for a rate: how often the user had to wait
};
/// Returns the resources of the user `who.uid`. The limits follow the rules for this user and for the primary group `who.gid`.
std::vector<QuotaLine> quota_lines(const State&, const Client& who);
/// Counts a control operation of the user: a request, whether it succeeds or not, or a new session.
void charge(State&, const Client&);
/// Returns the time before which no further request of the user may be handled, because the user has exceeded control_rate. No
/// request is refused because of the rate, because programs do not repeat a refused request that frees something.
Nanos not_before(const State&, const Client&);

/// Returns the limits of what the user sends, or nullptr if there are none. If the groups of a user's sessions have different
/// limits, the limits of the first session apply to all. The object exists as long as the user has a session.
qp::UserRate* rate_of(State&, const Client&);

/// Forgets users without sessions whose rates are as those of a new user, and their refusals, if this frees much.
void forget_idle_users(State&);

/// Counts the session as a control operation. Returns false if the user has the maximum number of sessions already, or has to
/// wait a second or longer for control_rate, or if rocid may not allocate more memory.
bool may_open_session(State&, const Client&);

}  // namespace roci::host::sessions
