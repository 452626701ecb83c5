// Two ports that pass frames to each other by pointer. Such a link has almost no cost.
#pragma once

#include <algorithm>
#include <array>
#include <memory>

#include "io/port.hpp"

namespace roci::bench {

class alignas(64) MemoryPort final : public io::Port {
public:
    static constexpr uint32_t kFrames = 4096, kRoom = 4352 + 64;

    MemoryPort() {
        for (uint32_t i = 0; i < kFrames; ++i) free_[free_count_++] = bytes_.get() + size_t{i} * kRoom;
    }
    void join(MemoryPort& peer) { peer_ = &peer, peer.peer_ = this; }

    unsigned rx_burst(io::RxFrame* frames, unsigned max) override {
        const unsigned n = std::min<unsigned>(max, sent_ - received_);
        for (unsigned i = 0; i < n; ++i) frames[i] = wire_[received_++ % kFrames];
        return n;
    }
    void rx_free(io::RxFrame* frames, unsigned n) override {
        for (unsigned i = 0; i < n; ++i) peer_->give_back(frames[i].cookie);
    }
    uint32_t lends() const override { return kFrames / 4; }
    unsigned tx_alloc(io::TxFrame* frames, unsigned n) override {
        n = std::min<unsigned>(n, free_count_);
        for (unsigned i = 0; i < n; ++i) {
            uint8_t* bytes = free_[--free_count_];
            frames[i] = {bytes, kRoom, 0, bytes};
        }
        return n;
    }
    unsigned tx_burst(io::TxFrame* frames, unsigned n) override {
        for (unsigned i = 0; i < n; ++i)
            peer_->wire_[peer_->sent_++ % kFrames] = {frames[i].data, frames[i].length, frames[i].cookie};
        return n;
    }
    void tx_free(io::TxFrame* frames, unsigned n) override {
        for (unsigned i = 0; i < n; ++i) give_back(frames[i].cookie);
    }

private:
    void give_back(void* bytes) { free_[free_count_++] = static_cast<uint8_t*>(bytes); }

    std::unique_ptr<uint8_t[]> bytes_ = std::make_unique<uint8_t[]>(size_t{kFrames} * kRoom);
    std::array<uint8_t*, kFrames> free_;
    std::array<io::RxFrame, kFrames> wire_;  ///< frames that have not been received yet; at most all frames of the peer's pool
    unsigned free_count_ = 0, sent_ = 0, received_ = 0;
    MemoryPort* peer_ = nullptr;
};

/// Two ports that are connected by memory.
struct MemoryWire {
    std::array<MemoryPort, 2> ports;
    MemoryWire() { ports[0].join(ports[1]); }
    io::Port* port(uint32_t i) { return &ports[i]; }
};

}  // namespace roci::bench
