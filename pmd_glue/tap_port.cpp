#include "tap_port.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "wire/packet.hpp"

namespace roci::pmd {
namespace {

constexpr uint32_t stride(uint32_t snap_length) { return (snap_length + 63) & ~63u; }
/// Returns the number of slots. The number is a power of two, so that the 32-bit positions may wrap around.
constexpr uint32_t slots_for(uint32_t snap_length) {
    return std::bit_floor(TapRing::kWholeFrames * TapRing::kMaxBytes / stride(snap_length));
}

}  // namespace

TapRing::TapRing(std::string interface_name, uint32_t queue, const TapFilter& filter, uint32_t snap_length)
    : name_(std::move(interface_name)),
      queue_(queue),
      filter_(filter),
      snap_length_(snap_length == 0 ? kMaxBytes : std::min(snap_length, kMaxBytes)),
      slot_count_(slots_for(snap_length_)),
      bytes_(std::make_unique_for_overwrite<uint8_t[]>(size_t{slot_count_} * stride(snap_length_))),
      slots_(std::make_unique_for_overwrite<Slot[]>(slot_count_)) {
    for (uint32_t i = 0; i < slot_count_; ++i) slots_[i].bytes = &bytes_[size_t{i} * stride(snap_length_)];
}

TapRing::Offer TapRing::fill(Nanos time, Direction direction, const uint8_t* data, uint32_t length, wire::LeftToPort left,
                             uint32_t sender) {
    if (!wants(filter_, direction, data, length, sender)) return Offer::unwanted;
    const uint32_t h = head_.load(std::memory_order_relaxed);
    if (h - tail_.load(std::memory_order_acquire) >= slot_count_) return Offer::full;
    Slot& s = slots_[h % slot_count_];
    s.time = time;
    s.direction = direction;
    s.length = length;
    s.captured = std::min(length, snap_length_);
    if (left.icrc && s.captured < length) {
        // The place of the ICRC contains bytes of an earlier frame, perhaps of another user.
        s.captured = std::min(s.captured, length - wire::kIcrcLength);
        left.icrc = false;
    }
    std::memcpy(s.bytes, data, s.captured);
    if (s.captured < left.checksum_offset + wire::kIpv4Length) left.checksum_offset = 0;
    wire::write_left(s.bytes, length, left);
    return Offer::filled;
}

void TapRing::settle(Offer offer) {
    if (offer == Offer::unwanted) return;
    std::atomic<uint64_t>& count = offer == Offer::filled ? captured_ : missed_;
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (offer == Offer::filled) head_.store(head_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

const TapRing::Slot* TapRing::peek() const {
    const uint32_t t = tail_.load(std::memory_order_relaxed);
    return t == head_.load(std::memory_order_acquire) ? nullptr : &slots_[t % slot_count_];
}

bool TapPort::attach(TapRing& ring) {
    for (auto& place : rings_) {
        TapRing* none = nullptr;
        if (!place.compare_exchange_strong(none, &ring, std::memory_order_release)) continue;
        attached_.fetch_add(1, std::memory_order_release);
        return true;
    }
    return false;
}

void TapPort::detach(TapRing& ring) {
    for (auto& place : rings_) {
        TapRing* it = &ring;
        if (place.compare_exchange_strong(it, nullptr, std::memory_order_release))
            attached_.fetch_sub(1, std::memory_order_release);
    }
}

unsigned TapPort::rx_burst(io::RxFrame* frames, unsigned max) {
    const unsigned n = inner_.rx_burst(frames, max);
    if (n == 0 || attached_.load(std::memory_order_acquire) == 0) return n;
    const Nanos now = clock_.now();
    for (auto& place : rings_) {
        TapRing* const ring = place.load(std::memory_order_acquire);
        if (ring == nullptr) continue;
        for (unsigned i = 0; i < n; ++i)
            ring->push(now, Direction::in, frames[i].data, frames[i].length,
                       {.icrc = frames[i].icrc == wire::HeaderChecksum::absent});
    }
    return n;
}

/// Sends one frame, and records the frame if the inner port accepts it. Copies the frame before the call of the inner port,
/// because the inner port may free an accepted frame. If the inner port refuses the frame, discards the copy, because the caller
/// will send the frame again.
bool TapPort::tx_one(Nanos now, io::TxFrame& frame) {
    std::array<TapRing*, kMaxRings> rings;
    std::array<TapRing::Offer, kMaxRings> offers;
    for (uint32_t r = 0; r < kMaxRings; ++r) {
        rings[r] = rings_[r].load(std::memory_order_acquire);
        if (rings[r] != nullptr)
            offers[r] = rings[r]->fill(now, Direction::out, frame.data, frame.length, frame.left, frame.sender);
    }
    if (inner_.tx_burst(&frame, 1) != 1) return false;
    for (uint32_t r = 0; r < kMaxRings; ++r)
        if (rings[r] != nullptr) rings[r]->settle(offers[r]);
    return true;
}

unsigned TapPort::tx_burst(io::TxFrame* frames, unsigned count) {
    if (attached_.load(std::memory_order_acquire) == 0) return inner_.tx_burst(frames, count);
    const Nanos now = clock_.now();
    for (unsigned i = 0; i < count; ++i)
        if (!tx_one(now, frames[i])) return i;
    return count;
}

}  // namespace roci::pmd
