#include "hairpin_port.hpp"

#include <algorithm>

namespace roci::pmd {
namespace {

constexpr uintptr_t kHairpinned = 1;
constexpr uint64_t kMacMask = 0xffff'ffff'ffff;

uint64_t mac_word(const uint8_t* mac) {
    uint64_t w = 0;
    std::memcpy(&w, mac, 6);
    return w & kMacMask;
}

bool hairpinned(const io::RxFrame& f) { return (reinterpret_cast<uintptr_t>(f.cookie) & kHairpinned) != 0; }

/// Returns true for multicast frames. Returns false for broadcast frames, because a broadcast frame is never for a QP.
bool is_multicast(const io::TxFrame& f) { return f.length >= 6 && (f.data[0] & 1) != 0 && mac_word(f.data) != kMacMask; }

io::TxFrame back_to_tx(const io::RxFrame& f) {
    void* cookie = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(f.cookie) & ~kHairpinned);
    return {const_cast<uint8_t*>(f.data), 0, f.length, cookie, 0};
}

}  // namespace

HairpinPort::HairpinPort(io::Port& inner, const MacAddress& own, uint32_t depth)
    : inner_(inner), own_(mac_word(own.bytes.data())), mask_(depth - 1), fifo_(std::make_unique<io::RxFrame[]>(depth)) {}

HairpinPort::~HairpinPort() {
    for (; tail_ != head_; ++tail_) rx_free(&fifo_[tail_ & mask_], 1);
}

bool HairpinPort::is_own(const io::TxFrame& f) const { return f.length >= 6 && mac_word(f.data) == own_; }

/// Appends a frame to the queue. If the NIC was to compute the checksum, computes the checksum here, because the NIC does not
/// process this frame. Returns false if the queue is full.
bool HairpinPort::queue(io::TxFrame& f) {
    if (waiting() > mask_) return false;
    void* cookie = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(f.cookie) | kHairpinned);
    const auto known = f.checksum_offset != 0 ? wire::HeaderChecksum::right : wire::HeaderChecksum::unknown;
    complete(f);
    fifo_[head_++ & mask_] = {f.data, f.length, cookie, known};
    return true;
}

unsigned HairpinPort::take_waiting(io::RxFrame* frames, unsigned max) {
    const unsigned n = std::min<unsigned>(max, waiting());
    for (unsigned i = 0; i < n; ++i) frames[i] = fifo_[tail_++ & mask_];
    return n;
}

unsigned HairpinPort::rx_burst(io::RxFrame* frames, unsigned max) {
    if (waiting() == 0) return inner_.rx_burst(frames, max);
    inner_first_ = !inner_first_;
    if (inner_first_) {
        const unsigned n = inner_.rx_burst(frames, max);
        return n + take_waiting(frames + n, max - n);
    }
    const unsigned n = take_waiting(frames, max);
    return n == max ? n : n + inner_.rx_burst(frames + n, max - n);
}

void HairpinPort::rx_free(io::RxFrame* frames, unsigned count) {
    for (unsigned i = 0; i < count;) {
        if (hairpinned(frames[i])) {
            io::TxFrame f = back_to_tx(frames[i++]);
            inner_.tx_free(&f, 1);
            continue;
        }
        const unsigned first = i;
        while (i < count && !hairpinned(frames[i])) ++i;
        inner_.rx_free(frames + first, i - first);
    }
}

/// Sends the frame and queues a copy for this port. Returns true if the frame was sent. Drops the copy if no buffer is free, or
/// if the queue is full.
bool HairpinPort::send_multicast(io::TxFrame& f) {
    io::TxFrame copy;
    const bool copied = inner_.tx_alloc(&copy, 1) == 1 && copy.capacity >= f.length;
    if (copied) std::memcpy(copy.data, f.data, f.length);
    copy.length = f.length;
    copy.checksum_offset = f.checksum_offset;
    copy.sender = f.sender;
    const bool sent = inner_.tx_burst(&f, 1) == 1;
    if (copy.data != nullptr && (!copied || !sent || !queue(copy))) inner_.tx_free(&copy, 1);
    return sent;
}

unsigned HairpinPort::tx_burst(io::TxFrame* frames, unsigned count) {
    for (unsigned i = 0; i < count;) {
        if (is_own(frames[i])) {
            if (!queue(frames[i])) return i;
            ++i;
            continue;
        }
        if (is_multicast(frames[i])) {
            if (!send_multicast(frames[i])) return i;
            ++i;
            continue;
        }
        const unsigned first = i;
        while (i < count && !is_own(frames[i]) && !is_multicast(frames[i])) ++i;
        const unsigned sent = inner_.tx_burst(frames + first, i - first);
        if (sent < i - first) return first + sent;
    }
    return count;
}

}  // namespace roci::pmd
