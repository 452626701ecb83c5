// The codes of a port's link speed and link width. The kernel and <infiniband/verbs.h> use the same codes.
#pragma once

#include <array>
#include <cstdint>

namespace roci::abi {

struct LinkCode {
    uint32_t code, value;
};
/// `code` is a value of enum ib_port_speed. `value` is the data rate of one lane in units of 0.1 Gb/s.
inline constexpr std::array<LinkCode, 8> kLaneSpeeds{
    {{1, 25}, {2, 50}, {4, 100}, {8, 100}, {16, 140}, {32, 250}, {64, 500}, {128, 1000}}};
/// `code` is a value of enum ib_port_width. `value` is the number of lanes.
inline constexpr std::array<LinkCode, 5> kLinkWidths{{{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}}};

template <size_t N>
constexpr uint32_t link_value(const std::array<LinkCode, N>& table, uint32_t code, uint32_t otherwise) {
    for (const LinkCode& c : table)
        if (c.code == code) return c.value;
    return otherwise;
}

/// Returns the number of lanes for a code of enum ib_port_width, or 1 if the code is unknown.
constexpr uint32_t lanes_of(uint32_t width) { return link_value(kLinkWidths, width, 1); }
/// Returns the data rate of the whole link in units of 0.1 Gb/s. An unknown `speed` counts as 2.5 Gb/s per lane.
constexpr uint32_t link_rate(uint32_t width, uint32_t speed) { return lanes_of(width) * link_value(kLaneSpeeds, speed, 25); }

}  // namespace roci::abi
