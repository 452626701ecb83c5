// CRC-32 kernel with tables, eight bytes per step. Runs on every processor.
#include <algorithm>
#include <cstring>

#include "wire/crc/constants.hpp"
#include "wire/crc/kernel.hpp"

namespace roci::wire::crc {
namespace {

/// Table k contains the CRC of a byte that is followed by k zero bytes.
constexpr auto kTables = [] {
    std::array<std::array<uint32_t, 256>, 8> t{kByteTable};
    for (uint32_t k = 1; k < 8; ++k)
        for (uint32_t i = 0; i < 256; ++i) t[k][i] = t[k - 1][i] >> 8 ^ kByteTable[t[k - 1][i] & 0xff];
    return t;
}();

uint32_t word(const uint8_t* p) {
    uint32_t v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

uint32_t plain(uint32_t state, const uint8_t* p, size_t n) {
    for (; n >= 8; n -= 8, p += 8) {
        const uint32_t near = state ^ word(p), far = word(p + 4);
        state = kTables[7][near & 0xff] ^ kTables[6][near >> 8 & 0xff] ^ kTables[5][near >> 16 & 0xff] ^ kTables[4][near >> 24] ^
                kTables[3][far & 0xff] ^ kTables[2][far >> 8 & 0xff] ^ kTables[1][far >> 16 & 0xff] ^ kTables[0][far >> 24];
    }
    for (; n != 0; --n) state = state >> 8 ^ kByteTable[(state ^ *p++) & 0xff];
    return state;
}

bool everywhere() { return true; }

}  // namespace

uint32_t crc_by_table(uint32_t state, const uint8_t* p, size_t n, const Mask& mask) {
    uint8_t head[Mask::kLength];
    const size_t masked = std::min(n, sizeof head);
    for (size_t i = 0; i < masked; ++i) head[i] = uint8_t(p[i] | mask.bits[i]);
    return plain(plain(state, head, masked), p + masked, n - masked);
}

uint32_t copying_by_table(uint32_t state, uint8_t* head, uint32_t head_length, const Mask& mask, const uint8_t* from, size_t n) {
    std::memcpy(head + head_length, from, n);
    return crc_by_table(state, head, head_length + n, mask);
}

constinit const Kernel kTable{"table", crc_by_table, copying_by_table, everywhere};

}  // namespace roci::wire::crc
