// The memory of the device page (abi/device_page.hpp). Clients may map it read-only.
#pragma once

#include <cstddef>

#include "abi/device_page.hpp"

namespace roci::rocid {

class DevicePage {
public:
    /// Allocates the page and locks the robust futex in the page. While the calling thread runs, the futex stays locked. Throws
    /// pmd::StartError.
    explicit DevicePage(uint32_t devices);
    ~DevicePage();
    DevicePage(const DevicePage&) = delete;
    int fd() const { return fd_; }
    void publish(uint32_t device, const abi::DeviceSnapshot& now);
    /// Unlocks the futex. Afterwards the clients' queries fail as after the end of rocid. Must be called by the thread that has
    /// called the constructor.
    void end();

private:
    int fd_ = -1;
    std::byte* base_ = nullptr;
    abi::DevicePageHeader header_{};
    bool owned_ = false;
};

}  // namespace roci::rocid
