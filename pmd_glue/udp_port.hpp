// One engine's end of a port with port = "udp": RoCEv2 over plain UDP sockets, without privilege. The kernel builds all headers
// before the UDP payload.
#pragma once

#include "frame_slots.hpp"
#include "io/port.hpp"
#include "udp_receiver.hpp"
#include "udp_sender.hpp"

namespace roci::pmd {

class UdpPort final : public io::Port {
public:
    /// `frames` is the number of buffers for frames to be sent. `up` is the state of the link; frames for a link that is down are
    /// dropped and counted.
    UdpPort(const UdpSockets& sockets, const MacAddress& mac, uint32_t frames, const std::atomic<bool>* up);

    unsigned rx_burst(io::RxFrame* frames, unsigned max) override { return receiver_.burst(frames, max); }
    void rx_free(io::RxFrame* frames, unsigned count) override { receiver_.free(frames, count); }
    unsigned tx_alloc(io::TxFrame* frames, unsigned count) override;
    unsigned tx_burst(io::TxFrame* frames, unsigned count) override;
    void tx_free(io::TxFrame* frames, unsigned count) override;
    /// Returns the number of frames per datagram. A datagram costs as much as several frames, so the engine should fill it.
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
