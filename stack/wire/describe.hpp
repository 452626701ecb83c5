// Converts a packet or a GID to text, for traces, status and messages. The functions allocate memory, so code that runs per
// packet must not call them.
#pragma once

#include <string>

#include "wire/packet.hpp"

namespace roci::wire {

/// Returns one line with the addresses, the BTH and the extended headers of the opcode, for example
/// "10.0.0.1 > 10.0.0.2 RC WRITE Only qp 0x000011 psn 5 va 0x1000 rkey 0x200 length 64 payload 64 AckReq MigReq".
/// parse() must have returned ok for `packet`, and the packet's frame must still exist.
std::string describe(const Packet& packet);

/// Returns the GID in the format of ibv_devinfo: "::ffff:10.0.0.1" or "fe80::1".
std::string to_text(const Gid& gid);

}  // namespace roci::wire
