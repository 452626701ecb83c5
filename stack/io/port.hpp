// A port as the engine sees it: bursts in, bursts out. One object a (port, engine): its methods are called by one thread only.
//
// Implementations: DPDK (pmd_glue), in-engine hairpin, the simulator; and wrappers that stack on any of them (fault injection,
// trace, pcap). One indirect call a burst, none a packet.
#pragma once

#include <cstdint>

#include "wire/ip_checksum.hpp"

namespace roci::engine {

/// A received frame. The port owns the bytes until rx_free().
struct RxFrame {
    const uint8_t* data = nullptr;
    uint32_t length = 0;
    void* cookie = nullptr;                                            ///< the port's own (an mbuf)
    wire::HeaderChecksum ip_checksum = wire::HeaderChecksum::unknown;  ///< result of the port's check of the IPv4 header
    wire::HeaderChecksum icrc = wire::HeaderChecksum::unknown;         ///< the same for the ICRC
};

/// A frame to be sent. From tx_alloc() until tx_burst() accepts it (or tx_free()) the engine owns the bytes. It may move `data`
/// forward within the capacity: the frame is what lies at `data` when it is handed over.
struct TxFrame {
    uint8_t* data = nullptr;
    uint32_t capacity = 0;  ///< at least wire::kMaxFrame; 63 more, and the engine aligns payloads to cache lines
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
    /// Gives frames back that rx_burst() returned; any order, any grouping.
    virtual void rx_free(RxFrame* frames, unsigned count) = 0;
    /// Allocates up to `count` empty frames. Returns how many (fewer: the pool is exhausted; try later).
    virtual unsigned tx_alloc(TxFrame* frames, unsigned count) = 0;
    /// Sends frames in order. Returns how many were accepted, from the front; the rest stays the caller's.
    virtual unsigned tx_burst(TxFrame* frames, unsigned count) = 0;
    /// Gives back frames of tx_alloc() that will not be sent.
    virtual void tx_free(TxFrame* frames, unsigned count) = 0;
    /// Earliest time at which the port has something to do by itself (a delayed frame); kNever by default.
    virtual uint64_t next_event() const { return ~uint64_t{0}; }
};

}  // namespace roci::engine
