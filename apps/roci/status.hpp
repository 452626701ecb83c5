// `roci status`: what a rocid is doing, as tables or as its JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "daemon.hpp"

namespace roci::cli {

struct StatusOptions {
    Where where;
    bool as_json = false;
    bool limits = false;  ///< that table alone
    // only the sessions of these
    std::string device;
    std::optional<int64_t> user, pid;
    std::optional<uint32_t> qpn;  ///< all of one QP, on its page
    bool filters() const { return !device.empty() || user || pid || qpn; }
};

/// Prints and returns the exit code: 0, or 1 with the reason on stderr.
int status(const StatusOptions& options);

/// A text that rocid gave, from its beginning.
std::string read_text(int fd);

/// The status text of rocid, or "" and `why`.
std::string fetch_status(ControlClient& client, std::string& why);

/// What is left of rocid's JSON: devices and sessions.
nlohmann::ordered_json filter_status(const nlohmann::ordered_json& status, const StatusOptions& options);
/// The tables of `roci status`, from rocid's JSON, at most 100 columns wide.
std::string status_tables(const nlohmann::ordered_json& status);
/// The page of one QP, from what filter_status() left.
std::string qp_page(const nlohmann::ordered_json& status);

}  // namespace roci::cli
