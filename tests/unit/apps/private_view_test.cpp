// enter_private_view() changes the process permanently, so each test calls it in a child process.
#include "private_view.hpp"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

using namespace roci::cli;
namespace fs = std::filesystem;

namespace {

constexpr int kNotPermitted = 77;

std::set<std::string> names_in(const char* folder) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
    return names;
}

int exit_code_of(const std::function<int()>& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body());
    int result = -1;
    waitpid(child, &result, 0);
    return WIFEXITED(result) ? WEXITSTATUS(result) : 128 + WTERMSIG(result);
}

const std::vector<ViewEntry> kFiles = {
    {"roci9/node_type", "1: CA", {}}, {"roci9/device/net/", {}, {}}, {"roci9/link", {}, "/sys/class/net"}};
const std::vector<std::string> kDevices = {"roci9"};

/// Returns true if this user may make a mount namespace and mount a tmpfs there. If not, a private view is impossible, whatever
/// roci does.
bool mounts_are_permitted() {
    return exit_code_of([] {
               if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 1;
               if (mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) return 1;
               return mount("none", "/dev", "tmpfs", MS_NOSUID, nullptr) == 0 ? 0 : 1;
           }) == 0;
}

int enter_and(const std::function<bool()>& check) {
    std::string why;
    if (enter_private_view(kFiles, kDevices, why)) return check() ? 0 : 1;
    fprintf(stderr, "no private view: %s\n", why.c_str());
    return mounts_are_permitted() ? 1 : kNotPermitted;
}

std::string first_line(const char* path) {
    std::ifstream in(path);
    std::string line;
    std::getline(in, line);
    return line;
}

bool our_files_are_there() {
    return first_line("/sys/class/infiniband/roci9/node_type") == "1: CA" &&
           fs::is_directory("/sys/class/infiniband/roci9/device/net") && fs::is_symlink("/sys/class/infiniband/roci9/link") &&
           fs::is_character_file("/dev/infiniband/roci9");
}

}  // namespace

TEST(PrivateView, adds_our_files_and_keeps_the_old_entries) {
    const auto classes = names_in("/sys/class"), nodes = names_in("/dev");
    const int code = exit_code_of([&] {
        return enter_and([&] {
            const auto now = names_in("/sys/class"), now_nodes = names_in("/dev");
            return our_files_are_there() && std::ranges::includes(now, classes) && std::ranges::includes(now_nodes, nodes) &&
                   !first_line("/sys/class/net/lo/address").empty() && std::ofstream("/dev/null").good();
        });
    });
    if (code == kNotPermitted) GTEST_SKIP() << "this system permits no mount namespace";
    EXPECT_EQ(code, 0);
    EXPECT_FALSE(fs::exists("/sys/class/infiniband/roci9")) << "the view leaked out of the program";
    EXPECT_FALSE(fs::exists("/dev/infiniband/roci9"));
}

namespace {

/// Refuses mount(2) in this process, as a container engine may do.
bool refuse_mounts() {
    sock_filter rows[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mount, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog filter{std::size(rows), rows};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

std::string namespaces() {
    return fs::read_symlink("/proc/self/ns/mnt").string() + fs::read_symlink("/proc/self/ns/user").string();
}

}  // namespace

TEST(PrivateView, a_refused_mount_leaves_the_program_in_its_namespaces) {
    const int code = exit_code_of([] {
        if (!refuse_mounts()) return kNotPermitted;
        const std::string before = namespaces();
        std::string why;
        if (enter_private_view(kFiles, kDevices, why)) return 2;
        return namespaces() == before && why.find("Operation not permitted") != std::string::npos ? 0 : 3;
    });
    if (code == kNotPermitted) GTEST_SKIP() << "this system permits no seccomp filter";
    EXPECT_EQ(code, 0);
}

/// Some programs ignore SIGCHLD and start other programs. The started programs inherit that SIGCHLD is ignored.
TEST(PrivateView, works_if_the_caller_ignores_sigchld) {
    if (exit_code_of([] { return enter_and(our_files_are_there); }) == kNotPermitted)
        GTEST_SKIP() << "this system permits no mount namespace";
    EXPECT_EQ(exit_code_of([] {
                  signal(SIGCHLD, SIG_IGN);
                  return enter_and(our_files_are_there);
              }),
              0);
}

TEST(PrivateView, works_again_inside_of_itself) {
    const int code = exit_code_of([] { return enter_and([] { return enter_and(our_files_are_there) == 0; }); });
    if (code == kNotPermitted) GTEST_SKIP() << "this system permits no mount namespace";
    EXPECT_EQ(code, 0);
}

TEST(PrivateView, an_ordinary_user_gets_it_too_and_stays_himself) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root to become somebody else";
    const int code = exit_code_of([] {
        if (setgid(65534) != 0 || setuid(65534) != 0) return 2;
        prctl(PR_SET_DUMPABLE, 1);  // /proc/self then belongs to the new user, as after an exec
        return enter_and([] { return our_files_are_there() && geteuid() == 65534; });
    });
    if (code == kNotPermitted) GTEST_SKIP() << "this system permits no user namespaces";
    EXPECT_EQ(code, 0);
}
