// Finds a running rocid, or starts an ephemeral rocid.
#pragma once

#include <optional>
#include <string>

#include "control_client.hpp"

namespace roci::cli {

/// The user's choice of rocid.
struct Where {
    std::string socket;   ///< --socket, or ""
    std::string config;   ///< --config: configuration of an ephemeral rocid, or ""
    bool single = false;  ///< --single: an ephemeral rocid with one device
    bool keep = false;    ///< true: an ephemeral rocid stays after its last session
};

/// A rocid that accepted a connection. An ephemeral rocid lives at least as long as `session` is open.
struct Daemon {
    std::string socket;
    bool ephemeral = false;
    ControlClient session;
};

/// Returns the socket of this user's ephemeral rocid. Each user and configuration has one ephemeral rocid, which programs share.
/// Returns "", with `why` set, if there is no safe folder for the socket.
std::string ephemeral_socket(const Where& where, std::string& why);

/// Connects to a rocid. If --socket or $ROCI_SOCKET is set, tries only the rocid at that socket. Otherwise, if --config or
/// --single is set, tries only the ephemeral rocid of that option. Otherwise tries the rocid of `roci up`, the system's rocid and
/// the user's ephemeral rocid, in this order. Returns nullopt, with `why` set, if no rocid accepts.
std::optional<Daemon> find_daemon(const Where& where, std::string& why);

/// Returns the socket of the rocid that `roci up` starts for this user, or "", with `why` set, if no folder is safe.
std::string up_socket(std::string& why);
/// Starts a rocid that serves `socket`, and waits until it serves. Returns nullopt, with `why` set, on failure. If rocid ends or
/// does not become ready, `why` includes the end of rocid's log.
std::optional<Daemon> start_daemon(const Where& where, const std::string& socket, std::string& why);
/// Calls find_daemon(). If no rocid accepts and the user named no socket, starts an ephemeral rocid and waits until it serves.
std::optional<Daemon> find_or_start_daemon(const Where& where, std::string& why);

}  // namespace roci::cli
