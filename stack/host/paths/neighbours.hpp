// Resolution of MAC addresses for the conductor, by the port's DeviceConfig::resolver. A request that needs an unknown MAC is
// held and run again when the MAC is resolved; other requests do not wait.
#pragma once

#include <deque>
#include <vector>

#include "host/outcome.hpp"
#include "host/state.hpp"
#include "neighbour/cache.hpp"
#include "neighbour/frames.hpp"

namespace roci::host::paths {

/// A request that waits for a neighbour: at most one per session, because a client waits for its reply.
struct HeldRequest {
    uint32_t session = 0;
    neighbour::Key neighbour;
    std::vector<std::byte> packet;
};
/// An id of rdma_cm whose address is being resolved. It may be destroyed before the result.
struct HeldId {
    uint32_t session = 0, id = 0;
    neighbour::Key neighbour;
    Nanos deadline = kNever;
};
struct SettledId {
    uint32_t session = 0, id = 0;
    int error = 0;  ///< 0: the address is resolved
};

struct Neighbours {
    neighbour::Cache cache;
    std::vector<HeldRequest> requests;  ///< waiting requests
    std::deque<HeldRequest> ready;      ///< to be run again: the neighbour is resolved, or does not answer
    std::vector<HeldId> ids;            ///< waiting ids
    std::deque<SettledId> settled_ids;  ///< for rdma_cm
    uint64_t echoes = 0, conflicts = 0;
};

/// Finds the destination MAC of frames from `device` to `dest`. Outcome::waits_for is set while it is being resolved.
/// ENETUNREACH, EHOSTUNREACH: no route; ETIMEDOUT: the neighbour does not answer.
Outcome find_neighbour(State&, uint32_t device, const Gid& source, const Gid& dest, MacAddress& mac);
/// Stores the MAC of a frame from `peer`, for ports that cannot resolve neighbours (Resolver::none).
void overhear(State&, uint32_t device, const Gid& peer, const MacAddress& mac);
/// Processes frames of ports with Resolver::own. Moves requests and ids whose resolution has ended to `ready` and `settled_ids`.
void service(State&);
/// Sends the solicitations of the cache.
void ask_neighbours(State&);
Nanos next_deadline(const State&);
void forget_requests(State&, uint32_t session);
void forget_session(State&, uint32_t session);
void forget_id(State&, uint32_t session, uint32_t id);
/// Announces the addresses of a device on its link, so that neighbours with another MAC in their caches correct it.
void announce(State&, uint32_t device);

}  // namespace roci::host::paths
