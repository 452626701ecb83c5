// Tables that the conductor writes and every engine reads. As in the key table, the conductor publishes an entry with release
// order. After clearing an entry it sends a fence command to every engine before it frees the object.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/types.hpp"
#include "cc/controller.hpp"
#include "wire/build.hpp"

namespace roci::io {

/// A UD address, resolved by the conductor.
struct AddressHandle {
    uint32_t pd = 0;
    uint32_t port = 0;
    wire::PathTemplate path{};
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

/// Addresses of a port, for the destination check of incoming frames. Replaced as a whole.
struct PortAddresses {
    MacAddress mac;
    std::vector<Gid> gids;      ///< index = GID index; zero = empty
    uint32_t mtu_bytes = 4096;  ///< active path MTU
    bool answers = false;       ///< no kernel answers ARP, neighbour discovery and echo requests: the conductor does
    uint16_t vlan = 0;          ///< VLAN of the port, 0: untagged; frames of other VLANs are dropped
    cc::Policy congestion = cc::Policy::fixed_window;  ///< of its QPs
};

/// QPs that are attached to multicast groups, by port. Replaced as a whole; the old table is freed after a fence.
struct MulticastTable {
    struct Group {
        uint32_t port = 0;
        Gid gid;
        std::vector<uint32_t> qpns;
    };
    std::vector<Group> groups;
    const Group* find(uint32_t port, const Gid& gid) const {
        for (const Group& g : groups)
            if (g.port == port && g.gid == gid) return &g;
        return nullptr;
    }
};
/// Destination QP number of a multicast packet (IBA 10.5.2).
inline constexpr uint32_t kMulticastQpn = 0xffffff;

}  // namespace roci::io
