// Valid sequences of control messages, recorded from a client. The world of this client equals the world in which an input
// runs. So the handles, keys and QP numbers in the messages are valid when the messages are sent again.
#pragma once

#include "rig.hpp"
#include "target.hpp"

namespace roci::fuzz::control {

/// Kinds of records. All other kinds are numbers of operations. The body of a message consists of the number of the session, the
/// form of the descriptors (Intruder::descriptors) and the body of the request.
enum Kind : uint8_t {
    kRun = 0xf0,    ///< time passes; the body is a number of microseconds (16 bits)
    kClose = 0xf1,  ///< the session of the body ends
    kRaw = 0xf2,    ///< a packet without the header that the other kinds have
};

}  // namespace roci::fuzz::control
