// Types of the transport. PSNs, QPNs, keys, MSNs and addresses have a type of their own; a time is a plain integer (Nanos).
// PSNs wrap around, so class Psn offers distances and windows instead of operator<.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace roci {

/// Time in nanoseconds by the caller's clock: virtual in the simulator, derived from the TSC in rocid. Only differences between
/// times are meaningful.
using Nanos = uint64_t;
inline constexpr Nanos kNever = ~Nanos{0};

inline constexpr uint32_t kMask24 = 0xffffff;

/// Packet sequence number, 24 bits (IBA 9.7.2).
class Psn {
public:
    constexpr Psn() = default;
    constexpr explicit Psn(uint32_t v) : v_(v & kMask24) {}
    constexpr uint32_t value() const { return v_; }
    constexpr Psn operator+(uint32_t n) const { return Psn(v_ + n); }
    constexpr Psn operator-(uint32_t n) const { return Psn(v_ - n); }
    constexpr Psn& operator++() {
        v_ = (v_ + 1) & kMask24;
        return *this;
    }
    constexpr bool operator==(const Psn&) const = default;
    /// Returns the signed number of steps from `from` to *this, in [-2^23, 2^23). The number is negative if *this is older.
    constexpr int32_t distance_from(Psn from) const { return int32_t((v_ - from.v_) << 8) >> 8; }
    /// Returns true if *this is one of the `size` PSNs that start at `first`.
    constexpr bool in_window(Psn first, uint32_t size) const { return ((v_ - first.v_) & kMask24) < size; }

private:
    uint32_t v_ = 0;
};

/// Queue pair number, 24 bits. 0 and 1 are the management QPs.
struct Qpn {
    uint32_t value = 0;
    constexpr auto operator<=>(const Qpn&) const = default;
};

/// lkey or rkey. The upper 24 bits are the index into the key table. The low 8 bits are a variant, which detects stale keys.
struct Key {
    uint32_t value = 0;
    constexpr uint32_t index() const { return value >> 8; }
    constexpr bool operator==(const Key&) const = default;
};

/// Message sequence number, 24 bits (IBA 9.7.7.1). The MSN counts the messages that the responder has completed.
struct Msn {
    uint32_t value = 0;
    constexpr Msn& operator++() {
        value = (value + 1) & kMask24;
        return *this;
    }
    constexpr bool operator==(const Msn&) const = default;
};

struct MacAddress {
    std::array<uint8_t, 6> bytes{};
    constexpr bool operator==(const MacAddress&) const = default;
    bool is_zero() const { return *this == MacAddress{}; }
};

/// A RoCEv2 GID is an IPv6 address. The IPv4 address a.b.c.d is represented as ::ffff:a.b.c.d (RoCEv2 annex A17.4.5).
struct Gid {
    std::array<uint8_t, 16> bytes{};
    constexpr auto operator<=>(const Gid&) const = default;
    bool is_ipv4() const {
        static constexpr uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
        return std::memcmp(bytes.data(), prefix, sizeof prefix) == 0;
    }
    bool is_zero() const { return *this == Gid{}; }
    static Gid from_ipv4(const uint8_t* four) {
        Gid g;
        g.bytes[10] = g.bytes[11] = 0xff;
        std::memcpy(&g.bytes[12], four, 4);
        return g;
    }
};

/// Returns the path MTU in bytes (256, 512, 1024, 2048 or 4096) for a value of enum ibv_mtu (1 to 5).
constexpr uint32_t mtu_bytes(uint32_t ibv_mtu) { return 128u << ibv_mtu; }

}  // namespace roci
