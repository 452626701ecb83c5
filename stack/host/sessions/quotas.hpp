// What one user may have at a time, all its sessions together, and what all users may have: a table of resources.
#pragma once

#include <optional>
#include <vector>

#include "host/call.hpp"

namespace roci::host::sessions {

/// ENOMEM that names the limit: the request would take a user, or rocid, over one. Root and the user of rocid have no limits of
/// users.
Outcome check_quota(Call&, abi::Op);
/// One resource of one user, for `roci status`.
struct QuotaLine {
    const char* resource;
    uint64_t used;
    std::optional<uint64_t> limit = {};
    uint64_t refused = 0;
};
/// Of the user of `who`; the limits are those of its primary group too.
std::vector<QuotaLine> quota_lines(const State&, const Client& who);
/// EAGAIN that names the limit: the user makes more control operations per second than it may.
Outcome check_rate(Call&, abi::Op);

/// False: the user has as many sessions as it may.
bool may_open_session(State&, const Client&);

}  // namespace roci::host::sessions
