// The client's view of the device page (abi/device_page.hpp), from which queries are answered without a control call.
#pragma once

#include "abi/device_page.hpp"
#include "arena.hpp"

namespace roci::client {

class DevicePage {
public:
    DevicePage() = default;
    DevicePage(const DevicePage&) = delete;
    DevicePage& operator=(const DevicePage&) = delete;
    ~DevicePage() { unmap(page_); }

    /// Maps the page and finds the record of the device. Closes `fd`. If the page is unusable, mapped() remains false and all
    /// queries are control calls.
    void map(int fd, uint32_t device);
    bool mapped() const { return record_ != nullptr; }
    /// Returns true if rocid runs. May be called only if mapped().
    bool rocid_runs() const;
    /// Copies a part of the snapshot. Returns false if the caller must ask rocid. May be called only if mapped().
    bool read(abi::PortAttr& out) const { return record_->read(offsetof(abi::DeviceSnapshot, port), out); }
    bool read(abi::QueryGidTableReply& out) const { return record_->read(offsetof(abi::DeviceSnapshot, gids), out); }

private:
    Mapping page_;
    const abi::DeviceRecord* record_ = nullptr;
    uint32_t* owner_ = nullptr;
};

}  // namespace roci::client
