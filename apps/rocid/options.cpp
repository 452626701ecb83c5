#include "options.hpp"

#include <fmt/format.h>

namespace roci::rocid {
namespace {

using Texts = std::vector<std::string>;

// The functions that store an option in a configuration and load it from there.
#define ROCI_OPTION(place, type)                                                                            \
    [](Config& c, DeviceSection* d, Value&& v) { (void)c, (void)d, place = std::get<type>(std::move(v)); }, \
        [](const Config& c, const DeviceSection* d) { return (void)c, (void)d, Value(place); }
#define ROCI_TEXT(field) ROCI_OPTION(c.field, std::string)
#define ROCI_TEXTS(field) ROCI_OPTION(c.field, Texts)
#define ROCI_COUNT(field) ROCI_OPTION(c.field, uint64_t)
#define ROCI_INTEGER(field) ROCI_OPTION(c.field, int64_t)
#define ROCI_FRACTION(field) ROCI_OPTION(c.field, double)
#define ROCI_DEVICE(field, type) ROCI_OPTION(d->field, type)

constexpr Option kOptions[] = {
    {"rocid", "socket", Kind::text, "\"/run/rocinante/rocid.sock\"", 0, 0, "",
     "Unix socket that programs connect to. For another path than the default, set the environment variable ROCI_SOCKET of the "
     "programs. rocid creates the folder of the socket if it is absent.",
     ROCI_TEXT(socket)},
    {"rocid", "socket_mode", Kind::octal, "0o660", 0, 0777, "",
     "Who may connect, as file mode bits. 0o660: rocid's user and the members of socket_group. 0o666: every local user, like the "
     "device "
     "nodes of RDMA hardware.",
     ROCI_COUNT(socket_mode)},
    {"rocid", "socket_group", Kind::text, "\"\"", 0, 0, "",
     "Group of the socket, by name or number, whose members may connect. rocid must be a member of the group, or root. Empty: "
     "the "
     "primary group of rocid's user, which is rocid for the service.",
     ROCI_TEXT(socket_group)},
    {"rocid", "metrics", Kind::text, "\"\"", 0, 0, "",
     "Where to serve counters to monitoring as OpenMetrics (GET /metrics): \"127.0.0.1:9471\", or the absolute path of a unix "
     "socket, which only rocid's user may open. Whoever can connect sees the totals of every user. Empty: nowhere.",
     ROCI_TEXT(metrics)},

    {"memory", "hugepages", Kind::choice, "\"auto\"", 0, 0, "auto|always|never",
     "auto: 2 MiB hugepages if enough are free, else ordinary pages; rocid logs which it uses. rocinante-hugepages "
     "(config/hugepages.sh) reserves hugepages.",
     ROCI_TEXT(hugepages)},
    {"memory", "mbufs", Kind::count, "8192", 1024, 1 << 20, "",
     "Frame buffers per engine (4.5 KiB each). If there are too few, senders wait for buffers.", ROCI_COUNT(mbufs)},

    {"engine", "count", Kind::count, "1", 1, 16, "",
     "Engine lcores. Each serves its own queue pairs. More engines than free CPUs reduce performance.", ROCI_COUNT(engine.count)},
    {"engine", "idle", Kind::choice, "\"adaptive\"", 0, 0, "adaptive|spin|backoff",
     "What an idle engine does. adaptive: the engine keeps its CPU while no other thread wants the CPU, yields the CPU "
     "otherwise, and sleeps after spin_us. spin: the engine never sleeps. Use it with a CPU that nothing else uses. "
     "backoff: the engine spins for spin_us even if other threads want the CPU, then sleeps.",
     ROCI_TEXT(engine.idle)},
    {"engine", "spin_us", Kind::count, "50", 0, 1000000, "",
     "adaptive, backoff: microseconds without work before an engine sleeps. adaptive: after a short sleep, up to four times as "
     "long, and longer on a slow processor; an engine sleeps at once after messages where polling has delayed the next one.",
     ROCI_COUNT(engine.spin_us)},
    {"engine", "nice", Kind::integer, "-5", -20, 19, "",
     "What engines add to rocid's nice value. With a lower nice value than a busy program on the same CPU, an engine gets the "
     "CPU sooner and for longer. The kernel compares nice values only within a session or control group. To decrease the nice "
     "value, rocid needs CAP_SYS_NICE or RLIMIT_NICE (LimitNICE= of the service). Without them the engines keep rocid's nice "
     "value.",
     ROCI_INTEGER(engine.nice)},
    {"engine", "max_sleep_us", Kind::count, "10000", 10, 1000000, "",
     "Longest sleep of an engine in microseconds. With idle = \"adaptive\" this limit applies only to an engine with a "
     "network card, whose interrupts may stop, or with a port that cannot wake the engine. Other engines sleep until they "
     "have work.",
     ROCI_COUNT(engine.max_sleep_us)},
    {"engine", "cpus", Kind::text, "\"\"", 0, 0, "",
     "Pin engine i to the i-th CPU of this list (\"2,4-6\"). Empty: engines may run on all CPUs that rocid may use.",
     ROCI_TEXT(engine.cpus)},
    {"engine", "rx_burst", Kind::count, "32", 1, 256, "",
     "Frames received from a port per burst. Larger: higher throughput; smaller: lower latency.", ROCI_COUNT(engine.rx_burst)},
    {"engine", "tx_burst", Kind::count, "32", 1, 256, "", "Frames sent to a port per burst.", ROCI_COUNT(engine.tx_burst)},
    {"engine", "qp_quantum", Kind::count, "32", 1, 1024, "", "Frames that a queue pair may send per turn.",
     ROCI_COUNT(engine.qp_quantum)},
    {"engine", "max_inflight", Kind::count, "256", 8, 8192, "",
     "Unacknowledged packets that a queue pair may have. Set it to at least bandwidth times round trip divided by the MTU. A "
     "loss can cause up to this many retransmissions.",
     ROCI_COUNT(engine.max_inflight)},
    {"engine", "ack_every", Kind::count, "32", 1, 4096, "", "A requester requests an ACK at least once per this many packets.",
     ROCI_COUNT(engine.ack_every)},
    {"engine", "repeat", Kind::choice, "\"selective\"", 0, 0, "selective|go-back-n",
     "Retransmission after a loss. selective: only the lost packet, if the peer keeps the packets behind it (rocid detects "
     "this), and a probe after a few round trips without an ACK. go-back-n: all packets from the lost one on.",
     ROCI_TEXT(engine.repeat)},
    {"engine", "loss_reports", Kind::choice, "\"on\"", 0, 0, "on|off",
     "After a loss, ask the peer whether it sends loss reports, and repeat all packets that it reports as missing in one "
     "round trip. Only another Rocinante answers; other peers drop the question, which is sent at most 3 times per "
     "connection. off: neither ask nor answer. on: for networks that lose packets by chance. With congestion.policy = fixed "
     "and a full queue, faster repeats lose more packets.",
     ROCI_TEXT(engine.loss_reports)},
    {"engine", "reorder_frames", Kind::count, "1024", 0, 8192, "",
     "Packets behind a lost or late packet that a queue pair keeps, so that the peer repeats only that packet. A value as "
     "large as the peer's limit of unacknowledged packets is sufficient. 0: no packets are kept; all packets behind a gap "
     "are dropped.",
     ROCI_COUNT(engine.reorder_frames)},
    {"engine", "reorder_mb", Kind::count, "32", 1, 4096, "",
     "MiB per engine for kept packets. A queue pair may use at most a quarter of the free part for requests, and as much for "
     "responses. The memory is allocated when it is needed.",
     ROCI_COUNT(engine.reorder_mb)},
    {"engine", "loopback_icrc", Kind::choice, "\"auto\"", 0, 0, "auto|always",
     "auto: frames between loopback devices contain no ICRC, because they never leave rocid's memory. With a fault of [fault] "
     "they contain one. always: all frames contain an ICRC, which the receiver checks. Use always to measure what the "
     "transport costs on a network. Captures always show the ICRC.",
     ROCI_TEXT(engine.loopback_icrc)},

    {"congestion", "policy", Kind::choice, "\"auto\"", 0, 0, "auto|fixed|delay|dcqcn|adaptive",
     "Congestion control of reliable queue pairs. auto: fixed on loopback ports, adaptive on others. fixed: "
     "engine.max_inflight packets, whatever the network does. delay: a window that keeps round trips near a target. dcqcn: a "
     "rate that CNPs reduce; only for networks that mark frames (device.traffic_class). adaptive: like delay, and CNPs make the "
     "window smaller.",
     ROCI_TEXT(congestion.policy)},
    {"congestion", "first_window", Kind::count, "2", 1, 256, "",
     "All policies but fixed: packets that a queue pair sends before the first ACK, and after a pause of 1 ms; then the window "
     "grows by a half per round trip. "
     "More: short messages are faster; many senders that start together overflow the queue of a switch.",
     ROCI_COUNT(congestion.first_window)},
    {"congestion", "target_us", Kind::count, "0", 0, 100000, "",
     "delay, adaptive: microseconds of round trip to aim at. The target of narrow windows is up to three times as long. Less: "
     "shorter queues; too little: a link that is not full. The target of a queue pair is never less than 5/4 of its shortest "
     "round trip. 0: 30, but 300 for port = \"udp\", because round trips through the kernel's sockets are longer.",
     ROCI_COUNT(congestion.target_us)},
    {"congestion", "cnp_interval_us", Kind::count, "50", 0, 1000000, "",
     "Shortest time between two CNPs of a queue pair whose received frames are marked Congestion Experienced. 50: as network "
     "cards. 0: no "
     "CNPs.",
     ROCI_COUNT(congestion.cnp_interval_us)},
    {"congestion", "raise_us", Kind::count, "55", 10, 100000, "",
     "dcqcn: microseconds between two raises of the rate. Set it longer than cnp_interval_us of the peer, so that the rate "
     "does not rise between the CNPs of a lasting congestion.",
     ROCI_COUNT(congestion.raise_us)},
    {"congestion", "raise_mb", Kind::count, "10", 1, 1000, "", "dcqcn: MB sent between two raises of the rate.",
     ROCI_COUNT(congestion.raise_mb)},
    {"congestion", "additive_mbps", Kind::count, "40", 1, 100000, "",
     "dcqcn: Mb/s per raise, once the rate is where it was before the last CNP. More: bandwidth that becomes free is used "
     "sooner; the "
     "queue of a switch is longer.",
     ROCI_COUNT(congestion.additive_mbps)},
    {"congestion", "hyper_mbps", Kind::count, "400", 1, 100000, "",
     "dcqcn: Mb/s per raise after five raises by time and five by bytes without a CNP.", ROCI_COUNT(congestion.hyper_mbps)},

    {"limits", "max_sessions", Kind::count, "1024", 1, 65536, "", "Open devices of all programs together.",
     ROCI_COUNT(limits.max_sessions)},
    {"limits", "max_qps", Kind::count, "65536", 16, 1 << 20, "", "Queue pairs of all devices together.",
     ROCI_COUNT(limits.max_qps)},
    {"limits", "max_keys", Kind::count, "1048576", 64, 1 << 24, "", "Memory regions and windows (a key has a 24-bit index).",
     ROCI_COUNT(limits.max_keys)},
    {"limits", "max_ahs", Kind::count, "65536", 16, 1 << 20, "", "Address handles.", ROCI_COUNT(limits.max_ahs)},
    {"limits", "max_qp_wr", Kind::count, "32768", 16, 1 << 20, "", "Work requests per queue.", ROCI_COUNT(limits.max_qp_wr)},
    {"limits", "max_sge", Kind::count, "30", 1, 30, "", "Scatter/gather elements per work request.", ROCI_COUNT(limits.max_sge)},
    {"limits", "max_inline", Kind::count, "956", 0, 956, "", "Bytes of inline data per work request.",
     ROCI_COUNT(limits.max_inline)},
    {"limits", "max_cqe", Kind::count, "4194304", 16, 1 << 22, "", "Entries per completion queue.", ROCI_COUNT(limits.max_cqe)},
    {"limits", "max_arena_mb", Kind::count, "4096", 4, 1 << 20, "", "MiB of rings per open device.",
     ROCI_COUNT(limits.max_arena_mb)},
    {"limits", "users", Kind::texts, "[]", 0, 0, "",
     "Limits per user, for all programs of the user together, for example [\"* qps=1000\", \"alice qps=5000 cqs=5000\", "
     "\"@hpc mapped_bytes=1099511627776\"]: a user, @group or * for all users, then limits with the names of `roci status "
     "--limits`. control_rate is control operations per second: 100000 by default, which is more than a program makes that "
     "registers "
     "memory for each message; with 0 there is no limit. A user beyond control_rate waits for its replies. "
     "bytes_per_second and packets_per_second limit what the user's queue pairs send; by default there is no limit. "
     "If several entries set the same limit of a user, the last one is used. Root and the user of rocid have no limits.",
     ROCI_TEXTS(limits.users)},

    {"device", "name", Kind::text, "\"\"", 0, 0, "", "Name that programs see (ibv_devinfo), for example \"roci0\".",
     ROCI_DEVICE(name, std::string)},
    {"device", "port", Kind::choice, "\"loopback\"", 0, 0, "loopback|af_packet|af_xdp|udp|tap|pci|vhost_user|virtio_user|memif",
     "Kind of the port that carries the device's frames. The kinds are listed below; docs/ports.md describes their requirements "
     "and costs.",
     ROCI_DEVICE(port, std::string)},
    {"device", "peer", Kind::text, "\"\"", 0, 0, "",
     "Loopback: the device at the other end, which must name this device as its peer. The device's own name: no other device is "
     "connected.",
     ROCI_DEVICE(peer, std::string)},
    {"device", "interface", Kind::text, "\"\"", 0, 0, "",
     "Kernel network interface. af_packet, af_xdp, udp: the interface to use. tap: the name of the interface to create.",
     ROCI_DEVICE(interface, std::string)},
    {"device", "pci", Kind::text, "\"\"", 0, 0, "", "PCI address of the NIC, for example \"0000:03:00.0\".",
     ROCI_DEVICE(pci, std::string)},
    {"device", "path", Kind::text, "\"\"", 0, 0, "", "Unix socket of vhost_user, virtio_user or memif.",
     ROCI_DEVICE(path, std::string)},
    {"device", "role", Kind::choice, "\"server\"", 0, 0, "server|client",
     "server: rocid creates the socket at `path`. client: rocid connects to it.", ROCI_DEVICE(role, std::string)},
    {"device", "descriptors", Kind::count, "1024", 64, 4096, "",
     "Frames per queue of the port. More: longer bursts without loss. Fewer: less memory. Most ports need a power of two.",
     ROCI_DEVICE(descriptors, uint64_t)},
    {"device", "devargs", Kind::text, "\"\"", 0, 0, "",
     "Further arguments for the DPDK driver (see its documentation), for example \"qdisc_bypass=1\".",
     ROCI_DEVICE(devargs, std::string)},
    {"device", "mac", Kind::text, "\"\"", 0, 0, "",
     "Ethernet address. Empty: the address of the interface or NIC. If there is neither: 02:52:4f:43:49:NN, where NN is the "
     "position of the device.",
     ROCI_DEVICE(mac, std::string)},
    {"device", "addresses", Kind::texts, "[]", 0, 0, "",
     "IP addresses, in GID order from GID 1 on; GID 0 is the link-local address derived from the MAC. Empty, if the port has a "
     "kernel interface: the current addresses of the interface.",
     ROCI_DEVICE(addresses, Texts)},
    {"device", "gateways", Kind::texts, "[]", 0, 0, "",
     "Routers for destinations outside the subnets of `addresses`, one per address family. Ignored if the addresses are those of "
     "the kernel interface: rocid then uses the kernel's routes.",
     ROCI_DEVICE(gateways, Texts)},
    {"device", "neighbours", Kind::texts, "[]", 0, 0, "",
     "Static neighbour entries, for example \"10.77.0.2=02:00:00:00:00:02\".", ROCI_DEVICE(neighbours, Texts)},
    {"device", "mtu", Kind::count, "4096", 256, 4096, "",
     "Largest path MTU: 256, 512, 1024, 2048 or 4096 bytes of payload per packet. A port with a smaller MTU reduces it.",
     ROCI_DEVICE(mtu, uint64_t)},
    {"device", "vlan", Kind::count, "0", 0, 4094, "",
     "VLAN tag (802.1Q) of all frames that the device sends and accepts. The priority is the service level that the program "
     "sets. 0: untagged. If the port has a kernel interface, set `addresses` too; or set `interface` to the kernel's VLAN "
     "interface (\"eth0.100\") and leave this key out.",
     ROCI_DEVICE(vlan, uint64_t)},
    {"device", "traffic_class", Kind::count, "0", 0, 255, "",
     "Traffic class of connections for which the program sets none: DSCP times 4, plus the ECN field (2: switches may mark "
     "congestion).",
     ROCI_DEVICE(traffic_class, uint64_t)},
    {"device", "checksum_offload", Kind::choice, "\"auto\"", 0, 0, "auto|off",
     "auto: the port computes and checks IPv4 header checksums as far as its driver can (`roci status` shows it). off: rocid "
     "computes and checks them. Use off for a driver with wrong checksums, or whose fast path has no offloads.",
     ROCI_DEVICE(checksum_offload, std::string)},

    {"fault", "seed", Kind::count, "1", 0, 4294967295.0, "", "The same seed and traffic give the same faults.",
     ROCI_COUNT(fault.seed)},
    {"fault", "drop", Kind::fraction, "0.0", 0, 1, "",
     "Share of sent frames that are lost. For testing programs on a bad network.", ROCI_FRACTION(fault.drop)},
    {"fault", "corrupt", Kind::fraction, "0.0", 0, 1, "",
     "Share of frames with one bit flipped (the receiver's ICRC check drops them).", ROCI_FRACTION(fault.corrupt)},
    {"fault", "reorder", Kind::fraction, "0.0", 0, 1, "", "Share of frames that are overtaken by up to three later ones.",
     ROCI_FRACTION(fault.reorder)},
    {"fault", "duplicate", Kind::fraction, "0.0", 0, 1, "", "Share of frames that are sent twice.",
     ROCI_FRACTION(fault.duplicate)},
    {"fault", "ecn", Kind::fraction, "0.0", 0, 1, "", "Share of ECN-capable frames marked Congestion Experienced.",
     ROCI_FRACTION(fault.ecn)},
    {"fault", "delay_us", Kind::count, "0", 0, 10000000, "", "Delay of every frame in microseconds.", ROCI_COUNT(fault.delay_us)},

    {"capture", "file", Kind::text, "\"\"", 0, 0, "", "pcapng file of all frames, for Wireshark. Empty: none.",
     ROCI_TEXT(capture.file)},
    {"capture", "trace", Kind::text, "\"\"", 0, 0, "", "Text file with one line per frame. Empty: none.",
     ROCI_TEXT(capture.trace)},
};

}  // namespace

std::span<const Option> options() { return kOptions; }

std::string allowed(const Option& o) {
    switch (o.kind) {
        case Kind::choice:
            return std::string(o.choices);
        case Kind::count:
        case Kind::integer:
            return fmt::format("{:.0f}..{:.0f}", o.min, o.max);
        case Kind::octal:
            return fmt::format("0o{:o}..0o{:o}", unsigned(o.min), unsigned(o.max));
        case Kind::fraction:
            return fmt::format("{:.1f}..{:.1f}", o.min, o.max);
        case Kind::text:
            return "string";
        case Kind::texts:
            return "list of strings";
    }
    return {};
}

}  // namespace roci::rocid
