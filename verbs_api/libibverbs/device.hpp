// A device of rocid.
#pragma once

#include <cstdint>

#include "abi/control.hpp"
#include "verbs.hpp"

namespace roci::client {

/// A device in the list of ibv_get_device_list(3). The fields of rdma-core's private struct verbs_device follow the public
/// struct, because the direct-verbs libraries of mlx5 and EFA read `ops` of any device. They compare the pointer with the address
/// of their own table.
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

/// Finds the device `name` in rocid's list of devices. Returns 0, ENODEV if there is no such device, or another errno.
int find_device(class Connection& link, const char* name, abi::DeviceEntry& out);

}  // namespace roci::client
