// The client's mapping of the device page (abi/device_page.hpp). The library reads port attributes and GIDs from this mapping, so
// that these queries need no control call.
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
    /// Returns true if rocid runs. May be called only if mapped() is true.
    bool rocid_runs() const;
    /// Copies a part of the snapshot. Returns false if there is no stable copy; the caller then sends a control call. May be
    /// called only if mapped() is true.
    bool read(abi::PortAttr& out) const { return record_->read(offsetof(abi::DeviceSnapshot, port), out); }
    bool read(abi::QueryGidTableReply& out) const { return record_->read(offsetof(abi::DeviceSnapshot, gids), out); }

private:
    Mapping page_;
    const abi::DeviceRecord* record_ = nullptr;
    uint32_t* owner_ = nullptr;
};

}  // namespace roci::client
