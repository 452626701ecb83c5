// Tables that the conductor (rocid's control thread) writes and every engine reads. The conductor publishes an entry with
// release order. To free an object, the conductor clears the entry, calls CommandPort::fence_all() and then frees the object.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <tuple>
#include <vector>

#include "base/types.hpp"
#include "cc/controller.hpp"
#include "wire/build.hpp"

namespace roci::io {

/// The destination of UD messages, resolved by the conductor.
struct AddressHandle {
    uint32_t pd = 0;
    uint32_t port = 0;
    wire::PathTemplate path{};
    Gid group{};  ///< the destination if it is a multicast group, else zero
};

template <class T>
class PointerTable {
public:
    explicit PointerTable(uint32_t size) : slots_(size) {}
    T* find(uint32_t i) const { return i < slots_.size() ? slots_[i].load(std::memory_order_acquire) : nullptr; }
    void publish(uint32_t i, T* p) { slots_[i].store(p, std::memory_order_release); }
    void clear(uint32_t i) { slots_[i].store(nullptr, std::memory_order_release); }
    uint32_t size() const { return uint32_t(slots_.size()); }

private:
    std::vector<std::atomic<T*>> slots_;
};

/// The addresses and settings of a port, for example for the destination check of incoming frames. The conductor replaces the
/// object as a whole.
struct PortAddresses {
    MacAddress mac;
    std::vector<Gid> gids;      ///< by GID index; a zero GID marks an unused index
    uint32_t mtu_bytes = 4096;  ///< active path MTU
    bool answers = false;  ///< the conductor answers ARP, neighbour discovery and echo requests, because no kernel answers them
    uint16_t vlan = 0;     ///< VLAN of the port, 0 if untagged; frames of other VLANs are dropped
    cc::Policy congestion = cc::Policy::fixed_window;  ///< policy of the port's QPs
};

/// The multicast groups of all ports and the QPs that are attached to them. The conductor replaces the table as a whole and frees
/// the old table after CommandPort::fence_all().
struct MulticastTable {
    struct Group {
        uint32_t port = 0;
        Gid gid;
        std::vector<uint32_t> qpns;
    };
    std::vector<Group> groups;  ///< sorted by GID, then by port
    std::vector<Group>::const_iterator first(const Gid& gid, uint32_t port) const {
        return std::lower_bound(groups.begin(), groups.end(), std::tie(gid, port),
                                [](const Group& g, const auto& key) { return std::tie(g.gid, g.port) < key; });
    }
    const Group* find(uint32_t port, const Gid& gid) const {
        const auto at = first(gid, port);
        return at != groups.end() && at->gid == gid && at->port == port ? &*at : nullptr;
    }
    /// Returns the number of QPs of all ports that are attached to the group.
    uint32_t members(const Gid& gid) const {
        uint32_t n = 0;
        for (auto g = first(gid, 0); g != groups.end() && g->gid == gid; ++g) n += uint32_t(g->qpns.size());
        return n;
    }
};
/// Destination QP number of a multicast packet (IBA 10.5.2).
inline constexpr uint32_t kMulticastQpn = 0xffffff;

}  // namespace roci::io
