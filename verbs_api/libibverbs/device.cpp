#include "device.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>

#include "connection.hpp"
#include "log.hpp"

namespace roci::client {
namespace {

/// The value of Device::ops. libmlx5 and libefa compare the address of this table with the address of their own table, and do not
/// use the entries if the addresses differ.
const void* const kNoOps[64] = {};

/// The devices that were listed so far, one object per device. The objects exist as long as the process, because programs use
/// pointers to devices after ibv_free_device_list().
struct Registry {
    std::mutex mutex;
    std::vector<Device*> devices;
};
Registry& registry() {
    static Registry* const r = new Registry;  // never destroyed: a program's exit handlers may use it
    return *r;
}

template <size_t N>
void copy_text(char (&to)[N], const char* directory, const char* name) {
    std::snprintf(to, N, "%s%s", directory, name);
}

Device* make_device(const abi::DeviceEntry& entry) {
    auto* d = new (std::nothrow) Device{};
    if (d == nullptr) return nullptr;
    const std::string sysfs = ibv_get_sysfs_path();
    d->device.node_type = IBV_NODE_CA;
    d->device.transport_type = IBV_TRANSPORT_IB;
    copy_text(d->device.name, "", entry.name);
    copy_text(d->device.dev_name, "", entry.name);
    copy_text(d->device.dev_path, (sysfs + "/class/infiniband_verbs/").c_str(), entry.name);
    copy_text(d->device.ibdev_path, (sysfs + "/class/infiniband/").c_str(), entry.name);
    d->ops = kNoOps;
    d->refcount = 1;
    return d;
}

Device* known_device(const abi::DeviceEntry& entry) {
    auto& devices = registry().devices;
    const auto it =
        std::find_if(devices.begin(), devices.end(), [&](Device* d) { return std::strcmp(d->device.name, entry.name) == 0; });
    Device* d = it != devices.end() ? *it : make_device(entry);
    if (d == nullptr) return nullptr;
    if (it == devices.end()) devices.push_back(d);
    d->guid = entry.node_guid;
    d->index = int(entry.index);
    return d;
}

int list_devices(Connection& link, abi::ListDevicesReply& reply) {
    const int err = link.ask(abi::Op::list_devices, reply);
    reply.count = err != 0 ? 0 : std::min(reply.count, uint32_t(std::size(reply.device)));
    for (uint32_t i = 0; i < reply.count; ++i) reply.device[i].name[sizeof reply.device[i].name - 1] = '\0';
    return err;
}

}  // namespace

int find_device(Connection& link, const char* name, abi::DeviceEntry& out) {
    abi::ListDevicesReply reply;
    if (const int err = list_devices(link, reply); err != 0) return err;
    for (uint32_t i = 0; i < reply.count; ++i) {
        if (std::strcmp(reply.device[i].name, name) != 0) continue;
        out = reply.device[i];
        return 0;
    }
    log("rocid serves no device %s any more", name);
    return ENODEV;
}

}  // namespace roci::client

using namespace roci::client;

// If the library cannot connect to rocid, the list is empty and not NULL, because NULL would mean that the verbs library itself
// is broken.
ibv_device** ibv_get_device_list(int* num_devices) {
    if (num_devices != nullptr) *num_devices = 0;
    roci::abi::ListDevicesReply reply;
    reply.count = 0;
    {
        Connection link;
        if (link.open() == 0) list_devices(link, reply);
    }
    auto** list = static_cast<ibv_device**>(std::calloc(reply.count + 1, sizeof(void*)));
    if (list == nullptr) {
        errno = ENOMEM;
        return nullptr;
    }
    std::lock_guard guard(registry().mutex);
    int found = 0;
    for (uint32_t i = 0; i < reply.count; ++i)
        if (Device* d = known_device(reply.device[i])) list[found++] = &d->device;
    if (num_devices != nullptr) *num_devices = found;
    return list;
}

void ibv_free_device_list(ibv_device** list) { std::free(list); }

const char* ibv_get_device_name(ibv_device* device) { return device->name; }

int ibv_get_device_index(ibv_device* device) { return Device::from(device)->index; }

__be64 ibv_get_device_guid(ibv_device* device) { return Device::from(device)->guid; }
