// The conductor: sessions and their objects, sans-IO. Takes one control message at a time, validates everything in it, keeps the
// object tables, drives the engines by commands and answers. All of one thread.
//
// What only an operating system can do (make and map memfds, pipes, eventfds) is asked of `Platform`; rocid implements it for
// real, the simulator with plain memory.
#pragma once

#include <cerrno>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "abi/control.hpp"
#include "base/types.hpp"
#include "engine/command.hpp"
#include "io/shared.hpp"
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

/// How the MAC addresses of others on the link are found.
enum class Resolver : uint8_t {
    none,    ///< there are no others: a loopback
    own,     ///< rocid asks and answers itself: ARP, neighbour discovery, echo
    kernel,  ///< the kernel does, for the interface behind the port
};
struct DeviceAddress {
    Gid gid;
    uint8_t prefix = 0;  ///< leading bits of the GID that everybody on the link shares (an IPv4 /24 is 120)
    bool operator==(const DeviceAddress&) const = default;
};

/// One device = one port.
struct DeviceConfig {
    std::string name;    ///< "roci0"
    std::string netdev;  ///< kernel interface behind it, or ""
    MacAddress mac;
    std::vector<Gid> gids;
    uint32_t mtu_bytes = 4096;                  ///< largest path MTU
    bool active = true;                         ///< the link is up
    std::string peer = {};                      ///< the device of this rocid that is wired to it, or ""
    std::map<Gid, MacAddress> neighbours = {};  ///< known beforehand, from the configuration
    Resolver resolver = Resolver::none;
    std::vector<uint8_t> prefixes = {};  ///< by GID index, as DeviceAddress::prefix; missing: the link is not known
    std::vector<Gid> gateways = {};      ///< Resolver::own: at most one a family
    uint16_t vlan = 0;                   ///< everything is sent and heard in that VLAN; 0: untagged
    uint8_t traffic_class = 0;           ///< of paths for which the program asks for none
    bool port_sums = false;              ///< its port fills in the checksums of IPv4 headers
};

struct Limits {
    uint32_t max_sessions = 1024;
    uint32_t max_qps = 65536;  ///< all devices together
    uint32_t max_keys = 1 << 20;
    uint32_t max_ahs = 65536;
    uint32_t max_qp_wr = 32768;
    uint32_t max_sge = 30;
    uint32_t max_inline = 956;
    uint32_t max_cqe = 1 << 22;
    uint64_t max_arena_bytes = uint64_t{4} << 30;  ///< of one session
};

/// Descriptors are owned by whoever holds the struct; the transport closes what it has sent.
struct Reply {
    std::vector<std::byte> bytes;      ///< ReplyHeader, body, reason
    std::vector<int> fds;              ///< to send, then to close; those of `shared_fds` are not closed
    std::vector<int> shared_fds_mask;  ///< 1 = the fd at this index stays open after sending (arena chunks, engine page)
    bool deferred = false;             ///< empty: the reply comes later, from next_reply(); take no further request meanwhile
};

struct Client {
    int pid = 0;
    uint32_t uid = 0, gid = 0;
};

class Conductor {
public:
    Conductor(const Limits& limits, std::vector<DeviceConfig> devices, engine::Shared& shared, engine::CommandPort& engines,
              Platform& platform);
    /// Closes what sessions are left, by commands and fences: engines must still run.
    ~Conductor();

    /// A connection was accepted. Returns a session id (never reused while rocid lives), or kNoHandle when there are too many.
    uint32_t open_session(const Client& who);
    /// One request packet and its descriptors (taken over in any case). Always gives a reply; `close` = the connection must be
    /// closed after it.
    Reply handle(uint32_t session, std::span<const std::byte> packet, std::span<const int> fds, bool& close);
    /// The connection is gone: reclaims everything. Engines hold nothing of it afterwards.
    void close_session(uint32_t session);

    /// Sessions whose queues or doorbells are lost (Platform::is_lost). They cannot go on: end their connections.
    std::vector<uint32_t> sessions_without_memory() const;

    /// What the conductor does by itself: management datagrams that arrived, timers of connections. Called before requests, when
    /// an engine says that MADs wait (Event::Kind::gsi), and at next_deadline(). Sets the conductor's time.
    void service(Nanos now);
    Nanos next_deadline() const;
    /// A reply that was deferred and is there now. False: none is.
    bool next_reply(uint32_t& session, Reply& reply, bool& close);

    /// The addresses of a device are these now. What stays keeps its GID index. True: something changed, and programs were told.
    bool set_addresses(uint32_t device, std::span<const DeviceAddress> addresses);
    /// How the link of a device is from now on, and which path MTU it carries. Programs are told by port events. True: something
    /// is new.
    bool set_link(uint32_t device, bool up, uint32_t mtu_bytes);
    /// Answers to Platform::solicit(), and what else the kernel learns of neighbours.
    void neighbour_heard(uint32_t device, const Gid& address, const MacAddress& mac);
    void neighbour_gone(uint32_t device, const Gid& address);

    /// Totals, to prove that nothing leaks.
    struct Totals {
        uint64_t sessions, pds, regions, mrs, channels, cqs, srqs, qps, ahs, mws, arena_bytes, mapped_bytes;
    };
    Totals totals() const;
    std::string status_json() const;

    struct Impl;

private:
    std::unique_ptr<Impl> impl_;
};

}  // namespace roci::host
