// The table of port kinds. Each row contains the description, the configuration keys and the DPDK driver of a kind.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "config.hpp"

namespace roci::rocid {

struct PortKind {
    std::string_view name;
    std::string_view driver;      ///< DPDK's driver; empty for a PCI device and if the kind has no DPDK port of its own
    std::string_view own_keys;    ///< keys of a [[device]] that only some kinds accept, such as "path|role"
    std::string_view must_have;   ///< the key of `own_keys` that is required
    bool netdev = false;          ///< the port uses a kernel interface (`interface`) with its addresses, MTU and link
    bool has_mac = false;         ///< the default MAC is the MAC of the kernel interface or NIC
    uint32_t largest_mtu = 4096;  ///< largest path MTU
    bool own_frames = false;      ///< the port has separate pools of frame buffers with the size frame_room()
    bool sets_mtu = false;        ///< rocid sets the MTU of the port
    bool socket = false;          ///< a UDP socket instead of a DPDK port; the kernel builds the headers before the UDP payload
    bool one_queue = false;       ///< a DPDK port has one queue, so a device has one DPDK port per engine
    /// Returns the driver's arguments for `queues` queues from `first` on. nullptr if the kind needs no arguments.
    std::string (*arguments)(const DeviceSection& device, unsigned queues, unsigned first) = nullptr;
    std::string_view what;   ///< description of the kind in the sample file
    std::string_view needs;  ///< requirements of the port, as a hint in errors
};

std::span<const PortKind> port_kinds();
/// Returns the row with the name `name`. Throws std::logic_error if no row matches. A configuration cannot cause this error,
/// because the option table (options.cpp) allows only names of rows.
const PortKind& port_kind(std::string_view name);
bool takes_key(const PortKind& kind, std::string_view key);
/// Returns the keys in `own_keys` of the kind, separated by commas, such as "interface, descriptors".
std::string own_keys(const PortKind& kind);
/// Returns the name and arguments of the device's DPDK port, such as "net_af_packet_roci0,iface=eth0,…". `first` is the first
/// queue of the port.
std::string devargs_of(const DeviceSection& device, unsigned queues, unsigned first = 0);

/// Returns the size in bytes of a frame buffer of a kind with own_frames. Returns 0 for other kinds, which use the common size.
uint32_t frame_room(const PortKind& kind);

/// Returns the size in bytes of the largest IP packet with `path_mtu` bytes of payload. This packet has the headers IPv6, UDP,
/// BTH, XRCETH, RETH and ImmDt, and the ICRC behind the payload.
uint32_t ip_bytes_for(uint32_t path_mtu);
/// Returns the largest path MTU, at most `wish`, whose packets fit into `ip_bytes`. Returns 0 if path MTU 256 does not fit.
uint32_t path_mtu_within(uint32_t ip_bytes, uint32_t wish);

}  // namespace roci::rocid
