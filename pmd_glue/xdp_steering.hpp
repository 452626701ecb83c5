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

/// The program's object file as a path that DPDK's driver can open: the driver loads and attaches it and puts its sockets into
/// the map `xsks_map`; then our program replaces it. The path is valid while this object lives.
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
    bool whole = false;  ///< rocid receives all traffic to the address, including ARP and neighbour discovery, not only RoCEv2
};

class XdpSteering {
public:
    /// Before DPDK's driver starts: throws StartError if the interface has another XDP program, or if the kernel or the driver
    /// rejects ours. Removes the program of a rocid that died while it started.
    static void prepare(const std::string& interface, int index, uint32_t mtu);

    /// Detaches the program that DPDK's driver attached for one queue, so that it can start the next. Throws StartError.
    static void detach(const std::string& interface, int index);

    /// After DPDK's driver has started: its program is replaced by ours, which steers queue i to sockets[i], native if the
    /// interface's driver can, else generic. Throws StartError.
    XdpSteering(const std::string& interface, int index, std::span<const int> sockets);
    ~XdpSteering();
    XdpSteering(const XdpSteering&) = delete;

    /// Replaces the addresses whose frames rocid receives.
    void set_addresses(std::span<const ServedAddress> addresses);
    bool native() const { return native_; }
    /// Sums over all CPUs; index as in kSteeringCounters.
    uint64_t counter(size_t which) const;

private:
    struct Program;
    static void try_out(const std::string& interface, int index, uint32_t mtu);
    std::unique_ptr<Program> program_;
    bool native_ = false;
};

}  // namespace roci::pmd
