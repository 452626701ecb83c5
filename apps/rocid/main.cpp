// rocid: the daemon of Rocinante.
#include <unistd.h>

#include <cstdio>
#include <exception>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <CLI/CLI.hpp>

#include "abi/time_slice.hpp"
#include "cli_manual.hpp"
#include "daemon.hpp"
#include "options.hpp"

namespace {

constexpr char kDefaultConfig[] = ROCI_SYSCONFDIR "/rocinante/rocinante.toml";

struct Arguments {
    std::string config, socket, log_level = "info";
    std::vector<std::string> set;
    bool loopback = false, single = false, print_config = false, print_completion = false;
    std::string print_man;
    roci::rocid::RunOptions run;
};

void declare(CLI::App& app, Arguments& a) {
    auto* config =
        app.add_option("-c,--config", a.config,
                       std::string("Configuration file (default: ") + kDefaultConfig + " if it is there, else --loopback)");
    auto* loopback = app.add_flag("--loopback", a.loopback, "Built-in configuration: roci0 and roci1, back to back, no file")
                         ->excludes(config);
    app.add_flag("--single", a.single, "Built-in configuration: roci0 alone, its own peer, no file")
        ->excludes(config)
        ->excludes(loopback);
    app.add_option("--socket", a.socket, "Socket to serve, in place of the configuration's");
    app.add_option("--set", a.set, "section.key=value, after the configuration; may be repeated");
    app.add_flag("--print-config", a.print_config, "Print a configuration with every key explained, and end");
    app.add_option("--ready-fd", a.run.ready_fd, "Write \"ready\" to this descriptor when serving");
    app.add_option("--exit-when-idle", a.run.exit_when_idle_s, "End after so many seconds without a connection");
    app.add_option("--log-level", a.log_level, "debug, info, warn or error")
        ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
    app.add_option("--print-man", a.print_man)->check(CLI::IsMember({"rocid", "config"}))->group("");  // used by the build
    app.add_flag("--print-completion", a.print_completion)->group("");
    app.set_version_flag("--version", std::string("rocid ") + ROCID_VERSION);
}

roci::rocid::Config configuration(const Arguments& a) {
    using namespace roci::rocid;
    Config c;
    if (!a.config.empty())
        c = load_config(a.config, a.set);
    else if (a.single)
        c = single_config(a.set);
    else if (!a.loopback && access(kDefaultConfig, F_OK) == 0)
        c = load_config(kDefaultConfig, a.set);
    else
        c = default_config(a.set);
    if (!a.socket.empty()) c.socket = a.socket;
    return c;
}

void set_up_log(const Arguments& a) {
    auto log = spdlog::stderr_color_mt("rocid");
    log->set_pattern("rocid: %^%l%$: %v");
    log->set_level(spdlog::level::from_str(a.log_level));
    spdlog::set_default_logger(log);
}

roci::manual::Page manual_page(const CLI::App& app) {
    roci::manual::Page page{"rocid", 8, "the daemon of Rocinante: RDMA verbs on any NIC", ROCID_VERSION};
    page.sections = {
        {"Synopsis", "rocid [--config FILE | --loopback | --single] [OPTIONS]"},
        {"Description",
         "rocid owns the ports, runs the RoCEv2 transport on engine threads and serves RDMA programs over a Unix socket. "
         "Programs reach it "
         "by roci run, or with the folder of Rocinante's libraries in LD_LIBRARY_PATH. roci doctor looks at what a machine "
         "lacks."},
        {"Options", "", roci::manual::entries(app)},
        {"Signals", "", {{"SIGTERM, SIGINT", "End; programs see IBV_EVENT_DEVICE_FATAL."}}},
        {"Exit status", "0: ended by a signal or idle. 1: it could not start or go on. 2: the configuration is wrong."},
        {"Files",
         "",
         {{kDefaultConfig, "The configuration: rocinante.toml(5)."}, {"/run/rocinante/rocid.sock", "The control socket."}}},
        {"See also", "roci(1), rocinante.toml(5)"}};
    return page;
}

roci::manual::Page config_page() {
    roci::manual::Page page{"rocinante.toml", 5, "configuration of rocid(8)", ROCID_VERSION};
    page.sections = {
        {"Description",
         "A TOML file. Every key is optional; a file without a [[device]] table has the devices roci0 and roci1, wired back to "
         "back. rocid --print-config prints a file with every key."}};
    for (const roci::rocid::Option& o : roci::rocid::options()) {
        const std::string section(o.section);
        const std::string title = section == "device" ? "[[device]]" : "[" + section + "]";
        if (page.sections.back().title != title) page.sections.push_back({title, ""});
        const std::string range = roci::rocid::allowed(o);
        page.sections.back().entries.push_back({std::string(o.key) + " = " + std::string(o.preset),
                                                std::string(o.why) + (range.empty() ? "" : " Allowed: " + range + ".")});
    }
    page.sections.push_back({"See also", "rocid(8), roci(1)"});
    return page;
}

int print(const std::string& text) { return std::fputs(text.c_str(), stdout) < 0 ? 1 : 0; }

int parse_and_run(int argc, char** argv) {
    CLI::App app{"rocid: RDMA verbs on any NIC. Owns the ports, runs the transport, serves programs over a socket."};
    Arguments a;
    declare(app, a);
    CLI11_PARSE(app, argc, argv);
    if (a.print_config) return print(roci::rocid::sample_config());
    if (!a.print_man.empty()) return print(roci::manual::roff(a.print_man == "rocid" ? manual_page(app) : config_page()));
    if (a.print_completion) return print(roci::manual::bash_completion("rocid", roci::manual::commands(app), ""));
    set_up_log(a);
    a.run.verbose = a.log_level == "debug";
    const roci::rocid::Config config = configuration(a);
    roci::abi::shorten_time_slice();  // the threads of rocid inherit the setting
    const int signals = roci::rocid::prepare_process();
    roci::rocid::Daemon daemon(config, a.run, signals);
    daemon.run();
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return parse_and_run(argc, argv);
    } catch (const roci::rocid::ConfigError& e) {  // with exit code 2 rocid.service does not restart rocid
        std::fprintf(stderr, "rocid: %s\n", e.what());
        return 2;
    } catch (const std::exception& e) {  // a StartError has one line with a remedy
        std::fprintf(stderr, "rocid: %s\n", e.what());
        return 1;
    }
}
