// Starts DPDK's environment abstraction layer (EAL) once per process. With the options of this file, EAL leaves no files and
// needs no root privilege. EAL uses hugepages if EalOptions::hugepages permits hugepages and enough hugepages are free.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace roci::pmd {

/// Thrown if a part of rocid cannot start. The text is one line, which contains a remedy if a remedy is known.
class StartError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

enum class Hugepages : uint8_t { automatic, always, never };

struct EalOptions {
    uint32_t engines = 1;        ///< number of worker lcores
    std::vector<unsigned> cpus;  ///< engine i runs on cpus[i] only; empty: engines may use all CPUs of the process
    Hugepages hugepages = Hugepages::automatic;
    uint64_t memory_bytes = 64 << 20;   ///< size of all mbuf pools and rings
    std::vector<std::string> pci = {};  ///< NICs to probe, as "0000:03:00.0[,devargs]"; EAL probes no other NIC
    bool verbose = false;               ///< show DPDK's messages
};

/// Returns the CPUs that this process may run on, in ascending order.
std::vector<unsigned> allowed_cpus();
/// Returns the CPUs in the list syntax of cpusets, such as "0-1,4".
std::string cpu_list(const std::vector<unsigned>& cpus);
/// Allocates and frees `bytes` of 2 MiB hugepages. Returns true if the allocation succeeded.
bool hugepages_available(uint64_t bytes);
/// Returns the arguments that Eal passes to rte_eal_init. A separate function for tests.
std::vector<std::string> eal_arguments(const EalOptions& options, bool huge);

/// Suppresses DPDK's error messages during the lifetime of the object, because rocid itself reports each error. Has no effect if
/// EalOptions::verbose is set.
class QuietDpdk {
public:
    QuietDpdk();
    ~QuietDpdk();
    QuietDpdk(const QuietDpdk&) = delete;

private:
    const uint32_t level_;
};

/// The end of the error text for an error of a driver. The text names the option that prints more details.
inline constexpr const char* kMore = " (rocid --log-level debug prints what the driver says)";

class Eal {
public:
    /// Starts EAL. May be called once per process. Throws StartError.
    explicit Eal(const EalOptions& options);
    ~Eal();
    Eal(const Eal&) = delete;

    bool uses_hugepages() const { return huge_; }
    /// Returns "hugepages (2 MiB)", or "ordinary pages" and the reason in parentheses.
    const std::string& memory_mode() const { return memory_mode_; }
    /// Runs `body` on the lcore of engine `engine`.
    void launch(uint32_t engine, std::function<void()> body);
    /// Waits until all bodies have returned.
    void join();

private:
    bool huge_ = false;
    std::string memory_mode_;
    std::vector<std::function<void()>> bodies_;
};

}  // namespace roci::pmd
