// The list of tagged buffers, in the order in which the client posted them.
#include "qp/tag_matching.hpp"

namespace roci::qp {
namespace {

constexpr uint32_t index_of(uint32_t handle) { return handle & 0xffff; }

}  // namespace

bool TagList::add(const TagEntry& entry) {
    const uint32_t i = index_of(entry.handle);
    if (i >= entries_.size() || entries_[i].listed) return false;
    TagEntry& e = entries_[i] = entry;
    e.listed = true;
    e.prev = last_;
    e.next = TagEntry::kNone;
    (last_ != TagEntry::kNone ? entries_[last_].next : first_) = i;
    last_ = i;
    if (e.waits) ++waiting_;
    return true;
}

TagEntry* TagList::find(uint32_t handle) {
    const uint32_t i = index_of(handle);
    if (i >= entries_.size()) return nullptr;
    return entries_[i].listed && entries_[i].handle == handle ? &entries_[i] : nullptr;
}

TagEntry* TagList::match(uint64_t tag) {
    for (uint32_t i = first_; i != TagEntry::kNone; i = entries_[i].next) {
        TagEntry& e = entries_[i];
        // all waiting entries are at the end of the list
        if (e.waits) return nullptr;
        if ((tag & e.mask) == e.tag) return &e;
    }
    return nullptr;
}

void TagList::remove(TagEntry& entry) {
    (entry.prev != TagEntry::kNone ? entries_[entry.prev].next : first_) = entry.next;
    (entry.next != TagEntry::kNone ? entries_[entry.next].prev : last_) = entry.prev;
    if (entry.waits) --waiting_;
    entry.listed = entry.waits = false;
}

void TagList::release_waiting() {
    for (uint32_t i = last_; waiting_ != 0; i = entries_[i].prev) {
        if (!entries_[i].waits) continue;
        entries_[i].waits = false;
        --waiting_;
    }
}

}  // namespace roci::qp
