// A packet or a GID as text, for traces, status and messages. Not for the hot path: it allocates.
#pragma once

#include <string>

#include "wire/packet.hpp"

namespace roci::wire {

/// "10.0.0.1 > 10.0.0.2 RC WRITE Only qp 0x000011 psn 5 va 0x1000 rkey 0x200 length 64 payload 64 AckReq MigReq".
/// Prints the extended headers of the opcode. parse() must have returned ok for `packet`, and its frame must still exist.
std::string describe(const Packet& packet);

/// As ibv_devinfo prints it: "::ffff:10.0.0.1" or "fe80::1".
std::string to_text(const Gid& gid);

}  // namespace roci::wire
