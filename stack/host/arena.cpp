#include "host/arena.hpp"

#include <algorithm>
#include <cstring>

namespace roci::host {
namespace {

constexpr uint64_t kPage = 4096;

constexpr uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

ArenaBlock& ArenaBlock::operator=(ArenaBlock&& other) noexcept {
    if (this == &other) return *this;
    reset();
    arena_ = std::exchange(other.arena_, nullptr);
    base_ = std::exchange(other.base_, nullptr);
    where_ = std::exchange(other.where_, {});
    return *this;
}

void ArenaBlock::reset() {
    if (arena_ != nullptr) arena_->release(where_.chunk, where_.offset, where_.length);
    arena_ = nullptr;
    base_ = nullptr;
    where_ = {};
}

Arena::~Arena() {
    for (const SharedMemory& m : chunks_) platform_.free_memory(m);
}

Outcome Arena::allocate(uint64_t length, ArenaBlock& out) {
    if (length > max_bytes_) return fail(ENOMEM, "queue of {} bytes is larger than the session limit of {}", length, max_bytes_);
    const uint64_t wanted = std::max<uint64_t>(round_up(length, abi::kCacheLine), abi::kCacheLine);
    const auto fit = free_by_size_.lower_bound({wanted, {0, 0}});
    if (fit == free_by_size_.end()) return want_chunk(wanted);
    const auto [available, place] = *fit;
    const auto [chunk, offset] = place;
    erase_free(chunk, offset, available);
    if (available > wanted) insert_free(chunk, offset + wanted, available - wanted);

    out.reset();
    out.arena_ = this;
    out.base_ = chunks_[chunk].base + offset;
    out.where_ = {.chunk = chunk, .reserved = 0, .offset = offset, .length = wanted};
    std::memset(out.base_, 0, wanted);  // the block may contain old data of a freed block
    return done();
}

Outcome Arena::want_chunk(uint64_t least) const {
    const uint64_t room = max_bytes_ - bytes_;
    const uint64_t step = chunks_.empty() ? kFirstChunk : std::min(chunks_.back().length * 2, kLargestStep);
    const uint64_t needed = round_up(least, kPage);
    const uint64_t length = std::min(std::max(step, needed), std::max(room / kPage * kPage, needed));
    if (Outcome o = check_chunk(length); o.failed()) return o;
    Outcome o = fail(ENOMEM, "the queues need another {} bytes of shared memory from the client", length);
    o.wanted_chunk = length;
    return o;
}

Outcome Arena::check_chunk(uint64_t length) const {
    if (length == 0 || length % kPage != 0) return fail(EINVAL, "a chunk of {} bytes is not whole pages", length);
    if (length > max_bytes_ - bytes_)
        return fail(ENOMEM, "session has {} of {} bytes of queue memory; destroy queues or raise the limit", bytes_, max_bytes_);
    return done();
}

uint32_t Arena::add_chunk(const SharedMemory& memory) {
    chunks_.push_back(memory);
    bytes_ += memory.length;
    insert_free(uint32_t(chunks_.size() - 1), 0, memory.length);
    return uint32_t(chunks_.size() - 1);
}

void Arena::insert_free(uint32_t chunk, uint64_t offset, uint64_t length) {
    free_by_place_[{chunk, offset}] = length;
    free_by_size_.insert({length, {chunk, offset}});
}

void Arena::erase_free(uint32_t chunk, uint64_t offset, uint64_t length) {
    free_by_place_.erase({chunk, offset});
    free_by_size_.erase({length, {chunk, offset}});
}

void Arena::release(uint32_t chunk, uint64_t offset, uint64_t length) {
    auto next = free_by_place_.lower_bound({chunk, offset});
    if (next != free_by_place_.end() && next->first == Stretch{chunk, offset + length}) {
        const uint64_t more = next->second;
        erase_free(chunk, offset + length, more);
        length += more;
    }
    auto before = free_by_place_.lower_bound({chunk, offset});
    if (before != free_by_place_.begin()) {
        const auto [place, size] = *--before;
        if (place.first == chunk && place.second + size == offset) {
            erase_free(chunk, place.second, size);
            offset = place.second;
            length += size;
        }
    }
    insert_free(chunk, offset, length);
}

}  // namespace roci::host
