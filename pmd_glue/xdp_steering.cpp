#include "xdp_steering.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <vector>

#include "eal.hpp"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wpedantic"
#include "steer.skel.h"
#pragma GCC diagnostic pop

namespace roci::pmd {
namespace {

constexpr char kProgramName[] = "roci_steer";

/// A file descriptor that the destructor closes.
struct Fd {
    int fd = -1;
    explicit Fd(int f) : fd(f) {}
    ~Fd() {
        if (fd >= 0) close(fd);
    }
    Fd(const Fd&) = delete;
};

[[noreturn]] void refuse(const std::string& interface, const char* step, int error) {
    std::string why = "XDP on interface '" + interface + "': " + step + ": " + std::strerror(error);
    if (error == EPERM || error == EACCES)  // the verifier returns EACCES if the process lacks CAP_PERFMON
        why += "; it takes CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN and CAP_NET_RAW (run as root, or as config/rocid.service does)";
    if (error == EOPNOTSUPP || error == EINVAL || error == ENOSYS)
        why += "; this kernel may have no XDP: use port = \"af_packet\"";
    throw StartError(why);
}

uint32_t attached_program(int index) {
    uint32_t id = 0;
    return bpf_xdp_query_id(index, 0, &id) == 0 ? id : 0;
}

/// Returns the name of a program, or "?" if this process may not query it (CAP_SYS_ADMIN).
std::string name_of(uint32_t id) {
    const Fd program(bpf_prog_get_fd_by_id(id));
    bpf_prog_info info{};
    uint32_t length = sizeof info;
    if (program.fd < 0 || bpf_obj_get_info_by_fd(program.fd, &info, &length) != 0) return "?";
    return info.name;
}

std::string refuses_native(const std::string& interface, uint32_t mtu, int error) {
    return "XDP on interface '" + interface + "': its driver refuses the program (" + std::strerror(error) +
           "), as drivers do when " + "MTU " + std::to_string(mtu) + " leaves a page no room for it: ip link set " + interface +
           " mtu 3400 (or less), or port = \"af_packet\"";
}

int silent(libbpf_print_level, const char*, va_list) { return 0; }

}  // namespace

struct XdpSteering::Program {
    steer_bpf* skeleton = nullptr;
    int link = -1;
    ~Program() {
        if (link >= 0) close(link);
        steer_bpf__destroy(skeleton);
    }
    void load(const std::string& interface) {
        skeleton = steer_bpf__open();
        if (skeleton == nullptr) refuse(interface, "the program does not open", errno);
        if (const int e = steer_bpf__load(skeleton); e != 0) refuse(interface, "the program does not load", -e);
    }
    /// Returns 0 or a positive errno.
    int attach(int index, uint32_t mode) {
        bpf_link_create_opts opts{};
        opts.sz = sizeof opts;
        opts.flags = mode;
        link = bpf_link_create(bpf_program__fd(skeleton->progs.roci_steer), index, BPF_XDP, &opts);
        return link >= 0 ? 0 : errno;
    }
};

XdpObjectFile::XdpObjectFile() : fd_(memfd_create("roci-steer", MFD_CLOEXEC)) {
    size_t size = 0;
    const void* bytes = steer_bpf__elf_bytes(&size);
    if (fd_ < 0 || write(fd_, bytes, size) != ssize_t(size)) throw StartError("no memory for the XDP program");
}

XdpObjectFile::~XdpObjectFile() { close(fd_); }

void XdpSteering::try_out(const std::string& interface, int index, uint32_t mtu) {
    Program program;
    program.load(interface);
    const int error = program.attach(index, XDP_FLAGS_DRV_MODE);
    if (error == EOPNOTSUPP && program.attach(index, XDP_FLAGS_SKB_MODE) == 0) return;
    // Interface drivers return ERANGE, EINVAL or EOPNOTSUPP if a frame and XDP's headroom do not fit into a page. In this case
    // rocid refuses the interface, because DPDK's driver does not retry in generic mode after such an error.
    if (error == ERANGE || error == EINVAL || error == EOPNOTSUPP) throw StartError(refuses_native(interface, mtu, error));
    if (error != 0) refuse(interface, "the program does not attach", error);
}

void XdpSteering::prepare(const std::string& interface, int index, uint32_t mtu) {
    libbpf_set_print(silent);
    const uint32_t id = attached_program(index);
    if (id == 0) return try_out(interface, index, mtu);
    const std::string name = name_of(id);
    // bpf_xdp_detach() cannot detach the program of a running rocid, because a bpf_link attaches that program.
    if (name == kProgramName && bpf_xdp_detach(index, 0, nullptr) == 0) return;
    throw StartError("interface '" + interface + "' is taken: it has the XDP program '" + name +
                     (name == kProgramName ? "' of another rocid; give that one's configuration this device too, or stop it"
                                           : "'; stop what put it there, or: ip link set dev " + interface + " xdp off"));
}

void XdpSteering::detach(const std::string& interface, int index) {
    if (const int e = bpf_xdp_detach(index, 0, nullptr); e != 0) refuse(interface, "the driver's program does not come off", -e);
}

XdpSteering::XdpSteering(const std::string& interface, int index, std::span<const int> sockets)
    : program_(std::make_unique<Program>()) {
    program_->load(interface);
    steer_bpf* skeleton = program_->skeleton;
    for (uint32_t queue = 0; queue < sockets.size(); ++queue)
        if (bpf_map_update_elem(bpf_map__fd(skeleton->maps.xsks_map), &queue, &sockets[queue], BPF_ANY) != 0)
            refuse(interface, "a queue's socket", errno);
    detach(interface, index);
    native_ = program_->attach(index, XDP_FLAGS_DRV_MODE) == 0;
    if (native_) return;
    if (const int e = program_->attach(index, XDP_FLAGS_SKB_MODE); e != 0) refuse(interface, "the program does not attach", e);
}

XdpSteering::~XdpSteering() = default;

void XdpSteering::set_addresses(std::span<const ServedAddress> addresses) {
    const int map = bpf_map__fd(program_->skeleton->maps.addresses);
    std::map<Gid, uint8_t> wanted;  // values of enum ours in xdp/steer.bpf.c
    for (const ServedAddress& a : addresses)
        if (!a.address.is_zero()) wanted[a.address] = a.whole ? 2 : 1;
    std::vector<Gid> gone;
    Gid key{}, next{};
    for (const void* from = nullptr; bpf_map_get_next_key(map, from, &next) == 0; key = next, from = &key)
        if (!wanted.contains(next)) gone.push_back(next);
    for (const Gid& g : gone) bpf_map_delete_elem(map, &g);
    for (const auto& [g, what] : wanted) bpf_map_update_elem(map, &g, &what, BPF_ANY);
}

uint64_t XdpSteering::counter(size_t which) const {
    const int cpus = libbpf_num_possible_cpus();
    std::vector<uint64_t> values(size_t(std::max(cpus, 1)));
    const auto key = uint32_t(which);
    if (bpf_map_lookup_elem(bpf_map__fd(program_->skeleton->maps.counters), &key, values.data()) != 0) return 0;
    uint64_t sum = 0;
    for (const uint64_t v : values) sum += v;
    return sum;
}

}  // namespace roci::pmd
