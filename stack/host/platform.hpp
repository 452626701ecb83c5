// What only an operating system can do for the conductor: memfds, pipes, eventfds, the kernel's routes, randomness. rocid
// implements it for real, the simulator with plain memory.
#pragma once

#include <cerrno>
#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "abi/control.hpp"
#include "base/types.hpp"
#include "mem/memory_region.hpp"

namespace roci::host {

/// An owned piece of shared memory: rocid's mapping and, for rocid, the descriptor to hand over (-1 in the simulator).
struct SharedMemory {
    std::byte* base = nullptr;
    uint64_t length = 0;
    int fd = -1;
};

/// Names a file as long as it exists: what stat(2) says.
struct FileIdentity {
    uint64_t device = 0, inode = 0;
    auto operator<=>(const FileIdentity&) const = default;
};

/// What a capture is to see.
struct CaptureSpec {
    uint32_t device = 0;  ///< index, or kNoHandle: all
    uint32_t snap_length = 0;
    // Of one QP (qpn != 0): what tells its frames.
    uint32_t qpn = 0;
    uint32_t peer_qpn = 0;  ///< 0: it has no peer (UD)
    Gid peer_gid;
};
struct CaptureCounts {
    uint64_t captured = 0, missed = 0;
};

class Platform {
public:
    virtual ~Platform() = default;
    /// Unpredictable to clients and peers in rocid; a seeded sequence in the simulator.
    virtual uint64_t random() = 0;
    /// Zeroed shared memory. base == nullptr: out of memory (reason in `why`).
    virtual SharedMemory make_memory(uint64_t length, std::string& why) = 0;
    virtual void free_memory(const SharedMemory&) = 0;
    /// A client took pages away from under rocid: what lies there now is zero, and nobody else's.
    virtual bool is_lost(const SharedMemory&) const { return false; }
    /// Maps a client's descriptor whole. nullptr: refused (reason in `why`). Takes the descriptor in any case.
    virtual std::unique_ptr<mem::MappedRegion> map_region(int fd, uint64_t length, bool writable, std::string& why) = 0;
    virtual void unmap_region(mem::MappedRegion&) = 0;
    /// Closes a client's descriptor that is not wanted. By default through map_region(), which takes any descriptor and refuses
    /// length 0.
    virtual void close_fd(int fd) {
        std::string why;
        if (auto region = map_region(fd, 0, false, why)) unmap_region(*region);
    }
    /// Which file a client's descriptor is open on; the descriptor stays open. False: it cannot be told.
    virtual bool identify_file(int fd, FileIdentity& out) {
        out = {0, uint64_t(uint32_t(fd))};
        return fd >= 0;
    }
    /// The slow way into the session's process, or nullptr if not permitted.
    virtual std::unique_ptr<mem::RemoteProcess> remote_process(int pid) = 0;
    /// A pipe for completion events (channel != kNoHandle) or async events: registers the write end with the event thread under
    /// (session, channel) and returns the read end for the client, or -1 (simulator, or out of descriptors).
    virtual int make_event_pipe(uint32_t session, uint32_t channel) = 0;
    virtual void close_event_pipe(uint32_t session, uint32_t channel) = 0;
    /// Writes an async event to the session's pipe from the conductor itself (port and device events).
    virtual void send_async(uint32_t session, const abi::AsyncEventRecord& record) = 0;
    /// Writes a record to the pipe of (session, channel) from the conductor itself: something waits there. `number` tells records
    /// apart.
    virtual void signal_channel(uint32_t session, uint32_t channel, uint32_t number) {
        (void)session, (void)channel, (void)number;
    }
    /// A non-blocking eventfd that wakes engine `engine`, for the client of `session`; -1 in the simulator.
    virtual int make_wake_fd(uint32_t session, uint32_t engine) = 0;
    virtual void close_wake_fds(uint32_t session) = 0;
    /// Descriptor of the engine page (read-only for clients), to hand over; -1 in the simulator.
    virtual int engine_page_fd() = 0;
    /// Descriptor of the counter page (read-only for clients), to hand over; -1: there is none.
    virtual int counter_page_fd() { return -1; }
    /// Resolver::kernel: where the kernel's routes send frames for `dest`: `next` is set to a gateway, or left. 0 or ENETUNREACH.
    virtual int route(uint32_t device, const Gid& source, const Gid& dest, Gid& next) {
        (void)device, (void)source, (void)dest, (void)next;
        return 0;
    }
    /// Resolver::kernel: the MAC of `address` is wanted. The answer comes by Conductor::neighbour_heard() or neighbour_gone(), at
    /// once or later.
    virtual void solicit(uint32_t device, const Gid& address) { (void)device, (void)address; }
    /// JSON text for `roci status` that only rocid knows (ports, lcores); merged by the conductor under "host".
    virtual std::string host_status_json() = 0;
    /// The user that rocid runs as.
    virtual uint32_t uid() const { return 0; }
    /// Starts the capture of a session; returns the read end of a pipe of pcapng, or a negative errno (reason in `why`).
    virtual int start_capture(uint32_t session, const CaptureSpec& spec, std::string& why) {
        (void)session, (void)spec;
        why = "there is nothing to capture here";
        return -ENOTSUP;
    }
    /// Ends it, if there is one: what was taken still goes through the pipe. No engine looks at it afterwards.
    virtual CaptureCounts stop_capture(uint32_t session) {
        (void)session;
        return {};
    }
    /// A descriptor from which the client reads `text` (status reply).
    virtual int make_text_fd(const std::string& text) = 0;
};

}  // namespace roci::host
