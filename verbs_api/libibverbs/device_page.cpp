#include "device_page.hpp"

namespace roci::client {

void DevicePage::map(int fd, uint32_t device) {
    abi::DevicePageHeader h{};
    page_ = map_fd(fd, false);
    if (page_.base == nullptr || page_.length < sizeof h) return;
    std::memcpy(&h, page_.base, sizeof h);
    const uint64_t record = h.first + uint64_t{device} * h.stride;
    if (h.magic != abi::kDevicePageMagic || device >= h.devices || h.stride < sizeof(abi::DeviceRecord) ||
        record + sizeof(abi::DeviceRecord) > page_.length || record % alignof(abi::DeviceRecord) != 0 ||
        h.owner + sizeof(uint32_t) > page_.length || h.owner % alignof(uint32_t) != 0)
        return;
    owner_ = reinterpret_cast<uint32_t*>(page_.base + h.owner);
    record_ = reinterpret_cast<const abi::DeviceRecord*>(page_.base + record);
}

bool DevicePage::rocid_runs() const { return (std::atomic_ref(*owner_).load(std::memory_order_acquire) & abi::kOwnerMask) != 0; }

}  // namespace roci::client
