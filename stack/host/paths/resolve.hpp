// From an address vector to a path: which addresses and port the frames of a connection or a UD destination carry.
#pragma once

#include "host/outcome.hpp"
#include "host/state.hpp"
#include "wire/build.hpp"

namespace roci::host::paths {

struct ResolvedPath {
    wire::PathSpec spec;
    bool hairpin = false;  ///< the destination is the device itself
    bool multicast = false;
};

/// QP numbers on both ends, for the UDP source port; 0 where there is none (UD).
struct FlowEnds {
    uint32_t local = 0, remote = 0;
};

/// UDP source port of a flow, 0xc000..0xffff, constant for a connection and equal on both its ends (RoCEv2 annex A17.4.6). A flow
/// label that the program chose decides; otherwise the QP numbers do, folded as Linux drivers fold them, so that a capture looks
/// alike.
uint16_t udp_source_port(uint32_t flow_label, FlowEnds ends);

/// EINVAL: the vector is wrong. ENETUNREACH, EHOSTUNREACH, ETIMEDOUT: there is no way to the destination (neighbours.hpp).
/// Outcome::waits_for: its MAC is being asked for.
Outcome resolve_path(State& state, uint32_t device, const abi::AhAttr& av, FlowEnds ends, ResolvedPath& out);

}  // namespace roci::host::paths
