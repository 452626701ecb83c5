#include "tap_port.hpp"

#include <algorithm>
#include <cstring>

namespace roci::pmd {

TapRing::TapRing(std::string interface_name, uint32_t queue)
    : name_(std::move(interface_name)), queue_(queue), slots_(std::make_unique_for_overwrite<Slot[]>(kSlots)) {}

bool TapRing::fill(Nanos time, Direction direction, const uint8_t* data, uint32_t length) {
    const uint32_t h = head_.load(std::memory_order_relaxed);
    if (h - tail_.load(std::memory_order_acquire) >= kSlots) return false;
    Slot& s = slots_[h % kSlots];
    s.time = time;
    s.direction = direction;
    s.length = length;
    s.captured = std::min<uint32_t>(length, sizeof s.bytes);
    std::memcpy(s.bytes, data, s.captured);
    return true;
}

void TapRing::publish() {
    captured_.store(captured_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    head_.store(head_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

void TapRing::miss() { missed_.store(missed_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }

const TapRing::Slot* TapRing::peek() const {
    const uint32_t t = tail_.load(std::memory_order_relaxed);
    return t == head_.load(std::memory_order_acquire) ? nullptr : &slots_[t % kSlots];
}

unsigned TapPort::rx_burst(engine::RxFrame* frames, unsigned max) {
    const unsigned n = inner_.rx_burst(frames, max);
    if (n == 0) return 0;
    const Nanos now = clock_.now();
    for (unsigned i = 0; i < n; ++i) ring_.push(now, Direction::in, frames[i].data, frames[i].length);
    return n;
}

unsigned TapPort::tx_burst(engine::TxFrame* frames, unsigned count) {
    const Nanos now = clock_.now();
    // A frame may be gone once it is accepted, so it is copied first, and one by one: a refused frame comes again and would
    // stand in the file twice.
    for (unsigned i = 0; i < count; ++i) {
        if (!ring_.push_if(now, Direction::out, frames[i].data, frames[i].length,
                           [&] { return inner_.tx_burst(frames + i, 1) == 1; }))
            return i;
    }
    return count;
}

}  // namespace roci::pmd
