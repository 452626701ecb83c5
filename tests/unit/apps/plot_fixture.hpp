// Functions that make captures. They build the frames of a connection and write the frames as a pcap or pcapng file.
#pragma once

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "wire/build.hpp"

namespace roci::plot::test {

using wire::make_opcode;
using wire::Operation;
using wire::Service;
using Bytes = std::vector<uint8_t>;

inline Gid address(uint8_t last) {
    const uint8_t four[4] = {10, 0, 0, last};
    return Gid::from_ipv4(four);
}

inline constexpr uint32_t kQpA = 17, kQpB = 18;

/// Builds a frame from A to B, or from B to A if `back` is true.
inline Bytes frame(Operation operation, uint32_t psn, uint32_t payload = 0, bool back = false, uint8_t syndrome = 0,
                   uint32_t dma_length = 0, Service service = Service::rc) {
    wire::PathSpec spec;
    spec.source_gid = address(back ? 2 : 1);
    spec.dest_gid = address(back ? 1 : 2);
    wire::TransportHeaders h;
    h.opcode = make_opcode(service, operation);
    h.dest_qp = Qpn{back ? kQpA : kQpB};
    h.psn = Psn(psn);
    h.syndrome = syndrome;
    h.dma_length = dma_length;
    h.src_qp = Qpn{back ? kQpB : kQpA};
    const wire::PathTemplate path = wire::make_path(spec);
    Bytes bytes(wire::kMaxOverhead + payload);
    uint8_t* at = wire::begin_frame(bytes.data(), path, h, payload);
    std::memset(at, int(psn), payload);
    bytes.resize(wire::finish_frame(bytes.data(), path, at, payload));
    return bytes;
}
inline Bytes write(uint32_t psn) { return frame(Operation::write_only, psn, 64, false, 0, 64); }
inline Bytes ack(uint32_t psn) { return frame(Operation::ack, psn, 0, true, 0x1f); }
inline Bytes nak(uint32_t psn) { return frame(Operation::ack, psn, 0, true, 0x60); }
inline Bytes rnr_nak(uint32_t psn) { return frame(Operation::ack, psn, 0, true, 0x2c); }

/// A temporary file. The destructor removes it.
class File {
public:
    File() {
        char name[] = "/tmp/roci-plot-XXXXXX";
        close(mkstemp(name));
        path = name;
    }
    ~File() { unlink(path.c_str()); }
    File(const File&) = delete;
    void write(const Bytes& bytes) const {
        std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
    }
    std::string path;
};

template <class T>
void put(Bytes& out, T value) {
    const auto* p = reinterpret_cast<const uint8_t*>(&value);
    out.insert(out.end(), p, p + sizeof value);
}

struct Captured {
    uint64_t time = 0;  ///< microseconds
    Bytes bytes;
    uint32_t interface = 0, direction = 0;  ///< only for pcapng; direction 1 is received, 2 is sent
};

/// Returns a pcap file with times in microseconds. `snap` is the maximum number of bytes per frame in the file. 0
/// means no maximum.
inline Bytes pcap(const std::vector<Captured>& frames, uint32_t link = 1, uint32_t snap = 0) {
    Bytes out;
    for (const uint32_t w : {0xa1b2c3d4u, 0x00040002u, 0u, 0u, 65535u, link}) put(out, w);
    for (const Captured& f : frames) {
        const uint32_t kept = snap != 0 ? std::min(snap, uint32_t(f.bytes.size())) : uint32_t(f.bytes.size());
        for (const uint32_t w : {uint32_t(f.time / 1000000), uint32_t(f.time % 1000000), kept, uint32_t(f.bytes.size())})
            put(out, w);
        out.insert(out.end(), f.bytes.begin(), f.bytes.begin() + kept);
    }
    return out;
}

/// Returns a pcapng file with times in microseconds and with two interfaces, named "left" and "righ".
inline Bytes pcapng(const std::vector<Captured>& frames) {
    Bytes out;
    for (const uint32_t w : {0x0a0d0d0au, 28u, 0x1a2b3c4du, 0x00000001u, ~0u, ~0u, 28u}) put(out, w);
    for (const char* name : {"left", "righ"}) {
        for (const uint32_t w : {1u, 32u, 1u, 0u, 0x00040002u}) put(out, w);
        out.insert(out.end(), name, name + 4);
        put(out, 0u);
        put(out, 32u);
    }
    for (const Captured& f : frames) {
        const uint32_t padded = uint32_t(f.bytes.size() + 3) / 4 * 4, length = 28 + padded + 12 + 4;
        for (const uint32_t w : {6u, length, f.interface, uint32_t(f.time >> 32), uint32_t(f.time), uint32_t(f.bytes.size()),
                                 uint32_t(f.bytes.size())})
            put(out, w);
        out.insert(out.end(), f.bytes.begin(), f.bytes.end());
        out.resize(out.size() + padded - f.bytes.size());
        for (const uint32_t w : {0x00040002u, f.direction, 0u, length}) put(out, w);
    }
    return out;
}

}  // namespace roci::plot::test
