#include "nic.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace roci::rocid {
namespace {

namespace fs = std::filesystem;

/// Kernel drivers through which a process in user space controls a whole NIC.
constexpr std::array kWhole = {"vfio-pci", "uio_pci_generic", "igb_uio"};
/// Kernel drivers that share a NIC with DPDK's driver.
constexpr std::array kShared = {"mlx4_core", "mlx5_core", "mana"};
/// Drivers that the other devices of the NIC's IOMMU group may have.
constexpr std::array kHarmless = {"", "vfio-pci", "pcieport", "pci-stub"};

template <size_t N>
bool is_among(const std::array<const char*, N>& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
}

/// Returns the last part of the link's target, or "" if the link does not exist.
std::string link_name(const fs::path& link) {
    std::error_code none;
    return fs::read_symlink(link, none).filename();
}

std::string first_word(const fs::path& file) {
    std::string word;
    std::ifstream(file) >> word;
    return word;
}

std::string bind(const std::string& address) {
    return fmt::format("modprobe vfio-pci && dpdk-devbind.py -b vfio-pci {}", address);
}

/// Returns the reason why rocid cannot use the NIC's IOMMU group, or "" if rocid can use the group. The kernel assigns all
/// devices of a group to one process.
std::string group_trouble(const fs::path& devices, const std::string& address, const std::string& root) {
    std::error_code none;
    for (const fs::directory_entry& other : fs::directory_iterator(devices / address / "iommu_group/devices", none)) {
        const std::string name = other.path().filename(), driver = link_name(devices / name / "driver");
        if (!is_among(kHarmless, driver))
            return fmt::format("{} is in one IOMMU group with {}, which the driver {} has, and a group is had as a whole: {}",
                               address, name, driver, bind(name));
    }
    const std::string file = "/dev/vfio/" + link_name(devices / address / "iommu_group");
    const int fd = open((root + file).c_str(), O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        close(fd);
        return "";
    }
    if (errno == EBUSY) return fmt::format("another process has {} ({} is busy): stop it", address, file);
    if (errno == EACCES || errno == EPERM)
        return fmt::format("no permission to open {}: chown it to the user that rocid runs as, or run rocid as root", file);
    if (errno == ENOENT && fs::exists(root + "/dev/vfio/noiommu-" + link_name(devices / address / "iommu_group"), none))
        return "";
    return fmt::format("{} cannot be opened ({}): is the module vfio-pci loaded? modprobe vfio-pci", file, std::strerror(errno));
}

}  // namespace

std::optional<std::string> canonical_pci(std::string_view text) {
    const std::string s(text);
    for (const char* form : {"%4x:%2x:%2x.%1u%n", "%2x:%2x.%1u%n"}) {
        unsigned n[4] = {};
        int length = 0;
        const bool whole = form[1] == '4';
        const int got = whole ? std::sscanf(s.c_str(), form, &n[0], &n[1], &n[2], &n[3], &length)
                              : std::sscanf(s.c_str(), form, &n[1], &n[2], &n[3], &length);
        if (got == (whole ? 4 : 3) && size_t(length) == s.size() && n[2] < 32 && n[3] < 8)
            return fmt::format("{:04x}:{:02x}:{:02x}.{}", n[0], n[1], n[2], n[3]);
    }
    return std::nullopt;
}

std::string nic_trouble(const std::string& address, const std::string& root) {
    const fs::path devices = root + "/sys/bus/pci/devices", nic = devices / address;
    if (!fs::exists(nic)) return fmt::format("there is no PCI device {} here; 'lspci -D' lists what there is", address);
    if (const std::string type = first_word(nic / "class"); !type.starts_with("0x02"))
        return fmt::format("PCI device {} is no network card (class {}); 'lspci -D' lists what there is", address, type);
    const std::string driver = link_name(nic / "driver");
    if (is_among(kShared, driver)) return "";
    const bool iommu = fs::exists(nic / "iommu_group");
    if (!iommu && (driver.empty() || driver == "vfio-pci"))
        return fmt::format(
            "no IOMMU has {}: switch it on in the firmware (VT-d, AMD-Vi) and on the kernel's command line "
            "(intel_iommu=on), boot, then: {}",
            address, bind(address));
    if (driver.empty()) return fmt::format("no driver has {}: {}", address, bind(address));
    if (!is_among(kWhole, driver))
        return fmt::format("the kernel's driver {} has {}, and with it the interface: to give it to rocid: {}{}", driver, address,
                           bind(address), iommu ? "" : " (and switch the IOMMU on: intel_iommu=on)");
    return driver == "vfio-pci" ? group_trouble(devices, address, root) : "";
}

}  // namespace roci::rocid
