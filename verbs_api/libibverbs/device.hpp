// A device of rocid.
#pragma once

#include <cstdint>

#include "abi/control.hpp"
#include "verbs.hpp"

namespace roci::client {

/// The object behind an ibv_device*. The public struct is followed by the fields of rdma-core's private verbs_device, because the
/// mlx5 and EFA direct-verbs libraries read `ops` of any device and compare it with their own.
struct Device {
    ibv_device device;
    const void* ops;
    int refcount;
    void* list[2];
    void* sysfs;
    uint64_t core_support;
    // ours
    uint64_t guid;  ///< big endian
    int index;

    static Device* from(ibv_device* d) { return reinterpret_cast<Device*>(d); }
};

/// Finds the device of this name in the connection's rocid. Returns 0 or an errno.
int find_device(class Connection& link, const char* name, abi::DeviceEntry& out);

}  // namespace roci::client
