// A port for tests of ports that wrap another port. It counts the frames that it has handed out and the frames that it has got
// back.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/time_source.hpp"
#include "io/port.hpp"

namespace roci::pmd {

struct FakeTime final : TimeSource {
    Nanos t = 1000;
    Nanos now() const override { return t; }
};

class FakePort final : public io::Port {
public:
    struct Buffer {
        alignas(8) uint8_t bytes[4608];
    };

    unsigned rx_burst(io::RxFrame* frames, unsigned max) override {
        unsigned n = 0;
        for (; n < max && !incoming.empty(); ++n) {
            Buffer* b = fresh(rx_out_);
            std::memcpy(b->bytes, incoming.front().data(), incoming.front().size());
            frames[n] = {b->bytes, uint32_t(incoming.front().size()), b, wire::HeaderChecksum::unknown, icrc};
            incoming.pop_front();
        }
        return n;
    }
    void rx_free(io::RxFrame* frames, unsigned count) override {
        for (unsigned i = 0; i < count; ++i) forget(rx_out_, frames[i].cookie);
    }
    unsigned tx_alloc(io::TxFrame* frames, unsigned count) override {
        unsigned n = 0;
        for (; n < count && tx_out_.size() < pool; ++n) {
            Buffer* b = fresh(tx_out_);
            frames[n] = {b->bytes, sizeof b->bytes, 0, b};
        }
        return n;
    }
    unsigned tx_burst(io::TxFrame* frames, unsigned count) override {
        unsigned n = 0;
        for (; n < count && (accept_limit < 0 || int(n) < accept_limit); ++n) {
            sent.emplace_back(reinterpret_cast<const char*>(frames[n].data), frames[n].length);
            checksum_offsets.push_back(frames[n].left.checksum_offset);
            without_icrc += frames[n].left.icrc;
            forget(tx_out_, frames[n].cookie);
        }
        return n;
    }
    void tx_free(io::TxFrame* frames, unsigned count) override {
        for (unsigned i = 0; i < count; ++i) forget(tx_out_, frames[i].cookie);
    }

    /// Returns the number of frames that the port has handed out and that were neither sent nor returned.
    size_t outstanding_tx() const { return tx_out_.size(); }
    size_t outstanding_rx() const { return rx_out_.size(); }

    std::deque<std::string> incoming;
    std::vector<std::string> sent;
    std::vector<uint8_t> checksum_offsets;                      ///< one offset per frame of `sent`
    uint32_t without_icrc = 0;                                  ///< number of frames of `sent` without an ICRC
    wire::HeaderChecksum icrc = wire::HeaderChecksum::unknown;  ///< RxFrame::icrc of all frames of `incoming`
    size_t pool = 100000;
    int accept_limit = -1;  ///< maximum number of frames that a tx_burst accepts; -1: no limit

private:
    using Out = std::map<void*, std::unique_ptr<Buffer>>;
    static Buffer* fresh(Out& out) {
        auto b = std::make_unique<Buffer>();
        Buffer* p = b.get();
        out.emplace(p, std::move(b));
        return p;
    }
    static void forget(Out& out, void* cookie) { ASSERT_EQ(out.erase(cookie), 1u) << "freed twice, or on the wrong side"; }
    Out tx_out_, rx_out_;
};

/// Returns an untagged frame to `mac_last`. The sequence number is at offset 20.
inline std::string frame_to(uint8_t mac_last, uint32_t number, size_t length = 100) {
    std::string f(length, '\0');
    f[0] = 0x02;
    f[5] = char(mac_last);
    std::memcpy(&f[20], &number, sizeof number);
    return f;
}
inline uint32_t number_of(const std::string& f) {
    uint32_t n = 0;
    std::memcpy(&n, &f[20], sizeof n);
    return n;
}
/// Allocates, fills and sends one frame. If the port refuses the frame, frees the frame and returns false.
inline bool offer(io::Port& port, const std::string& bytes, const wire::LeftToPort& left = {}) {
    io::TxFrame f;
    if (port.tx_alloc(&f, 1) != 1) return false;
    std::memcpy(f.data, bytes.data(), bytes.size());
    f.length = uint32_t(bytes.size());
    f.left = left;
    if (port.tx_burst(&f, 1) == 1) return true;
    port.tx_free(&f, 1);
    return false;
}
/// Allocates, fills and sends `count` frames with numbers from `first` on, in one burst. Frees the frames that the port refuses.
/// Returns the number of frames that the port has taken.
inline unsigned offer_burst(io::Port& port, uint32_t first, unsigned count) {
    std::vector<io::TxFrame> frames(count);
    if (port.tx_alloc(frames.data(), count) != count) return 0;
    for (unsigned i = 0; i < count; ++i) {
        const std::string bytes = frame_to(2, first + i);
        std::memcpy(frames[i].data, bytes.data(), bytes.size());
        frames[i].length = uint32_t(bytes.size());
    }
    const unsigned taken = port.tx_burst(frames.data(), count);
    port.tx_free(frames.data() + taken, count - taken);
    return taken;
}
/// Receives and frees all frames in bursts of at most `burst`. Returns their numbers.
inline std::vector<uint32_t> receive_all(io::Port& p, unsigned burst = 8) {
    std::vector<uint32_t> got;
    io::RxFrame f[64];
    for (unsigned n; (n = p.rx_burst(f, burst)) != 0; p.rx_free(f, n))
        for (unsigned i = 0; i < n; ++i) got.push_back(number_of({reinterpret_cast<const char*>(f[i].data), f[i].length}));
    return got;
}

}  // namespace roci::pmd
