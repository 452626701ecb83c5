#include "run.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "devices.hpp"
#include "live_counters.hpp"
#include "paths.hpp"
#include "private_view.hpp"
#include "sysfs_view.hpp"
#include "view.hpp"

namespace roci::cli {
namespace {

constexpr int kOwnFailure = 125;  // env(1) and timeout(1) use the same exit code

int fail_to_run(const std::string& why) {
    fmt::print(stderr, "roci: {}\n", why);
    return kOwnFailure;
}

/// Adds Rocinante's library folders at the beginning of LD_LIBRARY_PATH.
bool put_libraries_first(std::string& why) {
    const std::vector<std::string> folders = library_folders();
    if (folders.empty() && access("/proc/self/exe", F_OK) != 0) {
        why = "/proc is not mounted, so roci does not find its own folder: mount -t proc proc /proc";
        return false;
    }
    if (folders.empty()) {
        why = "Rocinante's libibverbs.so.1 not found next to roci; build it with `./dev build`";
        return false;
    }
    std::string path;
    for (const std::string& folder : folders) path += (path.empty() ? "" : ":") + folder;
    const char* users = std::getenv("LD_LIBRARY_PATH");
    if (users != nullptr && *users != '\0') path += std::string(":") + users;
    setenv("LD_LIBRARY_PATH", path.c_str(), 1);
    return true;
}

/// Called if enter_private_view() fails, for example in a container in which nothing can be mounted. Writes the view into a new
/// folder, and makes the program preload a library that shows the folder in place of /sys/class/infiniband. A background process
/// removes the folder after the end of the program and its children.
bool preload_view(const std::string& socket, std::span<const ViewEntry> files, std::span<const std::string> devices) try {
    const std::string library = preload_library();
    std::string why;
    const std::string beside = ephemeral_socket({}, why);
    if (library.empty() || beside.empty()) return false;
    std::string path = std::filesystem::path(beside).replace_filename("view-XXXXXX");
    if (mkdtemp(path.data()) == nullptr) return false;  // a random name: containers may share the parent folder
    const ViewFolder folder(path);
    folder.write_devices(files, devices, false);
    const char* users = std::getenv("LD_PRELOAD");
    setenv("LD_PRELOAD", (library + (users != nullptr && *users != '\0' ? std::string(":") + users : "")).c_str(), 1);
    setenv("ROCI_VIEW", path.c_str(), 1);
    follow_counters(socket, folder.devices(), path);
    return true;
} catch (const std::exception&) {
    return false;
}

void show_devices(const std::string& socket) {
    std::string why;
    const std::vector<Device> devices = query_devices(socket, why);
    std::vector<std::string> names;
    names.reserve(devices.size());
    for (const Device& device : devices) names.push_back(device.name);
    if (!devices.empty()) {
        const std::vector<ViewEntry> files = sysfs_view(devices, host_facts());
        if (enter_private_view(files, names, why)) return follow_counters(socket);
        if (preload_view(socket, files, names)) return;
    }
    fmt::print(
        stderr,
        "roci: no private view of /sys/class/infiniband here ({}); programs that look for devices there (UCX, pyverbs) will not "
        "find them, others run as usual\n",
        why);
}

/// Leaves a copy of the session's descriptor open for the program, so that an ephemeral rocid does not end before the program.
/// The number of the copy is high, because some programs expect low numbers for their own files.
void keep_alive_with_program(ControlClient session) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const UniqueFd fd(session.release());
    const int high = int(std::min<rlim_t>(limit.rlim_cur, 1024)) - 16;
    if (fcntl(fd.get(), F_DUPFD, high) < 0)
        fmt::print(stderr, "roci: cannot keep rocid alive for the program: {}\n", std::strerror(errno));
}

/// Returns the file that execvp() would execute, or "".
std::string file_of(const std::string& program) {
    if (program.find('/') != std::string::npos) return program;
    const char* path = std::getenv("PATH");
    std::istringstream folders(path != nullptr ? path : "/bin:/usr/bin");
    for (std::string folder; std::getline(folders, folder, ':');)
        if (std::string file = (folder.empty() ? "." : folder) + "/" + program; access(file.c_str(), X_OK) == 0) return file;
    return {};
}

/// Returns true if the program's file gives the program the rights of the file's owner or group, or capabilities (ping, sudo). In
/// a user namespace the program would not get these rights, so `roci run` creates no view for such a program.
bool takes_rights_from_its_file(const std::string& program) {
    const std::string file = file_of(program);
    struct stat s {};
    if (file.empty() || stat(file.c_str(), &s) != 0) return false;
    return (s.st_mode & (S_ISUID | S_ISGID)) != 0 || getxattr(file.c_str(), "security.capability", nullptr, 0) > 0;
}

int become(const std::vector<std::string>& command) {
    std::vector<char*> args;
    args.reserve(command.size() + 1);
    for (const std::string& arg : command) args.push_back(const_cast<char*>(arg.c_str()));
    args.push_back(nullptr);
    execvp(args[0], args.data());
    const int error = errno;
    fmt::print(stderr, "roci: {}: {}\n", command[0], std::strerror(error));
    return error == ENOENT ? 127 : 126;
}

}  // namespace

int run(const RunOptions& options) {
    std::string why;
    if (!put_libraries_first(why)) return fail_to_run(why);
    auto daemon = find_or_start_daemon(options.where, why);
    if (!daemon) return fail_to_run(why);
    setenv(abi::kSocketEnv, daemon->socket.c_str(), 1);
    if (!options.no_view && !takes_rights_from_its_file(options.command.front())) show_devices(daemon->socket);
    if (daemon->ephemeral) keep_alive_with_program(std::move(daemon->session));
    return become(options.command);
}

}  // namespace roci::cli
