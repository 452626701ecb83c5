// The memory that engines count in, as a page that any client may map read-only (abi/counter_page.hpp).
#pragma once

#include <span>
#include <string>

#include "abi/counter_page.hpp"
#include "engine/engine.hpp"

namespace roci::rocid {

class CounterPage {
public:
    /// Throws pmd::StartError.
    CounterPage(uint32_t engines, std::span<const std::string> devices);
    ~CounterPage();
    CounterPage(const CounterPage&) = delete;
    /// Where an engine counts. Valid as long as the page.
    engine::CounterPlaces places(uint32_t engine) const;
    int fd() const { return fd_; }

private:
    void write_names(std::span<const std::string> devices);

    int fd_ = -1;
    std::byte* base_ = nullptr;
    abi::CounterPageHeader header_{};
};

}  // namespace roci::rocid
