// Finding the rocid to talk to, and starting one on the loopback where there is none.
#pragma once

#include <optional>
#include <string>

#include "control_client.hpp"

namespace roci::cli {

/// What the user said about where rocid is.
struct Where {
    std::string socket;  ///< --socket, or ""
    std::string config;  ///< --config: of an ephemeral rocid, or ""
    bool keep = false;   ///< an ephemeral rocid stays after its last session
};

/// A rocid that answers. Holding `session` keeps an ephemeral one alive.
struct Daemon {
    std::string socket;
    bool ephemeral = false;
    ControlClient session;
};

/// Where an ephemeral rocid of this user listens: one place a user and configuration, so that programs started apart meet in it.
/// "" and `why`: no safe folder for it.
std::string ephemeral_socket(const std::string& config, std::string& why);

/// The first that answers: --socket or $ROCI_SOCKET, and nothing else if one of them is set; then the system's rocid; then the
/// user's ephemeral one. nullopt: none, and `why` says what to do.
std::optional<Daemon> find_daemon(const Where& where, std::string& why);

/// find_daemon(), or else starts an ephemeral one and waits until it serves.
std::optional<Daemon> find_or_start_daemon(const Where& where, std::string& why);

}  // namespace roci::cli
