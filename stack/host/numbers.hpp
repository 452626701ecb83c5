// Allocates numbers. A freed number is reused as late as possible, so that a late packet or a stale handle does not match a new
// object.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

namespace roci::host {

/// Numbers in [first, end), next-fit over a bitmap: each search starts after the last allocated number.
class NumberPool {
public:
    NumberPool(uint32_t first, uint32_t end) : first_(first), end_(end), cursor_(first), words_((size_t(end) + 63) / 64, 0) {
        for (uint32_t n = 0; n < words_.size() * 64; ++n)
            if (n < first_ || n >= end_) words_[n / 64] |= uint64_t{1} << (n % 64);  // never free
    }

    /// A free number that clients cannot predict without `random`. Numbers come in random blocks, because the entries of a block
    /// share a cache line in the tables that engines read; within a block they come in random order.
    std::optional<uint32_t> allocate(uint64_t random) {
        if (capacity() == in_use_) return std::nullopt;
        // Each number of a block once per visit: a program that frees what it takes would else get the same few numbers again
        // soon.
        if ((left_ &= free_of_block()) == 0) {
            cursor_ = first_ + uint32_t(random % capacity());
            const auto n = search(cursor_, end_);
            block_ = (n ? *n : *search(first_, cursor_)) / kBlock;
            left_ = free_of_block();
        }
        uint32_t free = left_;
        for (uint32_t skip = uint32_t(random >> 32) % uint32_t(std::popcount(free)); skip != 0; --skip) free &= free - 1;
        const uint32_t n = block_ * kBlock + uint32_t(std::countr_zero(free));
        left_ &= ~(1u << n % kBlock);
        words_[n / 64] |= uint64_t{1} << (n % 64);
        ++in_use_;
        return n;
    }
    /// The next free number, or nothing if all are in use.
    std::optional<uint32_t> allocate() {
        if (first_ >= end_ || in_use_ == end_ - first_) return std::nullopt;
        std::optional<uint32_t> n = search(cursor_, end_);
        if (!n) n = search(first_, cursor_);
        if (!n) return std::nullopt;
        words_[*n / 64] |= uint64_t{1} << (*n % 64);
        ++in_use_;
        cursor_ = *n + 1 == end_ ? first_ : *n + 1;
        return n;
    }
    void release(uint32_t n) {
        words_[n / 64] &= ~(uint64_t{1} << (n % 64));
        --in_use_;
    }
    uint32_t in_use() const { return in_use_; }
    uint32_t capacity() const { return first_ < end_ ? end_ - first_ : 0; }

private:
    static constexpr uint32_t kBlock = 8;
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
    uint32_t block_ = 0;  ///< that random numbers are taken from
    uint32_t left_ = 0;   ///< of block_, a bit per number
    std::vector<uint64_t> words_;
};

}  // namespace roci::host
