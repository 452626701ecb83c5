#include "mem/slow_memory.hpp"

#include <cstring>

namespace roci::mem {
namespace {

bool is_atomic(const SlowRequest& r) {
    return r.kind == SlowRequest::Kind::fetch_add || r.kind == SlowRequest::Kind::compare_swap;
}

bool copy_mapped(SlowRequest::Kind kind, const Stretch& s, std::byte* bytes) {
    std::byte* there = s.segment->base + s.at;
    if (kind == SlowRequest::Kind::write)
        std::memcpy(there, bytes, s.length);
    else
        std::memcpy(bytes, there, s.length);
    return InPlace{there, s.segment->mapped}.intact();
}

bool read_all(const SlowRequest& r) {
    for (const SlowPiece& p : std::span(r.pieces.data(), r.count))
        if (!p.region->process->read(p.address, p.bytes, p.length)) return false;
    return true;
}

bool write_all(const SlowRequest& r) {
    for (const SlowPiece& p : std::span(r.pieces.data(), r.count))
        if (!p.region->process->write(p.address, p.bytes, p.length)) return false;
    return true;
}

bool exchange(SlowRequest& r) {
    if (!read_all(r)) return false;
    const bool adds = r.kind == SlowRequest::Kind::fetch_add;
    if (!adds && r.original != r.compare) return true;
    const uint64_t changed = adds ? r.original + r.operand : r.operand;
    const auto* from = reinterpret_cast<const std::byte*>(&changed);
    for (const SlowPiece& p : std::span(r.pieces.data(), r.count)) {
        if (!p.region->process->write(p.address, from, p.length)) return false;
        from += p.length;
    }
    return true;
}

}  // namespace

bool add(SlowRequest& request, const MemoryRegion& region, uint64_t va, std::byte* bytes, uint32_t length) {
    if (length == 0) return true;
    if (region.is_null) {
        if (request.kind == SlowRequest::Kind::read) std::memset(bytes, 0, length);
        return true;
    }
    std::array<Stretch, SlowRequest::kMostPieces> found;
    const size_t count = stretches(region, va, length, found);
    if (count == 0) return false;
    for (const Stretch& s : std::span(found.data(), count)) {
        const Segment& segment = *s.segment;
        if (request.kind != SlowRequest::Kind::read && !segment.writable) return false;
        if (segment.base != nullptr) {
            if (is_atomic(request) || !copy_mapped(request.kind, s, bytes)) return false;
        } else {
            if (request.count == request.pieces.size() || region.process == nullptr) return false;
            request.pieces[request.count++] = {&region, segment.client_address + s.at, bytes, s.length};
        }
        bytes += s.length;
    }
    return true;
}

void serve(SlowRequest& r) {
    switch (r.kind) {
        case SlowRequest::Kind::read:
            r.good = read_all(r);
            return;
        case SlowRequest::Kind::write:
            r.good = write_all(r);
            return;
        case SlowRequest::Kind::fetch_add:
        case SlowRequest::Kind::compare_swap:
            r.good = exchange(r);
    }
}

SlowLane* submit(SlowRequest& request, uint32_t engine) {
    if (request.count == 0) return nullptr;
    SlowWorker* worker = request.pieces[0].region->process->worker();
    if (worker == nullptr || engine >= worker->lanes()) return nullptr;
    SlowLane& lane = worker->lane(engine);
    if (lane.under_way == SlowLane::kSize) return nullptr;
    for (const SlowPiece& p : std::span(request.pieces.data(), request.count)) {
        p.region->slow_ops.fetch_add(1, std::memory_order_relaxed);
        p.region->slow_pending.fetch_add(1, std::memory_order_relaxed);
    }
    ++lane.under_way;
    lane.requests.push(&request);
    worker->submitted();
    return &lane;
}

void release(SlowRequest& request) {
    for (const SlowPiece& p : std::span(request.pieces.data(), request.count))
        p.region->slow_pending.fetch_sub(1, std::memory_order_release);
    request.count = 0;
}

}  // namespace roci::mem
