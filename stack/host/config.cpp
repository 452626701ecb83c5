#include "host/config.hpp"

#include <algorithm>
#include <bit>

#include "abi/control.hpp"

namespace roci::host {

uint32_t active_mtu(const DeviceConfig& device) {
    uint32_t mtu = 1;
    while (mtu < 5 && mtu_bytes(mtu + 1) <= device.mtu_bytes) ++mtu;
    return mtu;
}

uint32_t gid_table_length(const DeviceConfig& device) {
    constexpr uint32_t kMostListed = std::size(abi::QueryGidTableReply{}.entry);
    return std::min(std::max(std::bit_ceil(uint32_t(device.gids.size())), 16u), kMostListed);
}

uint64_t guid_of(const MacAddress& mac) {
    const auto& m = mac.bytes;
    uint64_t value = 0;
    for (const uint8_t byte : {uint8_t(m[0] ^ 2), m[1], m[2], uint8_t{0xff}, uint8_t{0xfe}, m[3], m[4], m[5]})
        value = value << 8 | byte;
    return value;
}

bool has_gid(const DeviceConfig& device, const Gid& gid) {
    return !gid.is_zero() && std::find(device.gids.begin(), device.gids.end(), gid) != device.gids.end();
}

std::optional<uint32_t> device_of(std::span<const DeviceConfig> devices, const Gid& gid) {
    for (uint32_t d = 0; d < devices.size(); ++d)
        if (has_gid(devices[d], gid)) return d;
    return std::nullopt;
}

}  // namespace roci::host
