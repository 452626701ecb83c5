// What rocid asks the kernel about a network interface.
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
/// 0, or why the kernel gives this process no AF_XDP socket.
int may_open_xdp_socket();

/// Descriptors of this process that are sockets of the packet or XDP family, ascending. DPDK's drivers keep theirs to themselves;
/// those that have come while a port was opened are its queues', in their order.
std::vector<int> frame_sockets();

/// Keeps the kernel from answering RoCEv2 frames, which it sees too on an interface that it shares with rocid, with ICMP port
/// unreachable: a socket on UDP port 4791 that takes nothing. Somebody else's socket there (the kernel's Soft-RoCE) does as well.
class QuietUdpPort {
public:
    QuietUdpPort();
    ~QuietUdpPort();
    QuietUdpPort(const QuietUdpPort&) = delete;

private:
    int fd_ = -1;
};

}  // namespace roci::rocid
