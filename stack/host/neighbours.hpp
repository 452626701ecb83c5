// Who has which MAC, for the conductor: how a port finds out (DeviceConfig::resolver), and what waits meanwhile. A request that
// needs an unknown MAC is held, and run again when the answer is there; nobody else waits for it.
#pragma once

#include <deque>
#include <vector>

#include "host/impl.hpp"
#include "neighbour/cache.hpp"
#include "neighbour/frames.hpp"

namespace roci::host {

struct CmId;

/// A request that waits for a neighbour: one a session, as a client waits for its reply.
struct HeldRequest {
    uint32_t session = 0;
    neighbour::Key neighbour;
    std::vector<std::byte> packet;
};
struct HeldReply {
    uint32_t session = 0;
    Reply reply;
    bool close = false;
};
/// An id of rdma_cm whose address is being resolved; it may be gone when the answer comes.
struct HeldId {
    uint32_t session = 0, id = 0;
    neighbour::Key neighbour;
    Nanos deadline = kNever;
};

struct Neighbours {
    neighbour::Cache cache;
    std::vector<HeldRequest> requests;
    std::deque<HeldReply> replies;
    std::vector<HeldId> ids;
    uint64_t echoes = 0, conflicts = 0;
};

/// The MAC that frames of `device` to `dest` go to. Waits: Outcome::waits_for. ENETUNREACH, EHOSTUNREACH: there is no way;
/// ETIMEDOUT: nobody answers.
Outcome find_neighbour(Host&, uint32_t device, const Gid& source, const Gid& dest, MacAddress& mac);
/// Frames of ports that we answer for, questions, and whoever waits for answers.
void neighbours_service(Host&);
Nanos neighbours_deadline(const Host&);
void neighbours_forget(Host&, uint32_t session);
/// Says where the addresses of a device are, unasked: whoever remembers another MAC for them learns of it.
void announce(Host&, uint32_t device);

}  // namespace roci::host
