// One engine's part of a port with port = "udp". The port sends and receives RoCEv2 by plain UDP sockets and needs no privilege.
// The kernel builds all headers before the UDP payload.
#pragma once

#include "frame_slots.hpp"
#include "io/port.hpp"
#include "udp_receiver.hpp"
#include "udp_sender.hpp"

namespace roci::pmd {

class UdpPort final : public io::Port {
public:
    /// `frames` is the number of transmit buffers. `up` is the state of the link. While the link is down, the port drops and
    /// counts frames.
    UdpPort(const UdpSockets& sockets, const MacAddress& mac, uint32_t frames, const std::atomic<bool>* up);

    unsigned rx_burst(io::RxFrame* frames, unsigned max) override { return receiver_.burst(frames, max); }
    void rx_free(io::RxFrame* frames, unsigned count) override { receiver_.free(frames, count); }
    unsigned tx_alloc(io::TxFrame* frames, unsigned count) override;
    unsigned tx_burst(io::TxFrame* frames, unsigned count) override;
    void tx_free(io::TxFrame* frames, unsigned count) override;
    /// Returns the largest number of frames per datagram. The cost of a datagram is almost independent of its number of frames,
    /// so the engine should send bursts of this size.
    unsigned best_burst() const override { return UdpSender::kSegments; }

    const UdpSendCounters& sent() const { return sender_.counters(); }
    const UdpReceiveCounters& received() const { return receiver_.counters(); }
    uint64_t lost_while_down() const { return lost_while_down_.load(std::memory_order_relaxed); }

private:
    FrameSlots slots_;
    UdpSender sender_;
    UdpReceiver receiver_;
    const std::atomic<bool>* const up_;
    std::atomic<uint64_t> lost_while_down_{0};
};

}  // namespace roci::pmd
