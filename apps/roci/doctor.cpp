#include "doctor.hpp"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "control_client.hpp"
#include "paths.hpp"

namespace roci::cli {
namespace {

constexpr const char* kWords[] = {"STOPS", "slows", "note", "good"};

uint64_t limit_of(int resource) {
    rlimit limit{};
    if (getrlimit(__rlimit_resource_t(resource), &limit) != 0) return 0;
    return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : uint64_t(limit.rlim_cur);
}

uint64_t effective_capabilities() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
        if (word == "CapEff:" && status >> word) return std::strtoull(word.c_str(), nullptr, 16);
    return 0;
}

std::string environment_variable(const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return value != nullptr ? value : "";
}

int minor_version(const std::string& version) {
    const size_t dot = version.find('.');
    return dot == std::string::npos ? 0 : std::atoi(version.c_str() + dot + 1);
}

}  // namespace

Machine this_machine(const std::string& socket) {
    Machine m;
    m.uid = geteuid();
    m.capabilities = effective_capabilities();
    m.memlock = limit_of(RLIMIT_MEMLOCK);
    m.open_files = limit_of(RLIMIT_NOFILE);
    m.glibc_minor = minor_version(gnu_get_libc_version());
    m.rocid = find_rocid();
    m.libraries = library_folders();
    m.variable = environment_variable;
    m.socket = socket;
    if (m.socket.empty()) m.socket = environment_variable(abi::kSocketEnv);
    if (m.socket.empty()) m.socket = abi::kDefaultSocket;
    m.connect = [path = m.socket] {
        std::string why;
        ControlClient::connect(path, why);
        return why;
    };
    return m;
}

std::vector<NamedFinding> examine(const Machine& machine) {
    std::vector<NamedFinding> out;
    for (const Check& check : checks()) out.push_back({check.name, check.look(machine)});
    std::stable_sort(out.begin(), out.end(),
                     [](const NamedFinding& a, const NamedFinding& b) { return a.finding.severity < b.finding.severity; });
    return out;
}

std::string report(const std::vector<NamedFinding>& findings) {
    std::string out;
    for (const auto& [name, finding] : findings) {
        out += fmt::format("{:<6} {:<20} {}\n", kWords[size_t(finding.severity)], name, finding.what);
        if (!finding.advice.empty()) out += fmt::format("{:>29}{}\n", "-> ", finding.advice);
    }
    return out;
}

int doctor(const DoctorOptions& options) {
    Machine machine = this_machine(options.socket);
    machine.root = options.root;
    const std::vector<NamedFinding> findings = examine(machine);
    fmt::print("{}", report(findings));
    return findings.front().finding.severity == Severity::stops ? 1 : 0;
}

}  // namespace roci::cli
