// Finds a running rocid, or starts a rocid of this user. An ephemeral rocid is a rocid that `roci run` starts. It ends after its
// last session.
#pragma once

#include <optional>
#include <string>

#include "control_client.hpp"

namespace roci::cli {

/// The options by which the user chooses a rocid.
struct Where {
    std::string socket;   ///< --socket, or ""
    std::string config;   ///< --config: configuration of an ephemeral rocid, or ""
    bool single = false;  ///< --single: an ephemeral rocid with one device
    bool keep = false;    ///< true: the started rocid does not end after its last session
};

/// A rocid that accepted a connection. An ephemeral rocid runs at least as long as `session` is open.
struct Daemon {
    std::string socket;
    bool ephemeral = false;
    ControlClient session;
};

/// Returns the path of the socket of this user's ephemeral rocid. There is one such rocid per user and configuration, and all
/// programs of the user share it. If no folder is safe for the socket, sets `why` and returns "".
std::string ephemeral_socket(const Where& where, std::string& why);

/// Connects to a rocid. If --socket or $ROCI_SOCKET is set, tries only the rocid at that socket. Otherwise, if --config or
/// --single is set, tries only the ephemeral rocid of that option. Otherwise tries the rocid of `roci up`, the system's rocid and
/// the user's ephemeral rocid, in this order. If no rocid accepts, sets `why` and returns nullopt.
std::optional<Daemon> find_daemon(const Where& where, std::string& why);

/// Returns the path of the socket of the rocid that `roci up` starts for this user. If no folder is safe for the socket, sets
/// `why` and returns "".
std::string up_socket(std::string& why);
/// Starts a rocid that serves `socket`. Waits until rocid is ready, and connects. On failure sets `why` and returns nullopt. If
/// rocid ends or does not become ready within a minute, `why` includes the end of rocid's log.
std::optional<Daemon> start_daemon(const Where& where, const std::string& socket, std::string& why);
/// Calls find_daemon(). If no rocid accepts and the user chose no socket, starts an ephemeral rocid and connects to it.
std::optional<Daemon> find_or_start_daemon(const Where& where, std::string& why);

}  // namespace roci::cli
