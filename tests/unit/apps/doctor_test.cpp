// Tests of `roci doctor`: which problems it finds, the order in which it prints them, and its advice. A problem stops
// programs or makes them slow. Each test has its own fake root folder.
#include "doctor.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "temporary_folder.hpp"

using namespace roci::cli;
namespace fs = std::filesystem;

namespace {

class Doctor : public testing::Test {
protected:
    void SetUp() override {
        machine.root = temporary.path;
        machine.memlock = machine.open_files = UINT64_MAX;
        machine.capabilities = ~uint64_t(0);
        machine.glibc_minor = 36;
        machine.rocid = "/usr/sbin/rocid";
        machine.libraries = {"/usr/lib/rocinante"};
        machine.socket = "/run/rocinante/rocid.sock";
        machine.variable = [this](const std::string& variable) { return variables[variable]; };
        machine.connect = [this] { return refused; };
        put("/proc/self/maps");
        put("/proc/self/mem");
        put("/proc/sys/vm/unprivileged_userfaultfd", "0");
        put("/sys/devices/x");
        put("/sys/class/net/eth0/mtu", "9000");
        put("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "256");
        put("/usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0/librte_mempool_ring.so.23");
    }

    void put(const std::string& path, const std::string& text = "") const {
        fs::create_directories(fs::path(machine.root + path).parent_path());
        std::ofstream(machine.root + path) << text << "\n";
    }
    void take(const std::string& path) const { fs::remove_all(machine.root + path); }

    Finding of(const std::string& name) const {
        for (const NamedFinding& f : examine(machine))
            if (f.name == name) return f.finding;
        ADD_FAILURE() << "no check " << name;
        return {};
    }
    void expect(const std::string& name, Severity severity, const std::string& word) const {
        const Finding f = of(name);
        EXPECT_EQ(f.severity, severity) << f.what;
        EXPECT_NE((f.what + " " + f.advice).find(word), std::string::npos) << f.what << " -> " << f.advice;
    }

    const roci::TemporaryFolder temporary;
    Machine machine;
    std::map<std::string, std::string> variables;
    std::string refused;
};

TEST_F(Doctor, AGoodMachineHasNothingToDo) {
    for (const NamedFinding& f : examine(machine)) {
        EXPECT_EQ(f.finding.severity, Severity::good) << f.name << ": " << f.finding.what;
        EXPECT_EQ(f.finding.advice, "") << f.name;
    }
}

TEST_F(Doctor, TheWorstComesFirst) {
    put("/sys/class/net/eth0/mtu", "1500");
    machine.rocid.clear();
    machine.open_files = 64;
    const std::vector<NamedFinding> found = examine(machine);
    EXPECT_STREQ(found[0].name, "rocid");
    EXPECT_EQ(found[0].finding.severity, Severity::stops);
    EXPECT_EQ(found[1].finding.severity, Severity::slows);
    EXPECT_EQ(found[2].finding.severity, Severity::slows);
    EXPECT_EQ(found[3].finding.severity, Severity::good);
    EXPECT_EQ(report(found).find("STOPS"), 0u);
}

TEST_F(Doctor, EveryFindingThatStopsSaysWhatToDo) {
    fs::remove_all(machine.root);
    machine.glibc_minor = 28;
    machine.rocid.clear();
    machine.libraries.clear();
    variables["LD_PRELOAD"] = "/usr/lib/libibverbs.so.1";
    variables["ROCI_SOCKET"] = "/nowhere";
    refused = "/nowhere: No such file or directory";
    int stops = 0;
    for (const NamedFinding& f : examine(machine)) {
        if (f.finding.severity != Severity::stops) continue;
        ++stops;
        EXPECT_NE(f.finding.advice, "") << f.name;
    }
    EXPECT_EQ(stops, 7);
}

TEST_F(Doctor, AMissingPluginOfDpdkIsNotALackOfMemory) {
    take("/usr/lib/x86_64-linux-gnu/dpdk");
    expect("DPDK", Severity::stops, "librte_mempool_ring.so");
}

TEST_F(Doctor, NoSysIsSaidInOneLine) {
    take("/sys");
    expect("kernel's files", Severity::stops, "mount -t sysfs");
}

TEST_F(Doctor, ALowPidsLimitStops) {
    put("/sys/fs/cgroup/pids.max", "8");
    expect("threads", Severity::stops, "pids limit");
    put("/sys/fs/cgroup/pids.max", "max");
    expect("threads", Severity::good, "no limit");
}

TEST_F(Doctor, APermissionIsNotTheAbsenceOfRocid) {
    refused = "/run/rocinante/rocid.sock: Permission denied";
    expect("socket", Severity::stops, "socket_mode");
    refused = "/run/rocinante/rocid.sock: No such file or directory";
    expect("socket", Severity::note, "roci run");
    variables["ROCI_SOCKET"] = machine.socket;
    expect("socket", Severity::stops, "ROCI_SOCKET");
}

TEST_F(Doctor, AnotherLibraryInTheWayStops) {
    variables["LD_PRELOAD"] = "/opt/x/libibverbs.so.1";
    expect("other RDMA libraries", Severity::stops, "LD_PRELOAD");
}

TEST_F(Doctor, AnOldCLibraryStops) {
    machine.glibc_minor = 30;
    expect("C library", Severity::stops, "2.31");
    machine.glibc_minor = 31;
    expect("C library", Severity::good, "2.31");
}

TEST_F(Doctor, HugepagesAndMtuSlow) {
    put("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "3");
    expect("hugepages", Severity::slows, "rocinante-hugepages");
    put("/sys/class/net/eth0/mtu", "1500");
    expect("MTU", Severity::slows, "eth0 (1500)");
}

TEST_F(Doctor, AnOrdinaryUserIsToldWhatItsRocidCannotOpen) {
    machine.uid = 1000;
    machine.capabilities = 0;
    machine.memlock = 8 << 20;
    expect("rights", Severity::note, "CAP_NET_RAW");
    expect("locked memory", Severity::note, "ulimit -l");
    put("/proc/sys/user/max_user_namespaces", "0");
    expect("view of /sys", Severity::note, "UCX");
}

TEST_F(Doctor, AContainerNeedsTheSocketOnly) {
    put("/run/.containerenv");
    expect("container", Severity::note, "/run/rocinante");
    put("/run/rocinante/rocid.sock");
    expect("container", Severity::good, "socket");
}

}  // namespace
