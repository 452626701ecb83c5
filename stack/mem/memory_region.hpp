// Memory regions: what an lkey or rkey names, and the table that resolves keys. The conductor writes the table, engines read
// it without a lock: a slot is published with release order, and after a slot was cleared the conductor waits until every engine
// has passed a fence command before it frees the region.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/types.hpp"

namespace roci::mem {

/// enum ibv_access_flags, the mandatory ones.
enum Access : uint32_t {
    kLocalWrite = 1 << 0,
    kRemoteWrite = 1 << 1,
    kRemoteRead = 1 << 2,
    kRemoteAtomic = 1 << 3,
    kMwBind = 1 << 4,
    kZeroBased = 1 << 5,
    kOnDemand = 1 << 6,
};

/// Memory that rocid has mapped from a client (a memfd it was handed). Poisoned when the client truncated the file under us: the
/// SIGBUS guard of rocid sets it, accesses then fail as a protection fault.
struct MappedRegion {
    std::byte* base = nullptr;
    uint64_t length = 0;
    bool writable = true;
    std::atomic<bool> poisoned{false};
};

class SlowWorker;  // slow_memory.hpp

/// A client's address space, for memory that could not be mapped. An access may take as long as the client likes, so only the
/// worker of the client's user makes one. Both return false on failure.
class RemoteProcess {
public:
    virtual ~RemoteProcess() = default;
    virtual bool read(uint64_t client_address, std::byte* out, uint64_t length) = 0;
    virtual bool write(uint64_t client_address, const std::byte* in, uint64_t length) = 0;
    /// Who calls them. nullptr: nobody does, every access fails.
    virtual SlowWorker* worker() { return nullptr; }
};

/// One stretch of a region, ascending.
struct Segment {
    uint64_t offset = 0;  ///< of this stretch within the region
    uint64_t length = 0;
    std::byte* base = nullptr;       ///< mapped; nullptr: by address, through `process`
    uint64_t client_address = 0;     ///< with base == nullptr
    MappedRegion* mapped = nullptr;  ///< owner of base (kept alive by the conductor)
    bool writable = true;
};

/// The stretches of a region. One lies in the list itself: there is no further place in memory to go to.
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

    static constexpr size_t kHead = 16;  ///< what comes before the one

private:
    Segment* first_ = &one_;
    size_t size_ = 0;
    Segment one_;
    std::vector<Segment> many_;
};

/// What every access looks at is one cache line, and the one segment of an ordinary region is the next.
struct alignas(64) MemoryRegion {
    Key key;
    uint32_t pd = 0;      ///< global PD number, never 0 for a client's region
    uint32_t access = 0;  ///< Access
    std::atomic<bool> invalidated{
        false};  ///< by local invalidate or SEND with invalidate (fast-register keys and type 2 windows)
    // A memory window has no memory of its own: it opens a part of the region `parent` names, found anew at every access, so that
    // a deregistered parent closes its windows. While it is not bound, `invalidated` is set.
    bool is_window = false;
    bool is_null = false;  ///< no memory at all: writing is lost, reading gives zeros; no segments (ibv_alloc_null_mr)
    bool type2 = false;    ///< bound by a work request of a QP, usable by that QP only
    uint64_t iova = 0;
    uint64_t length = 0;
    uint32_t bound_qpn = 0;  ///< type 2: that QP; else 0
    Key parent;
    union {
        RemoteProcess* process = nullptr;  ///< of a region with stretches that are not mapped
        uint64_t start;                    ///< of a window: where it begins in its region; `iova` is 0 if it is zero based
    };
    SegmentList segments;                       ///< one: the fast way
    mutable std::atomic<uint64_t> slow_ops{0};  ///< accesses by address
    std::atomic<bool> binding{false};           ///< of a window: somebody is about to change it; of a region: it is about to go
    /// Of a window: accesses that go through it at this moment, of all engines. Of a region: windows that are bound to it.
    mutable std::atomic<uint32_t> users{0};
    /// Accesses by address that are under way: the region must not be freed before they end.
    mutable std::atomic<uint32_t> slow_pending{0};
};
static_assert(offsetof(MemoryRegion, segments) == 64 - SegmentList::kHead && sizeof(MemoryRegion) == 192);

/// An access through a window, from its check until its last byte: a bind of the window waits for it, so that nothing reaches the
/// memory of the old binding once the bind has completed. Of a region that is no window it holds nothing.
class WindowUse {
public:
    WindowUse() = default;
    ~WindowUse() {
        if (window_ != nullptr) window_->users.fetch_sub(1, std::memory_order_release);
    }
    WindowUse(const WindowUse&) = delete;
    WindowUse& operator=(const WindowUse&) = delete;
    /// Before anything of the window is read that a bind changes.
    void hold(const MemoryRegion& window) {
        window.users.fetch_add(1, std::memory_order_seq_cst);
        window_ = &window;
    }
    /// The access goes on as `other`.
    void pass_to(WindowUse& other) { other.window_ = std::exchange(window_, nullptr); }

private:
    const MemoryRegion* window_ = nullptr;
};

/// Binds a window (IBA 10.6.7.2): `fresh` is its new R_Key (same index), [iova, iova+length) the part of region `parent` that it
/// opens with the remote rights of `access`. With kZeroBased peers count addresses from the window's first byte. Length 0 unbinds
/// (type 1 only).
struct BindRequest {
    Key fresh, parent;
    uint32_t pd = 0, qpn = 0, access = 0;
    uint64_t iova = 0, length = 0;
};

/// Key table. 2^n slots; a key's index selects the slot.
class KeyTable {
public:
    explicit KeyTable(uint32_t slots) : slots_(slots) {}
    /// The region of a key, or nullptr. Engines' side.
    const MemoryRegion* find(Key k) const {
        if (k.index() >= slots_.size()) return nullptr;
        MemoryRegion* r = slots_[k.index()].load(std::memory_order_acquire);
        return r != nullptr && r->key == k ? r : nullptr;
    }
    void prefetch(Key k) const {
        if (k.index() < slots_.size()) __builtin_prefetch(&slots_[k.index()]);
    }
    /// Whatever occupies the slot of a key, whichever variant it is.
    const MemoryRegion* in_slot(Key k) const {
        return k.index() < slots_.size() ? slots_[k.index()].load(std::memory_order_acquire) : nullptr;
    }
    MemoryRegion* slot(Key k) { return k.index() < slots_.size() ? slots_[k.index()].load(std::memory_order_acquire) : nullptr; }
    MemoryRegion* find(Key k) { return const_cast<MemoryRegion*>(static_cast<const KeyTable*>(this)->find(k)); }
    /// Conductor's side. index in [1, size): 0 is never used so that key 0 is invalid.
    void publish(uint32_t index, MemoryRegion* r) { slots_[index].store(r, std::memory_order_release); }
    void clear(uint32_t index) { slots_[index].store(nullptr, std::memory_order_release); }
    uint32_t size() const { return uint32_t(slots_.size()); }

private:
    std::vector<std::atomic<MemoryRegion*>> slots_;
};

enum class BindResult : uint8_t {
    done,
    refused,  ///< window, region, PD, rights or range do not fit: a memory window bind error
    in_use,   ///< another engine is in the middle of an access through it: closed already, ask again
};
BindResult bind_window(KeyTable& table, const BindRequest& request);
/// Closes a window until it is bound anew (local invalidate, SEND with invalidate). False: no such window, or not this QP's.
bool invalidate_window(KeyTable& table, Key key, uint32_t pd, uint32_t qpn);

/// A window that goes holds its region no longer. Nobody accesses or binds it any more.
void let_go(KeyTable& table, MemoryRegion& window);
/// Before a region goes: no window is bound to it from now on. False, nothing changed: windows are.
[[nodiscard]] bool close_to_windows(MemoryRegion& region);

/// Why an access was refused. `ok` is 0.
enum class Fault : uint8_t { ok, bad_key, wrong_pd, no_permission, out_of_range, unreachable };

/// Checks that [va, va+length) may be accessed with all of `needed` through `key` by a QP of protection domain `pd` (IBA 10.6.3.3
/// …): key, PD, rights, range, in this order. Zero length needs no key (IBA 9.7.4.1.3: none is checked for 0 bytes): always ok,
/// `out` is then an empty region that any zero-length copy accepts. A window is reached by remote rights only, never as an lkey
/// (IBA 10.6.7.2.2). `use` lives until the access is over. `va` becomes the address within `out`, which through a zero-based
/// window is another one.
Fault check(const KeyTable& table, Key key, uint32_t pd, uint32_t qpn, uint64_t& va, uint64_t length, uint32_t needed,
            const MemoryRegion*& out, WindowUse& use);
/// For those who only want to know, and for local keys, which are never a window's.
inline Fault check(const KeyTable& table, Key key, uint32_t pd, uint32_t qpn, uint64_t va, uint64_t length, uint32_t needed,
                   const MemoryRegion*& out) {
    WindowUse use;
    return check(table, key, pd, qpn, va, length, needed, out, use);
}

/// Copies between a frame and a region that check() approved. False: the memory went away (poisoned), is read-only, is reached by
/// address only (slow_memory.hpp), or the range is not inside the region. What comes before the fault may have been copied. Zero
/// length is fine. Frame and region never overlap: frames are rocid's own memory, also on loopback. Order: copy_in stores the
/// last 8 bytes of a range after the rest, since programs poll the end of a buffer for an RDMA WRITE (x86-64 keeps the order of
/// stores). 8-byte atomicity is promised by direct() only.
bool copy_out(const MemoryRegion& r, uint64_t va, std::byte* out, uint64_t length);
bool copy_in(const MemoryRegion& r, uint64_t va, const std::byte* in, uint64_t length);
/// The stretches of a range.
struct Stretch {
    const Segment* segment = nullptr;
    uint64_t at = 0;  ///< within the segment
    uint32_t length = 0;
};
/// How many there are; 0: more than `out` holds, or the range is not inside the region.
size_t stretches(const MemoryRegion& r, uint64_t va, uint64_t length, std::span<Stretch> out);
/// A window that some access goes through at this moment.
bool in_use(const KeyTable& table, Key window);
/// A range that lies in one mapped stretch, to be read where it is. Who has read it asks intact() before using the bytes.
struct InPlace {
    const std::byte* data = nullptr;  ///< nullptr: it does not; copy_out
    const MappedRegion* mapped = nullptr;
    bool intact() const;
};
InPlace in_place(const MemoryRegion& r, uint64_t va, uint64_t length);
/// Address of `length` naturally aligned bytes for an atomic, in one mapped and writable stretch; or nullptr (do it by copy).
std::byte* direct(const MemoryRegion& r, uint64_t va, uint64_t length);

}  // namespace roci::mem
