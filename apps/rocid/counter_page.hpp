// The memory of the engines' counters. Any client may map it read-only (abi/counter_page.hpp).
#pragma once

#include <span>
#include <string>

#include "abi/counter_page.hpp"
#include "engine/engine.hpp"

namespace roci::rocid {

class CounterPage {
public:
    /// Allocates the page. Throws pmd::StartError on failure.
    CounterPage(uint32_t engines, std::span<const std::string> devices);
    ~CounterPage();
    CounterPage(const CounterPage&) = delete;
    /// Returns the places of an engine's counters. The places are valid as long as the page exists.
    engine::CounterPlaces places(uint32_t engine) const;
    int fd() const { return fd_; }
    /// device_values() returns the counters of a device, summed over all engines. engine_values() returns the counters of an
    /// engine. Any thread may call both functions.
    std::vector<uint64_t> device_values(uint32_t device) const;
    std::vector<uint64_t> engine_values(uint32_t engine) const;
    uint32_t engines() const { return header_.engines; }
    uint32_t devices() const { return header_.devices; }

private:
    std::byte* at(uint32_t engine) const { return base_ + header_.values + size_t{engine} * header_.engine_stride; }
    void write_names(std::span<const std::string> devices);

    int fd_ = -1;
    std::byte* base_ = nullptr;
    abi::CounterPageHeader header_{};
};

}  // namespace roci::rocid
