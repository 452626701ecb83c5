// One DPDK ethdev that rocid selects by devargs, such as "net_af_packet_roci0,iface=eth0" or a PCI address. The class probes the
// ethdev, queries its properties and removes it.
#pragma once

#include <cstdint>
#include <string>

#include "base/types.hpp"

namespace roci::pmd {

class Ethdev {
public:
    /// If `hotplug` is true, probes the ethdev. Otherwise EAL must have probed the ethdev (PCI). Throws StartError. The text of
    /// the error contains `hint`.
    Ethdev(const std::string& name, const std::string& devargs, bool hotplug, const std::string& hint);
    /// Stops and closes the port. If `hotplug` was true, also removes the device.
    ~Ethdev();
    Ethdev(const Ethdev&) = delete;

    uint16_t id() const { return id_; }
    MacAddress mac() const;
    void set_mac(const MacAddress& mac);
    /// Returns the largest number of queue pairs that the driver supports.
    uint16_t max_queues() const;
    bool link_up() const;
    /// Writes to the eventfd `fd` whenever the driver reports a change of the link. Some drivers never report changes.
    void watch_link(int fd);

private:
    const std::string name_, devargs_;
    const bool hotplug_;
    uint16_t id_ = 0;
    int watched_by_ = -1;
};

}  // namespace roci::pmd
