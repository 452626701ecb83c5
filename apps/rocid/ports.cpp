#include "ports.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "addresses.hpp"
#include "port_kinds.hpp"

namespace roci::rocid {
namespace {

std::vector<pmd::MbufPool*> pointers(const std::vector<std::unique_ptr<pmd::MbufPool>>& pools) {
    std::vector<pmd::MbufPool*> out;
    out.reserve(pools.size());
    for (const auto& p : pools) out.push_back(p.get());
    return out;
}

/// Queries the kernel interface. Throws StartError if a port cannot use it.
Netdev usable_netdev(const std::string& name, bool packet_socket) {
    const Netdev n = query_netdev(name);
    if (n.index == 0)
        throw pmd::StartError(fmt::format("there is no network interface '{}' here; 'ip link' lists what there is", name));
    if (packet_socket && !may_open_packet_socket())
        throw pmd::StartError(
            "no permission to open a packet socket: it takes CAP_NET_RAW (run as root, or as config/rocid.service does)");
    if (path_mtu_within(n.mtu, 256) == 0)
        throw pmd::StartError(
            fmt::format("interface '{}' has MTU {}, but the smallest path MTU, 256, takes {}: ip link set {} mtu 1500", name,
                        n.mtu, ip_bytes_for(256), name));
    return n;
}

std::string needs(const PortKind& kind) { return "it needs " + std::string(kind.needs); }

/// Removes the socket file that a killed rocid has left, because DPDK's drivers cannot use an existing path. Throws StartError if
/// another program listens on the socket: if the file was removed, clients could not connect to that program any more. That
/// program is no rocid, because the caller holds the lock of the path (SocketLock).
void clear_path(const DeviceSection& d) {
    struct stat there {};
    if (lstat(d.path.c_str(), &there) != 0) return;
    if (!S_ISSOCK(there.st_mode))
        throw pmd::StartError(fmt::format("'{}' exists and is no socket: change the key 'path', or remove it", d.path));
    if (!deserted(d.path))
        throw pmd::StartError(fmt::format(
            "the socket '{}' is taken: another program serves it; stop that program, or change the key 'path'", d.path));
    if (unlink(d.path.c_str()) != 0)
        throw pmd::StartError(
            fmt::format("the socket '{}' is deserted, but cannot be removed: {}", d.path, std::strerror(errno)));
    spdlog::info("{}: the socket {} was deserted; removed it", d.name, d.path);
}

/// Checks that the path of the socket fits into a sockaddr_un. If rocid is the server, also checks that rocid may create files in
/// the folder of the path.
void check_path(const DeviceSection& d) {
    const std::string folder = std::filesystem::path(d.path).parent_path();
    if (d.path.size() >= sizeof sockaddr_un{}.sun_path)
        throw pmd::StartError(
            fmt::format("the socket's path '{}' is longer than {} characters", d.path, sizeof sockaddr_un{}.sun_path - 1));
    if (d.role == "server" && access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0)
        throw pmd::StartError(
            fmt::format("no socket can be made in the folder '{}' ({}): make the folder, for the user that rocid "
                        "runs as, or change the key 'path'",
                        folder, std::strerror(errno)));
}

/// Checks the path of the port's socket. If rocid is the server, returns a lock of the path and removes a deserted socket.
std::unique_ptr<SocketLock> take_path(const DeviceSection& d) {
    check_path(d);
    if (d.role != "server") return nullptr;
    auto lock = std::make_unique<SocketLock>(d.path, "change the key 'path'");
    clear_path(d);
    return lock;
}

/// DPDK's virtio_user driver, as a server, waits for its client without a time limit. During this wait, an object of this class
/// unblocks the signals that end rocid.
class WaitsForPeer {
public:
    explicit WaitsForPeer(const DeviceSection& d) {
        sigset_t ending;
        sigemptyset(&ending);
        if (d.port == "virtio_user" && d.role == "server") {
            spdlog::info("{}: waits for the vhost_user end to connect to {}", d.name, d.path);
            for (const int s : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&ending, s);
        }
        pthread_sigmask(SIG_UNBLOCK, &ending, &before_);
    }
    ~WaitsForPeer() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    WaitsForPeer(const WaitsForPeer&) = delete;

private:
    sigset_t before_{};
};

/// Throws StartError if the interface exists and is no TAP interface.
void check_tap_name(const DeviceSection& d) {
    if (query_netdev(d.interface).index == 0 || access(("/sys/class/net/" + d.interface + "/tun_flags").c_str(), F_OK) == 0)
        return;
    throw pmd::StartError(
        fmt::format("interface '{}' exists already and is no TAP: rocid makes its own; choose another name", d.interface));
}

bool is_xdp(const DeviceSection& d) { return d.port == "af_xdp"; }

/// Throws StartError unless the interface has one receive queue per engine. Each AF_XDP socket receives the frames of one queue.
/// So frames of a queue without a socket would not reach rocid.
void check_queues(const DeviceSection& d, uint16_t queues) {
    const uint32_t have = receive_queues(d.interface);
    if (have == queues) return;
    throw pmd::StartError(
        fmt::format("interface '{0}' has {1} receive queue(s) for {2} engine(s), and each engine serves one: "
                    "ethtool -L {0} combined {2} (or rx {2} tx {2}), or engine.count = {1}",
                    d.interface, have, queues));
}

void check_xdp_sockets() {
    if (const int e = may_open_xdp_socket(); e != 0)
        throw pmd::StartError(fmt::format("no AF_XDP socket can be opened ({}): {}", std::strerror(e),
                                          e == EPERM ? "it takes CAP_NET_RAW (run as root, or as config/rocid.service does)"
                                                     : "this kernel has none, or forbids them: use port = \"af_packet\""));
}

/// Logs the MTU of the interface if the path MTU is smaller than configured.
void say_mtu(const DeviceSection& d, const Netdev& n, uint32_t path_mtu) {
    if (path_mtu == d.mtu) return;
    spdlog::info("{}: interface {} has MTU {}: path MTU {}; for {}: ip link set {} mtu {}", d.name, d.interface, n.mtu, path_mtu,
                 d.mtu, d.interface, ip_bytes_for(uint32_t(d.mtu)));
}

/// Logs a hint if the kernel grants only a small receive buffer, because bursts then overflow the buffer.
void say_buffers(const DeviceSection& d, const pmd::UdpSockets& sockets) {
    constexpr uint32_t kEnough = 4 << 20;
    if (sockets.receive_buffer() >= kEnough) return;
    spdlog::info(
        "{0}: the kernel grants {1} KiB of socket buffer: for more bandwidth, as root: sysctl -w net.core.rmem_max={2} "
        "net.core.wmem_max={2}",
        d.name, sockets.receive_buffer() / 1024, 8 << 20);
}

void say_checksums(const DeviceSection& d, const pmd::Started& port) {
    const std::string_view can = checksums_text(port.can);
    if (port.does != port.can)
        spdlog::info(
            "{}: checksum_offload = \"off\": rocid computes and checks IPv4 header checksums, which the port could do ({})",
            d.name, can);
    else if (port.can != pmd::ChecksumOffload{})
        spdlog::info("{}: the port does IPv4 header checksums: {}", d.name, can);
    else
        spdlog::debug("{}: the port has no offload of IPv4 header checksums: rocid does them", d.name);
}

/// Returns the packet and XDP sockets of this process that are not in `before`. A driver has opened these sockets for its queues.
std::vector<int> new_sockets(const std::vector<int>& before) {
    std::vector<int> fds;
    std::ranges::set_difference(frame_sockets(), before, std::back_inserter(fds));
    return fds;
}

/// Finds the descriptors that wake a sleeping engine: the port's interrupts, or the sockets that the port's driver has opened.
void find_signals(OpenPort& p, const std::vector<int>& before, uint16_t queues) {
    if (!p.signals.empty()) return;  // open_udp() or start_xdp() has set `signals`
    std::vector<int> fds;
    for (uint16_t q = 0; q < queues; ++q)
        if (const int fd = pmd::rx_interrupt(p.queue(q).port, p.queue(q).queue); fd >= 0) fds.push_back(fd);
    p.armed_by_sleeper = fds.size() == queues;
    if (!p.armed_by_sleeper) fds = new_sockets(before);
    if (fds.size() == queues) p.signals = fds;
}

LinkState look(const OpenPort& p, uint32_t wish) {
    if (p.ethdev == nullptr && p.netdev.empty()) return {true, p.path_mtu};
    if (p.netdev.empty()) return {p.ethdev->link_up(), p.path_mtu};
    const Netdev n = query_netdev(p.netdev);
    if (n.index != p.netdev_index) return {false, p.path_mtu};  // the interface was removed
    const uint32_t fits = path_mtu_within(n.mtu, std::min(wish, p.largest_mtu));
    return {n.running && fits != 0, fits != 0 ? fits : p.path_mtu};
}

/// Logs a change of the interface's MAC. Frames of the device keep the old MAC, because the GUID and GID 0 depend on the old MAC,
/// and peers use the old MAC.
void say_mac(OpenPort& p) {
    if (p.netdev.empty()) return;
    const Netdev n = query_netdev(p.netdev);
    if (n.index != p.netdev_index || n.mac == p.netdev_mac) return;
    p.netdev_mac = n.mac;
    if (n.mac == p.mac) return;
    spdlog::warn(
        "interface {} has the MAC {} now, but the device still uses {}, which peers do not learn from the kernel: "
        "restart rocid",
        p.netdev, mac_text(n.mac), mac_text(p.mac));
}

std::vector<uint32_t> mtu_candidates(uint32_t wish) {
    std::vector<uint32_t> out;
    for (uint32_t mtu = wish; mtu >= 256; mtu /= 2) out.push_back(ip_bytes_for(mtu));
    return out;
}

}  // namespace

std::string_view checksums_text(const pmd::ChecksumOffload& c) {
    constexpr std::string_view kTexts[] = {"none", "sent", "received", "received and sent"};
    return kTexts[(c.received ? 2 : 0) + (c.sent ? 1 : 0)];
}

uint64_t Ports::memory_bytes(const Config& c) {
    constexpr uint64_t kRest = 16 << 20;  // memory for rings, ethdevs and DPDK's internal objects
    uint64_t pools = c.engine.count * pmd::MbufPool::bytes(uint32_t(c.mbufs));
    for (const DeviceSection& d : c.devices)
        if (const PortKind& kind = port_kind(d.port); kind.own_frames)
            pools += c.engine.count * pmd::MbufPool::bytes(uint32_t(c.mbufs), frame_room(kind));
    return pools + kRest;
}

NicTroubles Ports::nic_troubles(const Config& c) {
    NicTroubles out;
    for (const DeviceSection& d : c.devices) {
        std::string why = d.port == "pci" ? nic_trouble(d.pci) : "";
        if (!why.empty()) out.emplace(d.pci, std::move(why));
    }
    return out;
}

std::vector<std::string> Ports::pci_addresses(const Config& c, const NicTroubles& troubles) {
    std::vector<std::string> out;
    for (const DeviceSection& d : c.devices)
        if (d.port == "pci" && !troubles.contains(d.pci)) out.push_back(devargs_of(d, unsigned(c.engine.count)));
    return out;
}

Ports::Ports(Config& config, pmd::Eal&, const NicTroubles& troubles)
    : troubles_(troubles), link_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (link_fd_ < 0) throw pmd::StartError("no descriptor for link changes");
    const auto queues = uint16_t(config.engine.count);
    for (uint32_t e = 0; e < queues; ++e)
        pools_.push_back(std::make_unique<pmd::MbufPool>("frames_" + std::to_string(e), uint32_t(config.mbufs), 0));
    std::string why;
    for (size_t i = 0; i < config.devices.size();) {
        DeviceSection& d = config.devices[i];
        ports_.resize(config.devices.size());
        ports_[i].descriptors = uint32_t(d.descriptors);
        if (d.port == "loopback") {
            open_pair(config, i++);
            continue;
        }
        try {
            const std::vector<int> before = frame_sockets();
            open(ports_[i], d, queues, uint32_t(config.mbufs));
            start(ports_[i], d, queues, config.engine.idle != "spin");
            find_signals(ports_[i], before, queues);
            ++i;
        } catch (const pmd::StartError& e) {
            why = fmt::format("device '{}' ({}): {}", d.name, d.port, e.what());
            { const OpenPort gone = std::move(ports_[i]); }  // destroys the members in reverse order
            ports_[i] = {};
            config.devices.erase(config.devices.begin() + long(i));
            if (config.devices.empty()) throw pmd::StartError(why);
            spdlog::error("{}; rocid serves only the other devices", why);
        }
    }
    ports_.resize(config.devices.size());
    if (std::ranges::any_of(ports_, [](const OpenPort& p) { return !p.netdev.empty() && p.udp.empty(); }))
        quiet_ = std::make_unique<QuietUdpPort>();
}

Ports::~Ports() {
    for (size_t d = 0; d < ports_.size(); ++d) {
        if (ports_[d].ethdev != nullptr || !ports_[d].udp.empty()) continue;  // ~Ethdev() or ~UdpSockets() closes the port
        const auto same = [&](const OpenPort& p) { return p.ethdev == nullptr && p.udp.empty() && p.id == ports_[d].id; };
        if (std::find_if(ports_.begin(), ports_.begin() + long(d), same) == ports_.begin() + long(d))
            pmd::stop_port(ports_[d].id);
    }
    ports_.clear();
    pairs_.clear();
    close(link_fd_);
}

void Ports::open_pair(const Config& config, size_t a) {
    const auto& devices = config.devices;
    const auto peer = std::ranges::find(devices, devices[a].peer, &DeviceSection::name);
    const auto b = size_t(peer - devices.begin());
    ports_[a].mac = parse_mac(devices[a].mac).value();
    ports_[a].path_mtu = uint32_t(devices[a].mtu);
    // Frames of a loopback never leave this process. With faults they need an ICRC, because the receiver must detect a corrupt
    // frame.
    ports_[a].checksums.no_icrc = config.engine.loopback_icrc == "auto" && !config.fault.any();
    if (b < a) {  // open_pair() of the peer has created this port, too
        for (const auto& pair : pairs_)
            if (pair->port_a() == ports_[b].id) ports_[a].id = pair->port_b();
        return;
    }
    const auto queues = uint16_t(pools_.size());
    pairs_.push_back(std::make_unique<pmd::RingPair>(devices[a].name, devices[b].name, queues));
    ports_[a].id = pairs_.back()->port_a();
    pmd::start_port(ports_[a].id, pointers(pools_).data(), {queues});
    if (a != b) pmd::start_port(pairs_.back()->port_b(), pointers(pools_).data(), {queues});
}

void Ports::open_netdev(OpenPort& p, const DeviceSection& d, Netdev& netdev) {
    netdev = usable_netdev(d.interface, !port_kind(d.port).socket);
    p.netdev = d.interface;
    p.netdev_index = netdev.index;
    p.path_mtu = path_mtu_within(netdev.mtu, uint32_t(std::min<uint64_t>(d.mtu, port_kind(d.port).largest_mtu)));
    p.up = netdev.running;
    say_mtu(d, netdev, p.path_mtu);
    if (!p.up)
        spdlog::warn("{}: interface {} is {}: the port is down until it is up", d.name, d.interface,
                     netdev.up ? "without carrier" : "switched off (ip link set " + d.interface + " up)");
}

/// Opens a UDP port on the addresses of the configuration, or on all addresses of this host.
void Ports::open_udp(OpenPort& p, const DeviceSection& d, const Netdev& netdev, uint16_t queues) {
    constexpr MacAddress kWithout{{0x02, 0x52, 0x4f, 0x43, 0x49, 0xff}};  // for an interface without a MAC, such as lo
    pmd::UdpSetup setup{.interface = d.interface, .interface_index = netdev.index, .engines = queues};
    for (const std::string& a : d.addresses) setup.addresses.push_back(parse_address(a).value());
    for (uint16_t q = 0; q < queues; ++q) {
        p.udp.push_back(std::make_unique<pmd::UdpSockets>(setup));
        p.signals.push_back(p.udp.back()->ready_fd());
    }
    p.netdev_mac = netdev.mac;
    p.mac = netdev.mac.is_zero() ? kWithout : netdev.mac;
    say_buffers(d, *p.udp.front());
}

uint32_t Ports::lends(uint32_t device) const {
    const OpenPort& own = ports_[device];
    const auto same_pool = [&](const OpenPort& p) {
        return &p == &own || (own.pools.empty() && p.pools.empty() && p.udp.empty());
    };
    uint64_t rings = 0, sharers = 0;
    for (const OpenPort& p : ports_) {
        if (!same_pool(p)) continue;
        rings += 2 * uint64_t{p.descriptors};
        ++sharers;
    }
    const uint64_t frames = (own.pools.empty() ? pools_ : own.pools).front()->frames();
    return frames > rings ? uint32_t((frames - rings) / 4 / sharers) : 0;
}

void Ports::open(OpenPort& p, const DeviceSection& d, uint16_t queues, uint32_t mbufs) {
    const PortKind& kind = port_kind(d.port);
    Netdev netdev;
    if (kind.netdev) open_netdev(p, d, netdev);
    if (kind.socket) return open_udp(p, d, netdev, queues);
    if (is_xdp(d)) {
        check_queues(d, queues);
        check_xdp_sockets();
        pmd::XdpSteering::prepare(d.interface, netdev.index, netdev.mtu);
        p.xdp_object = std::make_unique<pmd::XdpObjectFile>();
    }
    if (kind.must_have == "path") p.lock = take_path(d);
    if (d.port == "tap") check_tap_name(d);
    if (const auto trouble = troubles_.find(d.pci); d.port == "pci" && trouble != troubles_.end())
        throw pmd::StartError(trouble->second);
    const auto make = [&](unsigned first) {
        const WaitsForPeer endable(d);
        std::string devargs = devargs_of(d, queues, first);
        if (p.xdp_object != nullptr) devargs += ",xdp_prog=" + p.xdp_object->path();
        return std::make_unique<pmd::Ethdev>(d.name, devargs, d.port != "pci", needs(kind));
    };
    p.ethdev = make(0);
    p.id = p.ethdev->id();
    for (unsigned q = 1; kind.one_queue && q < queues; ++q) p.further.push_back(make(q));
    if (!kind.one_queue && p.ethdev->max_queues() < queues)
        throw pmd::StartError(fmt::format("it has {} queue(s), and each of the {} engines needs one: set engine.count = {}",
                                          p.ethdev->max_queues(), queues, p.ethdev->max_queues()));
    if (kind.has_mac && !d.mac.empty()) p.ethdev->set_mac(parse_mac(d.mac).value());
    p.netdev_mac = netdev.mac;
    p.mac = kind.has_mac && d.mac.empty() ? p.ethdev->mac() : parse_mac(d.mac).value();
    for (uint16_t q = 0; kind.own_frames && q < queues; ++q)
        p.pools.push_back(std::make_unique<pmd::MbufPool>(fmt::format("{}_{}", d.name, q), mbufs, 0, frame_room(kind)));
}

LinkState Ports::link(uint32_t device, uint32_t wish) {
    eventfd_t changes;
    eventfd_read(link_fd_, &changes);
    say_mac(ports_[device]);
    const LinkState now = look(ports_[device], wish);
    ports_[device].carrier->store(now.up, std::memory_order_relaxed);
    return now;
}

bool Ports::must_look() const {
    return std::ranges::any_of(ports_, [](const OpenPort& p) { return p.ethdev != nullptr && p.netdev.empty(); });
}

void Ports::set_addresses(uint32_t device, std::span<const pmd::ServedAddress> addresses) {
    if (ports_[device].steering != nullptr) ports_[device].steering->set_addresses(addresses);
}

void Ports::start(OpenPort& p, const DeviceSection& d, uint16_t queues, bool interrupts) {
    const PortKind& kind = port_kind(d.port);
    p.largest_mtu = kind.largest_mtu;
    if (kind.socket) return;
    if (kind.one_queue) return start_xdp(p, d);
    const auto wish = uint32_t(std::min<uint64_t>(d.mtu, kind.largest_mtu));
    const std::vector<uint32_t> mtus = kind.sets_mtu ? mtu_candidates(wish) : std::vector<uint32_t>{};
    const std::vector<pmd::MbufPool*> pools = pointers(p.pools.empty() ? pools_ : p.pools);
    const pmd::PortSetup setup{.queues = queues,
                               .descriptors = uint16_t(d.descriptors),
                               .interrupts = interrupts,
                               .mtus = mtus,
                               .hint = needs(kind),
                               .checksums = d.checksum_offload == "auto",
                               // Some NIC drivers have a single interrupt, which can report either frames or changes of the
                               // link.
                               .link_interrupts = d.port != "pci"};
    const pmd::Started started = pmd::start_port(p.id, pools.data(), setup);
    p.checksums = started.does;
    say_checksums(d, started);
    if (kind.netdev) return;
    p.ethdev->watch_link(link_fd_);
    p.path_mtu = kind.sets_mtu ? path_mtu_within(started.mtu, wish) : wish;
    if (p.path_mtu == 0) throw pmd::StartError(fmt::format("it takes no MTU of {} or more", ip_bytes_for(256)));
    if (p.path_mtu != d.mtu) spdlog::info("{}: the port takes packets of {} bytes: path MTU {}", d.name, started.mtu, p.path_mtu);
    p.up = p.ethdev->link_up();
}

/// Starts one DPDK port per queue. At each start, DPDK's driver attaches the driver's XDP program. This function detaches the
/// driver's program before the next start. At the end, this function attaches rocid's XDP program.
void Ports::start_xdp(OpenPort& p, const DeviceSection& d) {
    for (uint32_t q = 0; q < p.pools.size(); ++q) {
        const std::vector<int> before = frame_sockets();
        if (q != 0) pmd::XdpSteering::detach(d.interface, p.netdev_index);
        pmd::MbufPool* pool = p.pools[q].get();
        pmd::start_port(p.queue(q).port, &pool, {1, uint16_t(d.descriptors), false, {}, needs(port_kind(d.port))});
        const std::vector<int> opened = new_sockets(before);
        if (opened.size() != 1)
            throw pmd::StartError(
                fmt::format("queue {} of interface {} has {} AF_XDP sockets instead of one", q, d.interface, opened.size()));
        p.signals.push_back(opened.front());
    }
    p.steering = std::make_unique<pmd::XdpSteering>(d.interface, p.netdev_index, p.signals);
    spdlog::info("{}: XDP program on interface {}, {} mode", d.name, d.interface,
                 p.steering->native() ? "native" : "generic (slower: the interface's driver has no XDP of its own)");
}

}  // namespace roci::rocid
