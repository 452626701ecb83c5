// The RDMA IP CM service (IBA annex A11). A service ID consists of a port space and a port. In REQ and SIDR_REQ, a header with
// the IP addresses precedes the program's private data.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/types.hpp"

namespace roci::cm {

/// The values of enum rdma_port_space.
enum class PortSpace : uint16_t { ipoib = 0x0002, tcp = 0x0106, udp = 0x0111, ib = 0x013f };

/// Returns the service ID, which consists of the prefix 0x0000000001, the protocol and the port (A11.2.1). The values tcp, udp
/// and ib of PortSpace contain the lowest byte of the prefix and the protocol.
constexpr uint64_t service_id(PortSpace space, uint16_t port) { return uint64_t(space) << 16 | port; }
/// Returns the port space of a service ID of the RDMA IP CM service, and nullopt for other service IDs.
std::optional<PortSpace> port_space_of(uint64_t service_id);
constexpr uint16_t port_of(uint64_t service_id) { return uint16_t(service_id); }

inline constexpr uint32_t kIpHeaderLength = 36;
/// Bytes of private data that remain for the program behind the IP header.
inline constexpr uint32_t kReqRoom = 92 - kIpHeaderLength, kSidrReqRoom = 216 - kIpHeaderLength;

struct IpHeader {
    uint16_t source_port = 0;  ///< in host byte order
    Gid source, dest;          ///< an IPv4 address is stored as an IPv4-mapped IPv6 address
};
/// Writes the header, kIpHeaderLength bytes, to `out`.
void put_ip_header(uint8_t* out, const IpHeader& header);
/// Reads the header. Returns nullopt if the data is too short, if the service's major version is not 0, or if the IP version is
/// neither 4 nor 6.
std::optional<IpHeader> get_ip_header(std::span<const uint8_t> private_data);

}  // namespace roci::cm
