// The version of all layouts in verbs_api/abi: the rings and the control messages.
//
// A client library sends its version in the first message of a connection (HelloRequest in control.hpp). rocid replies with the
// range of versions that it supports. Any change to a struct in this folder raises kAbiVersion.
#pragma once

#include <cstdint>

namespace roci::abi {

inline constexpr uint32_t kAbiVersion = 4;
inline constexpr uint32_t kHelloMagic = 0x49434f52;  // "ROCI", little endian

/// The environment variable with the path of rocid's control socket. If the variable is not set or empty, the path is
/// kDefaultSocket.
inline constexpr char kSocketEnv[] = "ROCI_SOCKET";
inline constexpr char kDefaultSocket[] = "/run/rocinante/rocid.sock";

inline constexpr uint32_t kCacheLine = 64;
inline constexpr uint32_t kMaxEngines = 16;

}  // namespace roci::abi
