#include "host/paths/resolve.hpp"

#include <algorithm>

#include "host/paths/neighbours.hpp"
#include "host/port_attributes.hpp"
#include "wire/describe.hpp"

namespace roci::host::paths {
namespace {

using wire::to_text;

constexpr uint32_t kFlowLabelMask = 0xfffff;
constexpr uint8_t kDefaultHopLimit = 64;
constexpr uint32_t kPriorityShift = 13;  // position in a VLAN tag; the priority is the service level, as with NICs

Outcome check_vector(const DeviceConfig& device, const abi::AhAttr& av) {
    if (av.is_global == 0) return fail(EINVAL, "address without GRH: RoCE addresses are GIDs, set is_global = 1 and grh.dgid");
    if (av.port_num != kPortNumber) return fail(EINVAL, "address with port_num {}: the device has port 1 only", av.port_num);
    if (av.sgid_index >= device.gids.size() || device.gids[av.sgid_index].is_zero()) {
        const int error = av.sgid_index < gid_table_length(device) ? ENODATA : EINVAL;  // as the kernel's uverbs
        return fail(error, "sgid_index {} is empty; {} has GIDs 0 to {}", av.sgid_index, device.name,
                    int64_t(device.gids.size()) - 1);
    }
    return done();
}

Outcome find_mac(State& state, uint32_t device, const abi::AhAttr& av, ResolvedPath& out) {
    const Gid& to = out.spec.dest_gid;
    if (out.multicast) {
        out.spec.dest_mac = neighbour::multicast_mac(to);
        return done();
    }
    std::copy(std::begin(av.dmac), std::end(av.dmac), out.spec.dest_mac.bytes.begin());
    if (!out.spec.dest_mac.is_zero() && !out.to_itself) return done();
    return find_neighbour(state, device, out.spec.source_gid, to, out.spec.dest_mac);
}

}  // namespace

uint16_t udp_source_port(uint32_t flow_label, FlowEnds ends) {
    uint64_t label = flow_label & kFlowLabelMask;
    if (label == 0) {
        label = uint64_t{ends.local} * ends.remote;
        label ^= label >> 20;
        label ^= label >> 40;
        label &= kFlowLabelMask;
    }
    // Folds 20 bits into 14 by XORing the upper six bits into the lowest six.
    return uint16_t(0xc000 | ((label ^ label >> 14) & 0x3fff));
}

Outcome resolve_path(State& state, uint32_t device, const abi::AhAttr& av, FlowEnds ends, ResolvedPath& out) {
    const DeviceConfig& own = state.devices[device];
    if (Outcome o = check_vector(own, av); o.failed()) return o;
    wire::PathSpec& s = out.spec;
    s.source_mac = own.mac;
    s.source_gid = own.gids[av.sgid_index];
    std::copy(std::begin(av.dgid.raw), std::end(av.dgid.raw), s.dest_gid.bytes.begin());
    if (s.dest_gid.is_zero()) return fail(EINVAL, "destination GID is all zero; exchange GIDs with the peer");
    if (s.dest_gid.is_ipv4() != s.source_gid.is_ipv4()) {
        return fail(EINVAL, "GID {} (sgid_index {}) cannot reach {}: one is IPv4, the other IPv6; choose another sgid_index",
                    to_text(s.source_gid), av.sgid_index, to_text(s.dest_gid));
    }
    s.traffic_class = av.traffic_class != 0 ? av.traffic_class : own.traffic_class;
    if (own.vlan != 0) s.vlan = uint16_t((av.sl & 7u) << kPriorityShift | own.vlan);
    s.port_sums = own.port_sums;
    s.port_icrc = own.port_icrc;
    s.hop_limit = av.hop_limit != 0 ? av.hop_limit : kDefaultHopLimit;
    s.flow_label = av.flow_label & kFlowLabelMask;
    s.udp_source = own.udp_source != 0 ? own.udp_source : udp_source_port(s.flow_label, ends);
    out.multicast = neighbour::is_multicast(s.dest_gid);
    out.to_itself = !out.multicast && has_gid(own, s.dest_gid);
    // Some programs, such as ibv_rc_pingpong, set hop limit 1. No router would forward their packets. So a unicast path uses the
    // default hop limit, as with kernel drivers, unless the port cannot resolve neighbours.
    if (own.resolver != Resolver::none && !out.multicast) s.hop_limit = kDefaultHopLimit;
    return find_mac(state, device, av, out);
}

}  // namespace roci::host::paths
