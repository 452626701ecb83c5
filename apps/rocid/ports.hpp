// The ports of all devices: frame buffers, ethdevs, and what rocid learned about them when it opened them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config.hpp"
#include "netdev.hpp"
#include "pmd_glue/dpdk_port.hpp"
#include "pmd_glue/eal.hpp"
#include "pmd_glue/ethdev.hpp"
#include "pmd_glue/net_ring.hpp"

namespace roci::rocid {

/// One device's port, open.
struct OpenPort {
    uint16_t id = 0;
    MacAddress mac;
    std::string netdev;        ///< kernel interface behind it, or ""
    int netdev_index = 0;      ///< its number
    uint32_t path_mtu = 0;     ///< what the device can offer
    bool up = true;            ///< the link, when it was opened
    std::vector<int> signals;  ///< by queue: readable when there are frames; empty: nothing says so, a sleeper must look itself
    bool armed_by_sleeper = false;  ///< `signals` are interrupts that DpdkPort::before_sleep() switches on
    std::unique_ptr<pmd::Ethdev> ethdev;
};

class Ports {
public:
    /// Opens the ports of config.devices. A device whose port does not open is taken out of the configuration, with a line in the
    /// log that says what to do; if none is left, StartError.
    Ports(Config& config, pmd::Eal& eal);
    ~Ports();
    Ports(const Ports&) = delete;

    /// Bytes of DPDK memory that a configuration takes.
    static uint64_t memory_bytes(const Config& config);
    /// PCI addresses that EAL is to probe.
    static std::vector<std::string> pci_addresses(const Config& config);

    const OpenPort& port(uint32_t device) const { return ports_[device]; }
    std::span<const OpenPort> all() const { return ports_; }
    pmd::MbufPool& pool(uint32_t engine) { return *pools_[engine]; }

private:
    void open_pair(const Config& config, size_t a);
    static OpenPort open(const DeviceSection& device, uint16_t queues);
    /// Sets the path MTU that came of it.
    void start(OpenPort& port, const DeviceSection& device, uint16_t queues, bool interrupts);

    std::vector<std::unique_ptr<pmd::MbufPool>> pools_;  ///< by engine
    std::vector<std::unique_ptr<pmd::RingPair>> pairs_;
    std::vector<OpenPort> ports_;  ///< by device
    std::unique_ptr<QuietUdpPort> quiet_;
};

}  // namespace roci::rocid
