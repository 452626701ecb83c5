// Resolves an address vector to a path: the addresses and the UDP source port in the frames of a connection or to a UD
// destination.
#pragma once

#include "host/outcome.hpp"
#include "host/state.hpp"
#include "wire/build.hpp"

namespace roci::host::paths {

struct ResolvedPath {
    wire::PathSpec spec;
    bool to_itself = false;  ///< the destination is the device itself
    bool multicast = false;
};

/// QP numbers of both ends, for the UDP source port; 0 for UD.
struct FlowEnds {
    uint32_t local = 0, remote = 0;
};

/// UDP source port of a flow, 0xc000..0xffff. It is constant for a connection and equal at both ends (RoCEv2 annex A17.4.6). It
/// is derived from the program's flow label, or without one from the QP numbers, in the same way as Linux drivers do.
uint16_t udp_source_port(uint32_t flow_label, FlowEnds ends);

/// EINVAL: the vector is invalid. ENETUNREACH, EHOSTUNREACH, ETIMEDOUT: the destination is unreachable (neighbours.hpp).
/// Outcome::waits_for: its MAC is being resolved.
Outcome resolve_path(State& state, uint32_t device, const abi::AhAttr& av, FlowEnds ends, ResolvedPath& out);

}  // namespace roci::host::paths
