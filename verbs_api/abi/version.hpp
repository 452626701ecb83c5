// The version of all layouts in verbs_api/abi: the rings and the control messages.
//
// A client library sends its version in the first message of a connection (HelloRequest in control.hpp). rocid replies with the
// range of versions that rocid supports. A change of an existing layout raises kAbiVersion. A new field at the end of a control
// message does not, because the receiver pads a shorter message with zeros.
#pragma once

#include <cstdint>

namespace roci::abi {

inline constexpr uint32_t kAbiVersion = 4;
inline constexpr uint32_t kHelloMagic = 0x49434f52;  // "ROCI", little endian

/// The environment variable that contains the path of rocid's control socket. If the variable is unset or empty, the path is
/// kDefaultSocket.
inline constexpr char kSocketEnv[] = "ROCI_SOCKET";
inline constexpr char kDefaultSocket[] = "/run/rocinante/rocid.sock";

inline constexpr uint32_t kCacheLine = 64;
inline constexpr uint32_t kMaxEngines = 16;

}  // namespace roci::abi
