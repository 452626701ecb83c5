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
    // The following fields select sessions. A session must match all fields that are set.
    std::string device;
    std::optional<int64_t> user, pid;
    std::optional<uint32_t> qpn;  ///< print all fields of this QP
    bool filters() const { return !device.empty() || user || pid || qpn; }
};

/// Prints the status. Returns the exit code: 0, or 1 with the error on stderr.
int status(const StatusOptions& options);

/// Returns the whole text of a memfd that rocid passed.
std::string read_text(int fd);

/// Returns the status text of rocid. On failure returns "" and sets `why`.
std::string fetch_status(ControlClient& client, std::string& why);

/// Returns the devices of rocid's JSON that match options.device, and the sessions that match all options. If options.qpn is set,
/// the sessions contain only this QP.
nlohmann::ordered_json filter_status(const nlohmann::ordered_json& status, const StatusOptions& options);
inline constexpr size_t kStatusWidth = 100;
/// Converts rocid's JSON to the tables of `roci status`. Lines have at most `width` characters. Only titles and single words may
/// be longer.
std::string status_tables(const nlohmann::ordered_json& status, size_t width = kStatusWidth);
/// Returns all fields of the QPs in the result of filter_status() as text.
std::string qp_page(const nlohmann::ordered_json& status, size_t width = kStatusWidth);

}  // namespace roci::cli
