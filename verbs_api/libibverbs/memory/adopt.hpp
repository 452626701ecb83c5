#pragma once
/// Turns a range of this process's memory into shared memory that rocid can map, for ibv_reg_mr.
///
/// A range may consist of several kinds of memory:
///  - Private anonymous memory (heap, mmap, .bss) is *adopted*: acquire() copies its pages into a sealed memfd and maps the memfd
///    at the same address. Threads that write to the pages wait until the new mapping is in place (freeze.hpp).
///  - Memory that is already shared (memfd, /dev/shm, hugetlbfs, a file mapped MAP_SHARED) is shared by its file, if a
///    descriptor is available.
///  - All other memory gets fd = -1 and is accessed by address (/proc/self/mem), which is slow. Examples: files mapped private,
///    stack and TLS of the calling thread, private hugepages, and SysV segments and shared anonymous memory that cannot be
///    reopened for lack of privilege.
///
/// The kernel's table of mappings is the only record of adopted memory. Each acquire() reads the current mappings of its range.
/// So munmap, mmap, mremap or free() of an adopted range cannot leave stale data in this library.
///
/// Adopted pages remain adopted after the last release(), because they are still the program's memory. If released files have
/// more than kIdleBytes of pages, the library closes the descriptors of these files, in the order of their release. The kernel
/// frees the pages when the program unmaps them. If the program registers a range whose descriptor is closed, acquire() copies
/// the pages again.
///
/// Effects of adoption that a program may notice:
///  - While a page is moved (2 MiB at a time, about 1 ms), a system call of another thread that writes into the page fails with
///    EFAULT, because neither an unprivileged userfaultfd nor mprotect makes the kernel wait. With CAP_SYS_PTRACE or
///    vm.unprivileged_userfaultfd=1 the system call waits.
///  - I/O that has pinned pages before the registration (io_uring fixed buffers, O_DIRECT or AIO in flight) still accesses the
///    old pages.
///  - After a raw system call madvise(2) with MADV_DONTNEED the pages keep their content, as on any shared memory. After the
///    library function madvise() the pages read as zeros (advice.hpp).
///  - MADV_FREE fails with EINVAL.
///  - mremap() fails with EFAULT if it would grow a mapping of 16 pages or more. realloc() then copies the data.
///  - The NUMA policy and MADV_* hints of the old mapping are lost, because the mapping is new.
///  - The child of fork() gets a private copy of the pages before fork() returns in the child (fork.hpp). A child of raw
///    clone() or _Fork() gets no private copy.
///  - A program must not register the stack of *another* thread.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace roci::memory {

/// A part of a registered range. The part is in one file, or it is accessed by address only.
struct Piece {
    int fd;  ///< descriptor of the file, which rocid maps whole and shared; -1: access by address only; the library owns the
             ///< descriptor and keeps it open until the token is released
    uint64_t fd_offset;  ///< offset of the piece in the file; 0 if fd is -1
    uint64_t fd_length;  ///< bytes of the whole file; 0 if fd is -1
    uint64_t id;         ///< identifies the file; never reused in this process; 0 if fd is -1
    bool writable;       ///< true if fd can be mapped for writing; if fd is -1: true if the mapping is writable
    uint64_t address;    ///< address of the piece in this process
    uint64_t length;     ///< length of the piece in bytes
};

/// Makes [addr, addr+length) shareable and pins the files that contain its pages.
/// @param need_write  true if the range must be writable (for local write, remote write or atomic access)
/// @param out         receives the pieces: ascending, without gaps, covering exactly the range
/// @param token       receives the token for release()
/// @return 0 or a positive errno, with the values of the kernel's ib_umem_get. EFAULT: part of the range is not mapped, is
///         PROT_NONE, is not accessible (device memory), or is read-only and need_write is set. EINVAL: length is 0, or the range
///         wraps around. ENOMEM: out of memory for the bookkeeping. After an error nothing is pinned and `out` is empty.
int acquire(void* addr, size_t length, bool need_write, std::vector<Piece>& out, uint64_t& token);

/// Releases the range of a token. Ignores unknown tokens, and tokens that a fork's child inherited. The library may close a file
/// after its last release. So before this call the caller removes rocid's region of the file.
void release(uint64_t token);

/// The library keeps released files open for later registrations, as long as their adopted pages have at most this many bytes in
/// total.
inline constexpr uint64_t kIdleBytes = 256ull << 20;

/// The resources that this library uses now. Only tests read this struct.
struct Usage {
    uint64_t files;          ///< open descriptors
    uint64_t adopted_bytes;  ///< bytes of adopted pages in files that are still open
    uint64_t tokens;         ///< ranges that are acquired and not yet released
};
Usage usage();

}  // namespace roci::memory
