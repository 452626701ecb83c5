// The UDP sockets of one engine for port = "udp", which need no privilege. They are bound to port 4791 on every address or on
// single addresses.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/types.hpp"

namespace roci::pmd {

struct UdpSetup {
    std::string interface;            ///< name of the interface, for messages
    int interface_index = 0;          ///< scope of link-local addresses
    std::vector<Gid> addresses;       ///< addresses to bind to; empty: every address of this host
    uint32_t engines = 1;             ///< number of engines; each engine opens the same sockets (SO_REUSEPORT)
    uint32_t buffer_bytes = 8 << 20;  ///< wanted size of the socket buffers; the kernel limits it (net.core.rmem_max, wmem_max)
};

class UdpSockets {
public:
    struct Socket {
        int fd = -1;
        bool ipv6 = false;  ///< the socket is of family AF_INET6. If `both` is set too, it also carries IPv4
        bool both = false;
        Gid address;  ///< address that the socket is bound to; zero: every address
    };

    /// Throws StartError with the remedy if the port is in use or a socket cannot be created.
    explicit UdpSockets(const UdpSetup& setup);
    ~UdpSockets();
    UdpSockets(const UdpSockets&) = delete;

    std::span<const Socket> all() const { return sockets_; }
    /// Returns the socket that sends from `source`, or nullptr if no socket has that address.
    const Socket* for_source(const Gid& source) const;
    /// Returns a descriptor that is readable when any of the sockets is. A caller that watches the descriptor edge-triggered must
    /// first drain every socket.
    int ready_fd() const { return epoll_; }
    /// Joins a multicast group on the interface, or leaves it. Only sockets that are bound to every address receive multicasts.
    /// Returns 0 or an errno of setsockopt(), such as ENOBUFS if net.ipv4.igmp_max_memberships groups are joined.
    int follow_group(const Gid& group, bool joined) const;
    int interface_index() const { return interface_index_; }
    /// Returns the size of a socket buffer that the kernel granted, in bytes. At most UdpSetup::buffer_bytes.
    uint32_t receive_buffer() const { return receive_buffer_; }
    uint32_t send_buffer() const { return send_buffer_; }

private:
    void open(const UdpSetup& setup, const Gid& address);
    std::vector<Socket> sockets_;
    int epoll_ = -1;
    int interface_index_ = 0;
    uint32_t receive_buffer_ = 0, send_buffer_ = 0;
};

}  // namespace roci::pmd
