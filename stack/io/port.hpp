// The interface of a port to an engine. A port receives and sends frames in bursts, with one indirect call per burst. There is
// one object per (port, engine), and only one thread calls the methods of this object.
//
// Implementations are the DPDK port and the UDP port (pmd_glue) and the port of the simulator. Wrappers for loopback within an
// engine, fault injection and captures can be put around each of these ports.
#pragma once

#include <cstdint>
#include <utility>

#include "wire/build.hpp"
#include "wire/ip_checksum.hpp"

namespace roci::io {

/// A received frame. The bytes belong to the port and are valid until rx_free().
struct RxFrame {
    const uint8_t* data = nullptr;
    uint32_t length = 0;
    void* cookie = nullptr;                                            ///< private to the port, for example an mbuf
    wire::HeaderChecksum ip_checksum = wire::HeaderChecksum::unknown;  ///< result of the port's check of the IPv4 header
    wire::HeaderChecksum icrc = wire::HeaderChecksum::unknown;         ///< result of the port's check of the ICRC
};

/// A frame to be sent. The engine owns the bytes from tx_alloc() until tx_burst() accepts the frame or tx_free() returns the
/// frame. The engine may move `data` forward within the capacity, so that the frame starts later in the buffer.
struct TxFrame {
    uint8_t* data = nullptr;
    uint32_t capacity = 0;  ///< at least wire::kMaxFrame; with 63 more bytes, the engine aligns payloads to cache lines
    uint32_t length = 0;    ///< set by the engine before tx_burst
    void* cookie = nullptr;
    wire::LeftToPort left;  ///< checksums that the engine has not written
    uint32_t sender = 0;    ///< number of the QP that sends the frame; 0 for frames of no QP (ARP, neighbour discovery)
};

/// Writes the checksums that the engine left to the port (wire::write_left()).
inline void complete(TxFrame& f) {
    if (f.left.any()) wire::write_left(f.data, f.length, std::exchange(f.left, {}));
}

class Port {
public:
    virtual ~Port() = default;
    /// Receives up to `max` frames. Returns the number of frames received.
    virtual unsigned rx_burst(RxFrame* frames, unsigned max) = 0;
    /// Returns frames of rx_burst() to the port, in any order and grouping.
    virtual void rx_free(RxFrame* frames, unsigned count) = 0;
    /// Returns the number of received frames that the engine may keep for a long time. The port has further buffers for
    /// reception. 0: the engine copies the frames that it keeps.
    virtual uint32_t lends() const { return 0; }
    /// Allocates up to `count` empty frames. Returns the number of frames allocated. If this number is less than `count`, the
    /// pool is exhausted, and the caller tries again later.
    virtual unsigned tx_alloc(TxFrame* frames, unsigned count) = 0;
    /// Sends frames in order. Returns the number of frames accepted, counted from the first frame. The caller keeps the other
    /// frames.
    virtual unsigned tx_burst(TxFrame* frames, unsigned count) = 0;
    /// Returns unsent frames of tx_alloc() to the port.
    virtual void tx_free(TxFrame* frames, unsigned count) = 0;
    /// Returns the preferred number of frames per tx_burst(). A port whose tx_burst() is expensive returns more than 1. The
    /// engine collects this number of frames before a call if it can.
    virtual unsigned best_burst() const { return 1; }
    /// Returns the earliest time at which the port has work of its own, such as a delayed frame. Returns kNever by default.
    virtual uint64_t next_event() const { return ~uint64_t{0}; }
};

}  // namespace roci::io
