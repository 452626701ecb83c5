// roci: the command line of Rocinante.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "pcap.hpp"
#include "run.hpp"
#include "status.hpp"

namespace {

void add_where(CLI::App& command, roci::cli::Where& where) {
    command.add_option("--socket", where.socket,
                       "rocid's control socket (default: $ROCI_SOCKET, else /run/rocinante/rocid.sock)");
    command.add_option("--config", where.config, "configuration of the ephemeral rocid; each configuration has its own")
        ->check(CLI::ExistingFile);
    command.add_flag("--single", where.single, "the ephemeral rocid with one device, for programs that want one host")
        ->excludes("--config");
}

int parse_and_run(int argc, char** argv) {
    CLI::App app{"RDMA verbs on any NIC: runs unmodified RDMA programs over rocid, and shows what it does", "roci"};
    app.set_version_flag("--version", "roci " ROCI_VERSION);
    app.require_subcommand(1);

    roci::cli::RunOptions run;
    CLI::App* run_command =
        app.add_subcommand("run", "Run a program with Rocinante's verbs; starts a loopback rocid when none is there");
    add_where(*run_command, run.where);
    run_command->add_flag("--keep", run.where.keep, "an ephemeral rocid stays when its last program has ended");
    run_command->add_flag("--no-view", run.no_view, "do not give the program its own /sys/class/infiniband and /dev/infiniband");
    run_command->add_option("program", run.command, "PROGRAM and its arguments, after --")->required()->type_name("PROGRAM");
    run_command->positionals_at_end();

    roci::cli::Where where;
    bool as_json = false;
    CLI::App* status_command = app.add_subcommand("status", "Devices, GIDs, engines, sessions and QPs of a rocid");
    add_where(*status_command, where);
    status_command->add_flag("--json", as_json, "rocid's own JSON");

    roci::cli::PcapOptions pcap;
    CLI::App* pcap_command = app.add_subcommand(
        "pcap", "Capture frames of a device or of one queue pair as pcapng, live: roci pcap -w - | wireshark -k -i -");
    add_where(*pcap_command, pcap.where);
    pcap_command->add_option("-i,--device", pcap.device, "device (default: all)");
    pcap_command->add_option("--qp", pcap.qpn, "only the frames of the queue pair with this number (`roci status` lists them)");
    pcap_command->add_option("-w,--write", pcap.file, "file to write; - is standard output")->required();
    pcap_command->add_option("-s,--snap-length", pcap.snap_length, "bytes to keep of a frame (default: all)");
    pcap_command->add_option("--seconds", pcap.seconds, "end after so many seconds (default: at SIGINT or SIGTERM)");

    CLI11_PARSE(app, argc, argv);
    if (pcap_command->parsed()) return roci::cli::pcap(pcap);
    return run_command->parsed() ? roci::cli::run(run) : roci::cli::status(where, as_json);
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
