#include "hairpin_port.hpp"

#include <algorithm>

namespace roci::pmd {
namespace {

constexpr uintptr_t kHairpinned = 1;
constexpr uint64_t kMacMask = 0xffff'ffff'ffff;
constexpr uint64_t kNoMac = ~uint64_t{0};  ///< differs from the word of each MAC
constexpr unsigned kMostCopies = 32;       ///< maximum number of multicast frames that are sent in one burst

/// Returns the MAC in the low 48 bits. Two loads are faster than a copy of six bytes, which the compiler makes on the stack.
uint64_t mac_word(const uint8_t* mac) {
    uint32_t low;
    uint16_t high;
    std::memcpy(&low, mac, sizeof low);
    std::memcpy(&high, mac + sizeof low, sizeof high);
    return uint64_t{high} << 32 | low;
}

bool hairpinned(const io::RxFrame& f) { return (reinterpret_cast<uintptr_t>(f.cookie) & kHairpinned) != 0; }

/// Returns true for multicast frames. Returns false for broadcast frames, because a broadcast frame is never for a QP.
bool is_multicast(const io::TxFrame& f) { return f.length >= 6 && (f.data[0] & 1) != 0 && mac_word(f.data) != kMacMask; }

io::TxFrame back_to_tx(const io::RxFrame& f) {
    void* cookie = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(f.cookie) & ~kHairpinned);
    return {.data = const_cast<uint8_t*>(f.data), .length = f.length, .cookie = cookie};
}

}  // namespace

HairpinPort::HairpinPort(io::Port& inner, const std::optional<MacAddress>& own, uint32_t depth)
    : inner_(inner),
      own_(own ? mac_word(own->bytes.data()) : kNoMac),
      mask_(depth - 1),
      fifo_(std::make_unique<io::RxFrame[]>(depth)) {}

HairpinPort::~HairpinPort() {
    for (; tail_ != head_; ++tail_) rx_free(&fifo_[tail_ & mask_], 1);
}

bool HairpinPort::is_own(const io::TxFrame& f) const { return f.length >= 6 && mac_word(f.data) == own_; }

/// Appends a frame to the queue. If the NIC was to compute the checksum of the IPv4 header, computes it here, because the NIC
/// does not process this frame. A frame without an ICRC needs none. Returns false if the queue is full.
bool HairpinPort::queue(io::TxFrame& f) {
    if (waiting() > mask_) return false;
    void* cookie = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(f.cookie) | kHairpinned);
    const auto header = f.left.checksum_offset != 0 ? wire::HeaderChecksum::right : wire::HeaderChecksum::unknown;
    const auto icrc = std::exchange(f.left.icrc, false) ? wire::HeaderChecksum::absent : wire::HeaderChecksum::unknown;
    complete(f);
    fifo_[head_++ & mask_] = {f.data, f.length, cookie, header, icrc};
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

/// Sends at most kMostCopies frames and queues a copy of each sent frame for this port. Returns the number of frames that were
/// sent. Drops a copy if no buffer is free, or if the queue is full.
unsigned HairpinPort::send_multicast(io::TxFrame* frames, unsigned count) {
    io::TxFrame copies[kMostCopies];
    const unsigned copied = inner_.tx_alloc(copies, count);
    for (unsigned i = 0; i < copied; ++i) {
        io::TxFrame& copy = copies[i];
        if (copy.capacity < frames[i].length) continue;
        std::memcpy(copy.data, frames[i].data, frames[i].length);
        copy.length = frames[i].length;
        copy.left = frames[i].left;
        copy.sender = frames[i].sender;
    }
    const unsigned sent = inner_.tx_burst(frames, count);
    for (unsigned i = 0; i < copied; ++i)
        if (i >= sent || copies[i].length == 0 || !queue(copies[i])) inner_.tx_free(&copies[i], 1);
    return sent;
}

unsigned HairpinPort::tx_burst(io::TxFrame* frames, unsigned count) {
    for (unsigned i = 0; i < count;) {
        if (is_own(frames[i])) {
            if (!queue(frames[i])) return i;
            ++i;
            continue;
        }
        const unsigned first = i;
        const bool multicast = is_multicast(frames[i]);
        const unsigned end = multicast ? std::min(count, i + kMostCopies) : count;
        while (i < end && !is_own(frames[i]) && is_multicast(frames[i]) == multicast) ++i;
        const unsigned sent = multicast ? send_multicast(frames + first, i - first) : inner_.tx_burst(frames + first, i - first);
        if (sent < i - first) return first + sent;
    }
    return count;
}

}  // namespace roci::pmd
