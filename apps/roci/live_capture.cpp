#include "live_capture.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "ending_signals.hpp"
#include "failure.hpp"
#include "status.hpp"

namespace roci::cli {
namespace {

using Clock = std::chrono::steady_clock;
using plot::Ending;
using plot::Failure;

constexpr uint32_t kHeaderBytes = 128;              // snap length: all headers; `roci plot` does not use the payload
constexpr uint64_t kMostBytes = uint64_t{1} << 28;  // when the temporary file is larger, the capture ends
constexpr auto kLookEvery = std::chrono::milliseconds(250);

UniqueFd start(ControlClient& session, uint32_t qpn) {
    const abi::StartCaptureRequest request{abi::kNoHandle, qpn, kHeaderBytes, 0};
    Answer answer = session.request(abi::Op::start_capture, request);
    if (answer.error == ENOENT || answer.error == EPERM) throw Failure(Ending::refused, answer.reason);
    if (answer.error != 0 || answer.fds.empty())
        throw Failure(Ending::failed, answer.reason.empty() ? "rocid gave no capture" : answer.reason);
    return std::move(answer.fds.back());
}

bool lives(ControlClient& session, uint32_t qpn) {
    std::string why;
    const auto status = nlohmann::json::parse(fetch_status(session, why), nullptr, false);
    if (!status.is_object() || !status.contains("sessions")) return true;  // no valid status: assumes that the QP exists
    for (const auto& s : status["sessions"])
        if (s.contains("qps"))
            for (const auto& qp : s["qps"])
                if (qp.value("qpn", 0u) == qpn) return true;
    return false;
}

class Recorder {
public:
    Recorder(ControlClient& session, uint32_t qpn, double seconds, LiveCapture& out)
        : session_(session), qpn_(qpn), begin_(Clock::now()), seconds_(seconds), out_(out) {}

    void run() {
        const UniqueFd signals = ending_signals(), stream = start(session_, qpn_);
        fmt::print(stderr, "roci: queue pair {} for {} s; Ctrl-C ends it\n", qpn_, seconds_);
        while (!ended_) {
            pollfd fds[] = {{stream.get(), POLLIN, 0}, {stopped_ ? -1 : signals.get(), POLLIN, 0}};
            if (poll(fds, std::size(fds), stopped_ ? -1 : int(kLookEvery.count())) < 0 && errno != EINTR) break;
            if (fds[0].revents != 0) copy(stream.get());
            if (!stopped_) consider(fds[1].revents != 0);
        }
    }

private:
    double passed() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
    void note(std::string text) { out_.notices.push_back(std::move(text)); }

    void copy(int from) {
        char buffer[1 << 16];
        const ssize_t n = read(from, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) return;
        ended_ = n <= 0;
        if (ended_ && !stopped_) note("rocid ended the capture.");
        if (ended_ || full_) return;
        written_ += uint64_t(n);
        full_ = !out_.file.append(buffer, size_t(n)) || written_ > kMostBytes;
        if (full_) note(fmt::format("The capture ended after {:.1f} s, because the space for it was full.", passed()));
    }
    void consider(bool signalled) {
        bool gone = false;
        if (Clock::now() - looked_ >= kLookEvery) {
            looked_ = Clock::now();
            gone = !lives(session_, qpn_);
        }
        if (gone) note(fmt::format("Queue pair {} ended after {:.1f} s; the page shows what it did until then.", qpn_, passed()));
        if (gone || signalled || full_ || passed() >= seconds_) stop();
    }
    void stop() {
        const Answer answer = session_.request(abi::Op::stop_capture);
        if (answer.error != 0) throw Failure(Ending::failed, answer.reason);
        const auto counts = answer.as<abi::StopCaptureReply>();
        if (counts.missed != 0)
            note(fmt::format("The capture missed {} of {} frames: more came than it could write.", counts.missed,
                             counts.missed + counts.captured));
        stopped_ = true;
    }

    ControlClient& session_;
    const uint32_t qpn_;
    const Clock::time_point begin_;
    Clock::time_point looked_ = Clock::now();
    const double seconds_;
    LiveCapture& out_;
    uint64_t written_ = 0;
    bool stopped_ = false, ended_ = false, full_ = false;
};

}  // namespace

TemporaryFile::TemporaryFile() : file_(tmpfile(), &fclose) {
    if (!file_) throw Failure(Ending::failed, fmt::format("no temporary file: {}", std::strerror(errno)));
}

std::string TemporaryFile::path() const { return fmt::format("/proc/self/fd/{}", fileno(file_.get())); }

bool TemporaryFile::append(const char* data, size_t size) {
    while (size > 0) {
        const ssize_t n = write(fd(), data, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        data += n;
        size -= size_t(n);
    }
    return true;
}

LiveCapture capture_qp(const Where& where, uint32_t qpn, double seconds) {
    std::string why;
    auto daemon = find_daemon(where, why);
    if (!daemon) throw Failure(Ending::failed, why);
    LiveCapture out;
    Recorder(daemon->session, qpn, seconds, out).run();
    return out;
}

}  // namespace roci::cli
