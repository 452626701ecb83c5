// rocid: the daemon of Rocinante.
#include <unistd.h>

#include <cstdio>
#include <exception>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <CLI/CLI.hpp>

#include "daemon.hpp"

namespace {

constexpr char kDefaultConfig[] = "/etc/rocinante/rocinante.toml";

struct Arguments {
    std::string config, socket, log_level = "info";
    std::vector<std::string> set;
    bool loopback = false, single = false, print_config = false;
    roci::rocid::RunOptions run;
};

void declare(CLI::App& app, Arguments& a) {
    auto* config =
        app.add_option("-c,--config", a.config,
                       std::string("Configuration file (default: ") + kDefaultConfig + " if it is there, else --loopback)");
    app.add_flag("--loopback", a.loopback, "Built-in configuration: roci0 and roci1, back to back, no file")->excludes(config);
    app.add_flag("--single", a.single, "Built-in configuration: roci0 alone, its own peer, no file")->excludes(config);
    app.add_option("--socket", a.socket, "Socket to serve, in place of the configuration's");
    app.add_option("--set", a.set, "section.key=value, after the configuration; may be repeated");
    app.add_flag("--print-config", a.print_config, "Print a configuration with every key explained, and end");
    app.add_option("--ready-fd", a.run.ready_fd, "Write \"ready\" to this descriptor when serving");
    app.add_option("--exit-when-idle", a.run.exit_when_idle_s, "End after so many seconds without a connection");
    app.add_option("--log-level", a.log_level, "debug, info, warn or error")
        ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
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

int parse_and_run(int argc, char** argv) {
    CLI::App app{"rocid: RDMA verbs on any NIC. Owns the ports, runs the transport, serves programs over a socket."};
    Arguments a;
    declare(app, a);
    CLI11_PARSE(app, argc, argv);
    if (a.print_config) return std::fputs(roci::rocid::sample_config().c_str(), stdout) < 0 ? 1 : 0;
    set_up_log(a);
    a.run.verbose = a.log_level == "debug";
    const roci::rocid::Config config = configuration(a);
    const int signals = roci::rocid::prepare_process();
    roci::rocid::Daemon daemon(config, a.run, signals);
    daemon.run();
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return parse_and_run(argc, argv);
    } catch (const roci::rocid::ConfigError& e) {  // exit code 2: the service manager does not try again
        std::fprintf(stderr, "rocid: %s\n", e.what());
        return 2;
    } catch (const std::exception& e) {  // StartError: one line that says what to do
        std::fprintf(stderr, "rocid: %s\n", e.what());
        return 1;
    }
}
