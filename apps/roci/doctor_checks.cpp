// The checks of roci doctor. kChecks has one row per check. A check reads only files below Machine::root and fields of Machine.
#include <dirent.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>

#include "doctor.hpp"

namespace roci::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kOldestGlibc = 31;
constexpr long kPagesWanted = 64;    // pages of 2 MiB: enough for one engine and the rings of a few clients
constexpr long kThreadsWanted = 32;  // enough for the threads of EAL, engines, control (conductor), events and captures
constexpr uint64_t kFilesWanted = 1024;
constexpr uint64_t kMemlockWanted = 64u << 20;
constexpr int kNetAdmin = 12, kNetRaw = 13, kSysAdmin = 21;

Finding good(std::string what) { return {Severity::good, std::move(what), ""}; }

bool exists(const Machine& m, const std::string& path) {
    std::error_code none;
    return fs::exists(m.root + path, none);
}

/// Returns the first word of a file, or "" if the file cannot be read.
std::string word_of(const Machine& m, const std::string& path) {
    std::ifstream in(m.root + path);
    std::string word;
    in >> word;
    return word;
}

long number_of(const Machine& m, const std::string& path) {
    const std::string word = word_of(m, path);
    return word.empty() ? -1 : std::atol(word.c_str());
}

std::vector<std::string> names_in(const Machine& m, const std::string& folder) {
    std::vector<std::string> out;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(m.root + folder, none)) out.push_back(entry.path().filename());
    std::sort(out.begin(), out.end());
    return out;
}

std::string joined(const std::vector<std::string>& words) {
    std::string out;
    for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
    return out;
}

bool has(const Machine& m, int capability) { return (m.capabilities >> capability & 1) != 0; }

Finding c_library(const Machine& m) {
    if (m.glibc_minor >= kOldestGlibc) return good(fmt::format("glibc 2.{}", m.glibc_minor));
    return {Severity::stops, fmt::format("glibc 2.{}: the client libraries need 2.{} or newer", m.glibc_minor, kOldestGlibc),
            "run the program in a container with a newer distribution, and mount rocid's socket into it"};
}

Finding kernel_files(const Machine& m) {
    for (const char* path : {"/proc/self/maps", "/sys/devices"})
        if (!exists(m, path))
            return {Severity::stops, fmt::format("{} is not there; rocid and DPDK read it", path),
                    std::string("mount it: ") + (path[1] == 'p' ? "mount -t proc proc /proc" : "mount -t sysfs sysfs /sys")};
    return good("/proc and /sys are mounted");
}

Finding daemon(const Machine& m) {
    if (m.rocid.empty())
        return {Severity::stops, "no rocid next to roci, in sbin or in PATH",
                "install the package rocinante, or add rocid's folder to PATH"};
    return good(m.rocid);
}

Finding client_libraries(const Machine& m) {
    if (m.libraries.empty())
        return {Severity::stops, "Rocinante's libibverbs.so.1 is not found", "install the package librocinante-verbs"};
    return good(joined(m.libraries));
}

/// Searches for DPDK's plugin that manages buffer pools. Without this plugin DPDK cannot allocate buffers. DPDK then reports a
/// lack of memory and not the missing file.
Finding dpdk_plugins(const Machine& m) {
    for (const char* base : {"/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64"}) {
        std::vector<std::string> folders{std::string(base)};
        for (const std::string& name : names_in(m, base))
            if (name.ends_with("-linux-gnu")) folders.push_back(std::string(base) + "/" + name);
        for (const std::string& folder : folders)
            for (const std::string& pmds : names_in(m, folder + "/dpdk"))
                for (const std::string& file : names_in(m, folder + "/dpdk/" + pmds))
                    if (file.starts_with("librte_mempool_ring.so")) return good(folder + "/dpdk/" + pmds);
    }
    return {Severity::stops, "DPDK's plugin librte_mempool_ring.so is not found: rocid would fail as if memory were short",
            "apt-get install librte-mempool-ring23, or libdpdk-dev"};
}

Finding processes(const Machine& m) {
    for (const char* path : {"/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"}) {
        const std::string limit = word_of(m, path);
        if (limit.empty() || limit == "max") continue;
        if (std::atol(limit.c_str()) < kThreadsWanted)
            return {Severity::stops,
                    fmt::format("{} threads and processes allowed here; rocid makes about {}", limit, kThreadsWanted / 2),
                    fmt::format("raise the pids limit to {} or more (docker run --pids-limit, TasksMax= of the unit)",
                                kThreadsWanted)};
        return good(limit + " threads and processes");
    }
    return good("no limit");
}

Finding answers(const Machine& m) {
    const std::string why = m.connect ? m.connect() : "";
    if (why.empty()) return good("rocid answers at " + m.socket);
    if (why.find("Permission denied") != std::string::npos)
        return {Severity::stops, why,
                "rocid may be running, but your user may not use its socket: join its group (usermod -aG), or see "
                "rocid.socket_mode and the folder's mode"};
    if (!m.variable("ROCI_SOCKET").empty())
        return {Severity::stops, why + " (named by ROCI_SOCKET)", "start rocid there, or unset ROCI_SOCKET"};
    return {Severity::note, why, "systemctl start rocid; without, `roci run` starts a loopback rocid of its own"};
}

Finding hugepages(const Machine& m) {
    const std::string pool = "/sys/kernel/mm/hugepages/hugepages-2048kB/";
    const long free = number_of(m, pool + "free_hugepages"), reserved = number_of(m, pool + "nr_hugepages");
    if (free < 0) return {Severity::slows, "this kernel has no 2 MiB hugepages; rocid uses ordinary pages", ""};
    if (free >= kPagesWanted) return good(fmt::format("{} of 2 MiB free", free));
    return {Severity::slows,
            fmt::format("{} of 2 MiB free, {} reserved; rocid uses ordinary pages where they end", free, reserved),
            "as root: rocinante-hugepages 256 (config/hugepages.sh)"};
}

Finding locked_memory(const Machine& m) {
    if (m.memlock >= kMemlockWanted || m.uid == 0 || has(m, 14)) return good("enough");
    return {Severity::note, fmt::format("{} KiB of locked memory allowed", m.memlock >> 10),
            "programs that lock memory themselves need more: `ulimit -l unlimited`, or LimitMEMLOCK= of a unit"};
}

Finding open_files(const Machine& m) {
    if (m.open_files >= kFilesWanted) return good(fmt::format("{} allowed", m.open_files));
    return {Severity::slows, fmt::format("{} allowed; a registration or a completion channel takes one", m.open_files),
            fmt::format("ulimit -n {}", 64 * kFilesWanted)};
}

Finding rights(const Machine& m) {
    if (m.uid == 0 || (has(m, kNetRaw) && has(m, kNetAdmin))) return good("every kind of port can be opened");
    return {Severity::note,
            "no CAP_NET_RAW and CAP_NET_ADMIN: this user's rocid can open loopback, udp, vhost_user, virtio_user and memif ports "
            "only",
            "run rocid by its unit (systemctl start rocid), or as root"};
}

Finding page_adoption(const Machine& m) {
    const long unprivileged = number_of(m, "/proc/sys/vm/unprivileged_userfaultfd");
    if (!exists(m, "/proc/self/mem"))
        return {Severity::slows, "no /proc/self/mem: registered memory that cannot be shared is refused", "mount /proc"};
    if (unprivileged < 0) return {Severity::slows, "this kernel has no userfaultfd: pages are frozen by write protection", ""};
    return good("userfaultfd");
}

Finding container(const Machine& m) {
    const bool inside = exists(m, "/.dockerenv") || exists(m, "/run/.containerenv") || !m.variable("container").empty() ||
                        !m.variable("KUBERNETES_SERVICE_HOST").empty();
    if (!inside) return good("none");
    if (exists(m, m.socket)) return good("a container, with rocid's socket in it");
    return {Severity::note, "a container without rocid's socket",
            fmt::format("mount the folder of the host's socket (-v {0}:{0}), or let `roci run` start a rocid in here",
                        fs::path(m.socket).parent_path().string())};
}

/// Checks that `roci run` may create the namespaces for the program's private view of /sys. UCX, pyverbs and other programs
/// search for devices in /sys.
Finding private_view(const Machine& m) {
    if (has(m, kSysAdmin)) return good("can be made");
    const long allowed = number_of(m, "/proc/sys/user/max_user_namespaces"),
               clone = number_of(m, "/proc/sys/kernel/unprivileged_userns_clone");
    const long apparmor = number_of(m, "/proc/sys/kernel/apparmor_restrict_unprivileged_userns");
    if (allowed != 0 && clone != 0 && apparmor != 1) return good("user namespaces are allowed");
    return {Severity::note, "no user namespaces: UCX and pyverbs, which look for devices in /sys, see none",
            "as root: sysctl user.max_user_namespaces=65536 kernel.unprivileged_userns_clone=1 "
            "kernel.apparmor_restrict_unprivileged_userns=0"};
}

Finding interfaces(const Machine& m) {
    std::vector<std::string> small;
    size_t count = 0;
    for (const std::string& name : names_in(m, "/sys/class/net")) {
        if (name == "lo") continue;
        ++count;
        const long mtu = number_of(m, "/sys/class/net/" + name + "/mtu");
        if (mtu > 0 && mtu < 4200) small.push_back(fmt::format("{} ({})", name, mtu));
    }
    if (count == 0) return {Severity::note, "no network interface but lo: loopback devices only", ""};
    if (small.empty()) return good(fmt::format("{} with room for path MTU 4096", count));
    return {Severity::slows, "MTU too small for path MTU 4096 (1500 carries 1024): " + joined(small),
            "ip link set IFACE mtu 4200, at both ends and on the switch"};
}

Finding other_devices(const Machine& m) {
    const std::vector<std::string> devices = names_in(m, "/sys/class/infiniband");
    if (devices.empty()) return good("no kernel RDMA device");
    return {Severity::note,
            "the kernel has " + joined(devices) + "; programs under `roci run` see rocid's devices, others the kernel's", ""};
}

/// Searches for another RDMA library that a program could load instead of Rocinante's library: in LD_PRELOAD, and in folders that
/// are often in an RPATH.
Finding other_libraries(const Machine& m) {
    const std::string preload = m.variable("LD_PRELOAD");
    for (const char* name : {"libibverbs", "librdmacm", "libmlx5", "libvma"})
        if (preload.find(name) != std::string::npos)
            return {Severity::stops, "LD_PRELOAD=" + preload + " loads another RDMA library before ours", "unset LD_PRELOAD"};
    for (const char* folder : {"/opt/mellanox", "/opt/ofed", "/usr/local/lib"})
        for (const std::string& name : names_in(m, folder))
            if (name.starts_with("libibverbs.so") || std::string(folder).starts_with("/opt"))
                return {Severity::note, fmt::format("another RDMA stack lies in {}", folder),
                        "a program with an RPATH to it does not see ours: `ldd PROGRAM | grep libibverbs` under roci run"};
    return good("none in the way");
}

constexpr Check kChecks[] = {
    {"C library", c_library},
    {"kernel's files", kernel_files},
    {"rocid", daemon},
    {"client libraries", client_libraries},
    {"other RDMA libraries", other_libraries},
    {"DPDK", dpdk_plugins},
    {"threads", processes},
    {"socket", answers},
    {"hugepages", hugepages},
    {"open files", open_files},
    {"page adoption", page_adoption},
    {"MTU", interfaces},
    {"rights", rights},
    {"locked memory", locked_memory},
    {"container", container},
    {"view of /sys", private_view},
    {"kernel RDMA devices", other_devices},
};

}  // namespace

std::span<const Check> checks() { return kChecks; }

}  // namespace roci::cli
