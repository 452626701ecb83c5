#include "sysfs_view.hpp"

#include <gtest/gtest.h>
#include <net/if.h>

#include <algorithm>
#include <cstring>

using namespace roci::cli;

namespace {

Device sample_device() {
    Device device;
    device.name = "roci0";
    const uint8_t guid[8] = {0x02, 0x00, 0x00, 0xff, 0xfe, 0x00, 0x00, 0x01};
    std::memcpy(&device.attr.node_guid, guid, sizeof guid);
    device.port.state = 4;
    device.port.phys_state = 5;
    device.port.active_width = 2;
    device.port.active_speed = 32;
    device.port.gid_table_length = 4;
    roci::abi::GidEntry gid{};
    gid.index = 1;
    gid.type = 2;
    const uint8_t raw[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
    std::memcpy(gid.gid.raw, raw, sizeof raw);
    std::strcpy(gid.netdev, "tap0");
    device.gids.push_back(gid);
    return device;
}

std::vector<ViewEntry> view_of(const Device& device) { return sysfs_view(std::span(&device, 1), HostFacts{"3", "0-1", "host"}); }

const ViewEntry* find(const std::vector<ViewEntry>& view, const std::string& path) {
    const auto at = std::ranges::find(view, path, &ViewEntry::path);
    return at == view.end() ? nullptr : &*at;
}

std::string text_of(const std::vector<ViewEntry>& view, const std::string& path) {
    const ViewEntry* entry = find(view, path);
    return entry != nullptr ? entry->text : "(absent)";
}

}  // namespace

TEST(SysfsView, writes_values_as_the_kernel_does) {
    const auto view = view_of(sample_device());
    EXPECT_EQ(text_of(view, "roci0/node_guid"), "0200:00ff:fe00:0001");
    EXPECT_EQ(text_of(view, "roci0/ports/1/state"), "4: ACTIVE");
    EXPECT_EQ(text_of(view, "roci0/ports/1/phys_state"), "5: LinkUp");
    EXPECT_EQ(text_of(view, "roci0/ports/1/rate"), "100 Gb/sec (4X)");
    EXPECT_EQ(text_of(view, "roci0/ports/1/link_layer"), "Ethernet");
    EXPECT_EQ(text_of(view, "roci0/device/local_cpus"), "3");
}

TEST(SysfsView, every_gid_index_has_a_gid_but_only_used_ones_a_type) {
    const auto view = view_of(sample_device());
    EXPECT_EQ(text_of(view, "roci0/ports/1/gids/0"), "0000:0000:0000:0000:0000:0000:0000:0000");
    EXPECT_EQ(text_of(view, "roci0/ports/1/gids/1"), "0000:0000:0000:0000:0000:ffff:0a00:0001");
    EXPECT_EQ(text_of(view, "roci0/ports/1/gids/3"), "0000:0000:0000:0000:0000:0000:0000:0000");
    EXPECT_EQ(find(view, "roci0/ports/1/gids/4"), nullptr);
    EXPECT_EQ(text_of(view, "roci0/ports/1/gid_attrs/types/1"), "RoCE v2");
    EXPECT_EQ(text_of(view, "roci0/ports/1/gid_attrs/ndevs/1"), "tap0");
    EXPECT_EQ(find(view, "roci0/ports/1/gid_attrs/types/0"), nullptr);
}

TEST(SysfsView, a_gid_without_an_interface_is_shown_with_one_that_exists) {
    Device device = sample_device();
    std::memset(device.gids[0].netdev, 0, sizeof device.gids[0].netdev);
    HostFacts host{"3", "0-1", "here", {}};
    const Device devices[] = {device};
    EXPECT_EQ(find(sysfs_view(devices, host), "roci0/ports/1/gid_attrs/ndevs/1"), nullptr);
    host.interface_towards = [](const roci::abi::GidValue& gid) { return gid.raw[12] == 10 ? "eth7" : "wrong"; };
    EXPECT_EQ(text_of(sysfs_view(devices, host), "roci0/ports/1/gid_attrs/ndevs/1"), "eth7");
    host.interface_towards = host_facts().interface_towards;
    const std::string name = text_of(sysfs_view(devices, host), "roci0/ports/1/gid_attrs/ndevs/1");
    EXPECT_NE(if_nametoindex(name.c_str()), 0u) << name;
}

TEST(SysfsView, a_gid_index_beyond_the_table_is_left_out) {
    Device device = sample_device();
    device.gids[0].index = 4;
    const auto view = view_of(device);
    EXPECT_EQ(find(view, "roci0/ports/1/gid_attrs/types/4"), nullptr);
}

TEST(SysfsView, net_folder_is_there_with_and_without_an_interface) {
    Device device = sample_device();
    EXPECT_NE(find(view_of(device), "roci0/device/net/"), nullptr);
    device.netdev = "tap0";
    const auto view = view_of(device);
    ASSERT_NE(find(view, "roci0/device/net/tap0"), nullptr);
    EXPECT_EQ(find(view, "roci0/device/net/tap0")->link, "/sys/class/net/tap0");
}
