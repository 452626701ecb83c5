#include "port_kinds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "wire/packet.hpp"

namespace roci::rocid {
namespace {

using D = DeviceSection;

/// Returns the arguments of DPDK's af_packet driver. The size of a block of the packet ring is a multiple of the page size and of
/// the size of a ring frame. A ring frame with its header fits into a frame buffer.
std::string af_packet(const D& d, unsigned queues, unsigned) {
    constexpr uint64_t kSmallMtu = 1024;
    const bool small = d.mtu <= kSmallMtu;
    const unsigned frame = small ? 2048 : 4352, block = small ? 65536 : 69632;
    const uint64_t a_block = block / frame;
    return fmt::format("iface={},qpairs={},framesz={},blocksz={},framecnt={}", d.interface, queues, frame, block,
                       (d.descriptors + a_block - 1) / a_block * a_block);
}

/// Returns the arguments of DPDK's af_xdp driver for one queue. Busy polling is off, because the kernel must wake a sleeping
/// engine. Each queue has a separate port. For several queues per port, the driver requires "combined" queues (ethtool -l), which
/// veth and some NICs do not have.
std::string af_xdp(const D& d, unsigned, unsigned first) {
    return fmt::format("iface={},start_queue={},queue_count=1,busy_budget=0", d.interface, first);
}

std::string tap(const D& d, unsigned, unsigned) { return fmt::format("iface={},mac={}", d.interface, d.mac); }
std::string pci(const D& d, unsigned, unsigned) { return d.pci; }

std::string vhost_user(const D& d, unsigned queues, unsigned) {
    return fmt::format("iface={},queues={},client={}", d.path, queues, d.role == "client" ? 1 : 0);
}

std::string virtio_user(const D& d, unsigned queues, unsigned) {
    return fmt::format("path={},queues={},mac={},server={},queue_size={},mrg_rxbuf=1,in_order=0", d.path, queues, d.mac,
                       d.role == "server" ? 1 : 0, d.descriptors);
}

std::string memif(const D& d, unsigned, unsigned) {
    constexpr unsigned kBuffer = 4608;  // bytes; enough for the longest frame
    return fmt::format("role={},socket={},socket-abstract=no,bsize={},mac={},id=0", d.role, d.path, kBuffer, d.mac);
}

constexpr char kInterfaceKeys[] = "interface|descriptors|devargs";
constexpr char kSocketKeys[] = "path|role|descriptors|devargs|mac";

constexpr PortKind kKinds[] = {
    {.name = "loopback",
     .driver = "net_ring",
     .own_keys = "peer|mac",
     .must_have = "peer",
     .what = "Connected to the device `peer` inside rocid, by DPDK's net_ring.",
     .needs = "nothing"},
    {.name = "af_packet",
     .driver = "net_af_packet",
     .own_keys = kInterfaceKeys,
     .must_have = "interface",
     .netdev = true,
     .has_mac = true,
     .arguments = af_packet,
     .what =
         "Any kernel interface, shared with the kernel, through packet sockets. Works everywhere; the kernel copies each frame.",
     .needs = "CAP_NET_RAW and CAP_NET_ADMIN (the driver sets the interface's flags), locked memory for the rings (LimitMEMLOCK, "
              "or CAP_IPC_LOCK), and an interface that is up (ip link set NAME up)"},
    {.name = "af_xdp",
     .driver = "net_af_xdp",
     .own_keys = kInterfaceKeys,
     .must_have = "interface",
     .netdev = true,
     .has_mac = true,
     .largest_mtu = 2048,
     .own_frames = true,
     .one_queue = true,
     .arguments = af_xdp,
     .what = "A kernel interface whose RoCEv2 frames go to rocid by XDP. All other traffic goes to the kernel as before.",
     .needs = "CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON, an interface with as many queues as there are engines "
              "(ethtool -L), an MTU of at most about 3,400, and locked memory for the frames (LimitMEMLOCK, or CAP_IPC_LOCK)"},
    {.name = "udp",
     .driver = "",
     .own_keys = "interface|descriptors",
     .must_have = "interface",
     .netdev = true,
     .has_mac = true,
     .socket = true,
     .what = "A plain UDP socket on the addresses of a kernel interface: no privilege, for containers and clouds.",
     .needs = "UDP port 4791, which no other program may have"},
    {.name = "tap",
     .driver = "net_tap",
     .own_keys = "interface|descriptors|devargs|mac",
     .must_have = "interface",
     .largest_mtu = 1024,
     .sets_mtu = true,
     .arguments = tap,
     .what = "A new kernel interface. The peer is the kernel of this machine, or a network that the kernel bridges it to.",
     .needs = "CAP_NET_ADMIN and /dev/net/tun"},
    {.name = "pci",
     .driver = "",
     .own_keys = "pci|descriptors|devargs|mac",
     .must_have = "pci",
     .has_mac = true,
     .sets_mtu = true,
     .arguments = pci,
     .what = "A NIC that rocid drives itself, by its PCI address.",
     .needs = "a NIC that is bound to vfio-pci (dpdk-devbind.py -b vfio-pci ADDRESS; the IOMMU switched on), or one whose DPDK "
              "driver shares it with the kernel (mlx5), the user's right to /dev/vfio/N, interrupt remapping, and locked memory "
              "(LimitMEMLOCK, or CAP_IPC_LOCK)"},
    {.name = "vhost_user",
     .driver = "net_vhost",
     .own_keys = kSocketKeys,
     .must_have = "path",
     .arguments = vhost_user,
     .what = "The host's end of a virtual machine's virtio NIC, or of a virtio_user port.",
     .needs = "a folder in which the socket can be made (role = \"server\"), or the peer's socket there (role = \"client\")"},
    {.name = "virtio_user",
     .driver = "net_virtio_user",
     .own_keys = kSocketKeys,
     .must_have = "path",
     .arguments = virtio_user,
     .what = "The guest's end of a vhost_user port of another rocid or of a switch such as Open vSwitch.",
     .needs = "the vhost_user end's socket (role = \"client\"), or a folder for it (role = \"server\")"},
    {.name = "memif",
     .driver = "net_memif",
     .own_keys = kSocketKeys,
     .must_have = "path",
     .arguments = memif,
     .what = "Shared memory with another process that speaks memif: another rocid, VPP.",
     .needs = "a folder in which the socket can be made (role = \"server\"), or the peer's socket there (role = \"client\")"},
};

/// Calls `f` with each name of a list such as "a|b|c" until `f` returns true. Returns true if `f` has returned true.
template <class F>
bool any_name(std::string_view list, F f) {
    for (size_t from = 0; from < list.size();) {
        const size_t bar = std::min(list.find('|', from), list.size());
        if (f(list.substr(from, bar - from))) return true;
        from = bar + 1;
    }
    return false;
}

}  // namespace

std::span<const PortKind> port_kinds() { return kKinds; }

const PortKind& port_kind(std::string_view name) {
    const auto it = std::ranges::find(kKinds, name, &PortKind::name);
    if (it == std::end(kKinds)) throw std::logic_error(fmt::format("no kind of port is called '{}'", name));
    return *it;
}

bool takes_key(const PortKind& kind, std::string_view key) {
    const auto is_it = [key](std::string_view k) { return k == key; };
    const bool somebodys = std::ranges::any_of(kKinds, [&](const PortKind& k) { return any_name(k.own_keys, is_it); });
    return !somebodys || any_name(kind.own_keys, is_it);
}

std::string own_keys(const PortKind& kind) {
    std::string out;
    any_name(kind.own_keys, [&out](std::string_view k) {
        out += (out.empty() ? "" : ", ") + std::string(k);
        return false;
    });
    return out;
}

std::string devargs_of(const DeviceSection& d, unsigned queues, unsigned first) {
    const PortKind& kind = port_kind(d.port);
    std::string out = kind.arguments(d, queues, first);
    const std::string number = first == 0 ? "" : fmt::format(".{}", first);
    if (!kind.driver.empty()) out = fmt::format("{}_{}{},{}", kind.driver, d.name, number, out);
    return d.devargs.empty() ? out : out + "," + d.devargs;
}

uint32_t frame_room(const PortKind& kind) {
    constexpr uint32_t kLine = 128, kXdpHeadroom = 256;  // the kernel reserves kXdpHeadroom bytes in each frame
    if (!kind.own_frames) return 0;
    return (kXdpHeadroom + ip_bytes_for(kind.largest_mtu) + wire::kEthLength + wire::kVlanLength + kLine - 1) / kLine * kLine;
}

uint32_t ip_bytes_for(uint32_t path_mtu) {
    constexpr uint32_t kXrcEth = 4, kReth = 16, kImmDt = 4;
    return wire::kIpv6Length + wire::kUdpLength + wire::kBthLength + kXrcEth + kReth + kImmDt + path_mtu + wire::kIcrcLength;
}

uint32_t path_mtu_within(uint32_t ip_bytes, uint32_t wish) {
    constexpr uint32_t kSmallest = 256;
    for (uint32_t mtu = wish; mtu >= kSmallest; mtu /= 2)
        if (ip_bytes_for(mtu) <= ip_bytes) return mtu;
    return 0;
}

}  // namespace roci::rocid
