// Properties of a kernel network interface.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/types.hpp"

namespace roci::rocid {

struct Netdev {
    int index = 0;  ///< 0: there is no such interface
    MacAddress mac;
    uint32_t mtu = 0;
    bool up = false;       ///< administratively up (ip link set … up)
    bool running = false;  ///< up, and has a carrier
};

Netdev query_netdev(const std::string& name);
/// Returns true if the kernel has that address, on any interface.
bool kernel_has_address(const Gid& address);
/// Returns the number of receive queues of the interface, or 1 if the interface does not report it.
uint32_t receive_queues(const std::string& name);
/// Returns true if this process may open a packet socket (CAP_NET_RAW).
bool may_open_packet_socket();
/// Returns 0, or the errno with which the kernel refuses an AF_XDP socket.
int may_open_xdp_socket();

/// Returns the descriptors of this process that are sockets of the packet or XDP family, ascending. Because DPDK's drivers do not
/// expose their sockets, the caller compares two results: the descriptors that appear while a port is opened belong to the port's
/// queues, in order.
std::vector<int> frame_sockets();

/// A UDP socket on port 4791 that receives nothing. The kernel also sees the frames of a shared interface. Because of this socket
/// the kernel does not answer such frames with ICMP port unreachable. A socket of Soft-RoCE or of another process has the same
/// effect.
class QuietUdpPort {
public:
    QuietUdpPort();
    ~QuietUdpPort();
    QuietUdpPort(const QuietUdpPort&) = delete;

private:
    int fd_ = -1;
};

}  // namespace roci::rocid
