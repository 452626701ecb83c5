// Loopback within an engine. A NIC does not return a frame to its own receive queue, but two QPs of one device must be able to
// communicate. Frames whose destination MAC is the port's own go into a bounded queue, and the next rx_burst returns them.
// Multicast frames are sent, and rx_burst also returns copies of them, as from an RDMA NIC. All other frames pass through.
#pragma once

#include <memory>

#include "base/types.hpp"
#include "io/port.hpp"

namespace roci::pmd {

/// Examines only the six bytes of the destination MAC. If the queue is full, tx_burst accepts fewer frames. Cookies of `inner`
/// must be pointers or otherwise even, because bit 0 of an RxFrame's cookie marks frames of the hairpin.
class HairpinPort final : public io::Port {
public:
    /// `depth` is the number of frames that the queue holds, a power of two.
    HairpinPort(io::Port& inner, const MacAddress& own, uint32_t depth = 1024);
    ~HairpinPort() override;

    unsigned rx_burst(io::RxFrame* frames, unsigned max) override;
    void rx_free(io::RxFrame* frames, unsigned count) override;
    unsigned tx_alloc(io::TxFrame* frames, unsigned count) override { return inner_.tx_alloc(frames, count); }
    unsigned tx_burst(io::TxFrame* frames, unsigned count) override;
    void tx_free(io::TxFrame* frames, unsigned count) override { inner_.tx_free(frames, count); }
    unsigned best_burst() const override { return inner_.best_burst(); }
    uint64_t next_event() const override { return waiting() != 0 ? 0 : inner_.next_event(); }

    uint32_t waiting() const { return head_ - tail_; }

private:
    bool is_own(const io::TxFrame& f) const;
    unsigned take_waiting(io::RxFrame* frames, unsigned max);
    bool queue(io::TxFrame& f);
    bool send_multicast(io::TxFrame& f);

    io::Port& inner_;
    const uint64_t own_;  ///< the MAC in the low 48 bits, in its byte order in memory
    const uint32_t mask_;
    uint32_t head_ = 0, tail_ = 0;
    bool inner_first_ = false;  ///< the inner port is polled before the queue; alternates, so that neither starves
    std::unique_ptr<io::RxFrame[]> fifo_;
};

}  // namespace roci::pmd
