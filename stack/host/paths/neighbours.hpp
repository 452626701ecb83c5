// Resolves MAC addresses for the conductor by the port's DeviceConfig::resolver. A request that needs an unknown MAC address is
// held and run again when the resolution has ended. Other requests do not wait.
#pragma once

#include <deque>
#include <vector>

#include "host/outcome.hpp"
#include "host/state.hpp"
#include "neighbour/cache.hpp"
#include "neighbour/frames.hpp"

namespace roci::host::paths {

/// A request that waits for a neighbour. A session has at most one, because a client waits for the reply before its next request.
struct HeldRequest {
    uint32_t session = 0;
    neighbour::Key neighbour;
    std::vector<std::byte> packet;
};
/// An id of rdma_cm whose address is being resolved. The id may be destroyed before the resolution ends.
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

/// Finds the destination MAC address of frames from `device` to `dest`. While the address is being resolved, the result has
/// Outcome::waits_for set. Fails with ENETUNREACH if there is no route, with ETIMEDOUT if the neighbour does not answer, and with
/// EHOSTUNREACH if the address is unknown and the port cannot resolve neighbours.
Outcome find_neighbour(State&, uint32_t device, const Gid& source, const Gid& dest, MacAddress& mac);
/// Stores the source MAC address of a frame from `peer`, for ports that cannot resolve neighbours (Resolver::none).
void overhear(State&, uint32_t device, const Gid& peer, const MacAddress& mac);
/// Processes received frames of ports with Resolver::own, and the timers of the cache. Moves requests and ids whose resolution
/// has ended to `ready` and `settled_ids`.
void service(State&);
/// Sends the solicitations of the cache.
void ask_neighbours(State&);
Nanos next_deadline(const State&);
void forget_requests(State&, uint32_t session);
void forget_session(State&, uint32_t session);
void forget_id(State&, uint32_t session, uint32_t id);
/// Announces the addresses of a device with Resolver::own on its link, so that neighbours correct outdated entries of their
/// caches.
void announce(State&, uint32_t device);

}  // namespace roci::host::paths
