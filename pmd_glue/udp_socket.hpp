// The UDP sockets of one engine for port = "udp". The sockets are bound to UDP port 4791 on all addresses or on single addresses.
// They need no privilege.
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
    uint32_t buffer_bytes = 8 << 20;  ///< requested size of socket buffers; limited by net.core.rmem_max and wmem_max
};

class UdpSockets {
public:
    struct Socket {
        int fd = -1;
        bool ipv6 = false;  ///< the socket is of family AF_INET6
        bool both = false;  ///< the socket is of family AF_INET6 and also sends and receives IPv4
        Gid address;        ///< address to which the socket is bound; zero: every address
    };

    /// Opens the sockets. If the UDP port is in use, or a socket cannot be created, throws StartError with the reason.
    explicit UdpSockets(const UdpSetup& setup);
    ~UdpSockets();
    UdpSockets(const UdpSockets&) = delete;

    std::span<const Socket> all() const { return sockets_; }
    /// Returns the socket that can send from the address `source`, or nullptr if no socket can.
    const Socket* for_source(const Gid& source) const;
    /// Returns a descriptor that is readable when at least one socket is readable. A caller that watches the descriptor
    /// edge-triggered must empty all sockets before it waits.
    int ready_fd() const { return epoll_; }
    /// Joins or leaves a multicast group on the interface. Only sockets that are bound to all addresses can receive multicast
    /// datagrams. Returns 0 or an errno of setsockopt(), such as ENOBUFS if net.ipv4.igmp_max_memberships is reached.
    int follow_group(const Gid& group, bool joined) const;
    int interface_index() const { return interface_index_; }
    /// Return the size in bytes of the receive and send buffers that the kernel has granted, at most UdpSetup::buffer_bytes.
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
