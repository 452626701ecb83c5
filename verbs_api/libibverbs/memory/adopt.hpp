#pragma once
/// Memory for registration: turns a range of this process into shared memory that rocid can map (DESIGN.md, decision 2).
///
/// What becomes of a range, stretch by stretch:
///  - Ordinary private anonymous memory (heap, mmap, .bss) is *adopted*: its pages are copied into a sealed memfd which takes
///  their place
///    at the same address, while writers are made to wait (freeze.hpp). The program does not notice.
///  - Memory that is already shared (memfd, /dev/shm, hugetlbfs, a file mapped MAP_SHARED) is named by its file, if a descriptor
///  can be had.
///  - Everything else (files mapped private, stacks and TLS of the calling thread, private hugepages, SysV segments and shared
///  anonymous
///    memory without the privilege to reopen them) gets fd = -1 and is reached by process_vm_readv/writev: right, but slow.
///
/// The kernel's own table of mappings is the only record of what is adopted: each acquire() asks it what is mapped in the range
/// *now*. So munmap, mmap over, mremap or free() of an adopted range cannot leave anything stale here, whichever way the program
/// did it.
///
/// Adopted pages stay adopted after the last release(); they are still the program's memory. Released files whose pages amount to
/// more than kIdleBytes are given up, oldest first: their descriptors are closed, and the kernel frees them when the program
/// unmaps them. (Registering such a range once more copies it once more.)
///
/// What the program may notice (limits of adoption):
///  - A system call of another thread that writes into a page just while it is moved (256 KiB at a time, about 100 µs) gets
///  EFAULT, because
///    an unprivileged userfaultfd, and mprotect, cannot make the kernel wait. With CAP_SYS_PTRACE or
///    vm.unprivileged_userfaultfd=1 it waits.
///  - Pages pinned before they are registered (io_uring fixed buffers, O_DIRECT or AIO in flight) keep pointing at the old pages.
///  - On adopted memory MADV_DONTNEED by a system call of its own keeps the content (as on any shared memory; madvise() gives
///  zeros, see advice.hpp), MADV_FREE answers EINVAL, and mremap() that
///  would grow
///    a mapping of 16 pages or more answers EFAULT (realloc() then copies, by itself). NUMA policy and MADV_* hints are those of
///    new memory.
///  - fork(): the child gets a private copy before fork() returns in it (fork.hpp). Raw clone() and _Fork() without CLONE_VM do
///  not.
///  - The stack of *another* thread must not be registered.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace roci::memory {

/// A stretch of a registered range that has one backing.
struct Piece {
    int fd;  ///< to be mapped shared, whole; owned by this room, valid until the token is released. -1: process_vm only
    uint64_t fd_offset;  ///< of the stretch in the file; 0 when fd is -1
    uint64_t fd_length;  ///< bytes, of the whole file; 0 when fd is -1
    uint64_t id;         ///< names the file: never used again in this process for another one; 0 when fd is -1
    bool writable;       ///< fd can be mapped for writing; when fd is -1: the mapping is writable
    uint64_t address;    ///< in this process
    uint64_t length;     ///< bytes
};

/// Makes [addr, addr+length) shareable and pins the files that back it.
/// @param need_write  the range is to be written by others (local write, remote write or atomic access)
/// @param out         filled with pieces: ascending, gap-free, covering exactly the range
/// @param token       to be handed to release() once rocid has let go of the range
/// @return 0 or a positive errno, as the kernel's ib_umem_get answers: EFAULT when part of the range is not mapped, is PROT_NONE,
/// cannot be
///         reached (device memory), or is read-only while need_write is set; EINVAL when length is 0 or the range wraps around;
///         ENOMEM when there is no memory for the bookkeeping. On error nothing is pinned and `out` is empty.
int acquire(void* addr, size_t length, bool need_write, std::vector<Piece>& out, uint64_t& token);

/// Ends what acquire() gave. Unknown tokens, and tokens inherited by a fork's child, are ignored.
/// A file's id may go out of use here: drop rocid's region of an id together with its last memory region.
void release(uint64_t token);

/// Released memory is kept ready for the next registration up to so many bytes.
inline constexpr uint64_t kIdleBytes = 256ull << 20;

/// What the room holds at the moment (roci status, tests).
struct Usage {
    uint64_t files;          ///< open descriptors
    uint64_t adopted_bytes;  ///< moved so far into files that are still open
    uint64_t tokens;         ///< ranges acquired and not released
};
Usage usage();

}  // namespace roci::memory
