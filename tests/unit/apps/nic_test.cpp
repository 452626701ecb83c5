// Tests of the checks whether DPDK can use a NIC. The checks read files below /sys and /dev.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "apps/rocid/nic.hpp"
#include "temporary_folder.hpp"

namespace roci::rocid {
namespace {

namespace fs = std::filesystem;

/// A fake machine: a folder with fake /sys and /dev.
struct Machine {
    const TemporaryFolder temporary;
    const fs::path& root = temporary.path;
    fs::path device(const std::string& address) const { return root / "sys/bus/pci/devices" / address; }
    void add(const std::string& address, const std::string& driver, const std::string& type = "0x020000") const {
        fs::create_directories(device(address));
        std::ofstream(device(address) / "class") << type << '\n';
        if (!driver.empty()) fs::create_symlink("../../../bus/pci/drivers/" + driver, device(address) / "driver");
    }
    void group(const std::string& number, std::initializer_list<std::string> members) const {
        const fs::path folder = root / "sys/kernel/iommu_groups" / number;
        fs::create_directories(folder / "devices");
        for (const std::string& m : members) {
            std::ofstream(folder / "devices" / m);
            fs::create_directory_symlink(folder, device(m) / "iommu_group");
        }
    }
    void vfio_file(const std::string& number) const {
        fs::create_directories(root / "dev/vfio");
        std::ofstream(root / "dev/vfio" / number);
    }
    std::string trouble(const std::string& address = kNic) const { return nic_trouble(address, root); }
    static constexpr const char* kNic = "0000:03:00.0";
};

TEST(Nic, AddressesHaveOneForm) {
    EXPECT_EQ(canonical_pci("0000:03:00.0"), "0000:03:00.0");
    EXPECT_EQ(canonical_pci("03:00.1"), "0000:03:00.1");
    EXPECT_EQ(canonical_pci("0001:AF:1F.7"), "0001:af:1f.7");
    for (const char* bad : {"", "eth0", "03:00", "03:00.0x", "03:20.0", "03:00.8", "-a", "0000:03:00.0 "})
        EXPECT_FALSE(canonical_pci(bad)) << bad;
}

TEST(Nic, WhatIsInTheWayIsSaid) {
    const Machine m;
    EXPECT_NE(m.trouble().find("there is no PCI device 0000:03:00.0 here"), std::string::npos) << m.trouble();
    m.add("0000:00:01.0", "pcieport", "0x060400");
    EXPECT_NE(m.trouble("0000:00:01.0").find("is no network card (class 0x060400)"), std::string::npos);
    m.add(Machine::kNic, "");
    EXPECT_NE(m.trouble().find("no IOMMU has 0000:03:00.0: switch it on"), std::string::npos) << m.trouble();
    m.group("7", {Machine::kNic});
    EXPECT_EQ(m.trouble(), "no driver has 0000:03:00.0: modprobe vfio-pci && dpdk-devbind.py -b vfio-pci 0000:03:00.0");
    m.add("0000:04:00.0", "e1000e");
    EXPECT_NE(m.trouble("0000:04:00.0").find("the kernel's driver e1000e has 0000:04:00.0"), std::string::npos);
    m.add("0000:05:00.0", "mlx5_core");
    EXPECT_EQ(m.trouble("0000:05:00.0"), "");
    m.add("0000:06:00.0", "uio_pci_generic");
    EXPECT_EQ(m.trouble("0000:06:00.0"), "");
}

TEST(Nic, AGroupIsHadAsAWhole) {
    const Machine m;
    m.add(Machine::kNic, "vfio-pci");
    m.add("0000:00:01.0", "pcieport", "0x060400");
    m.group("7", {Machine::kNic, "0000:00:01.0"});
    EXPECT_NE(m.trouble().find("/dev/vfio/7 cannot be opened (No such file or directory)"), std::string::npos) << m.trouble();
    m.vfio_file("7");
    EXPECT_EQ(m.trouble(), "");
    m.add("0000:03:00.1", "e1000e");
    m.add("0000:08:00.0", "vfio-pci");
    m.group("8", {"0000:08:00.0", "0000:03:00.1"});
    m.vfio_file("8");
    EXPECT_NE(m.trouble("0000:08:00.0").find("is in one IOMMU group with 0000:03:00.1, which the driver e1000e has"),
              std::string::npos)
        << m.trouble("0000:08:00.0");
}

}  // namespace
}  // namespace roci::rocid
