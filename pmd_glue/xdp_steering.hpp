// Attaches rocid's XDP program (xdp/steer.bpf.c) to a network interface. The program redirects RoCEv2 frames, and all frames to
// addresses that only rocid has, to the AF_XDP sockets of DPDK's driver. The kernel receives all other frames. A bpf_link
// attaches the program. The kernel detaches the program when the descriptor of the bpf_link is closed, also after a crash of
// rocid.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/types.hpp"

namespace roci::pmd {

inline constexpr const char* kSteeringCounters[] = {"steered", "passed_other", "passed_other_address", "passed_fragment",
                                                    "passed_without_socket"};

/// Provides the object file of the XDP program as a path that DPDK's driver can open. The driver loads and attaches the program,
/// and adds the driver's sockets to the map `xsks_map`. Later XdpSteering replaces the program that the driver has attached. The
/// path is valid as long as this object exists.
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
    bool whole = false;  ///< true: rocid receives all traffic to the address, including ARP; false: only RoCEv2
};

class XdpSteering {
public:
    /// Called before DPDK's driver starts. If an earlier rocid crashed during its start and left its program attached, removes
    /// this program. Throws StartError if the interface has another XDP program, or if the kernel or the interface's driver
    /// rejects rocid's program.
    static void prepare(const std::string& interface, int index, uint32_t mtu);

    /// Detaches the program that DPDK's driver has attached for one queue, so that the driver can start the next queue. Throws
    /// StartError.
    static void detach(const std::string& interface, int index);

    /// Called after DPDK's driver has started. Replaces the driver's program by rocid's program, which redirects frames of queue
    /// i to sockets[i]. Uses native mode if the interface's driver supports native mode, otherwise generic mode. Throws
    /// StartError.
    XdpSteering(const std::string& interface, int index, std::span<const int> sockets);
    ~XdpSteering();
    XdpSteering(const XdpSteering&) = delete;

    /// Replaces the set of addresses whose frames the program redirects to rocid.
    void set_addresses(std::span<const ServedAddress> addresses);
    bool native() const { return native_; }
    /// Returns the sum of a counter over all CPUs. `which` is an index into kSteeringCounters.
    uint64_t counter(size_t which) const;

private:
    struct Program;
    static void try_out(const std::string& interface, int index, uint32_t mtu);
    std::unique_ptr<Program> program_;
    bool native_ = false;
};

}  // namespace roci::pmd
