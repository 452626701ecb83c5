#include "qp/read_cuts.hpp"

#include <algorithm>

namespace roci::qp {

bool ReadCuts::begins(Psn psn) const { return std::find(cuts_.begin(), cuts_.begin() + count_, psn) != cuts_.begin() + count_; }

Psn ReadCuts::end_of_request(Psn psn, Psn end) const {
    for (uint32_t i = 0; i < count_; ++i)
        if (cuts_[i].distance_from(psn) > 0) return cuts_[i].distance_from(end) < 0 ? cuts_[i] : end;
    return end;
}

bool ReadCuts::advance(Psn acked) {
    uint32_t passed = 0;
    while (passed < count_ && cuts_[passed].distance_from(acked) < 0) ++passed;
    std::copy(cuts_.begin() + passed, cuts_.begin() + count_, cuts_.begin());
    count_ = uint8_t(count_ - passed);
    return count_ != 0 && cuts_[0] == acked;
}

const char* ReadCuts::check(Psn acked, Psn sent) const {
    for (uint32_t i = 0; i < count_; ++i) {
        if (cuts_[i].distance_from(acked) < 0 || cuts_[i].distance_from(sent) > 0)
            return "a READ is cut where nothing is outstanding";
        if (i != 0 && cuts_[i].distance_from(cuts_[i - 1]) <= 0) return "the cuts of READs are not in order";
    }
    return nullptr;
}

}  // namespace roci::qp
