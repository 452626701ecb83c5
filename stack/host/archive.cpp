#include <algorithm>

#include "host/qp_facts.hpp"

namespace roci::host {

void Archive::keep(QpFacts facts) {
    const auto of_user = [uid = facts.uid](const QpFacts& f) { return f.uid == uid; };
    if (size_t(std::ranges::count_if(all_, of_user)) >= kMostOfUser) all_.erase(std::ranges::find_if(all_, of_user));
    if (all_.size() >= kMost) all_.pop_front();
    all_.push_back(std::move(facts));
}

const QpFacts* Archive::find(uint32_t qpn) const {
    const auto found = std::find_if(all_.rbegin(), all_.rend(), [&](const QpFacts& f) { return f.qpn == qpn; });
    return found == all_.rend() ? nullptr : &*found;
}

}  // namespace roci::host
