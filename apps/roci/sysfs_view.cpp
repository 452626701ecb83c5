#include "sysfs_view.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "abi/link_speed.hpp"
#include "qp/counters.hpp"

namespace roci::cli {
namespace {

using TextOf = std::string (*)(const Device&, const HostFacts&);
struct FileOf {
    const char* path;
    TextOf text;
};

/// Returns a value and its name in the format of the kernel's sysfs files: "4: ACTIVE".
template <size_t N>
std::string numbered(uint32_t value, const std::array<const char*, N>& names) {
    return fmt::format("{}: {}", value, value < N ? names[value] : "<unknown>");
}

constexpr std::array kPortStates{"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};
constexpr std::array kPhysStates{
    "<none>", "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "Phy Test"};

std::string rate_text(const abi::PortAttr& port) {
    const uint32_t lanes = abi::lanes_of(port.active_width);
    const uint32_t tenths = abi::link_rate(port.active_width, port.active_speed);
    return fmt::format("{}{} Gb/sec ({}X)", tenths / 10, tenths % 10 != 0 ? fmt::format(".{}", tenths % 10) : "", lanes);
}

constexpr FileOf kDeviceFiles[] = {
    {"node_type", [](const Device&, const HostFacts&) -> std::string { return "1: CA"; }},
    {"node_guid", [](const Device& d, const HostFacts&) { return guid_text(d.attr.node_guid); }},
    {"sys_image_guid", [](const Device& d, const HostFacts&) { return guid_text(d.attr.sys_image_guid); }},
    {"node_desc", [](const Device& d, const HostFacts& h) { return h.node_name + " " + d.name; }},
    {"fw_ver",
     [](const Device& d, const HostFacts&) { return std::string(d.attr.fw_ver, strnlen(d.attr.fw_ver, sizeof d.attr.fw_ver)); }},
    {"hw_rev", [](const Device& d, const HostFacts&) { return fmt::format("{:#x}", d.attr.hw_ver); }},
    {"hca_type", [](const Device&, const HostFacts&) -> std::string { return "rocinante"; }},
    {"board_id", [](const Device&, const HostFacts&) -> std::string { return "rocinante"; }},
    {"device/vendor", [](const Device& d, const HostFacts&) { return fmt::format("{:#06x}", d.attr.vendor_id); }},
    {"device/device", [](const Device& d, const HostFacts&) { return fmt::format("{:#06x}", d.attr.vendor_part_id); }},
    {"device/numa_node", [](const Device&, const HostFacts&) -> std::string { return "-1"; }},
    {"device/local_cpus", [](const Device&, const HostFacts& h) { return h.local_cpus; }},
    {"device/local_cpulist", [](const Device&, const HostFacts& h) { return h.local_cpu_list; }},
};

constexpr FileOf kPortFiles[] = {
    {"state", [](const Device& d, const HostFacts&) { return numbered(d.port.state, kPortStates); }},
    {"phys_state", [](const Device& d, const HostFacts&) { return numbered(d.port.phys_state, kPhysStates); }},
    {"link_layer", [](const Device&, const HostFacts&) -> std::string { return "Ethernet"; }},
    {"rate", [](const Device& d, const HostFacts&) { return rate_text(d.port); }},
    {"lid", [](const Device&, const HostFacts&) -> std::string { return "0x0"; }},
    {"lid_mask_count", [](const Device&, const HostFacts&) -> std::string { return "0"; }},
    {"sm_lid", [](const Device&, const HostFacts&) -> std::string { return "0x0"; }},
    {"sm_sl", [](const Device&, const HostFacts&) -> std::string { return "0"; }},
    {"cap_mask", [](const Device& d, const HostFacts&) { return fmt::format("{:#010x}", d.port.port_cap_flags); }},
    {"pkeys/0", [](const Device&, const HostFacts&) -> std::string { return "0xffff"; }},
};

constexpr uint32_t kMaxGids = 1024;

/// Adds the files of GIDs. As in the kernel, every index of the table has a GID file, most GIDs are zero, and only a GID in use
/// has a type and a netdev. If a GID has no interface, its netdev is the interface by which the kernel would send to the GID. A
/// netdev is necessary for UCX 1.19 and newer: UCX treats a peer as unreachable if the local GID has no netdev, or if the netdev
/// has no route to the peer's address.
void add_gids(const std::string& port, const Device& device, const HostFacts& host, std::vector<ViewEntry>& out) {
    std::vector<abi::GidValue> table(std::min(device.port.gid_table_length, kMaxGids));
    for (const abi::GidEntry& g : device.gids) {
        if (g.index >= table.size()) continue;
        table[g.index] = g.gid;
        out.push_back({fmt::format("{}/gid_attrs/types/{}", port, g.index), "RoCE v2", {}});
        std::string netdev(g.netdev, strnlen(g.netdev, sizeof g.netdev));
        if (netdev.empty() && host.interface_towards) netdev = host.interface_towards(g.gid);
        if (!netdev.empty()) out.push_back({fmt::format("{}/gid_attrs/ndevs/{}", port, g.index), netdev, {}});
    }
    for (size_t i = 0; i < table.size(); ++i) out.push_back({fmt::format("{}/gids/{}", port, i), gid_text(table[i]), {}});
}

void add_files(const std::string& folder, std::span<const FileOf> files, const Device& device, const HostFacts& host,
               std::vector<ViewEntry>& out) {
    for (const FileOf& file : files) out.push_back({folder + "/" + file.path, file.text(device, host), {}});
}

/// Adds the folder device/net/ with a link to the device's interface. The folder must exist even if the device has no interface,
/// because programs list this folder to find the interface of a device.
void add_netdev(const std::string& folder, const Device& device, std::vector<ViewEntry>& out) {
    if (device.netdev.empty())
        out.push_back({folder + "/", {}, {}});
    else
        out.push_back({folder + "/" + device.netdev, {}, "/sys/class/net/" + device.netdev});
}

std::string first_line(const char* path, const char* otherwise) {
    std::ifstream file(path);
    std::string line;
    return std::getline(file, line) ? line : otherwise;
}

sockaddr_in6 as_mapped(const abi::GidValue& gid, uint16_t port) {
    sockaddr_in6 a{};
    a.sin6_family = AF_INET6;
    a.sin6_port = htons(port);
    std::memcpy(&a.sin6_addr, gid.raw, sizeof gid.raw);
    return a;
}

bool has_address(const ifaddrs& i, const in6_addr& wanted) {
    if (i.ifa_addr == nullptr) return false;
    if (i.ifa_addr->sa_family == AF_INET6)
        return std::memcmp(&reinterpret_cast<const sockaddr_in6*>(i.ifa_addr)->sin6_addr, &wanted, sizeof wanted) == 0;
    if (i.ifa_addr->sa_family != AF_INET || !IN6_IS_ADDR_V4MAPPED(&wanted)) return false;
    return std::memcmp(&reinterpret_cast<const sockaddr_in*>(i.ifa_addr)->sin_addr, &wanted.s6_addr[12], 4) == 0;
}

/// Returns the interface by which the kernel would send to the address of the GID, or "lo" if the kernel has no route. The
/// function connects a UDP socket to the address, which sends no packet, and finds the interface that has the socket's source
/// address.
std::string interface_towards(const abi::GidValue& gid) {
    std::string name = "lo";
    const int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const sockaddr_in6 to = as_mapped(gid, 4791);
    sockaddr_in6 from{};
    socklen_t length = sizeof from;
    const bool routed = fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 &&
                        getsockname(fd, reinterpret_cast<sockaddr*>(&from), &length) == 0;
    if (fd >= 0) close(fd);
    ifaddrs* all = nullptr;
    if (!routed || getifaddrs(&all) != 0) return name;
    for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next)
        if (has_address(*i, from.sin6_addr)) name = i->ifa_name;
    freeifaddrs(all);
    return name;
}

}  // namespace

void add_entry(const std::filesystem::path& root, const ViewEntry& entry) {
    const std::filesystem::path path = root / entry.path;
    std::filesystem::create_directories(path.parent_path());
    if (!entry.link.empty()) return std::filesystem::create_symlink(entry.link, path);
    if (entry.path.back() == '/') return;
    std::ofstream file(path);
    file << entry.text << '\n';
    file.close();
    if (!file) throw std::system_error(errno, std::generic_category(), path);
}

HostFacts host_facts() {
    HostFacts facts;
    facts.interface_towards = interface_towards;
    facts.local_cpu_list = first_line("/sys/devices/system/cpu/online", "0");
    facts.local_cpus = first_line("/sys/devices/system/node/node0/cpumap", "1");
    char name[256] = {};
    if (gethostname(name, sizeof name - 1) == 0) facts.node_name = name;
    return facts;
}

std::vector<ViewEntry> sysfs_view(std::span<const Device> devices, const HostFacts& host) {
    std::vector<ViewEntry> out;
    for (const Device& device : devices) {
        const std::string port = device.name + "/ports/1";
        add_files(device.name, kDeviceFiles, device, host, out);
        add_netdev(device.name + "/device/net", device, out);
        add_files(port, kPortFiles, device, host, out);
        add_gids(port, device, host, out);
        for (const qp::CounterInfo& c : qp::kDeviceCounters)
            if (c.file[0] != 0) out.push_back({port + "/" + c.file, "0", {}, true});
        out.push_back({port + "/hw_counters/lifespan", std::to_string(kCounterPeriodMs), {}});
    }
    return out;
}

}  // namespace roci::cli
