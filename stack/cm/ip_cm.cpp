#include "cm/ip_cm.hpp"

#include <cstring>

#include "base/bytes.hpp"

namespace roci::cm {
namespace {

constexpr uint32_t kSourceAt = 4, kDestAt = 20;

void put_address(uint8_t* to, const Gid& gid) {
    std::memset(to, 0, 16);
    if (gid.is_ipv4())
        std::memcpy(to + 12, &gid.bytes[12], 4);
    else
        std::memcpy(to, gid.bytes.data(), 16);
}
Gid get_address(const uint8_t* from, bool ipv4) {
    if (ipv4) return Gid::from_ipv4(from + 12);
    Gid gid;
    std::memcpy(gid.bytes.data(), from, 16);
    return gid;
}

}  // namespace

std::optional<PortSpace> port_space_of(uint64_t id) {
    for (const PortSpace s : {PortSpace::ipoib, PortSpace::tcp, PortSpace::udp, PortSpace::ib})
        if (id >> 16 == uint64_t(s)) return s;
    return std::nullopt;
}

void put_ip_header(uint8_t* out, const IpHeader& h) {
    out[0] = 0;  // version 0.0 of the service
    out[1] = uint8_t((h.dest.is_ipv4() ? 4 : 6) << 4);
    store_be<uint16_t>(out + 2, h.source_port);
    put_address(out + kSourceAt, h.source);
    put_address(out + kDestAt, h.dest);
}

std::optional<IpHeader> get_ip_header(std::span<const uint8_t> data) {
    if (data.size() < kIpHeaderLength || data[0] >> 4 != 0) return std::nullopt;
    const unsigned version = data[1] >> 4;
    if (version != 4 && version != 6) return std::nullopt;
    return IpHeader{load_be<uint16_t>(&data[2]), get_address(&data[kSourceAt], version == 4),
                    get_address(&data[kDestAt], version == 4)};
}

}  // namespace roci::cm
