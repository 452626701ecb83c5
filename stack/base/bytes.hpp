// Big-endian loads and stores at unaligned addresses, for wire formats.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace roci {

template <class T>
inline T load_be(const uint8_t* p) {
    T v;
    std::memcpy(&v, p, sizeof v);
    if constexpr (sizeof(T) == 2) return __builtin_bswap16(v);
    if constexpr (sizeof(T) == 4) return __builtin_bswap32(v);
    if constexpr (sizeof(T) == 8) return __builtin_bswap64(v);
    return v;
}
template <class T>
inline void store_be(uint8_t* p, T v) {
    if constexpr (sizeof(T) == 2) v = __builtin_bswap16(v);
    if constexpr (sizeof(T) == 4) v = __builtin_bswap32(v);
    if constexpr (sizeof(T) == 8) v = __builtin_bswap64(v);
    std::memcpy(p, &v, sizeof v);
}
inline uint32_t load_be24(const uint8_t* p) { return uint32_t(p[0]) << 16 | uint32_t(p[1]) << 8 | p[2]; }

static_assert(std::endian::native == std::endian::little, "rocinante runs on little-endian machines");

}  // namespace roci
