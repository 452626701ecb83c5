// A device of rocid.
#pragma once

#include <cstdint>

#include "abi/control.hpp"
#include "verbs.hpp"

namespace roci::client {

/// The object behind an ibv_device*. The fields of rdma-core's private verbs_device follow the public struct, because the
/// direct-verbs libraries of mlx5 and EFA read `ops` of any device and compare the pointer with their own.
struct Device {
    ibv_device device;
    const void* ops;
    int refcount;
    void* list[2];
    void* sysfs;
    uint64_t core_support;
    // fields of this library
    uint64_t guid;  ///< big endian
    int index;

    static Device* from(ibv_device* d) { return reinterpret_cast<Device*>(d); }
};

/// Asks rocid for the device with this name. Returns 0, ENODEV if there is no such device, or another errno.
int find_device(class Connection& link, const char* name, abi::DeviceEntry& out);

}  // namespace roci::client
