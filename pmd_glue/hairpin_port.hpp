// Loopback between the QPs of one device within an engine. A NIC does not return a sent frame to its own receive queue. So this
// wrapper of a port puts frames to the port's own MAC into a bounded queue, from which rx_burst() returns them. The wrapper sends
// multicast frames, and rx_burst() also returns copies of multicast frames, as with an RDMA NIC. The wrapper passes all other
// frames to the port.
#pragma once

#include <memory>
#include <optional>

#include "base/types.hpp"
#include "io/port.hpp"

namespace roci::pmd {

/// Reads only the destination MAC of a frame. If the queue is full, tx_burst() accepts fewer frames. Bit 0 of an RxFrame's cookie
/// marks frames of the queue. So cookies of `inner` must be even, as pointers are.
class HairpinPort final : public io::Port {
public:
    /// `own` is the port's MAC. Without `own`, the wrapper passes all unicast frames to the port. `depth` is the number of frames
    /// that the queue holds, a power of two.
    HairpinPort(io::Port& inner, const std::optional<MacAddress>& own, uint32_t depth = 1024);
    ~HairpinPort() override;

    unsigned rx_burst(io::RxFrame* frames, unsigned max) override;
    void rx_free(io::RxFrame* frames, unsigned count) override;
    unsigned tx_alloc(io::TxFrame* frames, unsigned count) override { return inner_.tx_alloc(frames, count); }
    unsigned tx_burst(io::TxFrame* frames, unsigned count) override;
    void tx_free(io::TxFrame* frames, unsigned count) override { inner_.tx_free(frames, count); }
    unsigned best_burst() const override { return inner_.best_burst(); }
    uint32_t lends() const override { return inner_.lends(); }
    uint64_t next_event() const override { return waiting() != 0 ? 0 : inner_.next_event(); }

    uint32_t waiting() const { return head_ - tail_; }

private:
    bool is_own(const io::TxFrame& f) const;
    unsigned take_waiting(io::RxFrame* frames, unsigned max);
    bool queue(io::TxFrame& f);
    unsigned send_multicast(io::TxFrame* frames, unsigned count);

    io::Port& inner_;
    const uint64_t own_;  ///< the MAC in the low 48 bits, in its byte order in memory; kNoMac if the wrapper has no MAC
    const uint32_t mask_;
    uint32_t head_ = 0, tail_ = 0;
    bool inner_first_ = false;  ///< rx_burst() polls the inner port before the queue; changes at each burst
    std::unique_ptr<io::RxFrame[]> fifo_;
};

}  // namespace roci::pmd
