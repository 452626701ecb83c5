#include "qp/send_times.hpp"

#include <algorithm>

namespace roci::qp {

void SendTimes::drop(uint32_t first, uint32_t n) {
    std::copy(entries_.begin() + first + n, entries_.begin() + count_, entries_.begin() + first);
    count_ -= n;
}

/// Removes entries that are older than kLongest. If even the newest entry is older, removes all entries, because their 32-bit
/// ages may have wrapped around.
void SendTimes::forget_old(Nanos now) {
    if (now - newest_ > kLongest) count_ = 0;
    while (count_ != 0 && uint32_t(now) - entries_[0].at > kLongest) drop(0, 1);
}

void SendTimes::add(Psn psn, Nanos now) {
    forget_old(now);
    if (count_ == kMost) {
        for (uint32_t i = 1; 2 * i < kMost; ++i) entries_[i] = entries_[2 * i];
        count_ = kMost / 2;
    }
    entries_[count_++] = {psn, uint32_t(now)};
    newest_ = now;
}

uint32_t SendTimes::take(Psn acked, Nanos now) {
    forget_old(now);
    uint32_t n = 0;
    while (n < count_ && acked.distance_from(entries_[n].psn) > 0) ++n;
    if (n == 0) return 0;
    const uint32_t sample = std::max(uint32_t(now) - entries_[n - 1].at, 1u);
    drop(0, n);
    return sample;
}

uint32_t SendTimes::take_one(Psn psn, Nanos now) {
    forget_old(now);
    for (uint32_t n = 0; n < count_; ++n) {
        if (entries_[n].psn != psn) continue;
        const uint32_t sample = std::max(uint32_t(now) - entries_[n].at, 1u);
        drop(n, 1);
        return sample;
    }
    return 0;
}

void SendTimes::remove(Psn begin, Psn end) {
    const auto repeated = [&](const Entry& e) { return e.psn.distance_from(begin) >= 0 && end.distance_from(e.psn) > 0; };
    count_ = uint32_t(std::remove_if(entries_.begin(), entries_.begin() + count_, repeated) - entries_.begin());
}

}  // namespace roci::qp
