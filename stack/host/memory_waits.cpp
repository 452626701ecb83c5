#include "host/memory_waits.hpp"

#include <algorithm>

namespace roci::host {

void MemoryWaits::free_later(Region region, std::shared_ptr<mem::RemoteProcess> process) {
    if (region == nullptr || !in_use(*region)) return;
    buried_.push_back({std::move(process), std::move(region)});
    due_ = std::min(due_, Nanos{0});
}

/// If look() has just returned a request of the same session, the polling interval stays as it is. Otherwise the request is new,
/// and the interval restarts at kFirst.
void MemoryWaits::hold(Nanos now, MemoryWait request) {
    const uint32_t session = request.session;
    forget(session);
    requests_.push_back(std::move(request));
    if (std::erase(looked_, session) == 0) pause_ = kFirst;
    due_ = std::min(due_, now + pause_);
}

void MemoryWaits::forget(uint32_t session) {
    std::erase_if(requests_, [session](const MemoryWait& w) { return w.session == session; });
}

std::vector<MemoryWait> MemoryWaits::look(Nanos now) {
    if (now < due_) return {};
    std::erase_if(buried_, [](const Buried& b) { return !in_use(*b.region); });
    const bool more = !buried_.empty() || !requests_.empty();
    due_ = more ? now + pause_ : kNever;
    pause_ = more ? std::min(2 * pause_, kLast) : kFirst;
    looked_.clear();
    for (const MemoryWait& w : requests_) looked_.push_back(w.session);
    return std::exchange(requests_, {});
}

}  // namespace roci::host
