#include "sigbus_guard.hpp"

#include <signal.h>
#include <sys/mman.h>

#include <cerrno>

namespace roci::rocid {
namespace {

void on_sigbus(int signal_number, siginfo_t* info, void*) {
    const int saved = errno;
    if (!SigbusGuard::instance().handle(reinterpret_cast<uintptr_t>(info->si_addr))) {
        // Not ours: the faulting instruction runs again and ends the process in the default way, with a core.
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

SigbusGuard::SigbusGuard() {
    struct sigaction a {};
    a.sa_sigaction = on_sigbus;
    a.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGBUS, &a, nullptr);
}

SigbusGuard::Entry* SigbusGuard::find_entry(uintptr_t base) {
    for (auto& b : blocks_) {
        Block* block = b.load(std::memory_order_acquire);
        if (block == nullptr) return nullptr;
        for (Entry& e : block->entries)
            if (e.base.load(std::memory_order_relaxed) == base) return &e;
    }
    return nullptr;
}

SigbusGuard::Entry* SigbusGuard::free_entry() {
    if (Entry* e = find_entry(0)) return e;
    for (auto& b : blocks_) {
        if (b.load(std::memory_order_relaxed) != nullptr) continue;
        auto* fresh = new Block;  // kept for ever: the handler may be looking at it
        b.store(fresh, std::memory_order_release);
        return &fresh->entries[0];
    }
    return nullptr;
}

void SigbusGuard::write(Entry& e, uintptr_t base, uint64_t length, mem::MappedRegion* region) {
    e.version.fetch_add(1, std::memory_order_seq_cst);
    e.base.store(base, std::memory_order_seq_cst);
    e.length.store(length, std::memory_order_seq_cst);
    e.region.store(region, std::memory_order_seq_cst);
    e.version.fetch_add(1, std::memory_order_seq_cst);
}

bool SigbusGuard::add(mem::MappedRegion& region, uint64_t mapped_length) {
    const std::lock_guard lock(mutex_);
    Entry* e = free_entry();
    if (e == nullptr) return false;
    write(*e, reinterpret_cast<uintptr_t>(region.base), mapped_length, &region);
    return true;
}

void SigbusGuard::remove(const mem::MappedRegion& region) {
    const std::lock_guard lock(mutex_);
    if (Entry* e = find_entry(reinterpret_cast<uintptr_t>(region.base))) write(*e, 0, 0, nullptr);
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
            // An entry under change is another mapping's: one that is being accessed does not change.
            if ((before & 1) != 0 || before != e.version.load(std::memory_order_seq_cst)) continue;
            if (base == 0 || address < base || address - base >= length) continue;
            region->poisoned.store(true, std::memory_order_seq_cst);
            poisoned_.fetch_add(1, std::memory_order_relaxed);
            // The whole mapping at once: its other pages may be gone too.
            return mmap(reinterpret_cast<void*>(base), length, PROT_READ | PROT_WRITE,
                        MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED;
        }
    }
    return false;
}

}  // namespace roci::rocid
