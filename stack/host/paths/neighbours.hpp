// Who has which MAC, for the conductor: how a port finds out (DeviceConfig::resolver), and what waits meanwhile. A request that
// needs an unknown MAC is held, and run again when the answer is there; nobody else waits for it.
#pragma once

#include <deque>
#include <vector>

#include "host/outcome.hpp"
#include "host/state.hpp"
#include "neighbour/cache.hpp"
#include "neighbour/frames.hpp"

namespace roci::host::paths {

/// A request that waits for a neighbour: one a session, as a client waits for its reply.
struct HeldRequest {
    uint32_t session = 0;
    neighbour::Key neighbour;
    std::vector<std::byte> packet;
};
/// An id of rdma_cm whose address is being resolved; it may be gone when the answer comes.
struct HeldId {
    uint32_t session = 0, id = 0;
    neighbour::Key neighbour;
    Nanos deadline = kNever;
};
struct SettledId {
    uint32_t session = 0, id = 0;
    int error = 0;  ///< 0: its address is resolved
};

struct Neighbours {
    neighbour::Cache cache;
    std::vector<HeldRequest> requests;  ///< that wait
    std::deque<HeldRequest> ready;      ///< whose neighbour is known now, or known not to answer: to be run again
    std::vector<HeldId> ids;            ///< that wait
    std::deque<SettledId> settled_ids;  ///< for rdma_cm
    uint64_t echoes = 0, conflicts = 0;
};

/// The MAC that frames of `device` to `dest` go to. Waits: Outcome::waits_for. ENETUNREACH, EHOSTUNREACH: there is no way;
/// ETIMEDOUT: nobody answers.
Outcome find_neighbour(State&, uint32_t device, const Gid& source, const Gid& dest, MacAddress& mac);
/// A peer's frame carried that MAC. It is remembered for ports whose neighbours cannot be asked (Resolver::none).
void overhear(State&, uint32_t device, const Gid& peer, const MacAddress& mac);
/// Takes frames of ports that rocid answers for, and moves those whose wait is over to `ready` and `settled_ids`.
void service(State&);
/// Sends what the cache has to ask.
void ask_neighbours(State&);
Nanos next_deadline(const State&);
void forget_requests(State&, uint32_t session);
void forget_session(State&, uint32_t session);
void forget_id(State&, uint32_t session, uint32_t id);
/// Announces the addresses of a device on its link: whoever remembers another MAC for them corrects it.
void announce(State&, uint32_t device);

}  // namespace roci::host::paths
