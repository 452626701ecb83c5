// The objects of a session. If an object refers to another object, it has a Use of that object. The conductor (rocid's control
// thread) refuses to destroy an object whose use count is not 0.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "host/arena.hpp"
#include "host/conductor.hpp"
#include "host/handle_table.hpp"
#include "host/numbers.hpp"
#include "host/state_steps.hpp"
#include "mem/memory_region.hpp"
#include "qp/shared.hpp"
#include "qp/spec.hpp"
#include "rings/queues.hpp"

namespace roci::host {

/// Adds one to the use count of an object while the Use exists.
class Use {
public:
    Use() = default;
    explicit Use(std::atomic<uint32_t>& count) : count_(&count) { count.fetch_add(1, std::memory_order_relaxed); }
    Use(Use&& other) noexcept : count_(std::exchange(other.count_, nullptr)) {}
    Use& operator=(Use&& other) noexcept {
        std::swap(count_, other.count_);
        return *this;
    }
    ~Use() {
        if (count_ != nullptr) count_->fetch_sub(1, std::memory_order_relaxed);
    }

private:
    std::atomic<uint32_t>* count_ = nullptr;
};

struct Pd {
    uint32_t number = 0;  ///< unique among all PDs of rocid, never 0
    std::atomic<uint32_t> uses{0};
};

/// Totals of a session's mapped memory. The totals include regions that the client has removed but that an MR still uses.
struct Mapped {
    uint64_t regions = 0;
    uint64_t bytes = 0;
};

/// Memory of a client that rocid has mapped. The region's handle and the MRs in the region share the ownership of the region.
class Region {
public:
    Region(Platform& platform, Mapped& total, std::unique_ptr<mem::MappedRegion> memory)
        : platform_(platform), total_(total), memory_(std::move(memory)) {
        ++total_.regions;
        total_.bytes += memory_->length;
    }
    ~Region() {
        --total_.regions;
        total_.bytes -= memory_->length;
        platform_.unmap_region(*memory_);
    }
    Region(const Region&) = delete;
    mem::MappedRegion& memory() { return *memory_; }

private:
    Platform& platform_;
    Mapped& total_;
    std::unique_ptr<mem::MappedRegion> memory_;
};
struct RegionHandle {
    std::shared_ptr<Region> region;
};

struct Mr {
    Pool<mem::MemoryRegion>::Handle region;
    std::vector<std::shared_ptr<Region>> memory;
    Use pd, dm;
};

struct Mw {
    Pool<mem::MemoryRegion>::Handle region;
    Use pd;
};

/// Device memory: a block of the session's arena.
struct Dm {
    ArenaBlock memory;
    uint64_t length = 0;
    std::atomic<uint32_t> uses{0};
    ~Dm() {
        if (total != nullptr) *total -= length;
    }
    uint64_t* total = nullptr;  ///< Session::device_memory
};

struct Qp;

/// An XRC domain, shared by the sessions that have opened it. One engine serves all QPs and SRQs of the domain.
struct XrcDomain {
    explicit XrcDomain(Platform& p) : platform(p) {}
    ~XrcDomain() {
        if (file >= 0) platform.close_fd(file);
    }
    XrcDomain(const XrcDomain&) = delete;
    Platform& platform;
    uint32_t number = 0;  ///< unique among all XRC domains of rocid, never 0
    uint32_t engine = 0;
    int file = -1;                                  ///< stays open, so that no other file gets the same inode number
    std::map<uint32_t, std::weak_ptr<Qp>> targets;  ///< by QPN; may contain entries of destroyed QPs
    size_t sweep_at = 16;                           ///< size of `targets` at which entries of destroyed QPs are removed
};
/// A session's handle of an XRC domain.
struct Xrcd {
    std::shared_ptr<XrcDomain> domain;
    std::atomic<uint32_t> uses{0};  ///< number of SRQs and QPs of this session that use the domain
};

struct Channel {
    std::atomic<uint32_t> uses{0};
};

struct Cq {
    rings::Cq ring;
    ArenaBlock memory;
    uint32_t depth = 0;                ///< entries per lane; a lane is one engine's part of a CQ
    std::vector<ArenaBlock> stranded;  ///< rings of a failed resize_cq that some engines may still use
    Use channel;
};

/// Owns the doorbell slot of a tag matching SRQ. The destructor frees the slot.
class TagSlot {
public:
    TagSlot() = default;
    TagSlot(NumberPool& pool, uint32_t number) : pool_(&pool), number_(number) {}
    TagSlot(TagSlot&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), number_(other.number_) {}
    TagSlot& operator=(TagSlot&& other) noexcept {
        std::swap(pool_, other.pool_);
        std::swap(number_, other.number_);
        return *this;
    }
    ~TagSlot() {
        if (pool_ != nullptr) pool_->release(number_);
    }

private:
    NumberPool* pool_ = nullptr;
    uint32_t number_ = 0;
};

struct Srq {
    qp::Srq* engine_side = nullptr;
    const qp::SrqSpec& spec() const { return qp::spec_of(*engine_side); }
    const rings::RqView& queue() const { return qp::queue_of(*engine_side); }
    ArenaBlock memory;
    ArenaBlock tags;  ///< memory of the ring of tag matching operations; empty for other SRQs
    TagSlot tag_slot;
    Use pd, xrcd, cq;
    std::atomic<uint32_t> uses{0};
};

/// A session's handle of an XRC target.
struct Holder {
    qp::Owner owner;
    Use xrcd;
};

/// Identifies the peer QP of a connected QP. A responder identifies the requester by this key only. Therefore QPs of different
/// users must not have the same peer QP.
struct PeerKey {
    uint32_t port = 0;  ///< index of the device
    Gid gid;
    uint32_t qpn = 0;
    auto operator<=>(const PeerKey&) const = default;
};
struct PeerUse {
    uint32_t uid = 0;
    uint32_t count = 0;
};
using PeerTable = std::map<PeerKey, PeerUse>;

/// Reserves a peer QP for one user as long as the claim exists.
class PeerClaim {
public:
    PeerClaim() = default;
    /// If another user has claimed the peer, the new claim is empty.
    PeerClaim(PeerTable& table, const PeerKey& key, uint32_t uid) {
        PeerUse& use = table[key];
        if (use.count != 0 && use.uid != uid) return;
        use.uid = uid;
        ++use.count;
        table_ = &table;
        key_ = key;
    }
    PeerClaim(PeerClaim&& other) noexcept : table_(std::exchange(other.table_, nullptr)), key_(other.key_) {}
    PeerClaim& operator=(PeerClaim&& other) noexcept {
        std::swap(table_, other.table_);
        std::swap(key_, other.key_);
        return *this;
    }
    ~PeerClaim() {
        if (table_ == nullptr) return;
        const auto it = table_->find(key_);
        if (--it->second.count == 0) table_->erase(it);
    }
    bool holds() const { return table_ != nullptr; }

private:
    PeerTable* table_ = nullptr;
    PeerKey key_;
};

struct Qp {
    qp::Pool::Handle engine_side;
    const qp::Spec& spec() const { return qp::spec_of(*engine_side); }
    abi::QpAttr attr{};  ///< attributes that modify_qp has set, except qp_state, which is in the engine
    ArenaBlock sq, rq;
    Use pd, send_cq, recv_cq, srq;
    std::vector<Holder> holders;  ///< for an XRC target: its handles in all sessions, the oldest first
    std::vector<Gid> groups;      ///< multicast groups to which the QP is attached
    PeerClaim peer;               ///< reserves the peer QP of a connected QP
    std::string refused;          ///< error text of the last modify_qp; empty if it succeeded
    StateSteps steps;             ///< the last states, for `roci why`
};

struct Ah {
    io::AddressHandle address;
    Use pd;
};

struct Session {
    Session(uint32_t number, const Client& client, Platform& platform, uint64_t max_arena)
        : id(number), who(client), arena(platform, max_arena) {}

    const uint32_t id;
    const Client who;
    std::string program;
    bool greeted = false;
    bool captures = false;
    std::optional<uint32_t> device;
    SharedMemory doorbells;

    // C++ destroys the members in reverse order, so an object is destroyed before the objects that it uses.
    Arena arena;
    Mapped mapped;
    uint64_t device_memory = 0;  ///< bytes allocated
    uint64_t cq_entries = 0;     ///< sum of Cq::depth
    std::shared_ptr<mem::RemoteProcess> process;
    HandleTable<Pd> pds;
    HandleTable<Xrcd> xrcds;
    HandleTable<RegionHandle> regions;
    HandleTable<Dm> dms;
    HandleTable<Mr> mrs;
    HandleTable<Mw> mws;
    HandleTable<Channel> channels;
    HandleTable<Cq> cqs;
    NumberPool tag_slots{0, abi::kTagSlots};
    HandleTable<Srq> srqs;
    HandleTable<Qp, std::shared_ptr<Qp>> qps;  ///< an XRC target may be shared with other sessions
    std::unordered_map<uint32_t, std::unique_ptr<Ah>> ahs;
};

}  // namespace roci::host
