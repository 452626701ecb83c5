#include "mem/memory_region.hpp"

#include <algorithm>
#include <cstring>

#include "base/stage.hpp"

namespace roci::mem {
namespace {

/// Returns the segment that contains byte `offset`. The conductor (rocid's control thread) guarantees ascending segments without
/// gaps.
const Segment* segment_at(const MemoryRegion& r, uint64_t offset) {
    auto after =
        std::upper_bound(r.segments.begin(), r.segments.end(), offset, [](uint64_t o, const Segment& s) { return o < s.offset; });
    if (after == r.segments.begin()) return nullptr;
    const Segment& s = *(after - 1);
    return offset - s.offset < s.length ? &s : nullptr;
}

/// Returns true if the memory is still mapped. Called after the access, because during the copy the SIGBUS guard may replace
/// lost pages and mark the region as poisoned.
bool whole(const MappedRegion* mapped) {
    std::atomic_signal_fence(std::memory_order_acq_rel);
    return mapped == nullptr || !mapped->poisoned.load(std::memory_order_relaxed);
}
bool intact(const Segment& s) { return whole(s.mapped); }

/// Stores a range of bytes. Stores the last 8 bytes last, because programs poll the end of a buffer. A library memcpy may store
/// the beginning of a long range last.
void store_tail_last(std::byte* to, const std::byte* from, uint64_t length) {
    constexpr uint64_t kTail = 8;
    if (length <= kTail) {
        std::memcpy(to, from, length);
        return;
    }
    std::memcpy(to, from, length - kTail);
    std::atomic_thread_fence(std::memory_order_release);
    std::memcpy(to + length - kTail, from + length - kTail, kTail);
}

bool read_segment(const Segment& s, uint64_t at, std::byte* out, uint64_t length) {
    if (s.base == nullptr) return false;
    std::memcpy(out, s.base + at, length);
    return intact(s);
}

bool write_segment(const Segment& s, uint64_t at, const std::byte* in, uint64_t length) {
    if (!s.writable || s.base == nullptr) return false;
    store_tail_last(s.base + at, in, length);
    return intact(s);
}

/// Calls op(segment, offset within the segment, bytes done, length) for each segment of the range. Stops when op returns false.
template <class Op>
bool walk(const MemoryRegion& r, uint64_t va, uint64_t length, Op op) {
    if (length == 0) return true;
    if (!inside(r, va, length)) return false;
    uint64_t offset = va - r.iova;
    const Segment* s = segment_at(r, offset);
    const Segment* end = r.segments.end();
    for (uint64_t done = 0; done < length; ++s) {
        if (s == nullptr || s == end) return false;
        const uint64_t at = offset - s->offset;
        const uint64_t n = std::min(length - done, s->length - at);
        if (!op(*s, at, done, n)) return false;
        offset += n;
        done += n;
    }
    return true;
}

/// If the region has a single segment and this segment contains the range, returns the segment. Otherwise returns nullptr.
const Segment* single(const MemoryRegion& r, uint64_t va, uint64_t length) {
    if (r.segments.size() != 1 || length == 0 || !inside(r, va, length)) return nullptr;
    const Segment& s = r.segments.front();
    return s.offset == 0 && va - r.iova + length <= s.length ? &s : nullptr;
}

}  // namespace

const MemoryRegion kEmptyRegion{};

bool copy_out(const MemoryRegion& r, uint64_t va, std::byte* out, uint64_t length) {
    ROCI_STAGE(copy);
    if (const Segment* s = single(r, va, length)) return read_segment(*s, va - r.iova, out, length);
    if (r.is_null) {
        std::memset(out, 0, length);
        return true;
    }
    return walk(r, va, length,
                [&](const Segment& s, uint64_t at, uint64_t done, uint64_t n) { return read_segment(s, at, out + done, n); });
}

bool copy_in(const MemoryRegion& r, uint64_t va, const std::byte* in, uint64_t length) {
    ROCI_STAGE(copy);
    if (const Segment* s = single(r, va, length)) return write_segment(*s, va - r.iova, in, length);
    if (r.is_null) return true;
    return walk(r, va, length,
                [&](const Segment& s, uint64_t at, uint64_t done, uint64_t n) { return write_segment(s, at, in + done, n); });
}

size_t stretches(const MemoryRegion& r, uint64_t va, uint64_t length, std::span<Stretch> out) {
    size_t n = 0;
    const auto take = [&](const Segment& s, uint64_t at, uint64_t, uint64_t bytes) {
        if (n == out.size()) return false;
        out[n++] = {&s, at, uint32_t(bytes)};
        return true;
    };
    return walk(r, va, length, take) ? n : 0;
}

bool InPlace::intact() const { return whole(mapped); }

InPlace in_place(const MemoryRegion& r, uint64_t va, uint64_t length) {
    const Segment* s = single(r, va, length);
    return s == nullptr || s->base == nullptr ? InPlace{} : InPlace{s->base + (va - r.iova), s->mapped};
}

std::byte* direct(const MemoryRegion& r, uint64_t va, uint64_t length) {
    if (length == 0 || !inside(r, va, length)) return nullptr;
    const uint64_t offset = va - r.iova;
    const Segment* s = segment_at(r, offset);
    if (s == nullptr || s->base == nullptr || !s->writable || !intact(*s)) return nullptr;
    const uint64_t at = offset - s->offset;
    if (length > s->length - at) return nullptr;
    std::byte* p = s->base + at;
    return reinterpret_cast<uintptr_t>(p) % length == 0 ? p : nullptr;
}

}  // namespace roci::mem
