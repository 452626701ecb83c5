// `roci status`: what a rocid is doing, as tables or as its JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "daemon.hpp"

namespace roci::cli {

/// Prints (with `limits` that table alone) and returns the exit code: 0, or 1 with the reason on stderr.
int status(const Where& where, bool as_json, bool limits = false);

/// The status text of rocid, or "" and `why`.
/// A text that rocid gave, from its beginning.
std::string read_text(int fd);

std::string fetch_status(ControlClient& client, std::string& why);

/// The tables of `roci status`, from rocid's JSON.
std::string status_tables(const nlohmann::ordered_json& status);

}  // namespace roci::cli
