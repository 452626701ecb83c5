// The engine's interface to a port: it receives and sends bursts, with one indirect call per burst. There is one object per
// (port, engine), and only one thread calls its methods.
//
// Implementations: DPDK (pmd_glue), in-engine hairpin, the simulator; and wrappers that stack on any of them (fault injection,
// trace, pcap).
#pragma once

#include <cstdint>

#include "wire/ip_checksum.hpp"

namespace roci::io {

/// A received frame. The port owns the bytes until rx_free().
struct RxFrame {
    const uint8_t* data = nullptr;
    uint32_t length = 0;
    void* cookie = nullptr;                                            ///< the port's own (an mbuf)
    wire::HeaderChecksum ip_checksum = wire::HeaderChecksum::unknown;  ///< result of the port's check of the IPv4 header
    wire::HeaderChecksum icrc = wire::HeaderChecksum::unknown;         ///< the same for the ICRC
};

/// A frame to be sent. The engine owns the bytes from tx_alloc() until tx_burst() accepts it, or tx_free(). The engine may move
/// `data` forward within the capacity, so that the frame starts later in the buffer.
struct TxFrame {
    uint8_t* data = nullptr;
    uint32_t capacity = 0;  ///< at least wire::kMaxFrame; with 63 bytes more the engine aligns payloads to cache lines
    uint32_t length = 0;    ///< set by the engine before tx_burst
    void* cookie = nullptr;
    /// Offset of the IPv4 header whose checksum is zero and that the port fills in. 0: nothing to fill in. Nonzero only for ports
    /// that compute checksums.
    uint8_t checksum_offset = 0;
    uint32_t sender = 0;  ///< number of the QP that sends it; 0: no QP does (ARP, neighbour discovery)
};

/// Fills in the checksum that was left to the port. Code that reads or changes a frame before the port calls this first.
inline void complete(TxFrame& f) {
    if (f.checksum_offset == 0) return;
    wire::fill_header_checksum(f.data + f.checksum_offset);
    f.checksum_offset = 0;
}

class Port {
public:
    virtual ~Port() = default;
    /// Takes up to `max` received frames. Returns how many.
    virtual unsigned rx_burst(RxFrame* frames, unsigned max) = 0;
    /// Gives back frames of rx_burst(), in any order and grouping.
    virtual void rx_free(RxFrame* frames, unsigned count) = 0;
    /// Allocates up to `count` empty frames. Returns how many; fewer mean that the pool is exhausted: try later.
    virtual unsigned tx_alloc(TxFrame* frames, unsigned count) = 0;
    /// Sends frames in order. Returns how many it accepted, from the front; the others remain the caller's.
    virtual unsigned tx_burst(TxFrame* frames, unsigned count) = 0;
    /// Gives back frames of tx_alloc() that will not be sent.
    virtual void tx_free(TxFrame* frames, unsigned count) = 0;
    /// Frames that one tx_burst() should have, as each call costs much. The engine collects as many where it can.
    virtual unsigned best_burst() const { return 1; }
    /// Earliest time at which the port has work of its own (a delayed frame); kNever by default.
    virtual uint64_t next_event() const { return ~uint64_t{0}; }
};

}  // namespace roci::io
