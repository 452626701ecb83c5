// roci: the command line of Rocinante.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "cli_manual.hpp"
#include "doctor.hpp"
#include "pcap.hpp"
#include "run.hpp"
#include "stat.hpp"
#include "status.hpp"
#include "up.hpp"
#include "why.hpp"

namespace {

void add_where(CLI::App& command, roci::cli::Where& where) {
    command.add_option("--socket", where.socket,
                       "rocid's control socket (default: $ROCI_SOCKET, else /run/rocinante/rocid.sock)");
    auto* config =
        command.add_option("--config", where.config, "configuration of the ephemeral rocid; each configuration has its own")
            ->check(CLI::ExistingFile);
    command
        .add_flag("--single", where.single,
                  "the ephemeral rocid with one device, roci0, that is its own peer: server and client have the same address")
        ->excludes(config);
}

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
    page.sections.push_back(
        {"Exit status",
         "roci run ends as its program does; 125: roci itself failed, 126: the program cannot be executed, 127: there "
         "is no such program. roci doctor: 1 if something stops RDMA programs here."});
    page.sections.push_back({"See also", "rocid(8), rocinante.toml(5)"});
    return page;
}

int print(const std::string& text) { return std::fputs(text.c_str(), stdout) < 0 ? 1 : 0; }

int parse_and_run(int argc, char** argv) {
    CLI::App app{"RDMA verbs on any NIC: runs unmodified RDMA programs over rocid, and shows what it does", "roci"};
    app.set_version_flag("--version", "roci " ROCI_VERSION);
    app.require_subcommand(0, 1);
    app.footer(roci::manual::environment_help());
    bool print_man = false, print_completion = false;  // for the build
    app.add_flag("--print-man", print_man)->group("");
    app.add_flag("--print-completion", print_completion)->group("");

    roci::cli::RunOptions run;
    CLI::App* run_command =
        app.add_subcommand("run", "Run a program with Rocinante's verbs; starts a loopback rocid when none is there");
    add_where(*run_command, run.where);
    run_command->add_flag("--keep", run.where.keep, "an ephemeral rocid stays when its last program has ended");
    run_command->add_flag("--no-view", run.no_view, "do not give the program its own /sys/class/infiniband and /dev/infiniband");
    run_command->add_option("program", run.command, "PROGRAM and its arguments, after --")->required()->type_name("PROGRAM");
    run_command->positionals_at_end();

    roci::cli::Where where;
    bool as_json = false, only_limits = false;
    CLI::App* status_command = app.add_subcommand("status", "Devices, GIDs, engines, sessions and QPs of a rocid");
    add_where(*status_command, where);
    status_command->add_flag("--json", as_json, "rocid's own JSON");
    status_command->add_flag("--limits", only_limits, "what each user has of what it may have, and how often more was refused");

    roci::cli::StatOptions stat;
    CLI::App* stat_command = app.add_subcommand("stat", "Counters of devices and engines: totals, and rates over an interval");
    add_where(*stat_command, stat.where);
    stat_command->add_option("-i,--device", stat.device, "device (default: all)");
    stat_command->add_option("--interval", stat.interval, "seconds over which rates are taken; 0: totals only")
        ->check(CLI::Range(0.0, 3600.0))
        ->capture_default_str();
    stat_command->add_flag("--watch", stat.watch, "again every interval, until SIGINT or SIGTERM");
    stat_command->add_flag("--all", stat.all, "counters that are zero, too");
    stat_command->add_flag("--json", stat.as_json, "JSON, one line per sample");

    roci::cli::WhyOptions why;
    CLI::App* why_command =
        app.add_subcommand("why", "What happened to a queue pair of yours, in words; also to one that is gone");
    add_where(*why_command, why.where);
    why_command->add_option("qpn", why.qpn, "its number (`roci status` lists them)")->required()->type_name("QPN");

    roci::cli::PcapOptions pcap;
    CLI::App* pcap_command = app.add_subcommand(
        "pcap", "Capture frames of a device or of one queue pair as pcapng, live: roci pcap -w - | wireshark -k -i -");
    add_where(*pcap_command, pcap.where);
    pcap_command->add_option("-i,--device", pcap.device, "device (default: all)");
    pcap_command->add_option("--qp", pcap.qpn, "only the frames of the queue pair with this number (`roci status` lists them)");
    pcap_command->add_option("-w,--write", pcap.file, "file to write; - is standard output")->required();
    pcap_command->add_option("-s,--snap-length", pcap.snap_length, "bytes to keep of a frame (default: all)");
    pcap_command->add_option("--seconds", pcap.seconds, "end after so many seconds (default: at SIGINT or SIGTERM)");

    roci::cli::UpOptions up;
    CLI::App* up_command =
        app.add_subcommand("up", "Start a rocid for this user on a UDP socket, without privilege: RDMA with other machines");
    up_command->add_option("--interface", up.interface, "network interface (default: that of the default route)");
    up_command->add_option("--udp", up.address, "only this address of the host, with its prefix length (default: every address)");
    CLI::App* down_command = app.add_subcommand("down", "End the rocid of `roci up`");

    roci::cli::DoctorOptions doctor;
    CLI::App* doctor_command =
        app.add_subcommand("doctor", "What on this machine stops or slows RDMA programs over rocid, worst first, and what to do");
    doctor_command->add_option("--socket", doctor.socket, "rocid's control socket (default: as for run)");
    doctor_command->add_option("--root", doctor.root, "look at the files below this folder")->group("");

    CLI11_PARSE(app, argc, argv);
    if (print_man) return print(roci::manual::roff(manual_page(app)));
    if (print_completion) return print(roci::manual::bash_completion("roci", roci::manual::commands(app), "run"));
    if (up_command->parsed()) return roci::cli::up(up);
    if (down_command->parsed()) return roci::cli::down();
    if (doctor_command->parsed()) return roci::cli::doctor(doctor);
    if (app.get_subcommands().empty()) {
        std::fputs(app.help().c_str(), stderr);
        return 106;  // as CLI11 ends where a command is required
    }
    if (pcap_command->parsed()) return roci::cli::pcap(pcap);
    if (stat_command->parsed()) return roci::cli::stat(stat);
    if (why_command->parsed()) return roci::cli::why(why);
    return run_command->parsed() ? roci::cli::run(run) : roci::cli::status(where, as_json, only_limits);
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
