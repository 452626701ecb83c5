#pragma once
/// The files of registered memory, and the allocation of the space in these files.
///
/// A large range gets its own file. Small ranges share pool files. A pool file is a sparse file of fixed size and consists of
/// slots of 16 pages. A slot belongs to an aligned 16-page window of the address space. So adjacent pages that are adopted at
/// different times are also adjacent in the file. Ten thousand registered heap buffers need only a few descriptors and a few
/// VMAs.
///
/// collect() finds the pages of the files that are no longer mapped, and turns these pages into holes. A page of a slot is not
/// used a second time before collect() has turned it into a hole.
///
/// The caller holds room_mutex.

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "maps.hpp"
#include "sys.hpp"

namespace roci::memory {

/// The name of each memfd with adopted pages (adopt.hpp). In /proc/self/maps the name is "/memfd:roci-adopted (deleted)".
inline constexpr char kMemfdName[] = "roci-adopted";
inline constexpr char kMapsName[] = "/memfd:roci-adopted (deleted)";
/// Returns true if the VMA is a mapping of such a file.
inline bool is_adopted(const Vma& vma) { return vma.shared && std::string_view(vma.name) == kMapsName; }

inline constexpr uint64_t kSlotPages = 16;
inline constexpr uint64_t kPoolSlots = 1024;
inline constexpr uint64_t kOwnFileBytes = 16ull << 20;  ///< a range of this size or more has its own file

struct Slot {
    uint64_t window = 0;  ///< address of the slot's window; 0 if the slot is free
    uint32_t used = 0;    ///< one bit per page
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
    uint64_t released = 0;               ///< Files::releases_ at the last release of this file
    uint64_t pages = 0;                  ///< adopted pages, including unmapped pages before collect()
    bool mapped = false;                 ///< result of collect()'s scan
    std::vector<Slot> slots;             ///< pool files only
    std::vector<uint32_t> mapped_pages;  ///< pool files only: result of collect()'s scan
    uint64_t next_slot = 0;              ///< start of the search for a free slot
    uint64_t free_slots = 0;
};

/// Returns true if the descriptor still refers to the file. A program that closes all its descriptors, as daemons do, also closes
/// the descriptors of this library.
bool is_intact(const File& file);

/// The place of a range of pages in a file.
struct Placement {
    File* file;
    uint64_t offset;
    uint64_t address;
    uint64_t length;
};

/// A range of a file that a token pins.
struct Use {
    File* file;
    uint64_t offset;
    uint64_t length;
};

class Files {
public:
    /// Returns the file with this identity, or null. For a file of the program `writable` must match too.
    File* find(uint64_t device, uint64_t inode, bool writable);
    /// Returns is_intact(*file). If the result is false, drops the descriptor of the file, and removes the file unless a token
    /// pins it.
    bool check(File* file);
    /// Adds a file that the program has mapped.
    File* add_foreign(Fd fd, uint64_t device, uint64_t inode, uint64_t length, bool writable);

    /// If the file is a file of the program and no token pins it, closes the file.
    void remove_unused(File* file);

    /// Allocates space in files for the pages of [address, +length) and appends the placements to `out`. Returns the number of
    /// bytes: fewer than `length` if descriptors or memory run out.
    uint64_t place(uint64_t address, uint64_t length, std::vector<Placement>& out);
    /// Frees the space of a placement that was not used. The space must still be a hole.
    void unplace(const Placement& placement);
    /// Marks mapped pages as used. A mapped page may have no placement, because mremap() can grow a mapping.
    void note_mapped(File& file, uint64_t offset, uint64_t length);

    void pin(const Use& use);
    void unpin(const Use& use);

    /// Frees pages that are neither pinned nor mapped any more.
    void collect();
    /// Returns true if the number of pages placed since the last collect() exceeds both 4096 and the number of pages in use after
    /// the last collect(). Also returns true after more than 8192 placements. So the cost of collect() is amortised.
    bool collect_due() const;
    /// Returns false if the process has at least about 3/4 of its maximum number of VMAs (vm.max_map_count). The caller then
    /// adopts no memory, because each adoption creates VMAs.
    bool vmas_left();
    /// Closes files that are not pinned, in the order of their last release, until the remaining unpinned files have at most
    /// `bytes` of adopted pages.
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
    bool take_free_slots(uint64_t window, uint64_t count, WindowSlot& first);
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
    uint64_t placed_pages_ = 0;  ///< counted since the last collect()
    uint64_t placements_ = 0;    ///< counted since the last collect()
    uint64_t live_pages_ = 0;    ///< counted by the last collect()
    uint64_t vmas_ = 0;          ///< counted by the last collect()
    uint64_t refusals_ = 0;  ///< number of calls of vmas_left() since collect() first left too many VMAs; 0: enough VMAs are left
};

}  // namespace roci::memory
