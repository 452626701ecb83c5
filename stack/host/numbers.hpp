// Allocates numbers of objects, such as QP numbers. A freed number is not reused for some time. So a delayed packet, a stale
// handle or a peer that still has the old connection does not match a new object.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace roci::host {

/// Allocates numbers in [first, end) from a bitmap.
class NumberPool {
public:
    /// The pool holds back at most this many freed numbers from reuse. A small pool holds back at most a quarter of its numbers.
    /// If all free numbers are held back, the pool reuses the number that was freed first.
    static constexpr uint32_t kMostResting = 1024;

    NumberPool(uint32_t first, uint32_t end) : first_(first), end_(end), cursor_(first), words_((size_t(end) + 63) / 64, 0) {
        for (uint32_t n = 0; n < words_.size() * 64; ++n)
            if (n < first_ || n >= end_) words_[n / 64] |= uint64_t{1} << (n % 64);  // numbers out of range are never free
    }

    /// Returns a free number, or nullopt if all numbers are in use. Clients cannot predict the number, because they do not know
    /// `random`. The pool chooses a block of kBlock numbers at random. It allocates all free numbers of the block in random order
    /// before it chooses another block, because the entries of a block share a cache line in the tables that engines read.
    std::optional<uint32_t> allocate(uint64_t random) {
        if (!has_free()) return std::nullopt;
        if (free_of_block() == 0) {
            cursor_ = first_ + uint32_t(random % capacity());
            const auto n = search(cursor_, end_);
            block_ = (n ? *n : *search(first_, cursor_)) / kBlock;
        }
        uint32_t free = free_of_block();
        for (uint32_t skip = uint32_t(random >> 32) % uint32_t(std::popcount(free)); skip != 0; --skip) free &= free - 1;
        const uint32_t n = block_ * kBlock + uint32_t(std::countr_zero(free));
        words_[n / 64] |= uint64_t{1} << (n % 64);
        ++in_use_;
        return n;
    }
    /// Returns the next free number after the last allocated number, or nullopt if all numbers are in use.
    std::optional<uint32_t> allocate() {
        if (!has_free()) return std::nullopt;
        std::optional<uint32_t> n = search(cursor_, end_);
        if (!n) n = search(first_, cursor_);
        if (!n) return std::nullopt;
        words_[*n / 64] |= uint64_t{1} << (*n % 64);
        ++in_use_;
        cursor_ = *n + 1 == end_ ? first_ : *n + 1;
        return n;
    }
    void release(uint32_t n) {
        --in_use_;
        resting_.push_back(n);
        if (resting_.size() > std::min(kMostResting, capacity() / 4)) end_rest();
    }
    uint32_t in_use() const { return in_use_; }
    uint32_t capacity() const { return first_ < end_ ? end_ - first_ : 0; }

private:
    static constexpr uint32_t kBlock = 8;
    /// Returns true if a number can be allocated. If all free numbers are held back, first releases the number that was freed
    /// first.
    bool has_free() {
        if (capacity() == in_use_) return false;
        if (capacity() == in_use_ + resting_.size()) end_rest();
        return true;
    }
    void end_rest() {
        const uint32_t n = resting_.front();
        resting_.pop_front();
        words_[n / 64] &= ~(uint64_t{1} << (n % 64));
    }
    uint32_t free_of_block() const {
        const uint32_t at = block_ * kBlock;
        return uint32_t(~words_[at / 64] >> (at % 64)) & ((1u << kBlock) - 1);
    }
    std::optional<uint32_t> search(uint32_t from, uint32_t to) const {
        for (uint32_t n = from; n < to; n = (n / 64 + 1) * 64) {
            const uint64_t free = ~words_[n / 64] & (~uint64_t{0} << (n % 64));
            if (free == 0) continue;
            const uint32_t found = n / 64 * 64 + uint32_t(std::countr_zero(free));
            return found < to ? std::optional(found) : std::nullopt;
        }
        return std::nullopt;
    }

    uint32_t first_, end_, cursor_;
    uint32_t in_use_ = 0;
    uint32_t block_ = 0;            ///< block from which allocate(random) takes numbers
    std::deque<uint32_t> resting_;  ///< freed numbers that are held back, the oldest first
    std::vector<uint64_t> words_;
};

}  // namespace roci::host
