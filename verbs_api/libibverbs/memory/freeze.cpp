#include "freeze.hpp"

#include <atomic>
#include <cstdlib>
#include <string_view>

namespace roci::memory {
namespace {

constexpr int kUnread = -1;
std::atomic<int> wanted{kUnread};

Way read_way() {
    const char* text = std::getenv("ROCI_ADOPT");
    const std::string_view value = text ? text : "";
    if (value == "uffd") return Way::uffd;
    if (value == "mprotect") return Way::mprotect;
    if (value == "never") return Way::never;
    return Way::automatic;
}

}  // namespace

Way way_wanted() {
    int way = wanted;
    if (way == kUnread) wanted = way = static_cast<int>(read_way());
    return static_cast<Way>(way);
}

void forget_way() { wanted = kUnread; }

std::unique_ptr<Freezer> make_freezer(Way& tried, KeptFd& kept) {
    const Way way = way_wanted();
    if (tried == Way::automatic) {
        tried = Way::uffd;
        auto freezer = way == Way::automatic || way == Way::uffd ? make_uffd_freezer(kept) : nullptr;
        if (freezer) return freezer;
    }
    if (tried == Way::uffd) {
        tried = Way::mprotect;
        if (way == Way::automatic || way == Way::mprotect) return make_mprotect_freezer();
    }
    return nullptr;
}

}  // namespace roci::memory
