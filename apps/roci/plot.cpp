#include "plot.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "analysis.hpp"
#include "capture_file.hpp"
#include "failure.hpp"
#include "live_capture.hpp"
#include "page.hpp"
#include "words.hpp"

namespace roci::cli {
namespace {

using plot::Ending;
using plot::Failure;

constexpr size_t kColumns = 100;  ///< width without a terminal and without the variable COLUMNS

size_t terminal_columns() {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0) return size.ws_col;
    const char* text = std::getenv("COLUMNS");
    const int columns = text != nullptr ? std::atoi(text) : 0;
    return columns > 0 ? size_t(columns) : kColumns;
}

void copy_standard_input(TemporaryFile& file) {
    if (isatty(STDIN_FILENO)) throw Failure(Ending::failed, "a terminal gives no capture: name a file, or pipe one to roci");
    char buffer[1 << 16];
    for (;;) {
        const ssize_t n = read(STDIN_FILENO, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;
        if (!file.append(buffer, size_t(n)))
            throw Failure(Ending::failed, fmt::format("no space for the capture: {}", std::strerror(errno)));
    }
}

plot::Capture live(const PlotOptions& o) {
    const LiveCapture recorded = capture_qp(o.where, o.qpn, o.seconds);
    const std::string name = fmt::format("queue pair {}", o.qpn);
    try {
        plot::Capture out = plot::read_capture(recorded.file.path(), name);
        out.notices.insert(out.notices.begin(), recorded.notices.begin(), recorded.notices.end());
        return out;
    } catch (const Failure& f) {
        if (f.ending() != Ending::not_roce) throw;
        throw Failure(Ending::silent, fmt::format("queue pair {} sent and received nothing while roci looked at it{}{}", o.qpn,
                                                  recorded.notices.empty() ? "" : ": ",
                                                  recorded.notices.empty() ? "" : recorded.notices.front()));
    }
}

plot::Capture capture_of(const PlotOptions& o) {
    if (o.qpn != 0) return live(o);
    if (o.file != "-") {
        plot::Capture out = plot::read_capture(o.file, o.file);
        out.name = std::filesystem::path(o.file).filename().string();
        return out;
    }
    TemporaryFile file;
    copy_standard_input(file);
    return plot::read_capture(file.path(), "standard input");
}

std::string output_of(const PlotOptions& o) {
    if (!o.output.empty()) return o.output;
    if (o.as_json) return "-";
    if (o.qpn != 0) return fmt::format("qp-{}.html", o.qpn);
    if (o.file == "-") return "plot.html";
    return std::filesystem::path(o.file).stem().string() + ".html";
}

void write_output(const std::string& file, const std::string& text) {
    FILE* out = file == "-" ? stdout : std::fopen(file.c_str(), "we");
    if (out == nullptr) throw Failure(Ending::failed, fmt::format("cannot write '{}': {}", file, std::strerror(errno)));
    const bool written = std::fwrite(text.data(), 1, text.size(), out) == text.size();
    const bool closed = (out == stdout ? std::fflush(out) : std::fclose(out)) == 0;
    if (!written || !closed) throw Failure(Ending::failed, fmt::format("cannot write '{}': {}", file, std::strerror(errno)));
}

void run(const PlotOptions& o) {
    if (o.file.empty() == (o.qpn == 0)) throw Failure(Ending::failed, "name a capture, or a queue pair with --qp");
    const plot::Analysis analysis = plot::analyse_capture(capture_of(o), {.flow = o.flow, .qpn = o.qpn});
    const std::string output = output_of(o);
    write_output(output, o.as_json ? plot::page_data(analysis) + "\n" : plot::page(analysis));
    if (output == "-") return;
    fmt::print("{}\n{}: {}\n", plot::summary_text(analysis, terminal_columns()), o.as_json ? "data" : "page", output);
}

}  // namespace

int plot(const PlotOptions& options) {
    try {
        run(options);
        return int(Ending::drawn);
    } catch (const Failure& f) {
        fmt::print(stderr, "roci: {}\n", f.what());
        return int(f.ending());
    }
}

}  // namespace roci::cli
