// Reads rocid's counters from a read-only mapping of the counter page (abi/counter_page.hpp). Only open() sends a request to
// rocid.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "abi/counter_page.hpp"
#include "control_client.hpp"

namespace roci::cli {

struct CounterLabel {
    std::string name;
    bool level = false;  ///< true: the value can also decrease; false: the value only increases
};

/// Deleter that unmaps the page.
struct Unmap {
    size_t bytes = 0;
    void operator()(const std::byte* p) const;
};

class CounterReader {
public:
    /// Maps rocid's counter page. If rocid has no page or the page is not valid, sets `why` and returns nullopt.
    static std::optional<CounterReader> open(ControlClient& client, std::string& why);
    /// Returns a reader of a counter page in memory. The caller owns the memory. If the page is not valid, sets `why` and returns
    /// nullopt.
    static std::optional<CounterReader> of(std::span<const std::byte> page, std::string& why);

    const std::vector<std::string>& devices() const { return devices_; }
    const std::vector<CounterLabel>& engine_labels() const { return engine_labels_; }
    const std::vector<CounterLabel>& device_labels() const { return device_labels_; }
    uint32_t engines() const { return header_.engines; }
    uint32_t pid() const { return header_.pid; }
    /// Returns the values of an engine's counters, in the order of the labels.
    std::vector<uint64_t> engine_values(uint32_t engine) const;
    /// Returns the part of a device's counters that one engine has counted.
    std::vector<uint64_t> device_values_of(uint32_t engine, uint32_t device) const;
    /// Returns the cycles of the time stamp counter per millisecond; 0 if unknown.
    uint32_t cycles_per_ms() const { return header_.names >= sizeof header_ ? header_.cycles_per_ms : 0; }
    /// Returns the values of a device's counters, summed over all engines.
    std::vector<uint64_t> device_values(uint32_t device) const;

private:
    bool take_header(std::string& why);
    uint64_t load(uint64_t offset) const;

    std::unique_ptr<const std::byte, Unmap> mapping_;
    std::span<const std::byte> page_;
    abi::CounterPageHeader header_{};
    std::vector<std::string> devices_;
    std::vector<CounterLabel> engine_labels_, device_labels_;
};

}  // namespace roci::cli
