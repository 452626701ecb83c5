#include "qp/asked.hpp"

#include <algorithm>
#include <cassert>

namespace roci::qp {
namespace {

bool contains(const Hole& hole, Psn psn) { return psn_span(hole.first, psn) < hole.length; }

}  // namespace

void Asked::add(const Part& part) {
    assert(!full());
    parts_[count_++] = part;
}

void Asked::add_next(Psn psn, Psn next, Nanos now) {
    if (count_ != 0) {
        Part& last = parts_[count_ - 1];
        if (last.hole.first + last.hole.length == psn && last.next == next && last.at == uint32_t(now) && !last.again) {
            ++last.hole.length;
            return;
        }
    }
    add({psn, 1}, next, now);
}

bool Asked::covers(Psn psn) const {
    return std::any_of(parts_.begin(), parts_.begin() + count_, [psn](const Part& p) { return contains(p.hole, psn); });
}

Hole Asked::uncovered(Hole hole) const {
    for (uint32_t i = 0; i < count_ && hole.length != 0;) {
        const Hole& asked = parts_[i].hole;
        if (!contains(asked, hole.first)) {
            ++i;
            continue;
        }
        const uint32_t known = std::min(hole.length, asked.length - psn_span(asked.first, hole.first));
        hole = {hole.first + known, hole.length - known};
        i = 0;  // starts again, because an earlier part may contain the new first PSN
    }
    for (uint32_t i = 0; i < count_; ++i)
        if (contains(hole, parts_[i].hole.first)) hole.length = psn_span(hole.first, parts_[i].hole.first);
    return hole;
}

void Asked::remove(uint32_t i) {
    std::copy(parts_.begin() + i + 1, parts_.begin() + count_, parts_.begin() + i);
    --count_;
}

void Asked::advance(Psn acked) {
    for (uint32_t i = 0; i < count_;) {
        const Hole& h = parts_[i].hole;
        (h.first + h.length).distance_from(acked) <= 0 ? remove(i) : void(++i);
    }
}

bool Asked::answered(Psn psn, Nanos now, Nanos least) {
    const uint32_t before = count_;
    uint32_t by = count_;  // the newest request that the packet can answer
    for (uint32_t i = 0; i < count_; ++i)
        if (contains(parts_[i].hole, psn) && !parts_[i].again && uint32_t(now) - parts_[i].at >= least) by = i;
    const bool again = by != count_;
    if (again) {
        Hole& h = parts_[by].hole;
        h = {psn + 1, h.length - psn_span(h.first, psn) - 1};
    }
    for (uint32_t i = 0; i < count_;) {
        const Part& p = parts_[i];
        const bool older = again && i < by && !p.again && psn.distance_from(p.hole.first) > 0;
        const bool done = p.hole.length == 0;
        if (older || done || psn.distance_from(p.next) >= 0) {
            remove(i);
            if (i < by) --by;
        } else {
            ++i;
        }
    }
    return count_ != before || again;
}

}  // namespace roci::qp
