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
    bool up = false;       ///< switched on (ip link set … up)
    bool running = false;  ///< and has a carrier
};

Netdev query_netdev(const std::string& name);
/// True if the kernel has that address, on any interface.
bool kernel_has_address(const Gid& address);
/// How many queues the interface receives into; 1 where it does not say.
uint32_t receive_queues(const std::string& name);
/// True if this process may open a packet socket (CAP_NET_RAW).
bool may_open_packet_socket();
/// Returns 0, or the errno with which the kernel refuses an AF_XDP socket.
int may_open_xdp_socket();

/// Descriptors of this process that are sockets of the packet or XDP family, ascending. DPDK's drivers do not expose theirs;
/// the descriptors that appear while a port is opened belong to its queues, in order.
std::vector<int> frame_sockets();

/// A UDP socket on port 4791 that receives nothing. It keeps the kernel, which also sees the frames of a shared interface, from
/// answering them with ICMP port unreachable. Another process's socket on that port (the kernel's Soft-RoCE) has the same effect.
class QuietUdpPort {
public:
    QuietUdpPort();
    ~QuietUdpPort();
    QuietUdpPort(const QuietUdpPort&) = delete;

private:
    int fd_ = -1;
};

}  // namespace roci::rocid
