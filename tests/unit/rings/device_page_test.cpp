// Tests of the snapshot of a device in the device page. A copy must never be torn, and a reader must not wait for a
// writer.
#include "abi/device_page.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace roci::abi {
namespace {

constexpr size_t kPort = offsetof(DeviceSnapshot, port), kGids = offsetof(DeviceSnapshot, gids);

DeviceSnapshot filled_with(int byte) {
    DeviceSnapshot s;
    std::memset(&s, byte, sizeof s);
    return s;
}

TEST(DeviceRecord, IsUnreadableUntilItIsWritten) {
    auto record = std::make_unique<DeviceRecord>();
    PortAttr port{};
    EXPECT_FALSE(record->read(kPort, port));
    record->write(filled_with(7));
    ASSERT_TRUE(record->read(kPort, port));
    EXPECT_EQ(port.state, 0x07070707u);
    QueryGidTableReply gids{};
    ASSERT_TRUE(record->read(kGids, gids));
    EXPECT_EQ(gids.entry[127].netdev[15], 7);
}

TEST(DeviceRecord, AReaderGivesUpWhileAWriterIsStopped) {
    auto record = std::make_unique<DeviceRecord>();
    record->write(filled_with(1));
    ++record->version;  // write() increments the version in its first store
    PortAttr port{.state = 99};
    EXPECT_FALSE(record->read(kPort, port));
    EXPECT_EQ(port.state, 99u) << "nothing is copied";
    ++record->version;
    EXPECT_TRUE(record->read(kPort, port));
}

TEST(DeviceRecord, CopiesAreNeverTorn) {
    constexpr int kWrites = 20'000;
    auto record = std::make_unique<DeviceRecord>();
    record->write(filled_with(0));
    std::atomic<bool> ends{false};
    std::thread writer([&] {
        for (int i = 1; i <= kWrites; ++i) record->write(filled_with(i % 251));
        ends = true;
    });
    uint64_t copies = 0;
    for (bool last = false; !last;) {
        last = ends;
        QueryGidTableReply gids;
        if (!record->read(kGids, gids)) continue;
        ++copies;
        const auto* bytes = reinterpret_cast<const unsigned char*>(&gids);
        for (size_t i = 1; i < sizeof gids; ++i) ASSERT_EQ(bytes[i], bytes[0]) << "at " << i;
        ASSERT_TRUE(!last || bytes[0] == kWrites % 251) << "the last copy is not the last snapshot";
    }
    writer.join();
    EXPECT_NE(copies, 0u);
}

}  // namespace
}  // namespace roci::abi
