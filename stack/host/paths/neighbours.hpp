// Resolves MAC addresses for the conductor by the port's DeviceConfig::resolver. A request that needs an unknown MAC address is
// held and run again when the address is resolved. Other requests do not wait.
#pragma once

#include <deque>
#include <vector>

#include "host/outcome.hpp"
#include "host/state.hpp"
#include "neighbour/cache.hpp"
#include "neighbour/frames.hpp"

namespace roci::host::paths {

/// A request that waits for a neighbour. There is at most one per session, because a client waits for its reply.
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
    int error = 0;  ///< 0: the address is resolved; otherwise an errno
};

struct Neighbours {
    neighbour::Cache cache;
    std::vector<HeldRequest> requests;  ///< waiting requests
    std::deque<HeldRequest> ready;      ///< requests to be run again, because the neighbour is resolved or does not answer
    std::vector<HeldId> ids;            ///< ids of rdma_cm that wait
    std::deque<SettledId> settled_ids;  ///< ids whose resolution has ended, for rdma_cm
    uint64_t echoes = 0, conflicts = 0;
};

/// Finds the destination MAC address of frames from `device` to `dest`. While it is being resolved, the result has
/// Outcome::waits_for set. Fails with ENETUNREACH or EHOSTUNREACH if there is no route, and with ETIMEDOUT if the neighbour does
/// not answer.
Outcome find_neighbour(State&, uint32_t device, const Gid& source, const Gid& dest, MacAddress& mac);
/// Stores the source MAC address of a frame from `peer`, for ports that cannot resolve neighbours (Resolver::none).
void overhear(State&, uint32_t device, const Gid& peer, const MacAddress& mac);
/// Processes frames of ports with Resolver::own. Moves requests and ids whose resolution has ended to `ready` and `settled_ids`.
void service(State&);
/// Sends the solicitations of the cache.
void ask_neighbours(State&);
Nanos next_deadline(const State&);
void forget_requests(State&, uint32_t session);
void forget_session(State&, uint32_t session);
void forget_id(State&, uint32_t session, uint32_t id);
/// Announces the addresses of a device on its link, so that neighbours with an outdated MAC address in their caches correct it.
void announce(State&, uint32_t device);

}  // namespace roci::host::paths
