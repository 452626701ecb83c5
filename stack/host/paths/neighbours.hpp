// Resolves MAC addresses for the conductor (rocid's control thread). The method depends on DeviceConfig::resolver of the device.
// If a request needs a MAC address that is being resolved, the conductor stores the request and runs it again when the
// resolution has ended. Other requests do not wait.
#pragma once

#include <deque>
#include <vector>

#include "host/outcome.hpp"
#include "host/state.hpp"
#include "neighbour/cache.hpp"
#include "neighbour/frames.hpp"

namespace roci::host::paths {

/// A request that waits for a neighbour. A session has at most one such request, because a client waits for the reply before it
/// sends the next request.
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
    std::deque<HeldRequest> ready;      ///< requests to be run again, because their resolution has succeeded or failed
    std::vector<HeldId> ids;            ///< waiting ids of rdma_cm
    std::deque<SettledId> settled_ids;  ///< ids of rdma_cm whose resolution has succeeded or failed
    uint64_t echoes = 0, conflicts = 0;
};

/// Finds the destination MAC address of frames from `device` to `dest`. Fails with EAGAIN and sets Outcome::waits_for while the
/// address is being resolved. Fails with ENETUNREACH if there is no route, and with ETIMEDOUT if the neighbour does not answer.
/// Fails with EHOSTUNREACH if the address is unknown and the port cannot resolve neighbours.
Outcome find_neighbour(State&, uint32_t device, const Gid& source, const Gid& dest, MacAddress& mac);
/// If the port cannot resolve neighbours (Resolver::none), stores the source MAC address of a frame from `peer`. Otherwise does
/// nothing.
void overhear(State&, uint32_t device, const Gid& peer, const MacAddress& mac);
/// Processes received frames of ARP, neighbour discovery and echo, and the timers of the cache. Sends due solicitations. Moves
/// requests and ids whose resolution has ended to `ready` and `settled_ids`.
void service(State&);
/// Sends the solicitations that the cache has queued.
void ask_neighbours(State&);
Nanos next_deadline(const State&);
void forget_requests(State&, uint32_t session);
void forget_session(State&, uint32_t session);
void forget_id(State&, uint32_t session, uint32_t id);
/// Announces the addresses of a device on its link, so that neighbours correct outdated entries of their caches. Does nothing if
/// the device does not have Resolver::own.
void announce(State&, uint32_t device);

}  // namespace roci::host::paths
