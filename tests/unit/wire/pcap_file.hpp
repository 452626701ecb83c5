// Reads a classic pcap file (little endian, Ethernet) into memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace roci::test {

using Frame = std::vector<uint8_t>;

/// Returns all frames of a capture, in order. Returns none if the file is missing or not a pcap.
inline std::vector<Frame> read_pcap(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    const std::vector<uint8_t> file{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    const auto word = [&](size_t at) {
        uint32_t v;
        std::memcpy(&v, &file[at], sizeof v);
        return v;
    };
    constexpr size_t kFileHeader = 24, kRecordHeader = 16;
    std::vector<Frame> frames;
    if (file.size() < kFileHeader || (word(0) != 0xa1b2c3d4 && word(0) != 0xa1b23c4d)) return frames;
    for (size_t at = kFileHeader; at + kRecordHeader <= file.size();) {
        const size_t captured = word(at + 8);
        at += kRecordHeader;
        if (captured > file.size() - at) break;
        frames.emplace_back(&file[at], &file[at] + captured);
        at += captured;
    }
    return frames;
}

}  // namespace roci::test
