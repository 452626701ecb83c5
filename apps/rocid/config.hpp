// rocid's configuration. The option table (options.cpp) describes every key: type, default, range and purpose. The parser, the
// error texts and the sample file use this table.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"

namespace roci::rocid {

struct DeviceSection {
    std::string name;
    std::string port;
    std::string peer;
    std::string interface, pci, path, role, devargs;
    uint64_t descriptors = 0;
    std::string mac;
    std::vector<std::string> addresses, gateways, neighbours;
    uint64_t mtu = 0;
    uint64_t vlan = 0, traffic_class = 0;
    std::string checksum_offload;
    int line = 0;                      ///< line of the section in the file
    std::map<std::string, int> given;  ///< keys in the file, with their lines
};

/// The values of all options. An option that the file does not set has the default of the option table.
struct Config {
    std::string socket, socket_group, metrics;
    uint64_t socket_mode = 0;
    std::string hugepages;
    uint64_t mbufs = 0;
    struct {
        uint64_t count = 0, spin_us = 0, max_sleep_us = 0, rx_burst = 0, tx_burst = 0, qp_quantum = 0, max_inflight = 0,
                 ack_every = 0, reorder_frames = 0, reorder_mb = 0;
        int64_t nice = 0;
        std::string idle, cpus, repeat, loss_reports, loopback_icrc;
    } engine;
    struct {
        std::string policy;
        uint64_t first_window = 0, target_us = 0, cnp_interval_us = 0, raise_us = 0, raise_mb = 0, additive_mbps = 0,
                 hyper_mbps = 0;
    } congestion;
    struct {
        uint64_t max_sessions = 0, max_qps = 0, max_keys = 0, max_ahs = 0, max_qp_wr = 0, max_sge = 0, max_inline = 0,
                 max_cqe = 0, max_arena_mb = 0;
        std::vector<std::string> users;
    } limits;
    std::vector<DeviceSection> devices;
    struct {
        uint64_t seed = 0, delay_us = 0;
        double drop = 0, corrupt = 0, reorder = 0, duplicate = 0, ecn = 0;
        bool any() const { return drop > 0 || corrupt > 0 || reorder > 0 || duplicate > 0 || ecn > 0 || delay_us > 0; }
    } fault;
    struct {
        std::string file, trace;
    } capture;

    /// CPUs of engine.cpus. Empty if the lcores are not pinned.
    std::vector<unsigned> cpu_numbers;
};

/// An error in a configuration. The text consists of "file:line: ", the error and the allowed values. An error that concerns no
/// single line has no line number. The text is one line of at most kMostText bytes, although it may repeat parts of the file.
class ConfigError : public std::runtime_error {
public:
    static constexpr size_t kMostText = 1000;
    /// Escapes control characters as in TOML strings. Removes the middle of a longer text.
    explicit ConfigError(std::string_view text);
};

/// Parses TOML text. `name` is the file name in error texts. Missing keys get their defaults. If the text has no [[device]]
/// table, the result has the default pair of loopback devices. `overrides` are entries of the form section.key=value, which are
/// applied after the text. A string value in `overrides` needs no quotes. Throws ConfigError.
Config parse_config(const std::string& text, const std::string& name, const std::vector<std::string>& overrides = {});
/// Reads and parses a file. Throws ConfigError.
Config load_config(const std::string& path, const std::vector<std::string>& overrides = {});
/// Returns the built-in configuration: two loopback devices, roci0 and roci1, that are connected to each other.
Config default_config(const std::vector<std::string>& overrides = {});
/// Returns the built-in configuration of `--single`: one device, roci0, that is its own peer.
Config single_config(const std::vector<std::string>& overrides = {});
/// Returns the text that `rocid --print-config` prints: a configuration file with every key and its default, range and purpose.
std::string sample_config();

}  // namespace roci::rocid
