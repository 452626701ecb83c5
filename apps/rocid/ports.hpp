// Opens the ports of all devices, and holds their frame buffers, DPDK ports or sockets, and properties.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config.hpp"
#include "netdev.hpp"
#include "nic.hpp"
#include "pmd_glue/dpdk_port.hpp"
#include "pmd_glue/eal.hpp"
#include "pmd_glue/ethdev.hpp"
#include "pmd_glue/net_ring.hpp"
#include "pmd_glue/udp_socket.hpp"
#include "pmd_glue/xdp_steering.hpp"
#include "socket_lock.hpp"

namespace roci::rocid {

/// A queue of a DPDK port. One engine serves the queue.
struct PortQueue {
    uint16_t port = 0, queue = 0;
};

/// The open port of one device.
struct OpenPort {
    uint16_t id = 0;
    MacAddress mac;
    std::string netdev;        ///< name of the port's kernel interface, or ""
    int netdev_index = 0;      ///< index of the kernel interface
    MacAddress netdev_mac;     ///< last known MAC of the kernel interface
    uint32_t path_mtu = 0;     ///< path MTU of the device when the port was opened
    uint32_t largest_mtu = 0;  ///< largest path MTU of the kind of port
    bool up = true;            ///< state of the link when the port was opened
    /// Current state of the link, for the engines.
    std::unique_ptr<std::atomic<bool>> carrier = std::make_unique<std::atomic<bool>>(true);
    std::vector<int> signals;        ///< by queue: readable when frames wait; empty: no frame wakes a sleeping engine
    pmd::ChecksumOffload checksums;  ///< checksums that the engines leave out
    bool armed_by_sleeper = false;   ///< `signals` are interrupts that DpdkPort::before_sleep() enables
    std::vector<std::unique_ptr<pmd::MbufPool>> pools;  ///< by engine, if the port has PortKind::own_frames
    std::vector<std::unique_ptr<pmd::UdpSockets>> udp;  ///< by engine, for a UDP port, which has no DPDK port
    uint32_t descriptors = 0;                           ///< frames per receive and transmit ring, or send buffers of a UDP port
    std::unique_ptr<SocketLock> lock;                   ///< lock of DeviceSection::path if rocid is the server
    std::unique_ptr<pmd::XdpObjectFile> xdp_object;
    std::unique_ptr<pmd::Ethdev> ethdev;
    std::vector<std::unique_ptr<pmd::Ethdev>> further;  ///< if PortKind::one_queue: the DPDK ports of all queues except queue 0
    std::unique_ptr<pmd::XdpSteering> steering;         ///< last member: destroyed first

    PortQueue queue(uint32_t engine) const {
        if (further.empty() || engine == 0) return {id, uint16_t(engine)};
        return {further[engine - 1]->id(), 0};
    }
};

struct LinkState {
    bool up = true;
    uint32_t path_mtu = 0;
};

/// Returns the frames whose IPv4 header checksum the port computes or checks, for example "received and sent".
std::string_view checksums_text(const pmd::ChecksumOffload& checksums);

class Ports {
public:
    /// Opens the ports of config.devices. If a port cannot be opened, logs the reason and a remedy, and removes the device from
    /// the configuration. Throws StartError if no device is left.
    Ports(Config& config, pmd::Eal& eal, const NicTroubles& troubles);
    ~Ports();
    Ports(const Ports&) = delete;

    /// Returns the bytes of DPDK memory that a configuration needs.
    static uint64_t memory_bytes(const Config& config);
    /// Returns the NICs of `config` that DPDK cannot use. Must be called before EAL starts, because EAL opens the other NICs.
    static NicTroubles nic_troubles(const Config& config);
    /// Returns the addresses of the NICs that EAL probes, with their arguments.
    static std::vector<std::string> pci_addresses(const Config& config, const NicTroubles& troubles);

    const OpenPort& port(uint32_t device) const { return ports_[device]; }
    std::span<const OpenPort> all() const { return ports_; }
    pmd::MbufPool& pool(uint32_t device, uint32_t engine) {
        return ports_[device].pools.empty() ? *pools_[engine] : *ports_[device].pools[engine];
    }
    /// Returns the number of received frames of a DPDK port that an engine may keep. All ports that share a pool lend a quarter
    /// of the frames that remain if the receive and transmit rings of these ports are full.
    uint32_t lends(uint32_t device) const;
    /// Passes the addresses of a device to the XDP program of an af_xdp port. Does nothing for ports of other kinds.
    void set_addresses(uint32_t device, std::span<const pmd::ServedAddress> addresses);
    /// Returns the current state of the link. `wish` is the configured path MTU.
    LinkState link(uint32_t device, uint32_t wish);
    /// Returns true if link() must be called at intervals, because a port's driver may not report changes of the link (for
    /// example memif).
    bool must_look() const;
    /// Returns a descriptor that is readable after a change of the link of a port without kernel interface.
    int link_fd() const { return link_fd_; }

private:
    void open_pair(const Config& config, size_t a);
    void open_netdev(OpenPort& port, const DeviceSection& device, Netdev& netdev);
    void open_udp(OpenPort& port, const DeviceSection& device, const Netdev& netdev, uint16_t queues);
    void open(OpenPort& port, const DeviceSection& device, uint16_t queues, uint32_t mbufs);
    /// Starts a DPDK port. If the port has no kernel interface, also sets the path MTU and the state of the link.
    void start(OpenPort& port, const DeviceSection& device, uint16_t queues, bool interrupts);
    void start_xdp(OpenPort& port, const DeviceSection& device);

    const NicTroubles troubles_;
    std::vector<std::unique_ptr<pmd::MbufPool>> pools_;  ///< by engine
    std::vector<std::unique_ptr<pmd::RingPair>> pairs_;
    std::vector<OpenPort> ports_;  ///< by device
    std::unique_ptr<QuietUdpPort> quiet_;
    int link_fd_ = -1;
};

}  // namespace roci::rocid
