// Checks the limits of each user, and the limits of all users together. A limit of a user applies to the sum of the user's
// sessions.
#pragma once

#include <optional>
#include <vector>

#include "host/call.hpp"

namespace roci::host::sessions {

/// Fails with ENOMEM if the request would exceed a limit of the user or of rocid, or if rocid may not allocate more memory. The
/// error text names the limit. The limits of users do not apply to root and the user of rocid.
Outcome check_quota(Call&, abi::Op);
/// One resource of one user, for `roci status`.
struct QuotaLine {
    const char* resource;
    uint64_t used;
    std::optional<uint64_t> limit = {};
    uint64_t refused = 0;  ///< number of refused requests; for a rate: number of times that the user had to wait
};
/// Returns the resources of the user `who.uid`. The limits follow the rules for this user and for the primary group `who.gid`.
std::vector<QuotaLine> quota_lines(const State&, const Client& who);
/// Counts a control operation of the user for control_rate. A control operation is a new session or a request. Failed requests
/// count too.
void charge(State&, const Client&);
/// Returns the earliest time at which the next request of the user may be handled. If the user has exceeded control_rate, this
/// time is in the future. The request then waits and is not refused, because programs do not repeat a refused request that frees
/// an object.
Nanos not_before(const State&, const Client&);

/// Returns the limiter of the user's sent bytes and packets, or nullptr if the user has no such limit. If the sessions of a user
/// have different groups with different limits, the limits of the first session apply to all sessions. The limiter exists as long
/// as the user has a session.
qp::UserRate* rate_of(State&, const Client&);

/// Removes the rates and the counts of refused requests of each user who has no session and whose rates are as unused as those of
/// a new user. Does nothing until the number of users has doubled since the last removal.
void forget_idle_users(State&);

/// Returns false if the user already has the maximum number of sessions, if the user would have to wait one second or longer
/// because of control_rate, or if rocid may not allocate more memory. Counts the session as a control operation unless the user
/// would have to wait that long.
bool may_open_session(State&, const Client&);

}  // namespace roci::host::sessions
