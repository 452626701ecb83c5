// The memory of the device page (abi/device_page.hpp). Clients may map it read-only.
#pragma once

#include <cstddef>

#include "abi/device_page.hpp"

namespace roci::rocid {

class DevicePage {
public:
    /// From now on clients can see whether the calling thread runs. Throws pmd::StartError.
    explicit DevicePage(uint32_t devices);
    ~DevicePage();
    DevicePage(const DevicePage&) = delete;
    int fd() const { return fd_; }
    void publish(uint32_t device, const abi::DeviceSnapshot& now);
    /// From now on the queries of clients fail as after the end of rocid. Called by the thread that has made the page.
    void end();

private:
    int fd_ = -1;
    std::byte* base_ = nullptr;
    abi::DevicePageHeader header_{};
    bool owned_ = false;
};

}  // namespace roci::rocid
