#include "pcap.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include <fmt/format.h>

#include "devices.hpp"
#include "ending_signals.hpp"

namespace roci::cli {
namespace {

UniqueFd timer_of(double seconds) {
    if (seconds <= 0) return {};
    UniqueFd fd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
    const double whole = std::floor(seconds);
    const itimerspec t{{}, {time_t(whole), long((seconds - whole) * 1e9) + 1}};
    timerfd_settime(fd.get(), 0, &t, nullptr);
    return fd;
}

UniqueFd open_output(const std::string& file) {
    UniqueFd fd(file == "-" ? dup(STDOUT_FILENO) : open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!fd) throw std::runtime_error(fmt::format("cannot write '{}': {}", file, std::strerror(errno)));
    if (isatty(fd.get()))
        throw std::runtime_error("a terminal cannot show a capture: name a file (-w FILE), or pipe it to a program");
    return fd;
}

uint32_t device_index(ControlClient& session, const std::string& name) {
    if (name.empty()) return abi::kNoHandle;
    const auto list = session.request(abi::Op::list_devices).as<abi::ListDevicesReply>();
    std::string names;
    for (uint32_t i = 0; i < list.count; ++i) {
        const std::string here(list.device[i].name, strnlen(list.device[i].name, sizeof list.device[i].name));
        if (here == name) return i;
        names += (names.empty() ? "" : ", ") + here;
    }
    throw std::runtime_error(fmt::format("no device '{}' here; there are {}", name, names));
}

UniqueFd start(ControlClient& session, const PcapOptions& o) {
    const abi::StartCaptureRequest request{device_index(session, o.device), o.qpn, o.snap_length, 0};
    Answer answer = session.request(abi::Op::start_capture, request);
    if (answer.error != 0 || answer.fds.empty())
        throw std::runtime_error(answer.reason.empty() ? "rocid gave no capture" : answer.reason);
    return std::move(answer.fds.back());
}

bool write_all(int fd, const char* data, size_t size) {
    while (size > 0) {
        const ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        data += n;
        size -= size_t(n);
    }
    return true;
}

/// Copies the bytes of one read(). Sets `ended` to true at the end of the capture. Returns false if a write to the output fails.
bool copy_some(int from, int to, bool& ended) {
    char buffer[1 << 16];
    const ssize_t n = read(from, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) return true;
    ended = n <= 0;
    return ended || write_all(to, buffer, size_t(n));
}

}  // namespace

int pcap(const PcapOptions& options) {
    std::string why;
    auto daemon = find_daemon(options.where, why);
    if (!daemon) throw std::runtime_error(why);
    signal(SIGPIPE, SIG_IGN);
    const UniqueFd signals = ending_signals(), output = open_output(options.file);
    const UniqueFd stream = start(daemon->session, options), timer = timer_of(options.seconds);
    fmt::print(stderr, "roci: capturing; {}\n", options.seconds > 0 ? "ends by itself" : "Ctrl-C ends it");
    bool asked = false, ended = false, writable = true;
    while (!ended && writable) {
        pollfd fds[] = {
            {stream.get(), POLLIN, 0}, {asked ? -1 : signals.get(), POLLIN, 0}, {asked ? -1 : timer.get(), POLLIN, 0}};
        if (poll(fds, std::size(fds), -1) < 0 && errno != EINTR) break;
        if (!asked && (fds[1].revents != 0 || fds[2].revents != 0)) {
            const auto counts = daemon->session.request(abi::Op::stop_capture).as<abi::StopCaptureReply>();
            fmt::print(stderr, "roci: {} frames captured, {} dropped\n", counts.captured, counts.missed);
            asked = true;
        }
        if (fds[0].revents != 0) writable = copy_some(stream.get(), output.get(), ended);
    }
    if (!writable) fmt::print(stderr, "roci: '{}' takes no more: {}\n", options.file, std::strerror(errno));
    if (ended && !asked) fmt::print(stderr, "roci: rocid ended the capture\n");
    return asked && writable ? 0 : 1;
}

}  // namespace roci::cli
