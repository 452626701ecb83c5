#include "options.hpp"

#include <fmt/format.h>

namespace roci::rocid {
namespace {

using Texts = std::vector<std::string>;

#define ROCI_TEXT(field) [](Config& c, DeviceSection*, Value&& v) { c.field = std::get<std::string>(std::move(v)); }
#define ROCI_TEXTS(field) [](Config& c, DeviceSection*, Value&& v) { c.field = std::get<Texts>(std::move(v)); }
#define ROCI_COUNT(field) [](Config& c, DeviceSection*, Value&& v) { c.field = std::get<uint64_t>(v); }
#define ROCI_FRACTION(field) [](Config& c, DeviceSection*, Value&& v) { c.field = std::get<double>(v); }
#define ROCI_DEVICE(field, type) [](Config&, DeviceSection* d, Value&& v) { d->field = std::get<type>(std::move(v)); }

constexpr Option kOptions[] = {
    {"rocid", "socket", Kind::text, "\"/run/rocinante/rocid.sock\"", 0, 0, "",
     "Unix socket that programs connect to (environment ROCI_SOCKET on their side). Its folder is made if absent.",
     ROCI_TEXT(socket)},
    {"rocid", "socket_mode", Kind::octal, "0o666", 0, 0777, "",
     "Who may connect, as file mode bits. 0o666: every local user, like the device nodes of RDMA hardware.",
     ROCI_COUNT(socket_mode)},

    {"memory", "hugepages", Kind::choice, "\"auto\"", 0, 0, "auto|always|never",
     "auto: 2 MiB hugepages if enough are free, else ordinary pages; rocid says which. rocinante-hugepages (config/hugepages.sh) "
     "reserves some.",
     ROCI_TEXT(hugepages)},
    {"memory", "mbufs", Kind::count, "8192", 1024, 1 << 20, "",
     "Frame buffers an engine (4.5 KiB each). Too few and senders wait for buffers.", ROCI_COUNT(mbufs)},

    {"engine", "count", Kind::count, "1", 1, 16, "",
     "Engine lcores. Each serves its own queue pairs; more than free CPUs is a loss.", ROCI_COUNT(engine.count)},
    {"engine", "idle", Kind::choice, "\"adaptive\"", 0, 0, "adaptive|spin|backoff",
     "What an engine without work does. adaptive: it keeps a CPU that nobody else wants, hands over one that is shared, and "
     "sleeps "
     "after spin_us. spin: it never sleeps; for a CPU that nothing else uses. backoff: it sleeps after spin_us, and until then "
     "does not look who else wants its CPU.",
     ROCI_TEXT(engine.idle)},
    {"engine", "spin_us", Kind::count, "50", 0, 1000000, "",
     "adaptive, backoff: microseconds without work before an engine sleeps.", ROCI_COUNT(engine.spin_us)},
    {"engine", "max_sleep_us", Kind::count, "10000", 10, 1000000, "",
     "backoff: longest sleep. adaptive: longest sleep of an engine that polls a network card, whose frames may wait for it; any "
     "other one sleeps until it has something to do.",
     ROCI_COUNT(engine.max_sleep_us)},
    {"engine", "cpus", Kind::text, "\"\"", 0, 0, "",
     "Pin engine i to the i-th CPU of this list (\"2,4-6\"). Empty: engines float over the CPUs that rocid may use.",
     ROCI_TEXT(engine.cpus)},
    {"engine", "rx_burst", Kind::count, "32", 1, 256, "",
     "Frames taken from a port at once. Larger: throughput; smaller: latency.", ROCI_COUNT(engine.rx_burst)},
    {"engine", "tx_burst", Kind::count, "32", 1, 256, "", "Frames handed to a port at once.", ROCI_COUNT(engine.tx_burst)},
    {"engine", "qp_quantum", Kind::count, "32", 1, 1024, "", "Frames a queue pair may send before the next one has its turn.",
     ROCI_COUNT(engine.qp_quantum)},
    {"engine", "max_inflight", Kind::count, "256", 8, 8192, "",
     "Unacknowledged packets a queue pair may have. Bandwidth times round trip must fit; loss costs up to so many resends.",
     ROCI_COUNT(engine.max_inflight)},
    {"engine", "ack_every", Kind::count, "32", 1, 4096, "", "A requester asks for an ACK at least every so many packets.",
     ROCI_COUNT(engine.ack_every)},
    {"engine", "repeat", Kind::choice, "\"selective\"", 0, 0, "selective|go-back-n",
     "What is sent again after a loss. selective: the lost packet alone, if the peer keeps what follows it (this is found out), "
     "and a probe looks for losses after a few round trips without an ACK. go-back-n: everything from the lost packet on.",
     ROCI_TEXT(engine.repeat)},
    {"engine", "reorder_frames", Kind::count, "1024", 0, 8192, "",
     "Packets behind a lost or late one that a queue pair keeps until it comes, so that only that one need be sent again; as "
     "many as the peer may have unacknowledged are enough. 0: none, everything behind it is dropped.",
     ROCI_COUNT(engine.reorder_frames)},
    {"engine", "reorder_mb", Kind::count, "32", 1, 4096, "",
     "MiB per engine for packets kept so. A queue pair has at most a quarter of what is left; memory is taken when it is needed.",
     ROCI_COUNT(engine.reorder_mb)},

    {"limits", "max_sessions", Kind::count, "1024", 1, 65536, "", "Open devices, all programs together.",
     ROCI_COUNT(limits.max_sessions)},
    {"limits", "max_qps", Kind::count, "65536", 16, 1 << 20, "", "Queue pairs, all devices together.",
     ROCI_COUNT(limits.max_qps)},
    {"limits", "max_keys", Kind::count, "1048576", 64, 1 << 24, "", "Memory regions and windows (a key has a 24-bit index).",
     ROCI_COUNT(limits.max_keys)},
    {"limits", "max_ahs", Kind::count, "65536", 16, 1 << 20, "", "Address handles.", ROCI_COUNT(limits.max_ahs)},
    {"limits", "max_qp_wr", Kind::count, "32768", 16, 1 << 20, "", "Work requests a queue may hold.",
     ROCI_COUNT(limits.max_qp_wr)},
    {"limits", "max_sge", Kind::count, "30", 1, 30, "", "Scatter/gather elements of a work request.", ROCI_COUNT(limits.max_sge)},
    {"limits", "max_inline", Kind::count, "956", 0, 956, "", "Bytes of inline data of a work request.",
     ROCI_COUNT(limits.max_inline)},
    {"limits", "max_cqe", Kind::count, "4194304", 16, 1 << 22, "", "Entries of a completion queue.", ROCI_COUNT(limits.max_cqe)},
    {"limits", "max_arena_mb", Kind::count, "4096", 4, 1 << 20, "", "MiB of rings that one open device may have.",
     ROCI_COUNT(limits.max_arena_mb)},
    {"limits", "users", Kind::texts, "[]", 0, 0, "",
     "Limits of single users, all their programs together, for example [\"* qps=1000\", \"alice qps=5000 cqs=5000\", "
     "\"@hpc mapped_bytes=1099511627776\"]: a user, @group or * for everybody, then limits as `roci status --limits` names them. "
     "Of several that fit, the last one counts. Root and the user of rocid have none.",
     ROCI_TEXTS(limits.users)},

    {"device", "name", Kind::text, "\"\"", 0, 0, "", "Name that programs see (ibv_devinfo), for example \"roci0\".",
     ROCI_DEVICE(name, std::string)},
    {"device", "port", Kind::choice, "\"loopback\"", 0, 0, "loopback|af_packet|af_xdp|udp|tap|pci|vhost_user|virtio_user|memif",
     "What carries its frames; below is what each kind does, and docs/ports.md what it needs and costs.",
     ROCI_DEVICE(port, std::string)},
    {"device", "peer", Kind::text, "\"\"", 0, 0, "",
     "Loopback: the device at the other end; it must name this one. Its own name: alone.", ROCI_DEVICE(peer, std::string)},
    {"device", "interface", Kind::text, "\"\"", 0, 0, "",
     "The kernel's network interface: for af_packet, af_xdp and udp the one to use, for tap the name of the one to make.",
     ROCI_DEVICE(interface, std::string)},
    {"device", "pci", Kind::text, "\"\"", 0, 0, "", "PCI address of the NIC, for example \"0000:03:00.0\".",
     ROCI_DEVICE(pci, std::string)},
    {"device", "path", Kind::text, "\"\"", 0, 0, "", "Unix socket of vhost_user, virtio_user or memif.",
     ROCI_DEVICE(path, std::string)},
    {"device", "role", Kind::choice, "\"server\"", 0, 0, "server|client",
     "Who makes the socket at `path` (server), and who connects to it (client).", ROCI_DEVICE(role, std::string)},
    {"device", "descriptors", Kind::count, "1024", 64, 4096, "",
     "Frames that a queue of the port may hold. More: longer bursts survive; fewer: less memory. A power of two for most ports.",
     ROCI_DEVICE(descriptors, uint64_t)},
    {"device", "devargs", Kind::text, "\"\"", 0, 0, "",
     "More arguments for DPDK's driver, as its documentation has them, for example \"qdisc_bypass=1\".",
     ROCI_DEVICE(devargs, std::string)},
    {"device", "mac", Kind::text, "\"\"", 0, 0, "",
     "Ethernet address. Empty: that of the interface or NIC; without one 02:52:4f:43:49:NN, NN being the position of the device.",
     ROCI_DEVICE(mac, std::string)},
    {"device", "addresses", Kind::texts, "[]", 0, 0, "",
     "IP addresses, in GID order from GID 1 on; GID 0 is the link-local address made from the MAC. None, with a kernel interface "
     "behind the port: those of the interface, as they come and go.",
     ROCI_DEVICE(addresses, Texts)},
    {"device", "gateways", Kind::texts, "[]", 0, 0, "",
     "Routers to what is not on the link of `addresses`, one a family. Without effect where the addresses are the interface's: "
     "then "
     "the kernel's routes count.",
     ROCI_DEVICE(gateways, Texts)},
    {"device", "neighbours", Kind::texts, "[]", 0, 0, "",
     "Machines whose MAC address is known beforehand, for example \"10.77.0.2=02:00:00:00:00:02\".",
     ROCI_DEVICE(neighbours, Texts)},
    {"device", "mtu", Kind::count, "4096", 256, 4096, "",
     "Largest path MTU: 256, 512, 1024, 2048 or 4096 bytes of payload a packet. A port that carries less makes it less.",
     ROCI_DEVICE(mtu, uint64_t)},
    {"device", "vlan", Kind::count, "0", 0, 4094, "",
     "All of the device's frames carry this VLAN's tag (802.1Q), and it hears no others; the priority is the service level that "
     "a program asks for. 0: untagged. With a kernel interface behind the port give `addresses` too, or give the kernel's own "
     "VLAN "
     "interface (\"eth0.100\") as `interface`, without this key.",
     ROCI_DEVICE(vlan, uint64_t)},
    {"device", "traffic_class", Kind::count, "0", 0, 255, "",
     "Traffic class (DSCP times 4, plus ECN: 2 says that congestion may be marked) of connections for which the program asks for "
     "none.",
     ROCI_DEVICE(traffic_class, uint64_t)},
    {"device", "checksum_offload", Kind::choice, "\"auto\"", 0, 0, "auto|off",
     "auto: checksums of IPv4 headers are left to the port, as far as its driver makes or checks them (`roci status` says). off: "
     "rocid sees to them, for a driver that does it wrong, or whose faster way of sending knows no offloads.",
     ROCI_DEVICE(checksum_offload, std::string)},

    {"fault", "seed", Kind::count, "1", 0, 4294967295.0, "", "The same seed and traffic give the same faults.",
     ROCI_COUNT(fault.seed)},
    {"fault", "drop", Kind::fraction, "0.0", 0, 1, "",
     "Share of sent frames that are lost. For trying programs on a bad network.", ROCI_FRACTION(fault.drop)},
    {"fault", "corrupt", Kind::fraction, "0.0", 0, 1, "",
     "Share of frames with one bit flipped (the receiver's ICRC check drops them).", ROCI_FRACTION(fault.corrupt)},
    {"fault", "reorder", Kind::fraction, "0.0", 0, 1, "", "Share of frames that are overtaken by up to three later ones.",
     ROCI_FRACTION(fault.reorder)},
    {"fault", "duplicate", Kind::fraction, "0.0", 0, 1, "", "Share of frames that are sent twice.",
     ROCI_FRACTION(fault.duplicate)},
    {"fault", "ecn", Kind::fraction, "0.0", 0, 1, "", "Share of ECN-capable frames marked Congestion Experienced.",
     ROCI_FRACTION(fault.ecn)},
    {"fault", "delay_us", Kind::count, "0", 0, 10000000, "", "Microseconds that every frame is late.",
     ROCI_COUNT(fault.delay_us)},

    {"capture", "file", Kind::text, "\"\"", 0, 0, "", "pcapng file of all frames, for Wireshark. Empty: none.",
     ROCI_TEXT(capture.file)},
    {"capture", "trace", Kind::text, "\"\"", 0, 0, "", "Text file with one line a frame. Empty: none.", ROCI_TEXT(capture.trace)},
};

}  // namespace

std::span<const Option> options() { return kOptions; }

std::string allowed(const Option& o) {
    switch (o.kind) {
        case Kind::choice:
            return std::string(o.choices);
        case Kind::count:
            return fmt::format("{:.0f}..{:.0f}", o.min, o.max);
        case Kind::octal:
            return fmt::format("0o{:o}..0o{:o}", unsigned(o.min), unsigned(o.max));
        case Kind::fraction:
            return fmt::format("{:.1f}..{:.1f}", o.min, o.max);
        case Kind::text:
            return "text in quotes";
        case Kind::texts:
            return "list of texts in quotes";
    }
    return {};
}

}  // namespace roci::rocid
