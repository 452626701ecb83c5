// roci: the command line of Rocinante.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <iterator>

#include "cli_manual.hpp"
#include "doctor.hpp"
#include "pcap.hpp"
#include "plot.hpp"
#include "run.hpp"
#include "stat.hpp"
#include "status.hpp"
#include "top.hpp"
#include "top_model.hpp"
#include "up.hpp"
#include "view.hpp"
#include "why.hpp"

namespace {

void add_where(CLI::App& command, roci::cli::Where& where) {
    command.add_option(
        "--socket", where.socket,
        "rocid's control socket (default: $ROCI_SOCKET, else the rocid of `roci up`, the system's, or the ephemeral one)");
    auto* config =
        command.add_option("--config", where.config, "configuration of the ephemeral rocid; each configuration has its own")
            ->check(CLI::ExistingFile);
    command
        .add_flag("--single", where.single,
                  "the ephemeral rocid with one device, roci0, that is its own peer: server and client have the same address")
        ->excludes(config);
}

/// Sections of the manual page that --help does not contain. They describe how the parts of Rocinante work together.
const roci::manual::Section kManualTexts[] = {
    {"Which rocid",
     "All commands but up, down and doctor use the first rocid of this list that accepts a connection:",
     {{"--socket, then ROCI_SOCKET", "If one of them names a socket, no other rocid is tried, and none is started."},
      {"roci up",
       "The rocid of this user on a UDP socket, at $XDG_RUNTIME_DIR/rocinante/up.sock. With --config or --single it is "
       "skipped."},
      {"The service", "/run/rocinante/rocid.sock, for members of the group rocid. With --config or --single it is skipped."},
      {"Ephemeral",
       "The rocid that roci run starts: one per user and configuration, shared by all programs of the user. It ends five "
       "seconds after "
       "its last program; with --keep it stays."}}},
    {"What the program sees",
     "Only the program and its children see the devices: roci run puts the libraries first in LD_LIBRARY_PATH, and adds the "
     "devices to "
     "/sys/class/infiniband and /dev/infiniband in a mount namespace of the program. Without the right to mount, the "
     "namespace needs a user "
     "namespace, in which the program keeps its user id, but other user ids are unmapped. If neither is permitted, roci "
     "preloads a library into the program, which shows the files of a folder in place of these paths. Programs that ask the "
     "verbs library for devices need neither; UCX and others that search in /sys do.\n\n"
     "Set-user-ID programs and programs with file capabilities ignore LD_LIBRARY_PATH and get no view, so that they keep "
     "their rights. "
     "Statically linked programs do not load the libraries."},
    {"Containers",
     "roci view DIR writes DIR/sys/class, DIR/dev/infiniband and DIR/lib, and prints the options that mount them, and the "
     "folder of the "
     "socket, into a container. The container then needs neither privileges nor anything of Rocinante in its image. The user "
     "of the container "
     "needs the right to connect: rocid.socket_mode and rocid.socket_group of rocinante.toml(5). Without --host-network, "
     "programs see the "
     "virtual interfaces of their own network namespace in /sys/class/net. A folder with other files is refused."},
    {"Examples",
     "",
     {{"roci run -- ib_write_bw -d roci0 -x 1 -F", "The server; the client: roci run -- ib_write_bw -d roci1 -x 1 -F 127.0.0.1"},
      {"roci run --config lossy.toml -- PROGRAM", "The same on a network that loses frames: [fault] drop = 0.01 in lossy.toml."},
      {"roci status --qp 2882; roci why 2882", "All of a queue pair, and what happened to it."},
      {"roci pcap -i roci0 -w - | wireshark -k -i -", "Frames, live."},
      {"roci view /run/rocinante-view --watch --cdi /etc/cdi/rocinante.json",
       "For containers that are started with --device rocinante/verbs=all."}}},
    {"Files",
     "",
     {{"/run/rocinante/rocid.sock", "The socket of the service."},
      {"$XDG_RUNTIME_DIR/rocinante, else /tmp/rocinante-UID",
       "Sockets of this user's rocids, and beside each socket its log (.log), its lock (.lock) and, for roci up, its "
       "configuration (.toml)."},
      {"PREFIX/lib/rocinante, or lib/ARCHITECTURE/rocinante", "The client libraries."}}}};

roci::manual::Page manual_page(const CLI::App& app) {
    roci::manual::Page page{"roci", 1, "run RDMA programs over Rocinante, and look at what it does", ROCI_VERSION};
    page.sections = {{"Synopsis", "roci run [OPTIONS] -- PROGRAM [ARGUMENTS]\n\nroci COMMAND [OPTIONS]"},
                     {"Description",
                      "roci run starts an unmodified RDMA program with Rocinante's libibverbs.so.1 and librdmacm.so.1 first in "
                      "LD_LIBRARY_PATH. Without a rocid it starts one with two devices, roci0 and roci1, wired back to back, or "
                      "with --single one "
                      "device that is its own peer; that rocid ends with its last program. The other commands look at a running "
                      "rocid, or at this machine."}};
    page.sections.push_back({"Options", "", roci::manual::entries(app)});
    for (roci::manual::Section& section : roci::manual::command_sections(app)) page.sections.push_back(std::move(section));
    const auto variables = roci::manual::environment();
    page.sections.push_back({"Environment", "", {variables.begin(), variables.end()}});
    page.sections.insert(page.sections.end(), std::begin(kManualTexts), std::end(kManualTexts));
    page.sections.push_back(
        {"Exit status",
         "roci run ends as its program does; 125: roci itself failed, 126: the program cannot be executed, 127: there "
         "is no such program. roci doctor: 1 if something stops RDMA programs here.\n\n" +
             std::string(roci::cli::kPlotExitStatus)});
    page.sections.push_back({"See also", "rocid(8), rocinante.toml(5)"});
    return page;
}

int print(const std::string& text) { return std::fputs(text.c_str(), stdout) < 0 ? 1 : 0; }

/// The parsed command line.
struct Arguments {
    bool print_man = false, print_completion = false;  ///< only the build uses these options
    roci::cli::RunOptions run;
    roci::cli::StatusOptions status;
    roci::cli::StatOptions stat;
    roci::cli::TopOptions top;
    roci::cli::WhyOptions why;
    roci::cli::PcapOptions pcap;
    roci::cli::PlotOptions plot;
    roci::cli::UpOptions up;
    roci::cli::DoctorOptions doctor;
    roci::cli::ViewOptions view;
    CLI::App *run_command = nullptr, *stat_command = nullptr, *top_command = nullptr, *why_command = nullptr,
             *pcap_command = nullptr, *plot_command = nullptr, *up_command = nullptr, *down_command = nullptr,
             *doctor_command = nullptr, *view_command = nullptr;
};

void add_status_command(CLI::App& app, Arguments& a) {
    CLI::App* command = app.add_subcommand("status", "Devices, GIDs, engines, sessions and QPs of a rocid");
    add_where(*command, a.status.where);
    command->add_flag("--json", a.status.as_json, "rocid's own JSON");
    command->add_flag("--limits", a.status.limits, "what each user has of what it may have, and how often more was refused");
    command->add_option("-i,--device", a.status.device, "only the sessions on this device");
    command->add_option("--user", a.status.user, "only the sessions of this user, by number")->type_name("UID");
    command->add_option("--pid", a.status.pid, "only the sessions of this process");
    command->add_option("--qp", a.status.qpn, "all of the queue pair with this number")->type_name("QPN");
}

void add_top_command(CLI::App& app, Arguments& a) {
    a.top_command =
        app.add_subcommand("top", "Engines, devices and queue pairs, live: rates, round trips, and what limits each flow now");
    add_where(*a.top_command, a.top.where);
    std::vector<std::string> sorts;
    for (const auto& [name, sort] : roci::cli::kTopSorts) sorts.push_back(name);
    a.top_command->add_option("--sort", a.top.sort, "what the queue pairs are sorted by; the key s changes it")
        ->check(CLI::IsMember(sorts))
        ->capture_default_str();
    a.top_command->add_option("--interval", a.top.interval, "seconds over which rates are taken")
        ->check(CLI::Range(0.1, 3600.0))
        ->capture_default_str();
    a.top_command->add_option("--rows", a.top.rows, "queue pairs at most (default: as many as fit, 20 without a terminal)");
    a.top_command->add_option("--width", a.top.width, "columns, without a terminal (default: 100)")->check(CLI::Range(20, 1000));
    a.top_command->add_flag("--once", a.top.once, "one interval, as text; needs no terminal");
    a.top_command->add_flag("--json", a.top.as_json, "JSON, one line per interval");
}

void add_program_commands(CLI::App& app, Arguments& a) {
    a.run_command = app.add_subcommand("run", "Run a program with Rocinante's verbs; starts a loopback rocid when none is there");
    add_where(*a.run_command, a.run.where);
    a.run_command->add_flag("--keep", a.run.where.keep, "an ephemeral rocid stays when its last program has ended");
    a.run_command->add_flag("--no-view", a.run.no_view,
                            "do not give the program its own /sys/class/infiniband and /dev/infiniband");
    a.run_command->add_option("program", a.run.command, "PROGRAM and its arguments, after --")->required()->type_name("PROGRAM");
    a.run_command->positionals_at_end();

    add_status_command(app, a);

    a.stat_command = app.add_subcommand("stat", "Counters of devices and engines: totals, and rates over an interval");
    add_where(*a.stat_command, a.stat.where);
    a.stat_command->add_option("-i,--device", a.stat.device, "device (default: all)");
    a.stat_command->add_option("--interval", a.stat.interval, "seconds over which rates are taken; 0: totals only")
        ->check(CLI::Range(0.0, 3600.0))
        ->capture_default_str();
    a.stat_command->add_flag("--watch", a.stat.watch, "again every interval, until SIGINT or SIGTERM");
    a.stat_command->add_flag("--all", a.stat.all, "counters that are zero, too");
    a.stat_command->add_flag("--json", a.stat.as_json, "JSON, one line per sample");

    add_top_command(app, a);

    a.why_command = app.add_subcommand(
        "why", "What happened to a queue pair or to the connections of yours, in words; also to destroyed ones");
    add_where(*a.why_command, a.why.where);
    auto* cm = a.why_command->add_flag("--cm", a.why.connections, "all connections and failed attempts of rdma_cm");
    a.why_command->add_option("qpn", a.why.qpn, "the number of a queue pair (`roci status` lists them)")
        ->type_name("QPN")
        ->excludes(cm);
}

void add_plot_command(CLI::App& app, Arguments& a) {
    a.plot_command = app.add_subcommand(
        "plot", "Draw what connections did as an HTML page: packets by time, losses, round trips, goodput, messages");
    add_where(*a.plot_command, a.plot.where);
    auto* file = a.plot_command->add_option("file", a.plot.file, "capture of RoCEv2, pcap or pcapng; - is standard input")
                     ->type_name("FILE");
    auto* qp = a.plot_command->add_option("--qp", a.plot.qpn, "look at this queue pair of yours (`roci status` lists them)")
                   ->check(CLI::Range(1, 0xffffff))
                   ->excludes(file);
    a.plot_command->add_option("--seconds", a.plot.seconds, "how long to look at it")
        ->check(CLI::Range(0.1, 3600.0))
        ->needs(qp)
        ->capture_default_str();
    a.plot_command->add_option("-o,--output", a.plot.output,
                               "file to write; - is standard output (default: named after the capture)");
    a.plot_command->add_option("--flow", a.plot.flow, "only the connection with this number")->check(CLI::PositiveNumber);
    a.plot_command->add_flag("--json", a.plot.as_json,
                             "the data of the page as JSON, to standard output unless --output names a file");
}

void add_machine_commands(CLI::App& app, Arguments& a) {
    a.pcap_command = app.add_subcommand(
        "pcap", "Capture frames of a device or of one queue pair as pcapng, live: roci pcap -w - | wireshark -k -i -");
    add_where(*a.pcap_command, a.pcap.where);
    a.pcap_command->add_option("-i,--device", a.pcap.device, "device (default: all)");
    a.pcap_command->add_option("--qp", a.pcap.qpn,
                               "only the frames of the queue pair with this number (`roci status` lists them)");
    a.pcap_command->add_option("-w,--write", a.pcap.file, "file to write; - is standard output")->required();
    a.pcap_command->add_option("-s,--snap-length", a.pcap.snap_length, "bytes to keep of a frame (default: all)");
    a.pcap_command->add_option("--seconds", a.pcap.seconds, "end after so many seconds (default: at SIGINT or SIGTERM)");

    a.up_command =
        app.add_subcommand("up", "Start a rocid for this user on a UDP socket, without privilege: RDMA with other machines");
    a.up_command->add_option("--interface", a.up.interface, "network interface (default: that of the default route)");
    a.up_command->add_option("--udp", a.up.address,
                             "only this address of the host, with its prefix length (default: every address)");
    a.down_command = app.add_subcommand("down", "End the rocid of `roci up`");

    a.doctor_command =
        app.add_subcommand("doctor", "What on this machine stops or slows RDMA programs over rocid, worst first, and what to do");
    a.doctor_command->add_option("--socket", a.doctor.socket, "rocid's control socket (default: as for run)");
    a.doctor_command->add_option("--root", a.doctor.root, "look at the files below this folder")->group("");
}

void add_view_command(CLI::App& app, Arguments& a) {
    a.view_command = app.add_subcommand(
        "view",
        "Write the files by which programs find the devices, to mount into containers, which may not mount by themselves");
    add_where(*a.view_command, a.view.where);
    a.view_command->add_option("folder", a.view.folder, "folder to write; a new or empty one, or a view to renew")
        ->required()
        ->type_name("DIR");
    a.view_command->add_flag(
        "--watch", a.view.watch,
        "renew counters every second, ports and GIDs every ten, until SIGINT or SIGTERM; for rocid's container");
    a.view_command->add_flag(
        "--host-network", a.view.host_network,
        "the containers use this network namespace: show all its interfaces in /sys/class/net, not only virtual ones");
    a.view_command
        ->add_option("--cdi", a.view.cdi,
                     "also write this CDI specification (/etc/cdi/rocinante.json), for --device rocinante/verbs=all")
        ->type_name("FILE");
}

int parse_and_run(int argc, char** argv) {
    CLI::App app{"RDMA verbs on any NIC: runs unmodified RDMA programs over rocid, and shows what it does", "roci"};
    app.set_version_flag("--version", "roci " ROCI_VERSION);
    app.require_subcommand(0, 1);
    app.footer(roci::manual::environment_help());
    Arguments a;
    app.add_flag("--print-man", a.print_man)->group("");
    app.add_flag("--print-completion", a.print_completion)->group("");
    add_program_commands(app, a);
    add_plot_command(app, a);
    add_machine_commands(app, a);
    add_view_command(app, a);

    CLI11_PARSE(app, argc, argv);
    if (a.print_man) return print(roci::manual::roff(manual_page(app)));
    if (a.print_completion) return print(roci::manual::bash_completion("roci", roci::manual::commands(app), "run"));
    if (a.up_command->parsed()) return roci::cli::up(a.up);
    if (a.down_command->parsed()) return roci::cli::down();
    if (a.view_command->parsed()) return roci::cli::view(a.view);
    if (a.doctor_command->parsed()) return roci::cli::doctor(a.doctor);
    if (app.get_subcommands().empty()) {
        std::fputs(app.help().c_str(), stderr);
        return 106;  // exit code of CLI11 for a missing command
    }
    if (a.pcap_command->parsed()) return roci::cli::pcap(a.pcap);
    if (a.plot_command->parsed()) return roci::cli::plot(a.plot);
    if (a.stat_command->parsed()) return roci::cli::stat(a.stat);
    if (a.top_command->parsed()) return roci::cli::top(a.top);
    if (a.why_command->parsed()) return roci::cli::why(a.why);
    return a.run_command->parsed() ? roci::cli::run(a.run) : roci::cli::status(a.status);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return parse_and_run(argc, argv);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "roci: %s\n", e.what());
        return 1;
    }
}
