// Internal to the manager: sends a message of a connection.
#pragma once

#include "cm/manager.hpp"

namespace roci::cm {

/// Sends a message and stores it. The stored message is sent again after a timeout, or if the peer repeats its own message.
template <class Message>
void Manager::send(Connection& c, const Message& message) {
    c.last = encode(c.transaction, message);
    transmit(c.peer, c.last);
}

}  // namespace roci::cm
