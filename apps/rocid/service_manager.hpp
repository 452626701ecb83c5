// Notifies the service manager that started rocid (sd_notify(3)), by a datagram to the socket in $NOTIFY_SOCKET.
#pragma once

#include <string_view>

namespace roci::rocid {

/// Sends `state`, which consists of lines such as "READY=1". Does nothing if NOTIFY_SOCKET is not set.
void tell_service_manager(std::string_view state);

}  // namespace roci::rocid
