#include "qp/send_queue.hpp"

namespace roci::qp {
namespace {

/// Checks that the PSNs of the records are contiguous. A local operation has no PSN.
const char* check_records(const SendRecord* oldest, uint32_t length, uint32_t reads, Psn end) {
    uint32_t outstanding = 0, count = 0;
    for (const SendRecord* r = oldest; r != nullptr; r = r->next) {
        outstanding += r->outstanding;
        ++count;
        const Psn after = r->next != nullptr ? r->next->first_psn : end;
        if (r->first_psn + r->packets != after) return "a work request does not begin where the one before it ends";
    }
    if (count != length) return "the list of work requests is not as long as the queue";
    if (outstanding != reads) return "the count of outstanding READs is wrong";
    return nullptr;
}

}  // namespace

const char* SendQueue::check(const SendWindow& window) const {
    if (cursor_ - tail_ > length()) return "the cursor is not between the oldest and the newest work request";
    if ((current_ == nullptr) != all_sent()) return "the cursor has no record, or one too many";
    if (const char* wrong = check_records(oldest_, length(), reads_outstanding_, window.allocated())) return wrong;
    const Psn at = current_ != nullptr ? current_->first_psn + packet_ : window.allocated();
    if (at != window.next()) return "the cursor is not at the next PSN";
    if (empty()) return window.acked() == window.allocated() ? nullptr : "a PSN of no work request is awaited";
    if (!window.acked().in_window(oldest_->first_psn, oldest_->packets + 1)) return "the oldest work request is acknowledged";
    return nullptr;
}

}  // namespace roci::qp
