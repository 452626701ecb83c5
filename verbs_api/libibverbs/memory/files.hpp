#pragma once
/// The files that back registered memory, and the bookkeeping of their space.
///
/// A large stretch gets a file of its own. Small ones share pool files of a fixed, sparse size, in slots of 16 pages: a slot
/// belongs to an aligned 16-page window of the address space, so that neighbouring pages adopted at different times are
/// neighbours in the file too. Ten thousand registered heap buffers then take a few descriptors and a few VMAs. Pages of a slot
/// are used once; collect() finds out from the kernel which are mapped no more, and makes them holes again.
///
/// Nothing here locks: the caller holds the room's mutex.

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "sys.hpp"

namespace roci::memory {

/// Of every adopted file; /proc/self/maps shows "/memfd:roci-adopted (deleted)".
inline constexpr char kMemfdName[] = "roci-adopted";
inline constexpr char kMapsName[] = "/memfd:roci-adopted (deleted)";

inline constexpr uint64_t kSlotPages = 16;
inline constexpr uint64_t kPoolSlots = 1024;
inline constexpr uint64_t kOwnFileBytes = 16ull << 20;  ///< from here on a stretch has a file of its own

struct Slot {
    uint64_t window = 0;  ///< address of the window it belongs to, 0: free
    uint32_t used = 0;    ///< bit a page
    uint32_t tokens = 0;
};

struct File {
    enum class Kind { pool, own, foreign };
    Kind kind;
    Fd fd;
    uint64_t id;
    uint64_t device, inode;
    uint64_t length;
    bool writable;
    uint64_t tokens = 0;
    uint64_t released = 0;               ///< when the last token went, in releases
    uint64_t pages = 0;                  ///< adopted pages, dead ones included until they are collected
    bool mapped = false;                 ///< collect()
    std::vector<Slot> slots;             ///< pool
    std::vector<uint32_t> mapped_pages;  ///< collect(), pool
    uint64_t next_slot = 0;              ///< where to look for a free one first
    uint64_t free_slots = 0;
};

/// True if the file's descriptor still is that file: a program that closes every descriptor (a daemon) closes ours too.
bool is_intact(const File& file);

/// Where a stretch of pages is to live.
struct Placement {
    File* file;
    uint64_t offset;
    uint64_t address;
    uint64_t length;
};

/// A stretch of a file that a token pins.
struct Use {
    File* file;
    uint64_t offset;
    uint64_t length;
};

class Files {
public:
    /// The open file with this identity that is writable as wanted (or better), or null. One of ours is writable always.
    File* find(uint64_t device, uint64_t inode, bool writable);
    /// Forgets a file that is not intact, and answers false.
    bool check(File* file);
    /// Takes over a descriptor of somebody else's file.
    File* add_foreign(Fd fd, uint64_t device, uint64_t inode, uint64_t length, bool writable);

    /// Closes somebody else's file that turned out to be of no use.
    void remove_unused(File* file);

    /// Finds room for pages [address, +length); fewer bytes than asked when descriptors or memory are short.
    uint64_t place(uint64_t address, uint64_t length, std::vector<Placement>& out);
    /// Gives room back that was not used after all; it must be a hole.
    void unplace(const Placement& placement);
    /// Pages that are mapped although nobody placed them there (mremap() can grow a mapping): nobody else may get them.
    void note_mapped(File& file, uint64_t offset, uint64_t length);

    void pin(const Use& use);
    void unpin(const Use& use);

    /// Frees what no token pins and no mapping shows any more.
    void collect();
    /// As soon as as many pages were placed as were live after the last collect(), so that its cost is spread over them.
    bool collect_due() const;
    /// False when the process is near its limit of VMAs (vm.max_map_count), which every adoption brings nearer.
    bool vmas_left();
    /// Drops the descriptor of every file that is not pinned, oldest first, until they amount to no more than `bytes`.
    void give_up_idle(uint64_t bytes);

    uint64_t count() const { return files_.size(); }
    uint64_t adopted_bytes() const;
    const std::vector<std::unique_ptr<File>>& all() const { return files_; }

private:
    File* make(File::Kind kind, uint64_t length);
    File* add(File::Kind kind, Fd fd, uint64_t device, uint64_t inode, uint64_t length, bool writable);
    struct WindowSlot {
        File* file;
        uint64_t slot;
    };

    void forget(File* file);
    void remove(File* file);
    uint64_t place_in_pools(uint64_t address, uint64_t end, std::vector<Placement>& out);
    void place_in_slot(const WindowSlot& where, uint64_t address, uint64_t end, std::vector<Placement>& out);
    bool take_slots(uint64_t window, uint64_t count, WindowSlot& first);
    bool take_free_slots(uint64_t count, WindowSlot& first);
    const WindowSlot* usable_slot(uint64_t window, uint64_t address, uint64_t end) const;
    bool mark_mapped();
    void collect_pool(File& pool);
    uint64_t idle_bytes() const;
    struct Identity {
        uint64_t device, inode;
        bool operator==(const Identity&) const = default;
    };
    struct IdentityHash {
        size_t operator()(const Identity& i) const { return std::hash<uint64_t>()(i.inode ^ i.device << 40); }
    };

    std::vector<std::unique_ptr<File>> files_;
    std::unordered_multimap<Identity, File*, IdentityHash> by_identity_;
    std::unordered_map<uint64_t, WindowSlot> windows_;
    uint64_t releases_ = 0;
    uint64_t placed_pages_ = 0;  ///< since the last collect()
    uint64_t placements_ = 0;    ///< since the last collect()
    uint64_t live_pages_ = 0;    ///< after the last collect()
    uint64_t vmas_ = 0;          ///< at the last collect()
    uint64_t refusals_ = 0;      ///< since there were too many
};

}  // namespace roci::memory
