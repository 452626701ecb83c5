// Selects the newest of many items, for reports of limited length. Keeps at most `most` items.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/types.hpp"

namespace roci::host {

template <class What>
class Newest {
public:
    explicit Newest(size_t most) : most_(most) { heap_.reserve(most); }

    /// Offers an item with the time `at`. If items have equal times, the item that was offered last is the newest.
    void offer(Nanos at, const What& what) {
        const Row row{at, offered_++, what};
        if (heap_.size() == most_) {
            if (row.before(heap_.front())) return;
            std::ranges::pop_heap(heap_, newer);
            heap_.pop_back();
        }
        heap_.push_back(row);
        std::ranges::push_heap(heap_, newer);
    }
    size_t held() const { return heap_.size(); }
    uint64_t left_out() const { return offered_ - heap_.size(); }
    /// Returns the selected items, the oldest first, and removes them.
    std::vector<What> take() {
        std::ranges::sort_heap(heap_, newer);  // the newest first
        std::vector<What> all;
        for (; !heap_.empty(); heap_.pop_back()) all.push_back(heap_.back().what);
        return all;
    }

private:
    struct Row {
        Nanos at;
        uint64_t order;
        What what;
        bool before(const Row& o) const { return at != o.at ? at < o.at : order < o.order; }
    };
    static bool newer(const Row& a, const Row& b) { return b.before(a); }
    size_t most_;
    uint64_t offered_ = 0;
    std::vector<Row> heap_;  ///< a heap whose front is the oldest item
};

}  // namespace roci::host
