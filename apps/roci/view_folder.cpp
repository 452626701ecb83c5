// The folder of `roci view`.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>
#include <system_error>

#include <nlohmann/json.hpp>

#include "abi/control.hpp"
#include "view.hpp"

namespace roci::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMarker = ".rocinante-view";  // the folder belongs to `roci view`, which may remove files in it
constexpr ViewMount kMounts[] = {{"sys/class", "/sys/class"}, {"dev/infiniband", "/dev/infiniband"}, {"lib", "/opt/rocinante"}};

struct stat status_of(const fs::path& path, int (*read)(const char*, struct stat*)) {
    struct stat s {};
    if (read(path.c_str(), &s) != 0) throw std::system_error(errno, std::generic_category(), path.string());
    return s;
}

bool is_trusted(const struct stat& s) { return s.st_uid == 0 || s.st_uid == geteuid(); }

[[noreturn]] void refuse_path(const fs::path& path) {
    throw std::runtime_error(fmt::format(
        "{}: another user can change it, and links in it would be followed; name a folder of your own", path.string()));
}

/// Throws if another user can replace the folder by renaming it or a folder above it.
void check_above(const fs::path& folder) {
    for (fs::path above = folder.parent_path(); above.has_relative_path(); above = above.parent_path()) {
        const struct stat s = status_of(above, stat);
        if (!is_trusted(s) || ((s.st_mode & S_IWOTH) != 0 && (s.st_mode & S_ISVTX) == 0)) refuse_path(above);
    }
}

/// Throws if another user could put a link into the view, because `roci view` would then change or remove files behind the link.
/// If the process runs as root, the function also checks the parent folders, and removes the right of all users to write to the
/// folder, because Kubernetes gives all users this right on a volume of a pod. Other processes do not check the parent folders,
/// because in a user namespace these folders seem to have foreign owners.
void check_owners(const fs::path& folder) {
    const struct stat s = status_of(folder, stat);
    if (!is_trusted(s)) refuse_path(folder);
    if (geteuid() == 0) {
        check_above(folder);
        check_above(fs::canonical(folder));
        if ((s.st_mode & S_IWOTH) != 0) fs::permissions(folder, fs::perms::others_write, fs::perm_options::remove);
    }
    for (const auto& entry : fs::recursive_directory_iterator(folder))
        if (!is_trusted(status_of(entry.path(), lstat))) refuse_path(entry.path());
}

/// Returns a file or link below the folder if the folder has no marker of `roci view`, or "" if there is no such file. Empty
/// subfolders are permitted, because container engines create them as mount points. If the search finds a file, the function
/// checks again for the marker, because another `roci view` may have written the marker and the file meanwhile.
fs::path foreign_file(const fs::path& folder) {
    if (fs::exists(folder / kMarker)) return {};
    for (const auto& entry : fs::recursive_directory_iterator(folder))
        if (entry.is_symlink() || !entry.is_directory()) return fs::exists(folder / kMarker) ? fs::path{} : entry.path();
    return {};
}

/// Creates the marker and locks it until the descriptor is closed, because two processes that change one view would remove
/// files of each other. Other users cannot open the marker, so they cannot hold the lock.
UniqueFd locked_marker(const fs::path& folder) {
    UniqueFd fd(open((folder / kMarker).c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (fd && flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
    if (fd && errno == EWOULDBLOCK)
        throw std::runtime_error(fmt::format("{}: another roci view is writing this folder", folder.string()));
    throw std::system_error(errno, std::generic_category(), (folder / kMarker).string());
}

std::string text_of(const fs::path& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
}

/// Returns the name and the target of each link in the folder. Skips a link that is removed meanwhile, for example because its
/// device is removed.
std::map<std::string, fs::path> links_in(const fs::path& folder) {
    std::map<std::string, fs::path> out;
    std::error_code unreadable, gone;
    for (const auto& entry : fs::directory_iterator(folder, unreadable))
        if (fs::path target = fs::read_symlink(entry.path(), gone); !gone) out[entry.path().filename()] = std::move(target);
    return out;
}

void link_to(const fs::path& target, const fs::path& link) {
    if (fs::is_symlink(link) && fs::read_symlink(link) == target) return;
    fs::remove_all(link);
    fs::create_symlink(target, link);
}

/// Changes the folder `to` so that it contains the same links as the folder `from`.
void copy_links(const fs::path& from, const fs::path& to) {
    if (fs::is_symlink(to)) fs::remove(to);
    fs::create_directories(to);
    const auto wanted = links_in(from);
    for (const auto& [name, target] : links_in(to))
        if (!wanted.contains(name)) fs::remove(to / name);
    for (const auto& [name, target] : wanted) link_to(target, to / name);
}

void remove_others(const fs::path& folder, std::span<const std::string> names) {
    std::vector<fs::path> others;
    for (const auto& entry : fs::directory_iterator(folder))
        if (std::ranges::find(names, entry.path().filename().string()) == names.end()) others.push_back(entry.path());
    for (const fs::path& other : others) fs::remove_all(other);
}

/// Removes the files and links below `root` that are not in `files`, such as the type of a GID that was removed.
void remove_old_files(const fs::path& root, std::span<const ViewEntry> files) {
    std::set<fs::path> wanted;
    for (const ViewEntry& entry : files) wanted.insert(root / entry.path);
    std::vector<fs::path> old;
    for (const auto& entry : fs::recursive_directory_iterator(root))
        if ((entry.is_symlink() || entry.is_regular_file()) && !wanted.contains(entry.path())) old.push_back(entry.path());
    for (const fs::path& path : old) fs::remove(path);
}

}  // namespace

std::span<const ViewMount> view_mounts() { return kMounts; }

ViewFolder::ViewFolder(fs::path folder) : folder_(std::move(folder)) {
    fs::create_directories(folder_);
    const fs::path foreign = foreign_file(folder_);
    if (!foreign.empty())
        throw std::runtime_error(
            fmt::format("{}: not a view ({} is there); name a new or empty folder", folder_.string(), foreign.string()));
    check_owners(folder_);
    lock_ = locked_marker(folder_);
    for (const ViewMount& m : kMounts) fs::create_directories(folder_ / m.from);
}

void ViewFolder::copy_classes(const fs::path& sys, bool host_network) const {
    const fs::path classes = folder_ / "sys/class";
    std::error_code unreadable;
    for (const auto& entry : fs::directory_iterator(sys / "class", unreadable)) {
        const std::string name = entry.path().filename();
        if (name == "infiniband") continue;  // a container has no access to the kernel's devices
        if (name == "net" && !host_network)
            link_to("../devices/virtual/net", classes / name);
        else if (entry.is_directory())
            copy_links(entry.path(), classes / name);
    }
}

void ViewFolder::write_devices(std::span<const ViewEntry> files, std::span<const std::string> devices, bool keep_counters) const {
    const fs::path root = this->devices(), fresh = folder_ / (std::string(kMarker) + ".new");
    fs::create_directories(root);
    remove_others(root, devices);
    for (const ViewEntry& entry : files) {
        const fs::path path = root / entry.path;
        if (!entry.link.empty() || entry.path.back() == '/') {
            if (!fs::exists(fs::symlink_status(path))) add_entry(root, entry);
            continue;
        }
        if (fs::exists(path) && ((keep_counters && entry.counter) || text_of(path) == entry.text + "\n")) continue;
        // rename() replaces the file atomically, so a reader never sees an incomplete text.
        add_entry(fresh.parent_path(), {fresh.filename(), entry.text, {}});
        fs::create_directories(path.parent_path());
        fs::rename(fresh, path);
    }
    remove_old_files(root, files);
    remove_others(folder_ / "dev/infiniband", devices);
    for (const std::string& name : devices) link_to("/dev/null", folder_ / "dev/infiniband" / name);
}

void ViewFolder::copy_libraries(std::span<const std::string> folders) const {
    for (const std::string& folder : folders)
        for (const char* name : {"libibverbs.so.1", "librdmacm.so.1"}) {
            const fs::path from = fs::path(folder) / name, to = folder_ / "lib" / name, fresh = folder_ / "lib/.new";
            if (!fs::exists(from)) continue;
            fs::copy_file(from, fresh, fs::copy_options::overwrite_existing);
            fs::rename(fresh, to);  // a running program keeps the old file
        }
}

std::string cdi_specification(const fs::path& folder, const std::string& socket) {
    using nlohmann::json;
    const std::string home = fs::path(socket).parent_path();
    json mounts = json::array({{{"hostPath", home}, {"containerPath", home}, {"options", {"rw", "rbind"}}}});
    for (const ViewMount& m : kMounts)
        mounts.push_back(
            {{"hostPath", (folder / m.from).string()}, {"containerPath", m.to}, {"options", {"ro", "nosuid", "rbind"}}});
    const json environment = json::array({fmt::format("{}={}", abi::kSocketEnv, socket), "LD_LIBRARY_PATH=/opt/rocinante"});
    const json device{{"name", "all"}, {"containerEdits", {{"env", environment}, {"mounts", mounts}}}};
    return json{{"cdiVersion", "0.5.0"}, {"kind", "rocinante/verbs"}, {"devices", json::array({device})}}.dump(2) + "\n";
}

}  // namespace roci::cli
