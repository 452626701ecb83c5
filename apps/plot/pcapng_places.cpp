#include "pcapng_places.hpp"

#include <algorithm>
#include <cstring>

namespace roci::plot {
namespace {

// The block types, the byte-order magic and the option codes of draft-ietf-opsawg-pcapng.
constexpr uint32_t kSection = 0x0a0d0d0a, kInterface = 1, kOldPacket = 2, kSimplePacket = 3, kPacket = 6;
constexpr uint32_t kMagic = 0x1a2b3c4d, kSwappedMagic = 0x4d3c2b1a;
constexpr uint16_t kName = 2, kFlags = 2;
// Limits of this reader.
constexpr uint32_t kMostBlock = 1 << 24;
constexpr size_t kMostInterfaces = 1024, kMostName = 32;

}  // namespace

PcapngPlaces::PcapngPlaces(const std::string& path) : in_(path, std::ios::binary) {}

uint32_t PcapngPlaces::word(const std::vector<uint8_t>& bytes, size_t at) const {
    uint32_t v = 0;
    if (bytes.size() < sizeof v || at > bytes.size() - sizeof v) return 0;
    std::memcpy(&v, &bytes[at], sizeof v);
    return swapped_ ? __builtin_bswap32(v) : v;
}

uint16_t PcapngPlaces::half(const std::vector<uint8_t>& bytes, size_t at) const {
    uint16_t v = 0;
    if (bytes.size() < sizeof v || at > bytes.size() - sizeof v) return 0;
    std::memcpy(&v, &bytes[at], sizeof v);
    return swapped_ ? __builtin_bswap16(v) : v;
}

bool PcapngPlaces::read_block(Block& block) {
    std::vector<uint8_t> head(8);
    if (!in_.read(reinterpret_cast<char*>(head.data()), 8)) return false;
    block.type = word(head, 0);
    if (block.type == kSection) {  // the byte-order magic follows the length
        std::vector<uint8_t> magic(4);
        if (!in_.read(reinterpret_cast<char*>(magic.data()), 4)) return false;
        in_.seekg(-4, std::ios::cur);
        swapped_ = false;
        const uint32_t order = word(magic, 0);
        if (order != kMagic && order != kSwappedMagic) return false;
        swapped_ = order == kSwappedMagic;
    }
    const uint32_t length = word(head, 4);
    if (length < 12 || length > kMostBlock) return false;
    block.body.resize((length - 8 + 3) / 4 * 4);
    return bool(in_.read(reinterpret_cast<char*>(block.body.data()), std::streamsize(block.body.size())));
}

std::vector<uint8_t> PcapngPlaces::option(const std::vector<uint8_t>& body, size_t at, uint16_t code) const {
    while (at + 4 <= body.size()) {
        const uint16_t here = half(body, at), length = half(body, at + 2);
        if (here == 0 || at + 4 + length > body.size()) break;
        if (here == code) return {body.begin() + long(at) + 4, body.begin() + long(at) + 4 + length};
        at += 4 + (length + 3u) / 4 * 4;
    }
    return {};
}

Place PcapngPlaces::place_of(const Block& block) const {
    Place place{first_interface_, Direction::unknown};
    if (block.type == kSimplePacket) return place;
    place.interface = uint16_t(place.interface + (block.type == kPacket ? word(block.body, 0) : half(block.body, 0)));
    const size_t captured = word(block.body, 12);
    const std::vector<uint8_t> flags = option(block.body, 20 + (captured + 3) / 4 * 4, kFlags);
    const uint32_t direction = word(flags, 0) & 3;
    if (direction == 1) place.direction = Direction::in;
    if (direction == 2) place.direction = Direction::out;
    return place;
}

std::optional<Place> PcapngPlaces::next() {
    Block block;
    while (read_block(block)) {
        if (block.type == kSection) first_interface_ = uint16_t(names_.size());
        if (block.type == kInterface && names_.size() < kMostInterfaces) {
            const std::vector<uint8_t> name = option(block.body, 8, kName);
            names_.emplace_back(name.begin(), name.begin() + long(std::min(name.size(), kMostName)));
        }
        if (block.type == kPacket || block.type == kSimplePacket || block.type == kOldPacket) return place_of(block);
    }
    in_.setstate(std::ios::failbit);
    return std::nullopt;
}

}  // namespace roci::plot
