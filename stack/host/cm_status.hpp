// Connection management in `roci status`.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>

#include "host/impl.hpp"

namespace roci::host {

struct CmTotals {
    size_t ids = 0, channels = 0, groups = 0, connections = 0;
};
CmTotals cm_totals(const Host& host);
nlohmann::ordered_json cm_json(const Host& host);

}  // namespace roci::host
