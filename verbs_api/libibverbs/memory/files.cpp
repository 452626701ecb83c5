#include "files.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>

#include "maps.hpp"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

namespace roci::memory {
namespace {

std::atomic<uint64_t> last_id{0};

uint64_t window_bytes() { return kSlotPages * page_size(); }
uint64_t window_of(uint64_t address) { return address & ~(window_bytes() - 1); }

/// Returns the bitmap of the pages of [start, end) within their window.
uint32_t page_bits(uint64_t start, uint64_t end) {
    const uint64_t first = (start - window_of(start)) / page_size(), count = (end - start) / page_size();
    return static_cast<uint32_t>(((1ull << count) - 1) << first);
}

/// Creates a sparse memfd of constant length. rocid maps the whole file. If the file became shorter, an access of rocid beyond
/// its end would raise SIGBUS.
Fd make_memfd(uint64_t length) {
    Fd fd(::memfd_create(kMemfdName, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));
    if (!fd && errno == EINVAL) fd.reset(::memfd_create(kMemfdName, MFD_CLOEXEC | MFD_ALLOW_SEALING));  // before Linux 6.3
    if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(length)) != 0 ||
        ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
        fd.reset();
    return fd;
}

void punch(const File& file, uint64_t offset, uint64_t length) {
    ::fallocate(file.fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                static_cast<off_t>(length));
}

uint64_t max_vmas() {
    constexpr uint64_t kDefault = 65530;
    uint64_t value = kDefault;
    if (FILE* file = std::fopen("/proc/sys/vm/max_map_count", "re")) {
        if (std::fscanf(file, "%lu", &value) != 1) value = kDefault;
        std::fclose(file);
    }
    return value;
}

}  // namespace

// ---- identity -------------------------------------------------------------------------------------------------------

File* Files::find(uint64_t device, uint64_t inode, bool writable) {
    const auto [from, to] = by_identity_.equal_range({device, inode});
    for (auto it = from; it != to; ++it) {
        if (it->second->writable == writable || it->second->kind != File::Kind::foreign) return it->second;
    }
    return nullptr;
}

bool is_intact(const File& file) {
    struct stat st {};
    return file.fd && ::fstat(file.fd.get(), &st) == 0 && st.st_dev == file.device && st.st_ino == file.inode;
}

bool Files::check(File* file) {
    if (is_intact(*file)) return true;
    file->fd.release();  // the program may have reused the number of the descriptor for another file
    forget(file);
    if (file->tokens == 0) remove(file);
    return false;
}

File* Files::add(File::Kind kind, Fd fd, uint64_t device, uint64_t inode, uint64_t length, bool writable) {
    auto file = std::make_unique<File>();
    file->kind = kind;
    file->fd = std::move(fd);
    file->id = ++last_id;
    file->device = device;
    file->inode = inode;
    file->length = length;
    file->writable = writable;
    by_identity_.emplace(Identity{device, inode}, file.get());
    files_.push_back(std::move(file));
    return files_.back().get();
}

File* Files::add_foreign(Fd fd, uint64_t device, uint64_t inode, uint64_t length, bool writable) {
    return add(File::Kind::foreign, std::move(fd), device, inode, length, writable);
}

File* Files::make(File::Kind kind, uint64_t length) {
    Fd fd = make_memfd(length);
    struct stat st {};
    if (!fd || ::fstat(fd.get(), &st) != 0) return nullptr;
    File* file = add(kind, std::move(fd), st.st_dev, st.st_ino, length, true);
    if (kind == File::Kind::pool) {
        file->slots.resize(kPoolSlots);
        file->free_slots = kPoolSlots;
    }
    return file;
}

/// Removes the file from the tables by_identity_ and windows_. The file's mappings and pins remain.
void Files::forget(File* file) {
    std::erase_if(by_identity_, [&](const auto& entry) { return entry.second == file; });
    std::erase_if(windows_, [&](const auto& entry) { return entry.second.file == file; });
}

void Files::remove(File* file) {
    forget(file);
    std::erase_if(files_, [&](const auto& f) { return f.get() == file; });
}

void Files::remove_unused(File* file) {
    if (file->kind == File::Kind::foreign && file->tokens == 0) remove(file);
}

// ---- space ----------------------------------------------------------------------------------------------------------

uint64_t Files::place(uint64_t address, uint64_t length, std::vector<Placement>& out) {
    placements_++;
    placed_pages_ += length / page_size();
    if (length >= kOwnFileBytes) {
        // The offset in the file and the address are equal modulo kHugePage, so that the kernel can map huge pages of the file.
        const uint64_t lead = address % kHugePage;
        if (File* file = make(File::Kind::own, lead + length)) {
            file->pages = length / page_size();
            out.push_back({file, lead, address, length});
            return length;
        }
    }
    return place_in_pools(address, address + length, out);
}

uint64_t Files::place_in_pools(uint64_t address, uint64_t end, std::vector<Placement>& out) {
    const uint64_t width = window_bytes();
    uint64_t at = address;
    while (at < end) {
        const uint64_t window = window_of(at);
        if (const WindowSlot* slot = usable_slot(window, at, end)) {
            place_in_slot(*slot, at, end, out);
            at = window + width;
            continue;
        }
        uint64_t count = 1;
        while (count < kPoolSlots && window + count * width < end &&
               !usable_slot(window + count * width, window + count * width, end))
            count++;
        WindowSlot first{};
        if (!take_slots(window, count, first)) {
            count = 1;
            if (!take_free_slots(window, count, first)) break;
        }
        for (uint64_t i = 0; i < count; i++, at = window + i * width) {
            const WindowSlot slot{first.file, first.slot + i};
            windows_[window + i * width] = slot;
            slot.file->slots[slot.slot].window = window + i * width;
            slot.file->free_slots--;
            place_in_slot(slot, at, end, out);
        }
    }
    return std::min(at, end) - address;
}

/// Returns the slot of a window. Returns nullptr if the window has no slot, or if one of the requested pages of the slot is
/// already used. A used page may still be pinned, or be mapped at another address (mremap).
const Files::WindowSlot* Files::usable_slot(uint64_t window, uint64_t address, uint64_t end) const {
    const auto it = windows_.find(window);
    if (it == windows_.end()) return nullptr;
    const uint32_t wanted = page_bits(address, std::min(end, window + window_bytes()));
    return it->second.file->slots[it->second.slot].used & wanted ? nullptr : &it->second;
}

void Files::place_in_slot(const WindowSlot& where, uint64_t address, uint64_t end, std::vector<Placement>& out) {
    const uint64_t window = window_of(address), stop = std::min(end, window + window_bytes());
    where.file->slots[where.slot].used |= page_bits(address, stop);
    where.file->pages += (stop - address) / page_size();
    const uint64_t offset = where.slot * window_bytes() + (address - window);
    if (!out.empty()) {
        Placement& last = out.back();
        if (last.file == where.file && last.offset + last.length == offset && last.address + last.length == address) {
            last.length += stop - address;
            return;
        }
    }
    out.push_back({where.file, offset, address, stop - address});
}

namespace {

bool slots_free(const File& pool, uint64_t first, uint64_t count) {
    if (first + count > kPoolSlots) return false;
    for (uint64_t i = first; i < first + count; i++) {
        if (pool.slots[i].window != 0 || pool.slots[i].tokens != 0) return false;
    }
    return true;
}

/// Finds `count` adjacent free slots. Prefers the slots whose offset in the file equals `window` modulo the length of the file.
/// Then windows that are adjacent in memory are also adjacent in the file, whichever window gets its slot first.
bool find_slots(File& pool, uint64_t window, uint64_t count, uint64_t& first) {
    const uint64_t preferred = window / window_bytes() % kPoolSlots;
    if (slots_free(pool, preferred, count)) {
        first = preferred;
        return true;
    }
    uint64_t run = 0;
    for (uint64_t step = 0; step < kPoolSlots + count; step++) {
        const uint64_t i = (pool.next_slot + step) % kPoolSlots;
        if (i == 0) run = 0;
        run = slots_free(pool, i, 1) ? run + 1 : 0;
        if (run < count) continue;
        first = i + 1 - count;
        pool.next_slot = (i + 1) % kPoolSlots;
        return true;
    }
    return false;
}

}  // namespace

/// Allocates `count` adjacent slots. If possible, allocates the slots after the slot of the preceding window or before the slot
/// of the following window, so that adjacent memory remains one VMA and one piece. The kernel places mappings from high to low
/// addresses, so the following window is often the older one. Otherwise uses other free slots or creates a new pool file.
bool Files::take_slots(uint64_t window, uint64_t count, WindowSlot& first) {
    const auto before = windows_.find(window - window_bytes());
    if (before != windows_.end() && slots_free(*before->second.file, before->second.slot + 1, count)) {
        first = {before->second.file, before->second.slot + 1};
        first.file->next_slot = (first.slot + count) % kPoolSlots;
        return true;
    }
    const auto after = windows_.find(window + count * window_bytes());
    if (after != windows_.end() && after->second.slot >= count &&
        slots_free(*after->second.file, after->second.slot - count, count)) {
        first = {after->second.file, after->second.slot - count};
        return true;
    }
    return take_free_slots(window, count, first) ||
           (make(File::Kind::pool, kPoolSlots * window_bytes()) && take_free_slots(window, count, first));
}

bool Files::take_free_slots(uint64_t window, uint64_t count, WindowSlot& first) {
    for (auto it = files_.rbegin(); it != files_.rend(); ++it) {
        File& file = **it;
        if (file.kind != File::Kind::pool || !file.fd || file.free_slots < count || !find_slots(file, window, count, first.slot))
            continue;
        first.file = &file;
        return true;
    }
    return false;
}

void Files::unplace(const Placement& placement) {
    File& file = *placement.file;
    if (file.kind == File::Kind::own) {
        // If no part of the file is used, remove() deletes the file. Otherwise the file keeps its length and has a hole.
        if (placement.offset % kHugePage + placement.length == file.length) remove(&file);
        return;
    }
    for (uint64_t at = placement.offset; at < placement.offset + placement.length;) {
        const uint64_t stop = std::min(placement.offset + placement.length, window_of(at) + window_bytes());
        file.slots[at / window_bytes()].used &= ~page_bits(at, stop);
        file.pages -= (stop - at) / page_size();
        at = stop;
    }
}

void Files::note_mapped(File& file, uint64_t offset, uint64_t length) {
    if (file.kind != File::Kind::pool) return;
    constexpr uint64_t kNoWindow = 1;  // marks a slot that is in use but has no window; no window starts at address 1
    const uint64_t end = std::min(offset + length, file.length);
    for (uint64_t at = offset; at < end;) {
        const uint64_t stop = std::min(end, window_of(at) + window_bytes());
        Slot& slot = file.slots[at / window_bytes()];
        const uint32_t strangers = page_bits(at, stop) & ~slot.used;
        if (strangers) {
            slot.used |= strangers;
            file.pages += static_cast<uint64_t>(std::popcount(strangers));
            if (slot.window == 0) {
                slot.window = kNoWindow;
                file.free_slots--;
            }
        }
        at = stop;
    }
}

// ---- pins -----------------------------------------------------------------------------------------------------------

void Files::pin(const Use& use) {
    use.file->tokens++;
    if (use.file->kind != File::Kind::pool) return;
    for (uint64_t i = use.offset / window_bytes(); i * window_bytes() < use.offset + use.length; i++) use.file->slots[i].tokens++;
}

void Files::unpin(const Use& use) {
    File* file = use.file;
    if (file->kind == File::Kind::pool) {
        for (uint64_t i = use.offset / window_bytes(); i * window_bytes() < use.offset + use.length; i++) file->slots[i].tokens--;
    }
    if (--file->tokens > 0) return;
    file->released = ++releases_;
    if (file->kind == File::Kind::foreign || !file->fd) remove(file);
}

uint64_t Files::idle_bytes() const {
    uint64_t pages = 0;
    for (const auto& file : files_) {
        if (file->tokens == 0) pages += file->pages;
    }
    return pages * page_size();
}

void Files::give_up_idle(uint64_t bytes) {
    if (idle_bytes() <= bytes) return;
    collect();
    while (idle_bytes() > bytes) {
        File* oldest = nullptr;
        for (const auto& file : files_) {
            if (file->tokens == 0 && (!oldest || file->released < oldest->released)) oldest = file.get();
        }
        remove(oldest);
    }
}

// ---- collecting unused pages ----------------------------------------------------------------------------------------

bool Files::collect_due() const {
    constexpr uint64_t kLeastPages = 4096, kMostPlacements = 8192;
    return placed_pages_ > std::max(kLeastPages, live_pages_) || placements_ > kMostPlacements;
}

bool Files::vmas_left() {
    static const uint64_t limit = max_vmas() / 4 * 3;
    constexpr uint64_t kVmasAPlacement = 3, kRetry = 1024;
    if (vmas_ + kVmasAPlacement * placements_ < limit) return true;
    if (refusals_ > 0 && refusals_++ % kRetry != 0) return false;
    collect();
    const bool left = vmas_ < limit;
    refusals_ = left ? 0 : std::max<uint64_t>(refusals_, 1);
    return left;
}

/// Marks all mapped pages of own and pool files. Returns false if the function could not read the kernel's table of mappings
/// completely.
bool Files::mark_mapped() {
    char buffer[4096];
    MapsText maps(buffer);
    Vma vma;
    vmas_ = 0;
    while (maps.next(vma)) {
        vmas_++;
        File* file = vma.shared && vma.inode != 0 ? find(vma.device, vma.inode, true) : nullptr;
        if (!file || file->kind == File::Kind::foreign) continue;
        file->mapped = true;
        note_mapped(*file, vma.offset, vma.end - vma.start);
        const uint64_t end = std::min(vma.offset + (vma.end - vma.start), file->slots.size() * window_bytes());
        for (uint64_t at = vma.offset; at < end;) {
            const uint64_t stop = std::min(end, window_of(at) + window_bytes());
            file->mapped_pages[at / window_bytes()] |= page_bits(at, stop);
            at = stop;
        }
    }
    return !maps.failed();
}

void Files::collect_pool(File& pool) {
    const uint64_t page = page_size();
    for (uint64_t i = 0; i < pool.slots.size(); i++) {
        Slot& slot = pool.slots[i];
        const uint32_t dead = slot.used & ~pool.mapped_pages[i];
        if (slot.window == 0 || slot.tokens != 0) continue;
        for (uint32_t bits = dead; bits != 0;) {
            const unsigned first = static_cast<unsigned>(std::countr_zero(bits)),
                           run = static_cast<unsigned>(std::countr_one(bits >> first));
            punch(pool, i * window_bytes() + first * page, run * page);
            bits &= ~static_cast<uint32_t>(((1ull << run) - 1) << first);
        }
        slot.used &= ~dead;
        pool.pages -= static_cast<uint64_t>(std::popcount(dead));
        if (slot.used != 0) continue;
        const auto it = windows_.find(slot.window);
        if (it != windows_.end() && it->second.file == &pool && it->second.slot == i) windows_.erase(it);
        slot.window = 0;
        pool.free_slots++;
    }
}

void Files::collect() {
    std::vector<File*> pools, dead;
    for (const auto& file : files_) {
        file->mapped = false;
        file->mapped_pages.assign(file->slots.size(), 0);
        if (file->kind == File::Kind::pool && file->fd) pools.push_back(file.get());
    }
    // If another thread moves a mapping during the first pass, the pass may miss the mapping, and the mapping would lose its
    // pages. So there are two passes.
    if (!mark_mapped() || !mark_mapped()) return;
    for (File* pool : pools) {
        if (check(pool)) collect_pool(*pool);
    }
    live_pages_ = 0;
    for (const auto& file : files_) {
        const bool empty = file->kind == File::Kind::pool ? file->pages == 0 : file->kind == File::Kind::own && !file->mapped;
        if (empty && file->tokens == 0)
            dead.push_back(file.get());
        else
            live_pages_ += file->pages;
    }
    for (File* file : dead) remove(file);
    placed_pages_ = placements_ = 0;
}

uint64_t Files::adopted_bytes() const {
    uint64_t pages = 0;
    for (const auto& file : files_) pages += file->pages;
    return pages * page_size();
}

}  // namespace roci::memory
