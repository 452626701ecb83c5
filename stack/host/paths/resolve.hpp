// Resolves an address vector to a path. A path contains the values of the Ethernet, IP and UDP headers for frames to one
// destination.
#pragma once

#include "host/outcome.hpp"
#include "host/state.hpp"
#include "wire/build.hpp"

namespace roci::host::paths {

struct ResolvedPath {
    wire::PathSpec spec;
    bool to_itself = false;  ///< the destination is an address of the same device
    bool multicast = false;
};

/// The QP numbers of both ends of a connection; 0 for UD. The UDP source port depends on these numbers.
struct FlowEnds {
    uint32_t local = 0, remote = 0;
};

/// Returns the UDP source port of a flow, 0xc000..0xffff (RoCEv2 annex A17.4.6). The port depends only on the program's flow
/// label, or on the QP numbers if the flow label is 0, as in Linux drivers. Both ends of a connection use the same port if their
/// flow labels are equal.
uint16_t udp_source_port(uint32_t flow_label, FlowEnds ends);

/// Resolves the address vector `av`. Fails with EINVAL if the vector is invalid. Otherwise returns the errors of
/// find_neighbour(), which sets Outcome::waits_for while the MAC address is being resolved.
Outcome resolve_path(State& state, uint32_t device, const abi::AhAttr& av, FlowEnds ends, ResolvedPath& out);

}  // namespace roci::host::paths
