#include "devices.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "control_client.hpp"

namespace roci::cli {
namespace {

/// Returns a device name from rocid if it is safe as a file name, else "".
std::string safe_name(const char* raw, size_t capacity) {
    std::string name(raw, strnlen(raw, capacity));
    return name.find('/') == std::string::npos && name != ".." && name != "." ? name : std::string{};
}

bool query_device(const std::string& socket_path, const abi::DeviceEntry& entry, Device& out, std::string& why) {
    auto client = ControlClient::connect(socket_path, why);  // one connection opens one device
    if (!client) return false;
    const auto take = [&](Answer answer, auto& into) {
        if (answer.error != 0) why = answer.reason;
        into = answer.as<std::remove_reference_t<decltype(into)>>();
        return answer.error == 0;
    };
    abi::OpenDeviceReply opened{};
    abi::QueryGidTableReply table{};
    const bool ok =
        take(client->request(abi::Op::open_device, abi::OpenDeviceRequest{.device = entry.index, .flags = 0}), opened) &&
        take(client->request(abi::Op::query_device), out.attr) &&
        take(client->request(abi::Op::query_port, abi::HandleRequest{.handle = 1, .reserved = 0}), out.port) &&
        take(client->request(abi::Op::query_gid_table), table);
    out.gids.assign(table.entry, table.entry + std::min<size_t>(table.count, std::size(table.entry)));
    return ok;
}

}  // namespace

std::vector<Device> query_devices(const std::string& socket_path, std::string& why) {
    auto client = ControlClient::connect(socket_path, why);
    if (!client) return {};
    const Answer answer = client->request(abi::Op::list_devices);
    if (answer.error != 0) {
        why = answer.reason;
        return {};
    }
    const auto list = answer.as<abi::ListDevicesReply>();
    std::vector<Device> devices;
    for (size_t i = 0; i < std::min<size_t>(list.count, std::size(list.device)); ++i) {
        Device device;
        device.name = safe_name(list.device[i].name, sizeof list.device[i].name);
        device.netdev = safe_name(list.device[i].netdev, sizeof list.device[i].netdev);
        if (device.name.empty()) continue;
        if (!query_device(socket_path, list.device[i], device, why)) return {};
        devices.push_back(std::move(device));
    }
    return devices;
}

std::string gid_text(const abi::GidValue& gid) {
    std::string text;
    for (int i = 0; i < 16; i += 2) text += fmt::format("{}{:02x}{:02x}", i == 0 ? "" : ":", gid.raw[i], gid.raw[i + 1]);
    return text;
}

std::string guid_text(uint64_t guid_be) {
    uint8_t b[8];
    std::memcpy(b, &guid_be, sizeof b);
    return fmt::format("{:02x}{:02x}:{:02x}{:02x}:{:02x}{:02x}:{:02x}{:02x}", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]);
}

}  // namespace roci::cli
