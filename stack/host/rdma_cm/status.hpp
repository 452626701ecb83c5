// The part of `roci status` about connection management.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>

#include "host/state.hpp"

namespace roci::host::rdma_cm {

struct CmTotals {
    size_t ids = 0, channels = 0, groups = 0, connections = 0;
};
CmTotals cm_totals(const State& state);
nlohmann::ordered_json cm_json(const State& state);

}  // namespace roci::host::rdma_cm
