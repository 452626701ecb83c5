// The RDMA IP CM service (IBA annex A11): service IDs made of a port space and a port, and the header with the IP addresses that
// comes before the program's private data in REQ and SIDR_REQ.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/types.hpp"

namespace roci::cm {

/// enum rdma_port_space.
enum class PortSpace : uint16_t { ipoib = 0x0002, tcp = 0x0106, udp = 0x0111, ib = 0x013f };

/// A11.2.1: 0x0000000001 | protocol | port. The numbers of rdma_cm's port spaces contain the prefix's last bit.
constexpr uint64_t service_id(PortSpace space, uint16_t port) { return uint64_t(space) << 16 | port; }
/// The port space of a service ID of the RDMA IP CM service; nothing for other service IDs.
std::optional<PortSpace> port_space_of(uint64_t service_id);
constexpr uint16_t port_of(uint64_t service_id) { return uint16_t(service_id); }

inline constexpr uint32_t kIpHeaderLength = 36;
/// Private data that is left for the program.
inline constexpr uint32_t kReqRoom = 92 - kIpHeaderLength, kSidrReqRoom = 216 - kIpHeaderLength;

struct IpHeader {
    uint16_t source_port = 0;  ///< host order
    Gid source, dest;          ///< IPv4 mapped
};
/// Writes kIpHeaderLength bytes.
void put_ip_header(uint8_t* out, const IpHeader& header);
/// Nothing: another version of the service, or an invalid IP version.
std::optional<IpHeader> get_ip_header(std::span<const uint8_t> private_data);

}  // namespace roci::cm
