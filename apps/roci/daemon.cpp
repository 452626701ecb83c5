#include "daemon.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "paths.hpp"

namespace roci::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kStartTimeoutMs = 60'000;    // long, because EAL may have to clear many hugepages
constexpr const char* kIdleSeconds = "5";  // time for the next program of a script to use the same rocid
constexpr const char* kHowToStart =
    "no rocid answers here; start one with `rocid --loopback`, or run a program with `roci run -- PROGRAM`, which starts one";

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
}

/// Creates a folder that only this user can write to. If the folder exists, checks its owner and its mode, because in /tmp
/// another user could have created the folder.
bool private_folder(const std::string& folder, std::string& why) {
    struct stat s {};
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
        why = fmt::format("{}: {}", folder, std::strerror(errno));
        return false;
    }
    if (lstat(folder.c_str(), &s) != 0 || !S_ISDIR(s.st_mode) || s.st_uid != geteuid() || (s.st_mode & 022) != 0) {
        why = fmt::format("{}: not a folder of yours alone; remove it, or set XDG_RUNTIME_DIR", folder);
        return false;
    }
    if (access(folder.c_str(), W_OK) != 0) {
        why = fmt::format("{}: {}; set XDG_RUNTIME_DIR to a folder that you may write to", folder, std::strerror(errno));
        return false;
    }
    return true;
}

std::optional<Daemon> try_socket(const std::string& socket, bool ephemeral, std::string& why) {
    auto client = ControlClient::connect(socket, why);
    if (!client) return std::nullopt;
    return Daemon{socket, ephemeral, std::move(*client)};
}

/// Returns the path of the socket that the user chose by --socket or ROCI_SOCKET, or "".
std::string named_socket(const Where& where) { return !where.socket.empty() ? where.socket : environment(abi::kSocketEnv); }

/// Returns advice for a socket at which no rocid answers. The advice depends on the cause: the user has no permission for the
/// socket or its folder, or no rocid runs there.
std::string remedy(const std::string& socket) {
    if (access(socket.c_str(), W_OK) != 0 && errno == EACCES)
        return "your user may not connect: join the group of the socket (usermod -aG), or see socket_mode and socket_group of "
               "rocid's "
               "configuration";
    return fmt::format("is rocid running there? start one with `rocid --loopback --socket {}`", socket);
}

/// Returns the last 8 lines of the log. These lines contain the reason of a failed start.
std::string tail(const std::string& file) {
    std::ifstream in(file);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back("  " + line);
    std::string out;
    for (size_t i = lines.size() > 8 ? lines.size() - 8 : 0; i < lines.size(); ++i) out += "\n" + lines[i];
    return out;
}

[[noreturn]] void become_rocid(const std::string& rocid, const Where& where, const std::string& socket, int ready_fd) {
    setsid();                   // so that Ctrl-C ends the user's program, but not rocid
    unsetenv("NOTIFY_SOCKET");  // only the user's program may report to its service manager
    const int log = open((socket + ".log").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    fcntl(ready_fd, F_SETFD, 0);
    const std::string fd_text = std::to_string(ready_fd);
    std::vector<const char*> args{rocid.c_str(), "--socket", socket.c_str(), "--ready-fd", fd_text.c_str()};
    if (!where.config.empty())
        args.insert(args.end(), {"--config", where.config.c_str()});
    else
        args.push_back(where.single ? "--single" : "--loopback");
    if (!where.keep) args.insert(args.end(), {"--exit-when-idle", kIdleSeconds});
    args.push_back(nullptr);
    execv(rocid.c_str(), const_cast<char* const*>(args.data()));
    _exit(127);
}

/// Starts rocid as a grandchild, so that init reaps the process. Returns the read end of the pipe to which rocid writes when it
/// is ready.
UniqueFd spawn_rocid(const std::string& rocid, const Where& where, const std::string& socket) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return {};
    const pid_t child = fork();
    if (child == 0) {
        if (fork() == 0) become_rocid(rocid, where, socket, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    if (child > 0) waitpid(child, nullptr, 0);
    return UniqueFd(ends[0]);
}

/// Waits until rocid writes to the pipe, and returns true. Returns false on timeout, or if rocid ends and thereby closes the
/// pipe.
bool wait_ready(int fd) {
    pollfd p{.fd = fd, .events = POLLIN, .revents = 0};
    char word[16];
    return poll(&p, 1, kStartTimeoutMs) == 1 && read(fd, word, sizeof word) > 0;
}

/// Takes the lock that a `roci run` holds while it starts the ephemeral rocid. So two concurrent `roci run` share one rocid.
/// rocid itself locks another file.
UniqueFd lock(const std::string& socket) {
    UniqueFd fd(open((socket + ".starting").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (fd) flock(fd.get(), LOCK_EX);
    return fd;
}

}  // namespace

std::string ephemeral_socket(const Where& where, std::string& why) {
    const std::string runtime = environment("XDG_RUNTIME_DIR");
    std::error_code none;
    const bool usable = !runtime.empty() && fs::is_directory(runtime, none) && access(runtime.c_str(), W_OK) == 0;
    const std::string folder = usable ? runtime + "/rocinante" : fmt::format("/tmp/rocinante-{}", geteuid());
    if (!private_folder(folder, why)) return {};
    if (where.config.empty()) return folder + (where.single ? "/single.sock" : "/loopback.sock");
    return fmt::format("{}/{:016x}.sock", folder, std::hash<std::string>{}(fs::weakly_canonical(where.config, none)));
}

std::optional<Daemon> start_daemon(const Where& where, const std::string& socket, std::string& why) {
    const std::string rocid = find_rocid();
    if (rocid.empty()) {
        why =
            "rocid not found next to roci, in sbin beside it, in the build tree or in PATH; install it, or build it with `./dev "
            "build`";
        return std::nullopt;
    }
    const UniqueFd ready = spawn_rocid(rocid, where, socket);
    if (ready && wait_ready(ready.get())) return try_socket(socket, true, why);
    why = fmt::format("{} did not start; its last words:{}", rocid, tail(socket + ".log"));
    return std::nullopt;
}

std::string up_socket(std::string& why) {
    const std::string loopback = ephemeral_socket({}, why);
    return loopback.empty() ? "" : fs::path(loopback).replace_filename("up.sock").string();
}

std::optional<Daemon> find_daemon(const Where& where, std::string& why) {
    const std::string named = named_socket(where);
    if (!named.empty()) {
        auto daemon = try_socket(named, false, why);
        if (!daemon)
            why +=
                fmt::format("\n  ({}): {}", where.socket.empty() ? "named by ROCI_SOCKET" : "named by --socket", remedy(named));
        return daemon;
    }
    std::string unused;
    if (where.config.empty() && !where.single) {
        if (auto daemon = try_socket(up_socket(unused), false, unused)) return daemon;
        if (auto daemon = try_socket(abi::kDefaultSocket, false, why)) return daemon;
    }
    const std::string socket = ephemeral_socket(where, unused);
    if (!socket.empty())
        if (auto daemon = try_socket(socket, true, unused)) return daemon;
    if (why.empty()) why = unused.empty() ? fmt::format("no rocid serves {}", socket) : unused;
    why = fmt::format("{}\n  {}", why, kHowToStart);
    return std::nullopt;
}

std::optional<Daemon> find_or_start_daemon(const Where& where, std::string& why) {
    if (auto daemon = find_daemon(where, why)) return daemon;
    if (!named_socket(where).empty()) return std::nullopt;  // the user chose a socket
    const std::string socket = ephemeral_socket(where, why);
    if (socket.empty()) return std::nullopt;
    const UniqueFd held = lock(socket);
    if (auto daemon = try_socket(socket, true, why)) return daemon;  // another roci may have started rocid meanwhile
    return start_daemon(where, socket, why);
}

}  // namespace roci::cli
