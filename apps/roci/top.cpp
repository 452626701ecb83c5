#include "top.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include "ending_signals.hpp"
#include "fail.hpp"
#include "status.hpp"
#include "top_screen.hpp"
#include "top_text.hpp"

namespace roci::cli {
namespace {

using json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

/// The number of samples of the QPs per interval. Each sample is a status request to rocid. With more than kMany QPs a status is
/// large, so there are fewer samples.
constexpr int kLooks = 20, kLooksAtMany = 4;
constexpr size_t kMany = 128;
constexpr size_t kPlainWidth = 100, kPlainRows = 20;
constexpr const char* kKeys = "q quit  s sort";

double seconds_now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

size_t terminal_width() {
    winsize size{};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0 ? size.ws_col : kPlainWidth;
}

/// Queries a rocid repeatedly and computes the figures of each interval (TopModel).
class Watcher {
public:
    Watcher(ControlClient& client, CounterReader reader) : client_(client), reader_(std::move(reader)) {}
    /// Takes one sample. If rocid returns no valid status, sets `why` and returns false.
    bool look(std::string& why) {
        json status = json::parse(fetch_status(client_, why), nullptr, false);
        if (!status.is_object()) {
            if (why.empty()) why = "rocid sent a status that is not JSON";
            return false;
        }
        tally(limits_, status);
        qps_ = 0;
        for (const json& s : status["sessions"]) qps_ += s["qps"].size();
        now_ = read_top(reader_, std::move(status), seconds_now());
        if (!before_) begin();
        return true;
    }
    /// Returns the figures of the interval that ended with the last sample, and begins the next interval.
    TopModel finish() {
        TopModel model = make_top(reader_, *before_, now_, limits_);
        begin();
        return model;
    }
    double pause(double interval) const { return interval / (qps_ > kMany ? kLooksAtMany : kLooks); }

private:
    void begin() {
        before_ = now_;
        limits_.clear();
    }
    ControlClient& client_;
    CounterReader reader_;
    std::optional<TopReading> before_;
    TopReading now_;
    LimitTally limits_;
    size_t qps_ = 0;
};

enum class Woke : uint8_t { time, key, signal, ended };

/// Waits until the time has passed, or until a key, a signal or the end of rocid. `keys` is the descriptor of the keyboard, or -1
/// without a terminal.
Woke wait(double seconds, int signals, int connection, int keys) {
    pollfd fds[] = {{signals, POLLIN, 0}, {connection, POLLIN, 0}, {keys, POLLIN, 0}};
    const timespec limit{time_t(seconds), long((seconds - double(time_t(seconds))) * 1e9)};
    if (ppoll(fds, std::size(fds), &limit, nullptr) <= 0) return Woke::time;
    if (fds[0].revents != 0 || (fds[2].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0)
        return Woke::signal;  // a closed terminal has the same effect as a signal
    return fds[1].revents != 0 ? Woke::ended : Woke::key;
}

/// Takes the samples of one interval, without a terminal. Returns false after a signal. If rocid has ended or returns no status,
/// sets `why` and returns false.
bool watch_interval(Watcher& watcher, double interval, int signals, int connection, std::string& why) {
    const auto end = Clock::now() + std::chrono::duration<double>(interval);
    do {
        const Woke woke = wait(watcher.pause(interval), signals, connection, -1);
        if (woke == Woke::signal) return false;
        if (woke == Woke::ended) why = "rocid has ended";
        if (woke == Woke::ended || !watcher.look(why)) return false;
    } while (Clock::now() < end);
    return true;
}

int plain(const TopOptions& o, Watcher& watcher, int signals, int connection, TopView view) {
    view.width = o.width != 0 ? o.width : terminal_width();
    view.rows = o.rows != 0 ? o.rows : kPlainRows;
    std::string why;
    do {
        if (!watch_interval(watcher, o.interval, signals, connection, why)) return why.empty() ? 0 : fail(why);
        TopModel model = watcher.finish();
        if (o.as_json) {
            sort_top(model.qps, view.sort);
            fmt::print("{}\n", top_json(model).dump(-1, ' ', false, json::error_handler_t::replace));
        } else {
            for (const std::string& line : top_lines(model, view)) fmt::print("{}\n", line);
        }
        std::fflush(stdout);
    } while (!o.once);
    return 0;
}

/// Handles the pressed keys. Returns false if the user has pressed the key to quit. Sets `changed` to true if the screen must be
/// drawn again.
bool take_keys(TopScreen& screen, TopView& view, bool& changed) {
    for (int key = screen.key(); key != 0; key = screen.key()) {
        if (key == 'q' || key == 'Q') return false;
        if (key == 's') view.sort = TopSort((size_t(view.sort) + 1) % kTopSorts.size());
        changed = true;
    }
    return true;
}

/// Draws the screen. The number of QPs is that of --rows. Without --rows, it is the number that fits on the screen together with
/// the other lines.
void draw(TopScreen& screen, const TopOptions& o, TopView view, const TopModel& model) {
    const size_t room = screen.height() - 1;
    view.width = screen.width();
    view.rows = o.rows != 0 ? o.rows : std::min(room, std::max<size_t>(model.qps.size(), 1));
    std::vector<std::string> lines = top_lines(model, view);
    if (o.rows == 0 && lines.size() > room) {
        const size_t less = lines.size() - room + 1;  // plus a line with the number of omitted QPs
        view.rows = view.rows > less ? view.rows - less : 1;
        lines = top_lines(model, view);
    }
    screen.show(lines, kKeys);
}

int live(const TopOptions& o, Watcher& watcher, int signals, int connection, TopView view) {
    std::string why;
    {
        TopScreen screen;
        screen.show({fmt::format("the first figures come in {:g} s", o.interval)}, kKeys);
        std::optional<TopModel> model;
        for (double next = seconds_now() + o.interval; why.empty();) {
            const Woke woke = wait(watcher.pause(o.interval), signals, connection, STDIN_FILENO);
            if (woke == Woke::ended) why = "rocid has ended";
            bool changed = false;
            if (woke == Woke::signal || !take_keys(screen, view, changed)) break;
            const bool due = seconds_now() >= next;
            if ((woke == Woke::time || due) && !watcher.look(why)) break;
            if (due) {
                model = watcher.finish();
                next = seconds_now() + o.interval;
                changed = true;
            }
            if (changed && model) draw(screen, o, view, *model);
        }
    }
    return why.empty() ? 0 : fail(why);
}

}  // namespace

int top(const TopOptions& o) {
    const bool terminal = !o.once && !o.as_json && isatty(STDOUT_FILENO) != 0 && isatty(STDIN_FILENO) != 0;
    if (!o.once && !o.as_json && !terminal) return fail("roci top needs a terminal; --once and --json do not");
    if (terminal && !has_screen()) return fail("this roci was built without ncurses: use roci top --once, or --json");
    std::string why;
    auto daemon = find_daemon(o.where, why);
    if (!daemon) return fail(why);
    auto reader = CounterReader::open(daemon->session, why);
    if (!reader) return fail(why);
    Watcher watcher(daemon->session, std::move(*reader));
    if (!watcher.look(why)) return fail(why);
    const UniqueFd signals = ending_signals();
    TopView view;
    view.sort = std::ranges::find(kTopSorts, o.sort, &std::pair<std::string, TopSort>::first)->second;
    const int connection = daemon->session.fd();
    return terminal ? live(o, watcher, signals.get(), connection, view) : plain(o, watcher, signals.get(), connection, view);
}

}  // namespace roci::cli
