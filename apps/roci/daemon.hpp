// Finds a running rocid, or starts an ephemeral rocid with loopback devices.
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
    bool keep = false;    ///< an ephemeral rocid stays after its last session
};

/// A rocid that answers. An ephemeral rocid lives as long as `session` is open.
struct Daemon {
    std::string socket;
    bool ephemeral = false;
    ControlClient session;
};

/// The socket of this user's ephemeral rocid: one per user and configuration, so that programs share it.
/// Returns "", with `why` set, if there is no safe folder for it.
std::string ephemeral_socket(const Where& where, std::string& why);

/// Returns the first rocid that answers: that of --socket or $ROCI_SOCKET (only that, if one of them is set), then the system's,
/// then the user's ephemeral one. Returns nullopt, with `why` set, if there is none.
std::optional<Daemon> find_daemon(const Where& where, std::string& why);

/// The socket of the rocid that `roci up` starts for this user. Returns "", with `why` set, if there is no safe folder for it.
std::string up_socket(std::string& why);
/// Starts a rocid that serves `socket`, and waits until it serves. Returns nullopt on failure; `why` then has the end of its log.
std::optional<Daemon> start_daemon(const Where& where, const std::string& socket, std::string& why);
/// Calls find_daemon(). If there is no rocid, starts an ephemeral rocid and waits until it serves.
std::optional<Daemon> find_or_start_daemon(const Where& where, std::string& why);

}  // namespace roci::cli
