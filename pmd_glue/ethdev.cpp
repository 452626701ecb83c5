#include "ethdev.hpp"

#include <rte_dev.h>
#include <rte_ethdev.h>
#include <sys/eventfd.h>

#include <algorithm>

#include "eal.hpp"

namespace roci::pmd {
namespace {

/// Writes to the eventfd after a change of the link. Called by DPDK's interrupt thread.
int tell(uint16_t, rte_eth_event_type, void* fd, void*) {
    eventfd_write(*static_cast<int*>(fd), 1);
    return 0;
}

}  // namespace

Ethdev::Ethdev(const std::string& name, const std::string& devargs, bool hotplug, const std::string& hint)
    : name_(name), devargs_(devargs.substr(0, devargs.find(','))), hotplug_(hotplug) {
    if (hotplug_) {
        const QuietDpdk quiet;
        if (const int e = rte_dev_probe(devargs.c_str()); e != 0)
            throw StartError("DPDK's driver refuses it (" + devargs + "): " + rte_strerror(-e) + "; " + hint + kMore);
    }
    if (rte_eth_dev_get_port_by_name(devargs_.c_str(), &id_) == 0) return;
    throw StartError("DPDK's driver does not take " + devargs_ + ", or there is none for it; " + hint + kMore);
}

Ethdev::~Ethdev() {
    if (watched_by_ >= 0) rte_eth_dev_callback_unregister(id_, RTE_ETH_EVENT_INTR_LSC, tell, &watched_by_);
    rte_device* device = nullptr;
    rte_eth_dev_info info{};
    if (rte_eth_dev_info_get(id_, &info) == 0) device = info.device;
    rte_eth_dev_stop(id_);
    rte_eth_dev_close(id_);
    if (hotplug_ && device != nullptr) rte_dev_remove(device);
}

MacAddress Ethdev::mac() const {
    rte_ether_addr address{};
    MacAddress mac;
    if (rte_eth_macaddr_get(id_, &address) == 0) std::copy_n(address.addr_bytes, mac.bytes.size(), mac.bytes.begin());
    return mac;
}

void Ethdev::set_mac(const MacAddress& mac) {
    rte_ether_addr address{};
    std::copy_n(mac.bytes.begin(), mac.bytes.size(), address.addr_bytes);
    if (const int e = rte_eth_dev_default_mac_addr_set(id_, &address); e != 0)
        throw StartError("the port does not take another MAC address: " + std::string(rte_strerror(-e)) +
                         "; leave the key 'mac' out");
}

uint16_t Ethdev::max_queues() const {
    rte_eth_dev_info info{};
    if (rte_eth_dev_info_get(id_, &info) != 0) return 1;
    return std::min(info.max_rx_queues, info.max_tx_queues);
}

bool Ethdev::link_up() const {
    rte_eth_link link{};
    return rte_eth_link_get_nowait(id_, &link) != 0 || link.link_status == RTE_ETH_LINK_UP;
}

void Ethdev::watch_link(int fd) {
    watched_by_ = fd;
    rte_eth_dev_callback_register(id_, RTE_ETH_EVENT_INTR_LSC, tell, &watched_by_);
}

}  // namespace roci::pmd
