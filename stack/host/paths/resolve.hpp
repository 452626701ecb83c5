// Resolves an address vector to a path. A path consists of the addresses and the UDP source port of the frames of a connection or
// to a UD destination.
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

/// The QP numbers of both ends, from which the UDP source port is derived; 0 for UD.
struct FlowEnds {
    uint32_t local = 0, remote = 0;
};

/// Returns the UDP source port of a flow, 0xc000..0xffff (RoCEv2 annex A17.4.6). The port is derived from the program's flow
/// label, or from the QP numbers if there is no flow label, as in Linux drivers. It is constant for a connection. It is equal at
/// both ends if they have the same flow label.
uint16_t udp_source_port(uint32_t flow_label, FlowEnds ends);

/// Resolves `av`. Fails with EINVAL if the vector is invalid, and with the errors of find_neighbour() if the destination is
/// unreachable. While the MAC address is being resolved, the result has Outcome::waits_for set.
Outcome resolve_path(State& state, uint32_t device, const abi::AhAttr& av, FlowEnds ends, ResolvedPath& out);

}  // namespace roci::host::paths
