// Inside of the manager: sending a message of a connection.
#pragma once

#include "cm/manager.hpp"

namespace roci::cm {

/// What was sent last is what is repeated, by the timer or because the peer repeats itself.
template <class Message>
void Manager::send(Connection& c, const Message& message) {
    c.last = encode(c.transaction, message);
    transmit(c.peer, c.last);
}

}  // namespace roci::cm
