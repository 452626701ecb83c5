// Manager::send(), which manager.cpp, messages.cpp and datagram.cpp share.
#pragma once

#include "cm/manager.hpp"

namespace roci::cm {

/// Sends a message and stores a copy. The manager sends the copy again after a timeout, or if the peer repeats a message.
template <class Message>
void Manager::send(Connection& c, const Message& message) {
    c.last = encode(c.transaction, message);
    transmit(c.peer, c.last);
}

}  // namespace roci::cm
