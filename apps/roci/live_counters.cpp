#include "live_counters.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>

#include "qp/counters.hpp"
#include "sysfs_view.hpp"

namespace roci::cli {
namespace {

/// Returns 4 for the files of PortXmitData and PortRcvData, which count words of four bytes (IBA 16.1.3.5), else 1.
uint64_t unit_of(const char* file) { return std::strstr(file, "_data") != nullptr ? 4 : 1; }

const qp::CounterInfo* info_of(const std::string& name) {
    const auto* found = std::ranges::find_if(qp::kDeviceCounters, [&](const qp::CounterInfo& c) { return name == c.name; });
    return found != std::end(qp::kDeviceCounters) && found->file[0] != 0 ? found : nullptr;
}

/// Closes all inherited descriptors except `keep`. If this process kept a pipe open, a reader of the pipe would not detect that
/// the user's program has closed the pipe.
void close_others(std::vector<int> keep) {
    std::ranges::sort(keep);
    unsigned from = 0;
    for (const int fd : keep) {
        if (unsigned(fd) > from) syscall(SYS_close_range, from, unsigned(fd) - 1, 0);
        from = unsigned(fd) + 1;
    }
    syscall(SYS_close_range, from, ~0u, 0);
}

/// Returns true if a running process was started with ROCI_VIEW=`view`. This process can read only the environments of processes
/// of the same user. Processes of other users do not use the view.
bool is_used(const std::string& view) {
    const std::string wanted = "ROCI_VIEW=" + view;
    std::error_code unreadable;
    for (const auto& process : std::filesystem::directory_iterator("/proc", unreadable)) {
        std::ifstream environment(process.path() / "environ");
        for (std::string variable; std::getline(environment, variable, '\0');)
            if (variable == wanted) return true;
    }
    return false;
}

/// Writes the counters until `program` ends. If `view` is not empty, goes on until no process uses this folder, and then removes
/// the folder.
[[noreturn]] void follow(std::optional<CounterFiles> files, int program, const std::filesystem::path& view) {
    prctl(PR_SET_NAME, "roci-counters");
    setsid();
    std::vector<int> keep = files ? files->descriptors() : std::vector<int>{};
    keep.push_back(program);
    close_others(std::move(keep));
    pollfd ended{program, POLLIN, 0};
    for (;;) {
        if (poll(&ended, 1, kCounterPeriodMs) > 0) ended.fd = -1;  // the program has ended; poll() then only waits
        if (ended.fd < 0 && (view.empty() || !is_used(view))) break;
        if (files) files->renew();
    }
    std::error_code none;
    if (!view.empty()) std::filesystem::remove_all(view, none);
    _exit(0);
}

}  // namespace

CounterFiles::CounterFiles(CounterReader reader, const std::filesystem::path& root)
    : reader_(std::move(reader)), files_(reader_.devices().size()) {
    for (size_t d = 0; d < files_.size(); ++d)
        for (size_t i = 0; i < reader_.device_labels().size(); ++i) {
            const qp::CounterInfo* info = info_of(reader_.device_labels()[i].name);
            if (info == nullptr) continue;
            const auto path = root / reader_.devices()[d] / "ports/1" / info->file;
            UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
            if (fd) files_[d].push_back({std::move(fd), i, unit_of(info->file), 0});
        }
}

/// Overwrites the old text of each file. A counter only grows, so the new text is never shorter than the old text, and no old
/// digits remain.
unsigned CounterFiles::renew() {
    unsigned written = 0;
    for (size_t d = 0; d < files_.size(); ++d) {
        const std::vector<uint64_t> now = reader_.device_values(uint32_t(d));
        for (File& f : files_[d]) {
            const uint64_t value = now[f.counter] / f.unit;
            if (value == f.value) continue;
            const std::string text = fmt::format("{}\n", value);
            if (pwrite(f.fd.get(), text.data(), text.size(), 0) == ssize_t(text.size())) f.value = value;
            ++written;
        }
    }
    return written;
}

std::vector<int> CounterFiles::descriptors() const {
    std::vector<int> out;
    for (const auto& of_device : files_)
        for (const File& f : of_device) out.push_back(f.fd.get());
    return out;
}

void follow_counters(const std::string& socket, const std::filesystem::path& root, const std::filesystem::path& view) {
    std::string why;
    auto client = ControlClient::connect(socket, why);
    auto reader = client ? CounterReader::open(*client, why) : std::nullopt;
    if (!reader && view.empty()) return;
    std::optional<CounterFiles> files;
    if (reader) files.emplace(std::move(*reader), root);
    if (files) files->renew();
    const UniqueFd program(int(syscall(SYS_pidfd_open, getpid(), 0)));
    if (!program) return;
    const pid_t child = fork();
    if (child == 0) {
        if (fork() == 0) follow(std::move(files), program.get(), view);
        _exit(0);
    }
    if (child > 0) waitpid(child, nullptr, 0);
}

}  // namespace roci::cli
