// What rocid tells the service manager that started it (sd_notify(3)): a datagram to the socket that $NOTIFY_SOCKET names.
#pragma once

#include <string_view>

namespace roci::rocid {

/// Lines such as "READY=1". Nobody is told where there is no manager.
void tell_service_manager(std::string_view state);

}  // namespace roci::rocid
