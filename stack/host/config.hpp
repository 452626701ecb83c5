// Configuration of the conductor: devices and limits.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "host/limits.hpp"

namespace roci::host {

/// How rocid finds the MAC addresses of neighbours on the link.
enum class Resolver : uint8_t {
    none,    ///< there are no neighbours: a loopback
    own,     ///< by rocid's own ARP and neighbour discovery; it also answers them, and echo requests
    kernel,  ///< from the kernel, which serves the interface behind the port
    socket,  ///< not needed: the port is a kernel socket, and the kernel builds all headers before the UDP payload
};
struct DeviceAddress {
    Gid gid;
    uint8_t prefix = 0;  ///< length of the subnet prefix of the GID (an IPv4 /24 is 120)
    bool operator==(const DeviceAddress&) const = default;
};

/// One device = one port.
struct DeviceConfig {
    std::string name;    ///< "roci0"
    std::string netdev;  ///< kernel interface behind it, or ""
    MacAddress mac;
    std::vector<Gid> gids;
    uint32_t mtu_bytes = 4096;                  ///< largest path MTU
    bool active = true;                         ///< the link is up
    std::string peer = {};                      ///< the device of this rocid at the other end, or ""
    std::map<Gid, MacAddress> neighbours = {};  ///< static entries of the configuration
    Resolver resolver = Resolver::none;
    std::vector<uint8_t> prefixes = {};  ///< by GID index, as DeviceAddress::prefix; missing: unknown
    std::vector<Gid> gateways = {};      ///< Resolver::own: at most one per address family
    uint16_t vlan = 0;                   ///< VLAN of all frames that it sends and accepts; 0: untagged
    uint8_t traffic_class = 0;           ///< of paths for which the program sets none
    bool port_sums = false;              ///< its port fills in the checksums of IPv4 headers
    uint16_t udp_source = 0;             ///< UDP source port of all its frames; 0: one per flow
};

uint32_t active_mtu(const DeviceConfig&);  ///< enum ibv_mtu
uint32_t gid_table_length(const DeviceConfig&);
/// The GUID of a device with that MAC: a modified EUI-64, as for other RoCE devices.
uint64_t guid_of(const MacAddress&);
/// Whether the device has the GID. False for the zero GID, which marks free entries of the table.
bool has_gid(const DeviceConfig&, const Gid&);
/// Index of the device that has the address.
std::optional<uint32_t> device_of(std::span<const DeviceConfig>, const Gid&);

}  // namespace roci::host
