// Tests of the folder of `roci view`: what it contains after each change of rocid's devices, and which folders it refuses.
#include "view.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "temporary_folder.hpp"

using namespace roci::cli;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> kDevices = {"roci0", "roci1"};
const std::vector<ViewEntry> kFiles = {{"roci0/ports/1/state", "4: ACTIVE", {}},
                                       {"roci0/ports/1/counters/port_xmit_packets", "0", {}, true},
                                       {"roci0/ports/1/gid_attrs/types/1", "RoCE v2", {}},
                                       {"roci0/device/net/eth0", {}, "/sys/class/net/eth0"},
                                       {"roci1/device/net/", {}, {}}};

std::string text_of(const fs::path& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
}

void write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
}

class View : public testing::Test {
protected:
    void SetUp() override {
        // The machine: one network interface, one disk, one RDMA device.
        write(root / "sys/class/net/bonding_masters", "");
        for (const char* link : {"net/eth0", "block/sda", "infiniband/mlx5_0"}) {
            fs::create_directories((root / "sys/class" / link).parent_path());
            fs::create_symlink(std::string("../../devices/") + fs::path(link).filename().string(), root / "sys/class" / link);
        }
    }

    fs::path classes() const { return root / "view/sys/class"; }
    fs::path port() const { return classes() / "infiniband/roci0/ports/1"; }
    const roci::TemporaryFolder temporary;
    const fs::path& root = temporary.path;
};

}  // namespace

TEST_F(View, has_the_files_and_a_node_of_each_device) {
    ViewFolder(root / "view").write_devices(kFiles, kDevices, false);
    EXPECT_EQ(text_of(port() / "state"), "4: ACTIVE\n");
    EXPECT_EQ(fs::read_symlink(classes() / "infiniband/roci0/device/net/eth0"), "/sys/class/net/eth0");
    EXPECT_TRUE(fs::is_directory(classes() / "infiniband/roci1/device/net"));
    for (const std::string& name : kDevices) EXPECT_EQ(fs::read_symlink(root / "view/dev/infiniband" / name), "/dev/null");
}

TEST_F(View, renewal_keeps_counters_and_inodes_and_removes_what_is_gone) {
    ViewFolder(root / "view").write_devices(kFiles, kDevices, false);
    write(port() / "counters/port_xmit_packets", "77\n");
    auto files = kFiles;
    files[0].text = "1: DOWN";
    files.erase(files.begin() + 2, files.end());
    ViewFolder(root / "view").write_devices(files, std::span(kDevices).first(1), true);
    EXPECT_EQ(text_of(port() / "state"), "1: DOWN\n");
    EXPECT_EQ(text_of(port() / "counters/port_xmit_packets"), "77\n");
    EXPECT_FALSE(fs::exists(port() / "gid_attrs/types/1"));
    EXPECT_FALSE(fs::exists(classes() / "infiniband/roci1"));
    EXPECT_FALSE(fs::is_symlink(root / "view/dev/infiniband/roci1"));
    ViewFolder(root / "view").write_devices(kFiles, kDevices, false);
    EXPECT_EQ(text_of(port() / "counters/port_xmit_packets"), "0\n") << "rocid has started again: counters begin at 0";
}

TEST_F(View, keeps_the_folders_that_containers_have_mounted) {
    const ViewFolder folder(root / "view");
    folder.write_devices(kFiles, kDevices, false);
    const int mounted = open(classes().c_str(), O_PATH | O_DIRECTORY);
    folder.write_devices(kFiles, kDevices, false);
    folder.copy_classes(root / "sys", false);
    EXPECT_EQ(faccessat(mounted, "infiniband/roci0/ports/1/state", R_OK, 0), 0);
    close(mounted);
}

TEST_F(View, shows_other_devices_but_not_rdma_devices_of_the_kernel) {
    const ViewFolder folder(root / "view");
    folder.copy_classes(root / "sys", false);
    EXPECT_EQ(fs::read_symlink(classes() / "block/sda"), "../../devices/sda");
    EXPECT_EQ(fs::read_symlink(classes() / "net"), "../devices/virtual/net");
    EXPECT_FALSE(fs::is_symlink(classes() / "infiniband/mlx5_0"));
    folder.copy_classes(root / "sys", true);
    EXPECT_EQ(fs::read_symlink(classes() / "net/eth0"), "../../devices/eth0");
    fs::remove(root / "sys/class/net/eth0");
    folder.copy_classes(root / "sys", true);
    EXPECT_FALSE(fs::is_symlink(classes() / "net/eth0")) << "the interface is gone";
}

TEST_F(View, refuses_a_folder_with_other_files_and_changes_nothing_there) {
    write(root / "home/letter", "dear");
    EXPECT_THROW(ViewFolder(root / "home"), std::runtime_error);
    EXPECT_THROW(ViewFolder(root / "home/letter"), std::runtime_error);
    fs::create_directories(root / "linked");
    fs::create_directory_symlink(root / "home", root / "linked/sys");
    EXPECT_THROW(ViewFolder(root / "linked"), std::runtime_error) << "the view would be written behind the link";
    EXPECT_EQ(std::distance(fs::directory_iterator(root / "home"), {}), 1);
}

/// Another user prepares a folder in which links lead to files of root.
TEST_F(View, root_refuses_a_folder_that_another_user_can_change) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    constexpr uid_t kOther = 65534;
    write(root / "precious/letter", "dear");
    fs::create_directories(root / "theirs/dev");
    fs::create_symlink(root / "precious/letter", root / "theirs/.rocinante-view");
    fs::create_symlink(root / "precious", root / "theirs/dev/infiniband");
    for (const char* name : {"theirs", "theirs/dev", "theirs/dev/infiniband", "theirs/.rocinante-view"})
        ASSERT_EQ(lchown((root / name).c_str(), kOther, kOther), 0);
    EXPECT_THROW(ViewFolder(root / "theirs"), std::runtime_error);
    EXPECT_THROW(ViewFolder(root / "theirs/dev/view"), std::runtime_error) << "its owner could rename it";
    ASSERT_EQ(lchown((root / "theirs").c_str(), 0, 0), 0);
    EXPECT_THROW(ViewFolder(root / "theirs"), std::runtime_error) << "entries of another user";
    EXPECT_EQ(text_of(root / "precious/letter"), "dear");
}

TEST_F(View, root_takes_a_volume_of_a_pod_and_closes_it) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    fs::create_directories(root / "volume");
    fs::permissions(root / "volume", fs::perms::all);
    ViewFolder(root / "volume").write_devices(kFiles, kDevices, false);
    EXPECT_EQ(fs::status(root / "volume").permissions() & fs::perms::others_write, fs::perms::none);
}

TEST_F(View, takes_a_folder_in_which_an_engine_made_places_to_mount) {
    fs::create_directories(root / "volume/sys/class");
    ViewFolder(root / "volume").write_devices(kFiles, kDevices, false);
    EXPECT_TRUE(fs::exists(root / "volume/sys/class/infiniband/roci0/ports/1/state"));
    EXPECT_NO_THROW(ViewFolder(root / "volume"));
}

TEST_F(View, a_folder_belongs_to_one_process_at_a_time) {
    {
        const ViewFolder first(root / "view");
        try {
            const ViewFolder second(root / "view");
            ADD_FAILURE() << "two views of one folder";
        } catch (const std::runtime_error& e) {
            EXPECT_EQ(e.what(), (root / "view").string() + ": another roci view is writing this folder");
        }
    }
    EXPECT_NO_THROW(ViewFolder(root / "view"));
}

TEST_F(View, the_cdi_specification_mounts_every_part) {
    const auto spec = nlohmann::json::parse(cdi_specification("/run/view", "/run/rocinante/rocid.sock"));
    EXPECT_EQ(spec.at("kind"), "rocinante/verbs");
    const auto& edits = spec.at("devices").at(0).at("containerEdits");
    EXPECT_EQ(edits.at("env").at(0), "ROCI_SOCKET=/run/rocinante/rocid.sock");
    ASSERT_EQ(edits.at("mounts").size(), 1 + view_mounts().size());
    EXPECT_EQ(edits.at("mounts").at(0).at("hostPath"), "/run/rocinante");
    for (size_t i = 0; i < view_mounts().size(); ++i) {
        EXPECT_EQ(edits.at("mounts").at(i + 1).at("hostPath"), std::string("/run/view/") + view_mounts()[i].from);
        EXPECT_EQ(edits.at("mounts").at(i + 1).at("options").at(0), "ro");
    }
}
