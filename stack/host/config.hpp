// What the conductor is configured with: devices and limits.
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

/// How the MAC addresses of others on the link are found.
enum class Resolver : uint8_t {
    none,    ///< there are no others: a loopback
    own,     ///< rocid asks and answers itself: ARP, neighbour discovery, echo
    kernel,  ///< the kernel does, for the interface behind the port
    socket,  ///< nobody needs them: the port is a socket of the kernel's, which makes all headers below UDP's payload
};
struct DeviceAddress {
    Gid gid;
    uint8_t prefix = 0;  ///< leading bits of the GID that everybody on the link shares (an IPv4 /24 is 120)
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
    std::string peer = {};                      ///< the device of this rocid that is wired to it, or ""
    std::map<Gid, MacAddress> neighbours = {};  ///< known beforehand, from the configuration
    Resolver resolver = Resolver::none;
    std::vector<uint8_t> prefixes = {};  ///< by GID index, as DeviceAddress::prefix; missing: the link is not known
    std::vector<Gid> gateways = {};      ///< Resolver::own: at most one a family
    uint16_t vlan = 0;                   ///< everything is sent and heard in that VLAN; 0: untagged
    uint8_t traffic_class = 0;           ///< of paths for which the program asks for none
    bool port_sums = false;              ///< its port fills in the checksums of IPv4 headers
    uint16_t udp_source = 0;             ///< UDP source port of all its frames; 0: by flow
};

uint32_t active_mtu(const DeviceConfig&);  ///< enum ibv_mtu
uint32_t gid_table_length(const DeviceConfig&);
/// The GUID of a device with that MAC: a modified EUI-64, as RoCE devices form theirs.
uint64_t guid_of(const MacAddress&);
/// False for the zero GID, which marks free places of the table.
bool has_gid(const DeviceConfig&, const Gid&);
/// Index of the device that has the address.
std::optional<uint32_t> device_of(std::span<const DeviceConfig>, const Gid&);

}  // namespace roci::host
