#include "wire/icrc_identification.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/bytes.hpp"
#include "wire/icrc.hpp"

namespace roci::wire {
namespace {

/// Returns an IPv4 header and random bytes: `covered` bytes in total.
std::vector<uint8_t> random_packet(std::mt19937& random, uint32_t covered) {
    std::vector<uint8_t> packet(covered);
    for (uint8_t& b : packet) b = uint8_t(random());
    packet[0] = 0x45;
    store_be<uint16_t>(&packet[4], 0);
    store_be<uint16_t>(&packet[6], kDontFragmentWord);
    return packet;
}

uint32_t icrc_of(std::vector<uint8_t>& packet, uint16_t identification, uint16_t flags = kDontFragmentWord) {
    store_be<uint16_t>(&packet[4], identification);
    store_be<uint16_t>(&packet[6], flags);
    return icrc(packet.data(), uint32_t(packet.size()), false, 20);
}

TEST(IcrcIdentification, ChangesAsTheWholeSumDoes) {
    std::mt19937 random(1);
    IcrcShiftCache cache;
    for (uint32_t covered = 40; covered < 5000; covered += uint32_t(1 + random() % 37)) {
        std::vector<uint8_t> packet = random_packet(random, covered);
        const uint32_t zero = icrc_of(packet, 0);
        const auto id = uint16_t(random());
        EXPECT_EQ(zero ^ cache.of(covered).of_identification(id), icrc_of(packet, id)) << covered;
        EXPECT_EQ(zero ^ cache.of(covered).of_flags(kDontFragmentWord), icrc_of(packet, 0, 0)) << covered;
    }
}

TEST(IcrcIdentification, FindsEveryIdentificationAgain) {
    std::mt19937 random(2);
    std::vector<uint8_t> packet = random_packet(random, 4140);
    const IcrcShift shift(4140);
    const uint32_t zero = icrc_of(packet, 0);
    for (uint32_t id = 0; id <= 0xffff; ++id) EXPECT_EQ(shift.identification_for(zero ^ icrc_of(packet, uint16_t(id))), id);
}

/// An ICRC has 2^32 possible differences, an identification 2^16 values. So only one in 65,536 differences can come
/// from an identification.
TEST(IcrcIdentification, RefusesDifferencesOfOtherOrigin) {
    std::mt19937 random(3);
    const IcrcShift shift(1080);
    uint32_t accepted = 0;
    for (uint32_t i = 0; i < 1 << 16; ++i) accepted += shift.identification_for(uint32_t(random())).has_value() ? 1 : 0;
    EXPECT_LE(accepted, 16u);
}

TEST(IcrcIdentification, NoFlippedBitOfTheRestLooksLikeAnIdentification) {
    const uint32_t covered = 300;
    std::mt19937 random(4);
    std::vector<uint8_t> packet = random_packet(random, covered);
    const uint32_t right = icrc_of(packet, 0);
    const IcrcShift shift(covered);
    for (uint32_t bit = 28 * 8; bit < covered * 8; ++bit) {
        packet[bit / 8] ^= uint8_t(1u << bit % 8);
        const uint32_t wrong = icrc_of(packet, 0);
        packet[bit / 8] ^= uint8_t(1u << bit % 8);
        if (wrong == right) continue;  // a masked bit
        EXPECT_FALSE(shift.identification_for(right ^ wrong).has_value()) << bit;
    }
}

}  // namespace
}  // namespace roci::wire
