// Pairs the two directions of each connection.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "frame.hpp"

namespace roci::plot {

inline constexpr uint32_t kNoFlow = ~uint32_t{0};

struct Connection {
    uint32_t to_b = kNoFlow;  ///< flow from end A to end B
    uint32_t to_a = kNoFlow;
    wire::Service service = wire::Service::rc;
    std::string a, b;  ///< names of the two ends, such as "10.0.0.1 QP 17"
    uint64_t frames = 0;
};

/// Returns all connections. The connections with the most frames are first. End A of a connection is the end that sent the first
/// captured request.
std::vector<Connection> find_connections(const Capture& capture);

/// Returns the name of the service: "RC", "UD" …
const char* service_name(wire::Service service);

}  // namespace roci::plot
