#include "sigbus_guard.hpp"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <cerrno>

namespace roci::rocid {
namespace {

constexpr size_t kPage = 4096;

void on_sigbus(int signal_number, siginfo_t* info, void*) {
    const int saved = errno;
    if (!SigbusGuard::instance().handle(reinterpret_cast<uintptr_t>(info->si_addr))) {
        // The address belongs to no mapping of the table, or the mapping could not be replaced. So the default action is
        // restored. The faulting instruction then runs again and ends the process with a core dump.
        struct sigaction standard {};
        standard.sa_handler = SIG_DFL;
        sigaction(signal_number, &standard, nullptr);
    }
    errno = saved;
}

}  // namespace

SigbusGuard& SigbusGuard::instance() {
    static SigbusGuard guard;
    return guard;
}

SigbusGuard::SigbusGuard() : event_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    make_reserve();
    struct sigaction a {};
    a.sa_sigaction = on_sigbus;
    a.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGBUS, &a, nullptr);
}

/// Creates the reserve of mappings. Adjacent pages have different rights, so that each page is a separate mapping.
void SigbusGuard::make_reserve() {
    void* p = mmap(nullptr, kReserve * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return;
    reserve_ = static_cast<std::byte*>(p);
    for (size_t i = 1; i < kReserve; i += 2) mprotect(reserve_ + i * kPage, kPage, PROT_READ);
    reserve_left_ = kReserve;
}

bool SigbusGuard::give_up_one() {
    size_t left = reserve_left_.load(std::memory_order_relaxed);
    do
        if (left == 0) return false;
    while (!reserve_left_.compare_exchange_weak(left, left - 1, std::memory_order_relaxed));
    return munmap(reserve_ + (left - 1) * kPage, kPage) == 0;
}

bool SigbusGuard::add_block() {
    if (used_blocks_ == kBlocks) return false;
    auto* fresh = new Block;  // never freed, because the handler may read it at any time
    for (size_t i = kPerBlock; i-- > 0;) free_.push_back(&fresh->entries[i]);
    blocks_[used_blocks_++].store(fresh, std::memory_order_release);
    return true;
}

void SigbusGuard::write(Entry& e, uintptr_t base, uint64_t length, mem::MappedRegion* region, HoleFiller::Credit* credit) {
    e.version.fetch_add(1, std::memory_order_seq_cst);
    e.base.store(base, std::memory_order_seq_cst);
    e.length.store(length, std::memory_order_seq_cst);
    e.region.store(region, std::memory_order_seq_cst);
    e.credit.store(credit, std::memory_order_seq_cst);
    e.version.fetch_add(1, std::memory_order_seq_cst);
}

bool SigbusGuard::add(mem::MappedRegion& region, uint64_t mapped_length, HoleFiller::Credit* credit) {
    const std::lock_guard lock(mutex_);
    if (free_.empty() && !add_block()) return false;
    Entry* e = free_.back();
    free_.pop_back();
    const auto base = reinterpret_cast<uintptr_t>(region.base);
    by_base_[base] = e;
    write(*e, base, mapped_length, &region, credit);
    return true;
}

HoleFiller::Credit* SigbusGuard::remove(const mem::MappedRegion& region) {
    const std::lock_guard lock(mutex_);
    const auto it = by_base_.find(reinterpret_cast<uintptr_t>(region.base));
    if (it == by_base_.end()) return nullptr;
    HoleFiller::Credit* credit = it->second->credit.load(std::memory_order_relaxed);
    write(*it->second, 0, 0, nullptr, nullptr);
    free_.push_back(it->second);
    by_base_.erase(it);
    return credit;
}

/// Replaces the whole mapping by zero pages, because further pages may be missing. Can fail at the kernel's limit of mappings.
bool SigbusGuard::cover(uintptr_t base, uint64_t length) {
    do {
        if (mmap(reinterpret_cast<void*>(base), length, PROT_READ | PROT_WRITE,
                 MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED)
            return true;
    } while (errno == ENOMEM && give_up_one());
    return false;
}

bool SigbusGuard::handle(uintptr_t address) {
    for (auto& b : blocks_) {
        Block* block = b.load(std::memory_order_acquire);
        if (block == nullptr) return false;
        for (Entry& e : block->entries) {
            const uint32_t before = e.version.load(std::memory_order_seq_cst);
            const uintptr_t base = e.base.load(std::memory_order_seq_cst);
            const uint64_t length = e.length.load(std::memory_order_seq_cst);
            mem::MappedRegion* region = e.region.load(std::memory_order_seq_cst);
            HoleFiller::Credit* credit = e.credit.load(std::memory_order_seq_cst);
            // Skips an entry that another thread is changing. The entry of an accessed mapping does not change.
            if ((before & 1) != 0 || before != e.version.load(std::memory_order_seq_cst)) continue;
            if (base == 0 || address < base || address - base >= length) continue;
            if (HoleFiller* filler = filler_.load(std::memory_order_acquire); filler != nullptr && filler->fill(address, credit))
                return true;
            region->poisoned.store(true, std::memory_order_seq_cst);
            poisoned_.fetch_add(1, std::memory_order_relaxed);
            const bool covered = cover(base, length);
            eventfd_write(event_fd_, 1);
            return covered;
        }
    }
    return false;
}

}  // namespace roci::rocid
