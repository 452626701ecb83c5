// Finds the interface and the direction of each packet of a pcapng file. libpcap reads the packets, but does not return their
// interface and direction.
#pragma once

#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "frame.hpp"

namespace roci::plot {

class PcapngPlaces {
public:
    explicit PcapngPlaces(const std::string& path);
    /// Returns the place of the next packet, in the order of the file. Returns nullopt at the end of the file, or if the file is
    /// damaged or has another format.
    std::optional<Place> next();
    /// Returns the names of the interfaces read so far. An interface without a name has "".
    const std::vector<std::string>& names() const { return names_; }

private:
    struct Block {
        uint32_t type = 0;
        std::vector<uint8_t> body;
    };
    bool read_block(Block& block);
    uint32_t word(const std::vector<uint8_t>& bytes, size_t at) const;
    uint16_t half(const std::vector<uint8_t>& bytes, size_t at) const;
    /// Returns the value of an option of a block, or an empty vector if the block has no such option. `at` is the offset of the
    /// block's first option.
    std::vector<uint8_t> option(const std::vector<uint8_t>& body, size_t at, uint16_t code) const;
    Place place_of(const Block& block) const;

    std::ifstream in_;
    bool swapped_ = false;
    uint16_t first_interface_ = 0;  ///< number of the first interface of the current section
    std::vector<std::string> names_;
};

}  // namespace roci::plot
