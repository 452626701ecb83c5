// CRC-32 kernel for ARMv8 processors without PMULL. Uses the CRC32 instructions, eight bytes per step.
#include "wire/crc/kernel.hpp"

#if defined(__aarch64__)

#include <arm_acle.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cstring>

#if defined(__clang__)
#define ROCI_CRC_TARGET [[gnu::target("crc")]]
#else
#define ROCI_CRC_TARGET [[gnu::target("+crc")]]
#endif

namespace roci::wire::crc {
namespace {

ROCI_CRC_TARGET uint32_t plain(uint32_t state, const uint8_t* p, size_t n) {
    for (uint64_t word; n >= sizeof word; n -= sizeof word, p += sizeof word) {
        std::memcpy(&word, p, sizeof word);
        state = __crc32d(state, word);
    }
    for (; n != 0; --n) state = __crc32b(state, *p++);
    return state;
}

ROCI_CRC_TARGET uint32_t crc_by_instruction(uint32_t state, const uint8_t* p, size_t n, const Mask& mask) {
    uint8_t head[Mask::kLength];
    const size_t masked = std::min(n, sizeof head);
    for (size_t i = 0; i < masked; ++i) head[i] = uint8_t(p[i] | mask.bits[i]);
    return plain(plain(state, head, masked), p + masked, n - masked);
}

uint32_t copying_by_instruction(uint32_t state, uint8_t* head, uint32_t head_length, const Mask& mask, const uint8_t* from,
                                size_t n) {
    std::memcpy(head + head_length, from, n);
    return crc_by_instruction(state, head, head_length + n, mask);
}

bool supported() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }

}  // namespace

constinit const Kernel kArmCrc{"armv8-crc", crc_by_instruction, copying_by_instruction, supported};

}  // namespace roci::wire::crc

#endif
