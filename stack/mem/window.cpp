#include "mem/memory_region.hpp"

namespace roci::mem {
namespace {

/// Flags that a bind may have. kLocalWrite has no effect on a window, but is permitted, because programs set this flag.
constexpr uint32_t kBindRights = kRemoteRights | kLocalWrite | kZeroBased;

/// Checks the rules of the two window types. A type 1 window uses the addresses of its region (o10-36.2.2), and a bind of
/// length 0 closes the window. A type 2 window must be invalidated before it is bound again (o10-37.2.30), and a bind of length
/// 0 is refused (o10-37.2.40).
bool type_allows(const MemoryRegion& window, const BindRequest& b) {
    if (!window.type2) return (b.access & kZeroBased) == 0;
    return b.length != 0 && window.invalidated.load(std::memory_order_acquire);
}

/// Returns true if the window may be bound to its parent. The parent must belong to the same PD, permit binding, and cover the
/// range. If the window permits remote writes or atomics, the parent must permit local writes (IBA 10.6.7.2.3).
bool parent_allows(const KeyTable& table, const BindRequest& b) {
    const MemoryRegion* parent = table.find(b.parent);
    if (parent == nullptr || parent->is_window || parent->pd != b.pd || (parent->access & kMwBind) == 0) return false;
    const uint64_t offset = b.iova - parent->iova;  // offset of the window's first byte in the parent
    if (offset > parent->length || b.length > parent->length - offset) return false;
    const bool writes = (b.access & (kRemoteWrite | kRemoteAtomic)) != 0;
    return !writes || (parent->access & kLocalWrite) != 0;
}

/// Takes a reference to a region. Returns false if the key is invalid or the region is being deregistered.
bool hold(KeyTable& table, Key key) {
    MemoryRegion* parent = table.find(key);
    if (parent == nullptr) return false;
    parent->users.fetch_add(1, std::memory_order_seq_cst);
    if (!parent->binding.load(std::memory_order_seq_cst)) return true;
    parent->users.fetch_sub(1, std::memory_order_seq_cst);
    return false;
}

/// Undoes a refused bind. A bind attempt closes a type 1 window, so a type 1 window that still has its parent is opened again.
/// A type 2 window is not opened, because another engine may be invalidating the window.
BindResult refuse(MemoryRegion& window) {
    if (!window.type2 && window.parent.value != 0) window.invalidated.store(false, std::memory_order_release);
    return BindResult::refused;
}

/// Ensures that only one bind of a window is in progress. QPs of several engines may bind the same window.
class Turn {
public:
    explicit Turn(MemoryRegion& window) : window_(window), mine_(!window.binding.exchange(true, std::memory_order_acquire)) {}
    ~Turn() {
        if (mine_) window_.binding.store(false, std::memory_order_release);
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    bool mine() const { return mine_; }

private:
    MemoryRegion& window_;
    const bool mine_;
};

}  // namespace

void let_go(KeyTable& table, MemoryRegion& window) {
    MemoryRegion* parent = table.find(window.parent);
    if (parent != nullptr) parent->users.fetch_sub(1, std::memory_order_seq_cst);
    window.parent = Key{};
}

bool in_use(const KeyTable& table, Key key) {
    const MemoryRegion* window = table.find(key);
    return window != nullptr && window->is_window && window->users.load(std::memory_order_seq_cst) != 0;
}

/// A bind first takes its reference to the region, then checks `binding` of the region. This function first sets `binding`,
/// then checks the references. So either the bind finds `binding` set, or this function finds the reference.
bool close_to_windows(MemoryRegion& region) {
    region.binding.store(true, std::memory_order_seq_cst);
    if (region.users.load(std::memory_order_seq_cst) == 0) return true;
    region.binding.store(false, std::memory_order_release);
    return false;
}

/// QPs of several engines may access and bind a type 1 window. An access first takes its reference, then checks whether the
/// window is open. A bind first closes the window, then checks the references. So either the access finds the window closed, or
/// the bind finds the reference.
BindResult bind_window(KeyTable& table, const BindRequest& b) {
    MemoryRegion* window = table.slot(b.fresh);
    if (window == nullptr || !window->is_window || window->pd != b.pd || (b.access & ~kBindRights) != 0)
        return BindResult::refused;
    const Turn turn(*window);
    if (!turn.mine()) return BindResult::in_use;
    if (!type_allows(*window, b)) return refuse(*window);
    if (b.length != 0 && !parent_allows(table, b)) return refuse(*window);
    window->invalidated.store(true, std::memory_order_seq_cst);
    if (window->users.load(std::memory_order_seq_cst) != 0) return BindResult::in_use;
    if (b.length != 0 && !hold(table, b.parent)) return refuse(*window);
    let_go(table, *window);
    window->key = b.fresh;
    window->parent = b.length != 0 ? b.parent : Key{};
    window->start = b.iova;
    window->iova = (b.access & kZeroBased) != 0 ? 0 : b.iova;
    window->length = b.length;
    window->access = b.access & kRemoteRights;
    window->bound_qpn = window->type2 ? b.qpn : 0;
    if (b.length != 0) window->invalidated.store(false, std::memory_order_release);
    return BindResult::done;
}

bool invalidate_window(KeyTable& table, Key key, uint32_t pd, uint32_t qpn) {
    MemoryRegion* window = table.find(key);
    if (window == nullptr || !window->is_window || !window->type2 || window->pd != pd) return false;
    if (window->bound_qpn != qpn || window->invalidated.load(std::memory_order_acquire)) return false;
    window->invalidated.store(true, std::memory_order_release);
    let_go(table, *window);
    return true;
}

}  // namespace roci::mem
