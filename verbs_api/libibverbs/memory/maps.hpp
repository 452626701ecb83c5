#pragma once
/// Reads the mappings of this process: one VMA by address (PROCMAP_QUERY, Linux 6.11), or all VMAs (/proc/self/maps). This code
/// allocates no memory, so it may be used in a signal handler and in a fork's child.

#include <cstddef>
#include <cstdint>
#include <span>

#include "kept.hpp"
#include "sys.hpp"

namespace roci::memory {

struct Vma {
    uint64_t start, end;  ///< addresses
    uint64_t offset;      ///< offset of `start` in the file, in bytes
    uint64_t inode;       ///< 0 if the mapping has no file
    uint64_t device;      ///< as st_dev
    bool read, write, execute, shared;
    char name[256];  ///< path, or a name like [heap]; empty if the mapping has no name or the name does not fit

    int protection() const;  ///< PROT_*
};

/// Reads /proc/self/maps line by line, in ascending order of addresses.
class MapsText {
public:
    explicit MapsText(std::span<char> buffer);
    bool opened() const { return static_cast<bool>(fd_); }
    bool next(Vma& vma);                             ///< returns false at the end
    bool failed() const { return !fd_ || failed_; }  ///< true if next() could not return all mappings

private:
    int get();
    uint64_t number(unsigned base, int& terminator);

    Fd fd_;
    std::span<char> buffer_;
    size_t at_ = 0, end_ = 0;
    bool failed_ = false;
};

/// Finds VMAs by address. Successive calls pass ascending addresses.
class VmaFinder {
public:
    /// @param kept  a descriptor for queries, which the caller keeps for later finders; if null, the finder opens its own
    /// descriptor
    explicit VmaFinder(std::span<char> buffer, KeptFd* kept = nullptr);
    bool opened() const { return fast_ || text_.opened(); }
    /// Finds the VMA that contains `address`. Returns false if nothing is mapped there.
    /// @param with_name  false if the caller does not need the name
    bool find(uint64_t address, Vma& vma, bool with_name = true);

private:
    void open_query(KeptFd* kept);
    bool query(uint64_t address, Vma& vma, bool with_name);

    MapsText text_;
    Fd own_fd_;
    int query_fd_ = -1;
    bool fast_ = false;
    Vma ahead_{};
    bool have_ahead_ = false;
};

/// Disables PROCMAP_QUERY, so that tests cover the code for older kernels.
void forbid_procmap_query(bool forbid);

}  // namespace roci::memory
