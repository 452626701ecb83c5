// Configuration of the conductor (rocid's control thread): devices and limits.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "cc/controller.hpp"
#include "host/limits.hpp"

namespace roci::host {

/// The method by which rocid finds the MAC addresses of neighbours on the link.
enum class Resolver : uint8_t {
    none,    ///< the port is a loopback and has no neighbours
    own,     ///< rocid itself sends and answers ARP and neighbour discovery, and answers echo requests
    kernel,  ///< rocid reads the kernel's neighbour table of the port's interface
    socket,  ///< the port is a socket; the kernel finds the MAC addresses, because it builds the headers
};
struct DeviceAddress {
    Gid gid;
    uint8_t prefix = 0;  ///< length of the GID's subnet prefix in bits (120 for an IPv4 /24)
    bool operator==(const DeviceAddress&) const = default;
};

/// The configuration of a device. A device has one port.
struct DeviceConfig {
    std::string name;    ///< such as "roci0"
    std::string netdev;  ///< the port's kernel interface, or ""
    MacAddress mac;
    std::vector<Gid> gids;
    uint32_t mtu_bytes = 4096;                  ///< largest path MTU, bytes
    bool active = true;                         ///< the link is up
    std::string peer = {};                      ///< device of the same rocid at the other end of the link, or ""
    std::map<Gid, MacAddress> neighbours = {};  ///< static entries of the configuration
    Resolver resolver = Resolver::none;
    std::vector<uint8_t> prefixes = {};  ///< by GID index; see DeviceAddress::prefix; missing entries are unknown
    std::vector<Gid> gateways = {};      ///< only for Resolver::own; at most one per address family
    uint16_t vlan = 0;                   ///< VLAN of all frames that the device sends and accepts; 0: untagged
    uint8_t traffic_class = 0;           ///< traffic class of a path if the program sets no traffic class
    bool port_sums = false;              ///< the port computes the checksums of IPv4 headers
    bool port_icrc = false;              ///< see wire::PathSpec
    uint16_t udp_source = 0;             ///< UDP source port of all frames of the device; 0: one source port per flow
    cc::Policy congestion = cc::Policy::fixed_window;
};

uint32_t active_mtu(const DeviceConfig&);  ///< returns a value of enum ibv_mtu
uint32_t gid_table_length(const DeviceConfig&);
/// Returns the GUID of the device with this MAC address. The GUID is a modified EUI-64, as for other RoCE devices.
uint64_t guid_of(const MacAddress&);
/// Returns true if the device has the GID. Returns false for the zero GID, which marks free entries of the GID table.
bool has_gid(const DeviceConfig&, const Gid&);
/// Returns the index of the device that has the address, or nullopt.
std::optional<uint32_t> device_of(std::span<const DeviceConfig>, const Gid&);

}  // namespace roci::host
