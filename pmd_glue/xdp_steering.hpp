// Our XDP program on a network interface: steers RoCEv2 frames to the AF_XDP sockets of DPDK's driver, and leaves the rest to the
// kernel. It hangs on a bpf_link, which is gone when its descriptor is: at the end of rocid, also of a rocid that crashed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/types.hpp"

namespace roci::pmd {

inline constexpr const char* kSteeringCounters[] = {"steered", "passed_other", "passed_other_address", "passed_fragment",
                                                    "passed_without_socket"};

/// The program's object file as a path that DPDK's driver can open: it loads it, attaches it and puts its sockets into the map
/// `xsks_map`; when it has started ours takes the program's place. It serves as long as the object lives.
class XdpObjectFile {
public:
    XdpObjectFile();  ///< throws StartError
    ~XdpObjectFile();
    XdpObjectFile(const XdpObjectFile&) = delete;
    std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

private:
    int fd_ = -1;
};

struct ServedAddress {
    Gid address;
    bool whole = false;  ///< all of its traffic comes to us, ARP and neighbour discovery for it included, not RoCEv2 alone
};

class XdpSteering {
public:
    /// Before DPDK's driver: an interface with somebody's XDP program, and a kernel or a driver that will not have ours, are
    /// refused (StartError); what a rocid left behind that died while it started is taken off.
    static void prepare(const std::string& interface, int index, uint32_t mtu);

    /// Takes off what DPDK's driver has attached for one queue, so that it can start the next. Throws StartError.
    static void detach(const std::string& interface, int index);

    /// After DPDK's driver has started: its program is replaced by ours, which steers queue i to sockets[i], native if the
    /// interface's driver can, else generic. Throws StartError.
    XdpSteering(const std::string& interface, int index, std::span<const int> sockets);
    ~XdpSteering();
    XdpSteering(const XdpSteering&) = delete;

    /// The addresses whose frames come to us, as a whole.
    void set_addresses(std::span<const ServedAddress> addresses);
    bool native() const { return native_; }
    /// Of all CPUs; index as in kSteeringCounters.
    uint64_t counter(size_t which) const;

private:
    struct Program;
    static void try_out(const std::string& interface, int index, uint32_t mtu);
    std::unique_ptr<Program> program_;
    bool native_ = false;
};

}  // namespace roci::pmd
