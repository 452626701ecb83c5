// Memory regions and the table that resolves lkeys and rkeys to memory regions. The conductor (rocid's control thread) writes
// the table, and engines read the table without a lock. The conductor publishes a slot with release order. To free a region,
// the conductor clears the slot and waits until every engine has passed a fence (base/epoch.hpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/stage.hpp"
#include "base/types.hpp"

namespace roci::mem {

/// Flags of enum ibv_access_flags.
enum Access : uint32_t {
    kLocalWrite = 1 << 0,
    kRemoteWrite = 1 << 1,
    kRemoteRead = 1 << 2,
    kRemoteAtomic = 1 << 3,
    kMwBind = 1 << 4,
    kZeroBased = 1 << 5,
    kOnDemand = 1 << 6,
    kFlushGlobal = 1 << 8,
    kFlushPersistent = 1 << 9,
};
inline constexpr uint32_t kRemoteRights = kRemoteWrite | kRemoteRead | kRemoteAtomic | kFlushGlobal;

/// Memory of a client that rocid has mapped from a file, usually a memfd. If the client truncates the file, rocid's SIGBUS guard
/// marks the region as poisoned, and accesses to the region then fail.
struct MappedRegion {
    std::byte* base = nullptr;
    uint64_t length = 0;
    bool writable = true;
    std::atomic<bool> poisoned{false};
};

class SlowWorker;  // slow_memory.hpp

/// A client's address space, for memory that rocid could not map. The client can delay an access without limit. Therefore only
/// a worker thread, one per user, accesses this memory. read() and write() return false on failure.
class RemoteProcess {
public:
    virtual ~RemoteProcess() = default;
    virtual bool read(uint64_t client_address, std::byte* out, uint64_t length) = 0;
    virtual bool write(uint64_t client_address, const std::byte* in, uint64_t length) = 0;
    /// Returns the worker that accesses this process. Returns nullptr if there is no worker. Every access then fails.
    virtual SlowWorker* worker() { return nullptr; }
};

/// A contiguous part of a region. The segments of a region are in ascending order.
struct Segment {
    uint64_t offset = 0;  ///< offset of this segment within the region
    uint64_t length = 0;
    std::byte* base = nullptr;       ///< address in rocid; nullptr: not mapped, accessed through MemoryRegion::process
    uint64_t client_address = 0;     ///< address in the client; valid if base is nullptr
    MappedRegion* mapped = nullptr;  ///< the mapping that contains `base`; owned by the conductor
    bool writable = true;
};

/// The segments of a region. A single segment is stored in the list itself, which saves a cache miss.
class SegmentList {
public:
    SegmentList() = default;
    SegmentList(const SegmentList&) = delete;
    SegmentList& operator=(const SegmentList&) = delete;
    SegmentList& operator=(std::vector<Segment>&& list) {
        size_ = list.size();
        one_ = size_ == 1 ? list.front() : Segment{};
        many_ = size_ > 1 ? std::move(list) : std::vector<Segment>{};
        first_ = size_ > 1 ? many_.data() : &one_;
        return *this;
    }
    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    const Segment* begin() const { return first_; }
    const Segment* end() const { return first_ + size_; }
    const Segment& front() const { return *first_; }
    Segment& operator[](size_t i) { return first_[i]; }
    const Segment& operator[](size_t i) const { return first_[i]; }

    static constexpr size_t kHead = 16;  ///< offset of `one_` in this object, bytes

private:
    Segment* first_ = &one_;
    size_t size_ = 0;
    Segment one_;
    std::vector<Segment> many_;
};

/// A memory region or memory window. The fields that every access reads are in the first cache line. If a region has a single
/// segment, this segment is in the second cache line.
struct alignas(64) MemoryRegion {
    Key key;
    uint32_t pd = 0;      ///< global PD number, never 0 for a client's region
    uint32_t access = 0;  ///< bits of enum Access
    std::atomic<bool> invalidated{
        false};  ///< for a window: not bound yet, or closed by a bind, local invalidate or SEND with invalidate
    // A memory window has no memory of its own. The window gives access to a part of the region `parent`. Each access looks up
    // the parent, so no window can be used after its parent has been deregistered.
    bool is_window = false;
    bool is_null = false;  ///< no memory and no segments: writes are discarded, reads give zeros (ibv_alloc_null_mr)
    bool type2 = false;    ///< a work request of a QP binds the window, and only that QP may use the window
    uint64_t iova = 0;
    uint64_t length = 0;
    uint32_t bound_qpn = 0;  ///< type 2: the QP that may use the window; otherwise 0
    Key parent;
    union {
        RemoteProcess* process = nullptr;  ///< for a region with segments that are not mapped
        uint64_t start;                    ///< for a window: first address in the parent; `iova` is 0 if the window is zero-based
    };
    SegmentList segments;
    mutable std::atomic<uint64_t> slow_ops{0};  ///< number of accesses to slow memory so far
    std::atomic<bool> binding{false};           ///< window: a bind is in progress; region: dereg or rereg prevents binds
    /// For a window: number of accesses in progress on all engines. For a region: number of windows that are bound to the
    /// region.
    mutable std::atomic<uint32_t> users{0};
    /// Number of requests for slow memory in progress. The region must not be freed before these requests end.
    mutable std::atomic<uint32_t> slow_pending{0};
};
static_assert(offsetof(MemoryRegion, segments) == 64 - SegmentList::kHead && sizeof(MemoryRegion) == 192);

/// A reference to a window. An access holds the reference from its check until its last byte. A bind of the window completes only
/// when no reference exists, so no access reaches the memory of the old binding after the bind has completed. For a region that
/// is not a window, the object stays empty.
class WindowUse {
public:
    WindowUse() = default;
    ~WindowUse() {
        if (window_ != nullptr) window_->users.fetch_sub(1, std::memory_order_release);
    }
    WindowUse(const WindowUse&) = delete;
    WindowUse& operator=(const WindowUse&) = delete;
    /// Takes the reference. Called before the first read of a field that a bind changes.
    void hold(const MemoryRegion& window) {
        window.users.fetch_add(1, std::memory_order_seq_cst);
        window_ = &window;
    }
    /// Transfers the reference to `other`, which continues the access.
    void pass_to(WindowUse& other) { other.window_ = std::exchange(window_, nullptr); }

private:
    const MemoryRegion* window_ = nullptr;
};

/// A bind of a window (IBA 10.6.7.2). `fresh` is the new R_Key of the window, with the same index. The window gives access to
/// [iova, iova+length) of region `parent`, with the remote rights of `access`. With kZeroBased, the peer's addresses are relative
/// to the window's first byte. Length 0 unbinds the window (type 1 only).
struct BindRequest {
    Key fresh, parent;
    uint32_t pd = 0, qpn = 0, access = 0;
    uint64_t iova = 0, length = 0;
};

/// The table of keys. The index of a key selects a slot of the table.
class KeyTable {
public:
    explicit KeyTable(uint32_t slots) : slots_(slots) {}
    /// Returns the region of a key, or nullptr if the key is invalid.
    const MemoryRegion* find(Key k) const {
        if (k.index() >= slots_.size()) return nullptr;
        MemoryRegion* r = slots_[k.index()].load(std::memory_order_acquire);
        return r != nullptr && r->key == k ? r : nullptr;
    }
    void prefetch(Key k) const {
        if (k.index() < slots_.size()) __builtin_prefetch(&slots_[k.index()]);
    }
    /// Returns the region in the slot of a key, even if the low 8 bits of the region's key differ.
    const MemoryRegion* in_slot(Key k) const {
        return k.index() < slots_.size() ? slots_[k.index()].load(std::memory_order_acquire) : nullptr;
    }
    MemoryRegion* slot(Key k) { return k.index() < slots_.size() ? slots_[k.index()].load(std::memory_order_acquire) : nullptr; }
    MemoryRegion* find(Key k) { return const_cast<MemoryRegion*>(static_cast<const KeyTable*>(this)->find(k)); }
    /// Called by the conductor, with an index in [1, size). Slot 0 is never used, so every key with index 0 is invalid.
    void publish(uint32_t index, MemoryRegion* r) { slots_[index].store(r, std::memory_order_release); }
    void clear(uint32_t index) { slots_[index].store(nullptr, std::memory_order_release); }
    uint32_t size() const { return uint32_t(slots_.size()); }

private:
    std::vector<std::atomic<MemoryRegion*>> slots_;
};

enum class BindResult : uint8_t {
    done,
    refused,  ///< window, region, PD, rights or range do not match: memory window bind error
    in_use,   ///< an access through the window or another bind of the window is in progress; the caller tries again
};
BindResult bind_window(KeyTable& table, const BindRequest& request);
/// Closes a type 2 window until it is bound again (local invalidate, SEND with invalidate). Returns false if `key` is not the
/// key of an open type 2 window that the QP may use.
bool invalidate_window(KeyTable& table, Key key, uint32_t pd, uint32_t qpn);

/// Releases the window's reference to its parent. The caller ensures that no access through the window and no other bind of the
/// window is in progress.
void let_go(KeyTable& table, MemoryRegion& window);
/// Called before a region is deregistered or replaced (ibv_rereg_mr). Prevents further binds to the region. Returns false, and
/// changes nothing, if windows are bound to the region.
[[nodiscard]] bool close_to_windows(MemoryRegion& region);

/// The reason why an access was refused. `ok` is 0.
enum class Fault : uint8_t { ok, bad_key, wrong_pd, no_permission, out_of_range, unreachable };

/// The region of zero-length accesses, which access no memory.
extern const MemoryRegion kEmptyRegion;

inline bool inside(const MemoryRegion& r, uint64_t va, uint64_t length) {
    const uint64_t offset = va - r.iova;  // wraps around to a huge value if va is below iova
    return offset <= r.length && length <= r.length - offset;
}

/// Checks that a QP of protection domain `pd` may use `key` with all rights of `needed`. The order of the checks is key, PD,
/// rights. `out` is the region or window of the key. `use` is as for check().
inline Fault check_key(const KeyTable& table, Key key, uint32_t pd, uint32_t qpn, uint32_t needed, const MemoryRegion*& out,
                       WindowUse& use) {
    out = nullptr;
    const MemoryRegion* r = table.in_slot(key);
    if (r == nullptr) return Fault::bad_key;
    if (r->is_window) {
        if ((needed & kRemoteRights) == 0) return Fault::bad_key;
        use.hold(*r);
    }
    if (r->invalidated.load(std::memory_order_seq_cst) || r->key != key) return Fault::bad_key;
    if (r->pd != pd) return Fault::wrong_pd;
    if (r->bound_qpn != 0 && r->bound_qpn != qpn) return Fault::wrong_pd;
    if ((r->access & needed) != needed) return Fault::no_permission;
    out = r;
    return Fault::ok;
}

/// Checks that a QP of protection domain `pd` may access [va, va+length) through `key` with all rights of `needed` (IBA
/// 10.6.3.3). The order of the checks is key, PD, rights, range.
///
/// A range of length zero is always ok and needs no valid key (IBA 9.7.4.1.3). `out` is then an empty region, and zero-length
/// copies of this region succeed. A window gives remote access only; its key is not an lkey (IBA 10.6.7.2.2). `use` must live
/// until the access ends. For a zero-based window, check() changes `va` to the address within `out`.
inline Fault check(const KeyTable& table, Key key, uint32_t pd, uint32_t qpn, uint64_t& va, uint64_t length, uint32_t needed,
                   const MemoryRegion*& out, WindowUse& use) {
    ROCI_STAGE(keys);
    if (length == 0) {
        out = &kEmptyRegion;
        return Fault::ok;
    }
    out = nullptr;
    const MemoryRegion* r;
    if (const Fault f = check_key(table, key, pd, qpn, needed, r, use); f != Fault::ok) return f;
    if (!inside(*r, va, length)) return Fault::out_of_range;
    if (r->is_window) {
        const Key parent = r->parent;
        va = va - r->iova + r->start;
        r = table.in_slot(parent);
        if (r == nullptr || r->is_window || r->key != parent) return Fault::bad_key;
        if (!inside(*r, va, length)) return Fault::out_of_range;
    }
    out = r;
    return Fault::ok;
}
/// Like check() above, but keeps no reference to a window. For callers that do not access the memory, and for lkeys, which
/// never belong to a window.
inline Fault check(const KeyTable& table, Key key, uint32_t pd, uint32_t qpn, uint64_t va, uint64_t length, uint32_t needed,
                   const MemoryRegion*& out) {
    WindowUse use;
    return check(table, key, pd, qpn, va, length, needed, out, use);
}

/// Copies between a frame and a region that check() approved. Returns false if the memory is poisoned, does not contain the
/// range, or is accessed by address only (slow_memory.hpp). copy_in() also returns false if the memory is read-only. In these
/// cases, a part of the bytes may have been copied. Zero length is allowed. Frame and region never overlap, because frames are
/// rocid's own memory, even on loopback. copy_in() stores the last 8 bytes of each segment's part last, because programs poll
/// the end of a buffer for an RDMA WRITE. x86-64 keeps the order of stores. Only direct() guarantees 8-byte atomicity.
bool copy_out(const MemoryRegion& r, uint64_t va, std::byte* out, uint64_t length);
bool copy_in(const MemoryRegion& r, uint64_t va, const std::byte* in, uint64_t length);
/// A part of a range within one segment.
struct Stretch {
    const Segment* segment = nullptr;
    uint64_t at = 0;  ///< offset within the segment
    uint32_t length = 0;
};
/// Splits a range by segments. Returns the number of parts, or 0 if `out` is too small or the region does not contain the range.
size_t stretches(const MemoryRegion& r, uint64_t va, uint64_t length, std::span<Stretch> out);
/// Returns true if `window` is a memory window with accesses in progress.
bool in_use(const KeyTable& table, Key window);
/// A range within a region that has a single mapped segment. The caller reads the bytes in place. The bytes are valid if
/// intact() returns true after the read.
struct InPlace {
    const std::byte* data = nullptr;  ///< nullptr: the range is not in one mapped segment; the caller then uses copy_out()
    const MappedRegion* mapped = nullptr;
    bool intact() const;
};
InPlace in_place(const MemoryRegion& r, uint64_t va, uint64_t length);
/// Returns the address of `length` bytes for an atomic operation. Returns nullptr if the bytes are not naturally aligned or do
/// not lie in one mapped and writable segment. The caller then uses copy_out() and copy_in().
std::byte* direct(const MemoryRegion& r, uint64_t va, uint64_t length);

}  // namespace roci::mem
