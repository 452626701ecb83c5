// Properties of a kernel network interface.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/types.hpp"

namespace roci::rocid {

struct Netdev {
    int index = 0;  ///< index of the interface; 0: the interface does not exist
    MacAddress mac;
    uint32_t mtu = 0;
    bool up = false;       ///< administratively up (ip link set … up)
    bool running = false;  ///< up, and has a carrier
};

Netdev query_netdev(const std::string& name);
/// Returns true if a kernel interface has the address.
bool kernel_has_address(const Gid& address);
/// Returns the number of receive queues of the interface. Returns 1 if the interface does not report this number.
uint32_t receive_queues(const std::string& name);
/// Returns true if this process may open a packet socket (CAP_NET_RAW).
bool may_open_packet_socket();
/// Returns 0, or the errno with which the kernel refuses an AF_XDP socket.
int may_open_xdp_socket();

/// Returns the descriptors of this process that are sockets of the packet or XDP family, in ascending order. DPDK's drivers do
/// not expose their sockets. So the caller compares the results before and after the opening of a port: new descriptors belong to
/// the port's queues, in the order of the queues.
std::vector<int> frame_sockets();

/// A UDP socket on port 4791 that receives nothing. The kernel also receives the frames of an interface that a port shares with
/// the kernel. Because of this socket, the kernel does not answer these frames with ICMP port unreachable. If Soft-RoCE or
/// another process already has a socket on this port, that socket has the same effect.
class QuietUdpPort {
public:
    QuietUdpPort();
    ~QuietUdpPort();
    QuietUdpPort(const QuietUdpPort&) = delete;

private:
    int fd_ = -1;
};

}  // namespace roci::rocid
