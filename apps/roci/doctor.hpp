// roci doctor: checks a machine and reports the conditions that stop or slow RDMA programs over rocid. The worst findings come
// first.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace roci::cli {

/// The input of the checks. Tests set another root and other limits.
struct Machine {
    std::string root;           ///< prefix of every path; "": this machine
    unsigned uid = 0;           ///< the user who would start rocid
    uint64_t capabilities = 0;  ///< effective capabilities, as the kernel's mask
    uint64_t memlock = 0;       ///< limit of locked memory in bytes; UINT64_MAX: no limit
    uint64_t open_files = 0;
    int glibc_minor = 0;                                      ///< N of glibc version 2.N
    std::string rocid;                                        ///< path of rocid; "": not found
    std::vector<std::string> libraries;                       ///< folders of Rocinante's client libraries
    std::string socket;                                       ///< the socket at which programs look for rocid
    std::function<std::string(const std::string&)> variable;  ///< value of an environment variable; "" if unset
    std::function<std::string()> connect;                     ///< connects to `socket`; returns the error, or "" if rocid answers
};
Machine this_machine(const std::string& socket);

enum class Severity : uint8_t { stops, slows, note, good };

struct Finding {
    Severity severity = Severity::good;
    std::string what;
    std::string advice;  ///< one command or one sentence; "" if no action is needed
};

struct Check {
    const char* name;
    Finding (*look)(const Machine&);
};
std::span<const Check> checks();

struct NamedFinding {
    const char* name;
    Finding finding;
};
/// Runs all checks. The worst findings come first; equally bad findings are in the order of checks().
std::vector<NamedFinding> examine(const Machine& machine);
std::string report(const std::vector<NamedFinding>& findings);

struct DoctorOptions {
    std::string socket, root;
};
/// Prints the findings. Returns the exit code: 1 if a finding stops programs, else 0.
int doctor(const DoctorOptions& options);

}  // namespace roci::cli
