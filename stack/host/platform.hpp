// The interface of the conductor (rocid's control thread) to the operating system, for example to shared memory, pipes, routes
// and captures. rocid implements the interface with system calls. The simulator implements it with plain memory.
#pragma once

#include <cerrno>
#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "abi/control.hpp"
#include "abi/device_page.hpp"
#include "base/types.hpp"
#include "mem/memory_region.hpp"

namespace roci::host {

/// Shared memory: rocid's mapping, and the descriptor that the client gets (-1: no descriptor).
struct SharedMemory {
    std::byte* base = nullptr;
    uint64_t length = 0;
    int fd = -1;
};

/// Identifies an existing file by the device and inode number of stat(2).
struct FileIdentity {
    uint64_t device = 0, inode = 0;
    auto operator<=>(const FileIdentity&) const = default;
};

/// The frames that a capture selects.
struct CaptureSpec {
    uint32_t device = 0;  ///< index of a device, or kNoHandle for all devices
    uint32_t snap_length = 0;
    uint32_t qpn = 0;  ///< QP whose frames are captured; 0: the frames of all QPs
};
struct CaptureCounts {
    uint64_t captured = 0, missed = 0;
};

class Platform {
public:
    virtual ~Platform() = default;
    /// Returns a random number. In rocid, clients and peers cannot predict the number. In the simulator, the number comes from a
    /// seeded sequence.
    virtual uint64_t random() = 0;
    /// Allocates zeroed shared memory. On failure, the result has base == nullptr, and `why` is set to the reason.
    virtual SharedMemory make_memory(uint64_t length, std::string& why) = 0;
    virtual void free_memory(const SharedMemory&) = 0;
    /// Returns true if a client has removed pages of the memory. rocid has then replaced the mapping by private zero pages.
    virtual bool is_lost(const SharedMemory&) const { return false; }
    /// Maps a client's file as memory for queues. Ensures that the client cannot remove pages from the file. On failure, the
    /// result has base == nullptr, and `why` is set to the reason. Takes over the descriptor, also on failure.
    virtual SharedMemory map_chunk(int fd, uint64_t length, std::string& why) = 0;
    /// Returns true if rocid may allocate another `bytes` bytes within the memory limit of its control group. Otherwise sets
    /// `why` to the reason.
    virtual bool has_memory(uint64_t bytes, std::string& why) {
        (void)bytes, (void)why;
        return true;
    }
    /// Returns values of enum OpenDeviceFlags for the client.
    virtual uint32_t client_flags() { return 0; }
    /// Maps the first `length` bytes of a client's file. On failure, returns nullptr and sets `why` to the reason. Takes over the
    /// descriptor, also on failure.
    virtual std::unique_ptr<mem::MappedRegion> map_region(int fd, uint64_t length, bool writable, std::string& why) = 0;
    virtual void unmap_region(mem::MappedRegion&) = 0;
    /// Closes a client's descriptor. The default implementation calls map_region() with length 0, which takes over any descriptor
    /// and refuses it.
    virtual void close_fd(int fd) {
        std::string why;
        if (auto region = map_region(fd, 0, false, why)) unmap_region(*region);
    }
    /// Sets `out` to the identity of a client's file and leaves the descriptor open. Returns false if `fd` is not a file.
    virtual bool identify_file(int fd, FileIdentity& out) {
        out = {0, uint64_t(uint32_t(fd))};
        return fd >= 0;
    }
    /// Returns an object that accesses the memory of process `pid` by virtual address. Returns nullptr if rocid may not access
    /// this memory.
    virtual std::unique_ptr<mem::RemoteProcess> remote_process(int pid) = 0;
    /// Returns an object that accesses the client's memory by virtual address. `fd` is the client's descriptor of its
    /// /proc/self/mem. Returns nullptr if rocid cannot use the descriptor. Takes over the descriptor, also on failure.
    virtual std::unique_ptr<mem::RemoteProcess> process_memory(int fd) {
        close_fd(fd);
        return nullptr;
    }
    /// Creates a pipe for the completion events of a channel, or for async events if `channel` is kNoHandle. Registers the write
    /// end with the event thread under (session, channel). Returns the read end for the client, or
    /// -1 if rocid has no free descriptor. In the simulator, returns a number that stands for the pipe.
    virtual int make_event_pipe(uint32_t session, uint32_t channel) = 0;
    virtual void close_event_pipe(uint32_t session, uint32_t channel) = 0;
    /// Writes an async event that the conductor creates, such as a port event, to the session's pipe.
    virtual void send_async(uint32_t session, const abi::AsyncEventRecord& record) = 0;
    /// Signals to the client that rocid has queued an rdma_cm event for the channel: writes a record to the pipe of (session,
    /// channel). The event itself stays in rocid. Each record has a different `number`.
    virtual void signal_channel(uint32_t session, uint32_t channel, uint32_t number) {
        (void)session, (void)channel, (void)number;
    }
    /// Creates a non-blocking eventfd by which the client of `session` wakes engine `engine`. In the simulator, returns a
    /// number that stands for the eventfd.
    virtual int make_wake_fd(uint32_t session, uint32_t engine) = 0;
    virtual void close_wake_fds(uint32_t session) = 0;
    /// Returns a read-only descriptor of the engine page for clients. In the simulator, returns a number that stands for the
    /// page.
    virtual int engine_page_fd() = 0;
    /// Returns a read-only descriptor of the counter page for clients, or -1 if there is none.
    virtual int counter_page_fd() { return -1; }
    /// Returns a read-only descriptor of the device page for clients, or -1 if there is none.
    virtual int device_page_fd() { return -1; }
    /// Writes the state of a device's port into the device page.
    virtual void publish_device(uint32_t device, const abi::DeviceSnapshot& now) { (void)device, (void)now; }
    /// For Resolver::kernel: looks up the kernel's route to `dest`. If the next hop is a gateway, sets `next` to the gateway's
    /// address. Returns 0 or ENETUNREACH.
    virtual int route(uint32_t device, const Gid& source, const Gid& dest, Gid& next) {
        (void)device, (void)source, (void)dest, (void)next;
        return 0;
    }
    /// For Resolver::kernel: requests the MAC address of `address`. The result arrives by Conductor::neighbour_heard() or
    /// neighbour_gone(), immediately or later.
    virtual void solicit(uint32_t device, const Gid& address) { (void)device, (void)address; }
    /// Called when the first QP of the device joins a multicast group, and when the last QP leaves the group. Some ports must
    /// subscribe to the group at their network. Returns 0, or an errno if the port cannot receive the group's frames.
    virtual int follow_group(uint32_t device, const Gid& group, bool joined) {
        (void)device, (void)group, (void)joined;
        return 0;
    }
    /// Returns JSON text about rocid's ports and lcores for `roci status`. The conductor adds this text under the key "host".
    virtual std::string host_status_json() = 0;
    /// Returns the user ID of rocid.
    virtual uint32_t uid() const { return 0; }
    /// Starts the capture of a session. Returns the read end of a pipe with pcapng data. On failure, returns a negative errno and
    /// sets `why` to the reason.
    virtual int start_capture(uint32_t session, const CaptureSpec& spec, std::string& why) {
        (void)session, (void)spec;
        why = "there is nothing to capture here";
        return -ENOTSUP;
    }
    /// Ends the capture of a session, if the session has one. Frames captured so far are still written to the pipe. After the
    /// call, no engine uses the capture.
    virtual CaptureCounts stop_capture(uint32_t session) {
        (void)session;
        return {};
    }
    /// Returns a descriptor from which the client reads `text`.
    virtual int make_text_fd(const std::string& text) = 0;
};

}  // namespace roci::host
