#include "udp_port.hpp"

namespace roci::pmd {

UdpPort::UdpPort(const UdpSockets& sockets, const MacAddress& mac, uint32_t frames, const std::atomic<bool>* up)
    : slots_(frames), sender_(sockets), receiver_(sockets, mac), up_(up) {}

unsigned UdpPort::tx_alloc(io::TxFrame* frames, unsigned count) {
    unsigned n = 0;
    for (; n < count; ++n) {
        uint8_t* slot = slots_.take();
        if (slot == nullptr) break;
        frames[n] = {slot, FrameSlots::kBytes, 0, slot};
    }
    return n;
}

void UdpPort::tx_free(io::TxFrame* frames, unsigned count) {
    for (unsigned i = 0; i < count; ++i) slots_.give_back(static_cast<uint8_t*>(frames[i].cookie));
}

unsigned UdpPort::tx_burst(io::TxFrame* frames, unsigned count) {
    if (up_ != nullptr && !up_->load(std::memory_order_relaxed)) [[unlikely]] {
        lost_while_down_.store(lost_while_down_.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
        tx_free(frames, count);
        return count;
    }
    unsigned done = 0;
    while (done < count) {
        const unsigned n = sender_.send(frames + done, count - done);
        if (n == 0) break;
        done += n;
    }
    tx_free(frames, done);
    return done;
}

}  // namespace roci::pmd
