#include "addresses.hpp"

#include <arpa/inet.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>

namespace roci::rocid {
namespace {

bool prefix_ok(const std::string& text, int longest) {
    int n = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    return error == std::errc{} && end == text.data() + text.size() && n >= 0 && n <= longest;
}

}  // namespace

std::optional<MacAddress> parse_mac(const std::string& text) {
    MacAddress mac;
    if (text.size() != 17) return std::nullopt;
    for (size_t i = 0; i < 6; ++i) {
        const char* p = text.data() + 3 * i;
        const auto [end, error] = std::from_chars(p, p + 2, mac.bytes[i], 16);
        if (error != std::errc{} || end != p + 2 || (i < 5 && p[2] != ':')) return std::nullopt;
    }
    return mac;
}

std::string mac_text(const MacAddress& mac) {
    char out[18];
    const auto& b = mac.bytes;
    std::snprintf(out, sizeof out, "%02x:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4], b[5]);
    return out;
}

std::optional<Gid> parse_address(const std::string& text) {
    const size_t slash = text.find('/');
    const std::string host = text.substr(0, slash);
    const bool has_prefix = slash != std::string::npos;
    uint8_t four[4];
    if (inet_pton(AF_INET, host.c_str(), four) == 1) {
        if (has_prefix && !prefix_ok(text.substr(slash + 1), 32)) return std::nullopt;
        return Gid::from_ipv4(four);
    }
    Gid gid;
    if (inet_pton(AF_INET6, host.c_str(), gid.bytes.data()) != 1) return std::nullopt;
    if (has_prefix && !prefix_ok(text.substr(slash + 1), 128)) return std::nullopt;
    return gid;
}

std::optional<std::pair<Gid, MacAddress>> parse_neighbour(const std::string& text) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) return std::nullopt;
    const auto gid = parse_address(text.substr(0, equals));
    const auto mac = parse_mac(text.substr(equals + 1));
    if (!gid || !mac) return std::nullopt;
    return std::pair{*gid, *mac};
}

uint8_t prefix_of(const std::string& text) {
    constexpr uint8_t kMapped = 96, kAll = 128;
    const size_t slash = text.find('/');
    if (slash == std::string::npos) return kAll;
    const bool ipv6 = text.find(':') != std::string::npos;
    return uint8_t(std::atoi(text.c_str() + slash + 1) + (ipv6 ? 0 : kMapped));
}

std::string gid_text(const Gid& gid) {
    char out[INET6_ADDRSTRLEN];
    inet_ntop(AF_INET6, gid.bytes.data(), out, sizeof out);
    return out;
}

Gid link_local(const MacAddress& mac) {
    const auto& m = mac.bytes;
    Gid g;
    g.bytes = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, uint8_t(m[0] ^ 0x02), m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]};
    return g;
}

}  // namespace roci::rocid
