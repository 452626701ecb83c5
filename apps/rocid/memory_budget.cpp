#include "memory_budget.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace roci::rocid {
namespace {

constexpr uint64_t kMiB = 1 << 20;
/// Returns the part of a limit that requests may not use. This part remains for the kernel and for allocations that no request
/// causes.
uint64_t reserve_of(uint64_t limit) { return std::min(32 * kMiB, limit / 8); }

}  // namespace

struct MemoryBudget::Version {
    std::string_view controller;  ///< its name in the second field of a line of /proc/self/cgroup
    std::string_view mount;       ///< below the mount point
    std::string_view limit, used;
    std::string_view
        reclaimable[2];  ///< lines of memory.stat that count file pages: the kernel frees these pages before memory runs out
};

namespace {

constexpr MemoryBudget::Version kVersions[] = {
    {"", "", "/memory.max", "/memory.current", {"inactive_file", "active_file"}},
    {"memory", "/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}},
};

/// Returns the path of the process's control group in the hierarchy with this controller. The file `membership` has lines such as
/// "4:memory:/path" or "0::/path". Returns "" if no line matches.
std::string group_of(const std::string& membership, std::string_view controller) {
    std::ifstream in(membership);
    for (std::string line; std::getline(in, line);) {
        const size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
        if (names.find("," + std::string(controller) + ",") != std::string::npos) return line.substr(second + 1);
    }
    return {};
}

/// Returns the limit in a file. Returns no value if the file does not exist or contains no limit ("max", or at least 2^60).
std::optional<uint64_t> limit_in(const std::string& path) {
    constexpr uint64_t kNone = uint64_t{1} << 60;
    uint64_t value = 0;
    std::ifstream in(path);
    return in >> value && value < kNone ? std::optional(value) : std::nullopt;
}

uint64_t reclaimable_in(const std::string& folder, const MemoryBudget::Version& version) {
    std::ifstream in(folder + "/memory.stat");
    uint64_t sum = 0;
    std::string name;
    for (uint64_t value = 0; in >> name >> value;)
        if (name == version.reclaimable[0] || name == version.reclaimable[1]) sum += value;
    return sum;
}

}  // namespace

MemoryBudget::MemoryBudget(std::string mount, std::string membership, std::function<Nanos()> now)
    : mount_(std::move(mount)), membership_(std::move(membership)), now_(std::move(now)) {
    read_limits();
}

MemoryBudget::~MemoryBudget() { forget(); }

void MemoryBudget::forget() {
    for (const Level& l : levels_) close(l.used);
    levels_.clear();
}

void MemoryBudget::refresh() {
    if (now_() >= limits_read_at_ + kAge) read_limits();
}

void MemoryBudget::read_limits() {
    forget();
    limits_read_at_ = now_();
    for (const Version& v : kVersions) {
        std::string at = group_of(membership_, v.controller);
        if (at.empty()) continue;
        for (; at.size() > 1; at.resize(at.rfind('/'))) look(v, at);
        look(v, "");  // in a container, the mount point is the container's own control group
    }
}

void MemoryBudget::look(const Version& version, const std::string& group) {
    const std::string folder = mount_ + std::string(version.mount) + group;
    const auto limit = limit_in(folder + std::string(version.limit));
    if (!limit) return;
    const int fd = open((folder + std::string(version.used)).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd >= 0) levels_.push_back({&version, folder, *limit, fd});
}

uint64_t MemoryBudget::Level::available(Nanos now) const {
    char text[32] = {};
    const ssize_t n = pread(used, text, sizeof text - 1, 0);
    uint64_t bytes = 0;
    if (n <= 0 || std::from_chars(text, text + n, bytes).ec != std::errc{}) return limit;
    const uint64_t left = limit - std::min(bytes, limit);
    // Reading memory.stat is slow. So rocid reads this file only if less than a quarter of the limit is left, and at most once
    // per kAge.
    if (left > limit / 4) return left;
    if (!read_at || now >= *read_at + kAge) {
        reclaimable = reclaimable_in(folder, *version);
        read_at = now;
    }
    return std::min(limit, left + reclaimable);
}

std::optional<uint64_t> MemoryBudget::available() const {
    std::optional<uint64_t> least;
    for (const Level& l : levels_) least = std::min(least.value_or(UINT64_MAX), l.available(now_()));
    return least;
}

std::optional<uint64_t> MemoryBudget::available_above_quarter() const {
    std::optional<uint64_t> least;
    for (const Level& l : levels_) {
        const uint64_t left = l.available(now_());
        least = std::min(least.value_or(UINT64_MAX), left - std::min(left, l.limit / 4));
    }
    return least;
}

bool MemoryBudget::allows(uint64_t bytes, std::string& why) const {
    for (const Level& l : levels_) {
        const uint64_t left = l.available(now_()), reserve = reserve_of(l.limit);
        if (left >= reserve && left - reserve >= bytes) continue;
        why = fmt::format(
            "the memory limit of rocid's control group is {} MiB, and {} MiB are left, of which rocid keeps {}: raise memory.max "
            "(MemoryMax= "
            "of the service), or end programs",
            l.limit / kMiB, left / kMiB, reserve / kMiB);
        return false;
    }
    return true;
}

}  // namespace roci::rocid
