// The pool of kept frames, and the limits after which a late frame counts as lost.
#include "qp/reorder_pool.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "qp/state.hpp"

namespace roci::qp {

ReorderPool::ReorderPool(ChunkSource& memory, const ReorderLimits& limits, std::span<io::Port* const> ports)
    : limits_(limits),
      capacity_(limits.bytes / kFrameBytes),
      frames_(memory, sizeof(KeptFrame)),
      copies_(memory, wire::kMaxFrame),
      places_(memory, limits.frames * sizeof(KeptFrame*)),
      reorders_(memory, sizeof(Reorder)) {
    for (io::Port* port : ports) lenders_.push_back({port, port->lends()});
}

/// Copies the bytes of a frame up to the ICRC, and sets the pointers of the kept packet to the copy. Returns false if the frame
/// is too long or memory is exhausted.
bool ReorderPool::copy(const wire::Packet& p, KeptFrame& to, Slab& copies) {
    const size_t length = wire::frame_bytes(p);
    if (length > wire::kMaxFrame || (to.copy = static_cast<uint8_t*>(copies.take())) == nullptr) return false;
    to.packet.frame = to.copy;
    to.packet.l3 = to.copy + (p.l3 - p.frame);
    to.packet.payload = to.copy + (p.payload - p.frame);
    std::memcpy(to.copy, p.frame, length);
    return true;
}

KeptFrame* ReorderPool::keep(const wire::Packet& p, uint32_t has, Arrival& arrival) {
    const size_t left = capacity_ - std::min(capacity_, frames_.taken());
    if (left != 0 && has >= left / kPart && has != 0) {
        count(&ReorderCounters::share);
        return nullptr;
    }
    void* block = left != 0 ? frames_.take() : nullptr;
    if (block == nullptr) {
        count(&ReorderCounters::no_memory);
        return nullptr;
    }
    auto* kept = new (block) KeptFrame{.packet = p, .copy = nullptr, .lent = {}, .port = arrival.port};
    if (arrival.frame != nullptr && arrival.frame->data == p.frame && lenders_[arrival.port].left != 0) {
        --lenders_[arrival.port].left;
        kept->lent = *std::exchange(arrival.frame, nullptr);
    } else if (!copy(p, *kept, copies_)) {
        frames_.give_back(kept);
        count(&ReorderCounters::no_memory);
        return nullptr;
    }
    count(&ReorderCounters::kept);
    return kept;
}

void ReturnedFrames::add(KeptFrame* frame) noexcept {
    if (frame->copy != nullptr) {
        pool_.copies_.give_back(frame->copy);
    } else {
        if (count_ == kBurst || frame->port != port_) flush();
        port_ = frame->port;
        std::construct_at(frames() + count_++, frame->lent);
    }
    pool_.frames_.give_back(frame);
}

void ReturnedFrames::flush() noexcept {
    if (count_ == 0) return;
    ReorderPool::Lender& lender = pool_.lenders_[port_];
    lender.port->rx_free(frames(), count_);
    lender.left += count_;
    count_ = 0;
}

KeptFrame** ReorderPool::take_places() {
    void* block = places_.take();
    if (block == nullptr) {
        count(&ReorderCounters::no_memory);
        return nullptr;
    }
    auto** places = static_cast<KeptFrame**>(block);
    std::fill_n(places, limits_.frames, nullptr);
    return places;
}

Reorder* ReorderPool::make(void* owner) {
    void* block = reorders_.take();
    if (block == nullptr) {
        count(&ReorderCounters::no_memory);
        return nullptr;
    }
    auto* r = new (block) Reorder;
    r->timer.owner = owner;
    return r;
}

void Patience::arrived(Psn psn, uint32_t places, Nanos lateness) {
    Suspect& s = suspects_[next_];
    // A suspect is a frame that was reported as missing and has arrived since. If a second copy of the frame arrives, the first
    // copy was only late. A whole window of packets may arrive between the two copies. Therefore a suspect is not replaced by a
    // new suspect before kSettled PSNs have passed.
    if (s.valid && psn_span(s.psn, psn) < kSettled) return;
    next_ = uint8_t((next_ + 1) % suspects_.size());
    if (s.valid && ++calm_ == kCalm) {
        calm_ = 0;
        places_ = std::max<uint16_t>(kFewest, uint16_t(places_ - places_ / 4));
        wait_ = std::max<Nanos>(kShortest, wait_ - wait_ / 4);
    }
    s = {psn, uint16_t(std::min<uint32_t>(places, kMost)), lateness, true};
}

bool Patience::repeated(Psn psn) {
    for (Suspect& s : suspects_) {
        if (!s.valid || s.psn != psn) continue;
        s.valid = false;
        calm_ = 0;
        // One second copy is no proof, because the peer may have sent the frame again twice. So a limit at most doubles.
        places_ = std::max(places_, std::min({kMost, uint16_t(s.places + s.places / 4 + 1), uint16_t(2 * places_)}));
        if (s.lateness >= wait_) wait_ = std::min({kLongest, s.lateness + s.lateness / 4, 2 * wait_});
        return true;
    }
    return false;
}

Hole hole_from(const Backlog& b, uint32_t window, Psn from) {
    Hole hole{from, 0};
    if (b.count == 0) return hole;
    const auto here = [&](Psn psn) { return keeps(b, window, psn); };
    const uint32_t span = psn_span(from, b.end);
    if (span > window) return hole;  // `from` is behind the last kept frame
    uint32_t at = 0;
    while (at < span && here(from + at)) ++at;
    hole.first = from + at;
    while (at + hole.length < span && !here(from + at + hole.length)) ++hole.length;
    return hole;
}

}  // namespace roci::qp
