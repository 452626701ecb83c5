// DPDK's environment: started once a process, without leaving files behind, without root, with hugepages where there are any.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace roci::pmd {

/// DPDK or the machine refuses to start something. The text is one line and names the remedy.
class StartError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

enum class Hugepages : uint8_t { automatic, always, never };

struct EalOptions {
    uint32_t engines = 1;        ///< worker lcores
    std::vector<unsigned> cpus;  ///< pin engine i to cpus[i]; empty: engines float over the CPUs the process may use
    Hugepages hugepages = Hugepages::automatic;
    uint64_t memory_bytes = 64 << 20;   ///< size of all mbuf pools and rings
    std::vector<std::string> pci = {};  ///< NICs to probe, "0000:03:00.0[,devargs]"; no other is touched
    bool verbose = false;               ///< show DPDK's messages
};

/// CPUs that this process may run on, ascending.
std::vector<unsigned> allowed_cpus();
/// "0-1,4": the list syntax of cpusets.
std::string cpu_list(const std::vector<unsigned>& cpus);
/// True if that many bytes of 2 MiB hugepages are available: allocates and frees them.
bool hugepages_available(uint64_t bytes);
/// The arguments that start_eal gives to rte_eal_init; apart for tests.
std::vector<std::string> eal_arguments(const EalOptions& options, bool huge);

/// Suppresses DPDK's messages during its lifetime, unless `verbose`: rocid reports each error once, itself.
class QuietDpdk {
public:
    QuietDpdk();
    ~QuietDpdk();
    QuietDpdk(const QuietDpdk&) = delete;

private:
    const uint32_t level_;
};

/// The end of an error text that comes from a driver: where to find more.
inline constexpr const char* kMore = " (rocid --log-level debug prints what the driver says)";

class Eal {
public:
    /// Throws StartError. Once a process.
    explicit Eal(const EalOptions& options);
    ~Eal();
    Eal(const Eal&) = delete;

    bool uses_hugepages() const { return huge_; }
    /// "hugepages (2 MiB)" or "ordinary pages: why".
    const std::string& memory_mode() const { return memory_mode_; }
    /// Starts `body` on the lcore of engine `engine`; it runs until it returns.
    void launch(uint32_t engine, std::function<void()> body);
    /// Waits until all bodies have returned.
    void join();

private:
    bool huge_ = false;
    std::string memory_mode_;
    std::vector<std::function<void()>> bodies_;
};

}  // namespace roci::pmd
