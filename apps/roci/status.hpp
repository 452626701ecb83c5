// `roci status`: prints the state of a rocid as tables or as JSON.
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
    bool limits = false;  ///< print only the table of limits
    // The following fields select sessions; all must match.
    std::string device;
    std::optional<int64_t> user, pid;
    std::optional<uint32_t> qpn;  ///< print all fields of this QP
    bool filters() const { return !device.empty() || user || pid || qpn; }
};

/// Prints the status. Returns the exit code: 0, or 1 with the error on stderr.
int status(const StatusOptions& options);

/// Reads the whole text of a descriptor that rocid passed.
std::string read_text(int fd);

/// Returns the status text of rocid. On failure returns "" and sets `why`.
std::string fetch_status(ControlClient& client, std::string& why);

/// Returns the devices and sessions of rocid's JSON that match the options.
nlohmann::ordered_json filter_status(const nlohmann::ordered_json& status, const StatusOptions& options);
inline constexpr size_t kStatusWidth = 100;
/// Returns the tables of `roci status`, made from rocid's JSON. Lines have at most `width` characters, except longer titles and
/// longer single words.
std::string status_tables(const nlohmann::ordered_json& status, size_t width = kStatusWidth);
/// Returns all fields of the QPs in the result of filter_status() as text.
std::string qp_page(const nlohmann::ordered_json& status, size_t width = kStatusWidth);

}  // namespace roci::cli
