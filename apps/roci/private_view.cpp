#include "private_view.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>

namespace roci::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void throw_errno(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

/// Writes the text by one write(2), because /proc/self/uid_map and /proc/self/gid_map accept only one write.
void write_map(const char* path, const std::string& text) {
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool ok = fd >= 0 && write(fd, text.data(), text.size()) == ssize_t(text.size());
    if (fd >= 0) close(fd);
    if (!ok) throw_errno(path);
}

void enter_namespaces() {
    const uid_t uid = geteuid();
    const gid_t gid = getegid();
    if (unshare(CLONE_NEWNS) != 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) throw_errno("user namespace");
        write_map("/proc/self/setgroups", "deny");  // required before an unprivileged write to gid_map (user_namespaces(7))
        write_map("/proc/self/uid_map", fmt::format("{0} {0} 1", uid));
        write_map("/proc/self/gid_map", fmt::format("{0} {0} 1", gid));
    }
    // Mounts of this namespace do not propagate to the system. Later mounts of the system still propagate to this namespace.
    if (mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) throw_errno("making mounts private");
}

void bind(const fs::path& from, const fs::path& to) {
    if (mount(from.c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) throw_errno("bind " + from.string());
}

void make_file(const fs::path& path) {
    if (!std::ofstream(path)) throw_errno(path);
}

/// Makes the file, folder or link `source` visible as `target`. Copies a symbolic link. Bind-mounts a folder on a new folder, and
/// any other file on an empty file.
void show_again(const fs::path& source, const fs::path& target) {
    const fs::file_status status = fs::symlink_status(source);
    if (fs::is_symlink(status)) return fs::create_symlink(fs::read_symlink(source), target);
    if (fs::is_directory(status))
        fs::create_directory(target);
    else
        make_file(target);
    bind(source, target);
}

using Names = std::span<const std::string>;

void show_entries_again(const std::string& below, const fs::path& folder, Names except) {
    for (const fs::directory_entry& entry : fs::directory_iterator(below + "/")) {
        const std::string name = entry.path().filename();
        if (std::ranges::find(except, name) == except.end()) show_again(entry.path(), folder / name);
    }
}

/// Mounts a tmpfs on `folder`, so that entries can be added. The tmpfs contains all old entries of the folder except those in
/// `except`. On failure the folder is unchanged.
void cover(const fs::path& folder, Names except) {
    const int old = open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);  // still refers to the old folder after the mount
    if (old < 0) throw_errno(folder);
    if (mount("rocinante", folder.c_str(), "tmpfs", MS_NOSUID, "mode=755") != 0) throw_errno("tmpfs on " + folder.string());
    try {
        show_entries_again(fmt::format("/proc/self/fd/{}", old), folder, except);
    } catch (...) {
        umount2(folder.c_str(), MNT_DETACH);
        close(old);
        throw;
    }
    close(old);
}

/// Makes it possible to add entries to `folder`/infiniband, and returns this path. If `folder`/infiniband exists,
/// mounts a tmpfs on it; old entries that are not in `devices` remain visible. Otherwise mounts a tmpfs on `folder` and creates
/// the folder infiniband.
fs::path own_infiniband(const fs::path& folder, Names devices) {
    fs::path ours = folder / "infiniband";
    cover(fs::is_directory(ours) ? ours : folder, devices);
    fs::create_directories(ours);
    return ours;
}

bool enter(std::span<const ViewEntry> files, Names devices, std::string& why) try {
    enter_namespaces();
    const fs::path sys = own_infiniband("/sys/class", devices);
    for (const ViewEntry& entry : files) add_entry(sys, entry);
    const fs::path dev = own_infiniband("/dev", devices);
    for (const std::string& name : devices) fs::create_symlink("/dev/null", dev / name);
    return true;
} catch (const std::exception& e) {
    why = e.what();
    return false;
}

constexpr const char* kDone = "done";  // what the child writes if it has entered the view

/// Tries to enter a view in a child process, which then ends. Returns false if the system refuses a step in the child process.
bool works_in_a_child(Names devices, std::string& why) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("pipe");
    const pid_t child = fork();
    if (child == 0) {
        const bool ok = enter({}, devices, why);
        if (ok) why = kDone;
        _exit(write(ends[1], why.data(), why.size()) < 0 ? 1 : 0);
    }
    close(ends[1]);
    char text[512];
    ssize_t length = 0;
    why = child < 0 ? std::strerror(errno) : "";
    while (child > 0 && (length = read(ends[0], text, sizeof text)) > 0) why.append(text, size_t(length));
    close(ends[0]);
    // waitpid() fails if the caller ignores SIGCHLD. So the child reports its result through the pipe.
    if (child > 0) waitpid(child, nullptr, 0);
    return why == kDone;
}

}  // namespace

bool enter_private_view(std::span<const ViewEntry> files, std::span<const std::string> devices, std::string& why) {
    return works_in_a_child(devices, why) && enter(files, devices, why);
}

}  // namespace roci::cli
