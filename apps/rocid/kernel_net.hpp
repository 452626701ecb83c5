// Queries the addresses, routes and neighbours of the ports' kernel interfaces by rtnetlink, and receives the kernel's reports
// about changes of addresses, neighbours and links.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/types.hpp"
#include "host/conductor.hpp"

struct mnl_socket;
struct nlmsghdr;

namespace roci::rocid {

class KernelNet {
public:
    struct Handler {
        /// Called when the addresses of an interface may have changed. `index` 0: the addresses of any interface may have
        /// changed.
        std::function<void(int index)> addresses;
        /// Called when the state or the MTU of an interface may have changed.
        std::function<void()> links;
        /// Called with the MAC address of a neighbour. `mac` is zero if no host answers at the address.
        std::function<void(int index, const Gid& address, const MacAddress& mac)> neighbour;
    };
    /// Throws pmd::StartError.
    explicit KernelNet(Handler handler);
    ~KernelNet();
    KernelNet(const KernelNet&) = delete;

    /// Returns a descriptor that is readable when read_changes() has messages to read.
    int fd() const;
    void read_changes();

    /// Returns the addresses of an interface that passed duplicate address detection. IPv4 addresses precede IPv6 addresses.
    /// Within a family, the order is the kernel's order.
    std::vector<host::DeviceAddress> addresses(int index);
    /// Looks up the route to `dest`. If the route has a gateway, sets `next` to the gateway. Returns 0 or ENETUNREACH.
    int route(int index, const Gid& source, const Gid& dest, Gid& next);
    /// If the kernel's neighbour table contains the MAC address, passes the MAC address to the handler. Otherwise causes the
    /// kernel to resolve the address.
    void solicit(int index, const Gid& address);

private:
    bool ask(nlmsghdr* request, int (*take)(const nlmsghdr*, void*), void* data);
    void on_change(const nlmsghdr* h);
    static int change_callback(const nlmsghdr* h, void* self);

    Handler handler_;
    mnl_socket* changes_ = nullptr;
    mnl_socket* questions_ = nullptr;
    uint32_t sequence_ = 1;
    std::vector<char> buffer_;
};

}  // namespace roci::rocid
