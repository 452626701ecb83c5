// One DPDK ethdev that rocid asked for by devargs ("net_af_packet_roci0,iface=eth0" or a PCI address): probed, asked about
// itself, and removed again.
#pragma once

#include <cstdint>
#include <string>

#include "base/types.hpp"

namespace roci::pmd {

class Ethdev {
public:
    /// `name` is what messages call it. `hotplug`: probe it now; else EAL has probed it (PCI). Throws StartError with `hint`.
    Ethdev(const std::string& name, const std::string& devargs, bool hotplug, const std::string& hint);
    /// Stops and closes the port.
    ~Ethdev();
    Ethdev(const Ethdev&) = delete;

    uint16_t id() const { return id_; }
    MacAddress mac() const;
    void set_mac(const MacAddress& mac);
    /// Most queue pairs that the driver gives.
    uint16_t max_queues() const;
    bool link_up() const;
    /// Adds to the eventfd `fd` whenever the driver says that the link changed; for drivers that do.
    void watch_link(int fd);

private:
    const std::string name_, devargs_;
    const bool hotplug_;
    uint16_t id_ = 0;
    int watched_by_ = -1;
};

}  // namespace roci::pmd
