// The handlers of operations that concern no single object (device, status, `roci why`, captures), and reclaim(), grouped by
// file.
#pragma once

#include "host/call.hpp"

namespace roci::host::sessions {

// device.cpp
Outcome hello(Call&);
Outcome list_devices(Call&);
Outcome open_device(Call&);
Outcome query_device(Call&);
Outcome query_port(Call&);
Outcome query_gid_table(Call&);
void close_device(State&, Session&);

// status.cpp
Outcome status(Call&);
Outcome counters(Call&);
Conductor::Totals totals_of(const State&);
/// Returns the JSON text of `roci status` for `viewer`. Root and the user of rocid get all sessions. Other users get only their
/// own sessions.
std::string status_text(State&, const Client& viewer);

// why.cpp
Outcome why(Call&);

// capture.cpp
Outcome start_capture(Call&);
Outcome stop_capture(Call&);

// reclaim.cpp
void reclaim(State&, Session&);

}  // namespace roci::host::sessions
