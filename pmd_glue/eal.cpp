#include "eal.hpp"

#include <fcntl.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

namespace roci::pmd {
namespace {

constexpr uint64_t kHugepage = 2 << 20;
constexpr unsigned kHuge2M = 21u << 26;  // MFD_HUGE_2MB: the upper bits contain log2 of the page size

unsigned lcore_of(uint32_t engine) { return engine + 1; }  // lcore 0 is the conductor, rocid's control thread

/// Returns the value of EAL's option --lcores: the lcore ids and the CPUs of each lcore, such as "0@(0-1),1@(0-1)" or
/// "0@(0-1),1@2".
std::string lcore_map(const EalOptions& o) {
    const std::string all = "(" + cpu_list(allowed_cpus()) + ")";
    std::string map = "0@" + all;
    for (uint32_t e = 0; e < o.engines; ++e)
        map += "," + std::to_string(lcore_of(e)) + "@" + (o.cpus.empty() ? all : std::to_string(o.cpus.at(e)));
    return map;
}

int run_body(void* body) {
    (*static_cast<std::function<void()>*>(body))();
    return 0;
}

/// A temporary folder for the start of EAL. EAL creates a folder `dpdk`, and below `dpdk` a folder per process, even if EAL
/// stores no files in the folders. Without the temporary folder, `dpdk` in /tmp would belong to the first user of DPDK, and no
/// other user could create a folder below `dpdk`.
class RuntimeFolder {
public:
    RuntimeFolder() {
        if (mkdtemp(path_.data()) == nullptr) return;  // EAL then uses its default folder
        made_ = true;
        if (const char* value = std::getenv(kVariable)) before_ = value;
        setenv(kVariable, path_.c_str(), 1);
    }
    ~RuntimeFolder() {
        rmdir(rte_eal_get_runtime_dir());
        if (!made_) return;
        rmdir((path_ + "/dpdk").c_str());
        rmdir(path_.c_str());
        before_ ? setenv(kVariable, before_->c_str(), 1) : unsetenv(kVariable);
    }
    RuntimeFolder(const RuntimeFolder&) = delete;
    RuntimeFolder& operator=(const RuntimeFolder&) = delete;

private:
    static constexpr const char* kVariable = "RUNTIME_DIRECTORY";  // EAL prefers this variable to XDG_RUNTIME_DIR
    std::string path_ = "/tmp/rocid-eal-XXXXXX";
    std::optional<std::string> before_;
    bool made_ = false;
};

struct MemoryChoice {
    bool huge;
    std::string text;
};

MemoryChoice choose_memory(const EalOptions& o) {
    if (o.hugepages == Hugepages::never) return {false, "ordinary pages (memory.hugepages = never)"};
    if (hugepages_available(o.memory_bytes)) return {true, "hugepages (2 MiB)"};
    const std::string need = std::to_string((o.memory_bytes + kHugepage - 1) / kHugepage);
    if (o.hugepages == Hugepages::always)
        throw StartError("memory.hugepages = always, but " + need +
                         " free 2 MiB hugepages are not there: run 'config/hugepages.sh " + need +
                         "' as root, or set memory.hugepages = \"auto\"");
    return {false, "ordinary pages (fewer than " + need + " free 2 MiB hugepages; config/hugepages.sh reserves them)"};
}

}  // namespace

std::vector<unsigned> allowed_cpus() {
    cpu_set_t set;
    CPU_ZERO(&set);
    std::vector<unsigned> cpus;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return {0};
    for (unsigned c = 0; c < CPU_SETSIZE; ++c)
        if (CPU_ISSET(c, &set)) cpus.push_back(c);
    return cpus;
}

std::string cpu_list(const std::vector<unsigned>& cpus) {
    std::string out;
    for (size_t i = 0; i < cpus.size();) {
        size_t last = i;
        while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
        if (!out.empty()) out += ',';
        out += std::to_string(cpus[i]);
        if (last > i) out += '-' + std::to_string(cpus[last]);
        i = last + 1;
    }
    return out;
}

bool hugepages_available(uint64_t bytes) {
    const int fd = memfd_create("rocid-probe", MFD_CLOEXEC | MFD_HUGETLB | kHuge2M);
    if (fd < 0) return false;
    const uint64_t length = (bytes + kHugepage - 1) / kHugepage * kHugepage;
    // Tries to allocate the pages by fallocate(), because the kernel's number of free hugepages includes reserved pages and
    // ignores a container's limit.
    const bool ok = ftruncate(fd, off_t(length)) == 0 && fallocate(fd, 0, 0, off_t(length)) == 0;
    close(fd);
    return ok;
}

std::vector<std::string> eal_arguments(const EalOptions& o, bool huge) {
    std::vector<std::string> a = {"rocid",
                                  "--no-telemetry",
                                  "--iova-mode=va",
                                  "--main-lcore=0",
                                  "--file-prefix=rocid-" + std::to_string(getpid()),
                                  "--lcores=" + lcore_map(o)};
    if (o.pci.empty()) a.push_back("--no-pci");
    for (const std::string& nic : o.pci) a.insert(a.end(), {"-a", nic});
    // With the options of either branch below, EAL leaves no files. EAL does not permit --in-memory together with --no-huge.
    if (huge) {
        // With --single-file-segments, all pages are in one file. A virtio_user port passes its memory as files, and vhost
        // accepts at most eight files.
        a.insert(a.end(), {"--in-memory", "--single-file-segments"});
    } else {
        // With ordinary pages, DPDK uses whole pages per frame, for example two pages for a frame of 4.5 KiB. So EAL reserves
        // twice the size. Pages that are not accessed use no memory.
        const uint64_t megabytes = std::max<uint64_t>(64, (2 * o.memory_bytes + (1 << 20) - 1) >> 20);
        a.insert(a.end(), {"--no-huge", "--no-shconf", "-m", std::to_string(megabytes)});
    }
    // With PCI devices, EAL prints only critical messages, because rocid itself reports a NIC that cannot be used.
    a.push_back(o.verbose ? "--log-level=*:info" : o.pci.empty() ? "--log-level=*:error" : "--log-level=*:critical");
    return a;
}

QuietDpdk::QuietDpdk() : level_(rte_log_get_global_level()) {
    if (level_ <= RTE_LOG_ERR) rte_log_set_global_level(RTE_LOG_CRIT);
}
QuietDpdk::~QuietDpdk() { rte_log_set_global_level(level_); }

Eal::Eal(const EalOptions& o) {
    MemoryChoice memory = choose_memory(o);
    std::vector<std::string> text = eal_arguments(o, memory.huge);
    std::vector<char*> argv;
    argv.reserve(text.size());
    for (std::string& t : text) argv.push_back(t.data());
    if (!o.verbose) rte_log_set_global_level(RTE_LOG_ERR);
    const RuntimeFolder folder;
    if (rte_eal_init(int(argv.size()), argv.data()) < 0)
        throw StartError(std::string("DPDK does not start: ") + rte_strerror(rte_errno) +
                         "; run with --log-level debug to see why, or set memory.hugepages = \"never\"");
    if (!o.verbose) rte_log_set_level_pattern("*", RTE_LOG_ERR);
    huge_ = memory.huge;
    memory_mode_ = memory.text;
    bodies_.resize(o.engines);
}

Eal::~Eal() {
    join();
    rte_eal_cleanup();
}

void Eal::launch(uint32_t engine, std::function<void()> body) {
    bodies_.at(engine) = std::move(body);
    if (rte_eal_remote_launch(run_body, &bodies_[engine], lcore_of(engine)) != 0)
        throw StartError("lcore of engine " + std::to_string(engine) + " does not start: it is busy");
}

void Eal::join() {
    for (uint32_t e = 0; e < bodies_.size(); ++e) rte_eal_wait_lcore(lcore_of(e));
}

}  // namespace roci::pmd
