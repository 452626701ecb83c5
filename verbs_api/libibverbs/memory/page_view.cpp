#include "page_view.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <algorithm>

namespace roci::memory {
namespace {

constexpr uint64_t kPresent = 1ull << 63, kExclusive = 1ull << 56, kGuard = 1ull << 58;
constexpr uint64_t kSoftDirty = 1ull << 55;   ///< in a new mapping this bit is also set for pages that were never touched
constexpr uint64_t kMost = kHugePage / 4096;  ///< maximum number of entries per look()

/// PAGEMAP_SCAN of <linux/fs.h>, which older headers do not declare.
struct FoundRange {
    uint64_t start, end, categories;
};
struct ScanArguments {
    uint64_t size, flags, start, end, walk_end, found, most_found, most_pages;
    uint64_t inverted, required, any_of, returned;
};
constexpr unsigned long kScan = _IOWR('f', 16, ScanArguments);
constexpr uint64_t kIsPresent = 1 << 3, kIsSwapped = 1 << 4;  ///< kIsSwapped: the entry is neither present nor empty

bool is_untouched(uint64_t entry) { return (entry & ~kSoftDirty) == 0; }

bool all(const uint64_t* entries, uint64_t count, uint64_t bits) {
    return std::all_of(entries, entries + count, [bits](uint64_t e) { return (e & bits) == bits; });
}

}  // namespace

PageView::PageView(bool wanted) : fd_(wanted ? ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC) : -1) {}

bool PageView::read(uint64_t address, uint64_t length, uint64_t* entries) const {
    const uint64_t bytes = length / page_size() * sizeof *entries;
    if (!fd_ || length > kMost * page_size()) return false;
    return ::pread(fd_.get(), entries, bytes, static_cast<off_t>(address / page_size() * sizeof *entries)) ==
           static_cast<ssize_t>(bytes);
}

PageView::State PageView::look(uint64_t address, uint64_t length) const {
    uint64_t entries[kMost];
    if (!read(address, length, entries)) return State::unknown;
    const uint64_t count = length / page_size();
    if (std::all_of(entries, entries + count, is_untouched)) return State::untouched;
    return all(entries, count, kPresent | kExclusive) ? State::touched : State::unknown;
}

uint64_t PageView::bytes_at_once(uint64_t address, uint64_t length) const {
    constexpr uint64_t kLeastPages = 16;  // to read and copy fewer pages is faster than to move them separately
    uint64_t entries[kMost];
    if (!read(address, length, entries)) return length;
    const uint64_t count = length / page_size();
    uint64_t run = 0;
    for (uint64_t i = 0; i <= count; i++) {
        if (i < count && is_untouched(entries[i])) {
            run++;
            continue;
        }
        if (run >= kLeastPages) return (run == i ? run : i - run) * page_size();
        run = 0;
    }
    return length;
}

uint64_t PageView::untouched_bytes(uint64_t address, uint64_t length) const {
    FoundRange first{};
    ScanArguments scan{};
    scan.size = sizeof scan;
    scan.start = address;
    scan.end = address + length;
    scan.found = reinterpret_cast<uint64_t>(&first);
    scan.most_found = 1;
    scan.most_pages = 1;  // otherwise the kernel walks to the end of the first run of touched pages
    scan.any_of = scan.returned = kIsPresent | kIsSwapped;
    const int n = fd_ ? ::ioctl(fd_.get(), kScan, &scan) : -1;
    if (n < 0) return 0;
    return n == 0 ? length : first.start - address;
}

/// The freezer changes the pagemap entries of all untouched pages in the same way, so the entries of untouched pages are equal.
/// If a page was touched since look(), its entry has the present bit, because the kernel does not swap out a page so soon.
bool PageView::holds_nothing(uint64_t address, uint64_t length) const {
    uint64_t entries[kMost];
    if (!read(address, length, entries) || (entries[0] & (kPresent | kGuard)) != 0) return false;
    return std::all_of(entries, entries + length / page_size(), [&](uint64_t e) { return e == entries[0]; });
}

}  // namespace roci::memory
