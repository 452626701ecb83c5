#include "capture_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "decoder.hpp"
#include "failure.hpp"
#include "pcapng_places.hpp"
#include "words.hpp"

#ifdef ROCI_HAVE_PCAP
#include <pcap/pcap.h>
#endif

namespace roci::plot {
namespace {

std::string packets(uint64_t n, const char* what = "frame") { return count_of(n, what); }

/// Returns the error text for a file without RoCEv2 packets. The text describes the frames of the file.
std::string what_it_has(const Capture& c) {
    const ReadCounts& n = c.counts;
    if (n.frames == 0) return fmt::format("'{}' has no frames", c.name);
    std::string out = fmt::format("'{}' has no RoCEv2 packets (UDP port 4791): of its {}, ", c.name, packets(n.frames));
    if (n.roce_v1 != 0) return out + fmt::format("{} are RoCE version 1, which is not drawn", n.roce_v1);
    if (n.headers_cut != 0)
        return out + fmt::format("{} end before their RoCE headers: capture at least 128 bytes of a frame", n.headers_cut);
    if (n.malformed != 0) return out + fmt::format("{} go to this port, but have no RoCEv2 headers", n.malformed);
    return out + (n.tcp != 0 ? fmt::format("{} are TCP", n.tcp) : "all have other protocols");
}

void add_notices(Capture& c, bool without_icrc) {
    const ReadCounts& n = c.counts;
    const auto note = [&](std::string text) { c.notices.push_back(std::move(text)); };
    if (!c.cut.empty()) note(fmt::format("The capture is cut: {}. The page shows the {} before it.", c.cut, packets(n.frames)));
    if (without_icrc)
        note(
            "The frames have no ICRC: the tool or the device that captured them removed it. Damaged frames cannot be "
            "recognised.");
    else if (n.icrc_good == 0 && n.icrc_wrong != 0)
        note("No frame has a right ICRC: it was captured before the sender's NIC computed it, or its addresses were changed.");
    else if (n.icrc_wrong != 0)
        note(fmt::format("{} damaged on the way: the ICRC is wrong. A receiver drops such frames.",
                         n.icrc_wrong == 1 ? "1 frame was" : grouped(n.icrc_wrong) + " frames were"));
    if (n.payload_cut != 0)
        note(fmt::format("The payload of {} was not captured, so their ICRC was not checked.", packets(n.payload_cut)));
    if (n.headers_cut != 0) note(fmt::format("{} end before their RoCE headers and are not shown.", packets(n.headers_cut)));
    if (n.malformed != 0)
        note(fmt::format("{} to UDP port 4791 have no valid RoCEv2 headers and are not shown.", packets(n.malformed)));
}

#ifdef ROCI_HAVE_PCAP

using Pcap = std::unique_ptr<pcap_t, decltype(&pcap_close)>;

Pcap open_file(const std::string& path, const std::string& name) {
    char why[PCAP_ERRBUF_SIZE] = "";
    Pcap file(pcap_open_offline_with_tstamp_precision(path.c_str(), PCAP_TSTAMP_PRECISION_NANO, why), &pcap_close);
    if (file) return file;
    std::string reason = why;
    if (reason.starts_with(path + ": ")) reason.erase(0, path.size() + 2);
    throw Failure(Ending::failed, fmt::format("cannot read '{}': {}", name, reason));
}

Link link_of(pcap_t* file, const std::string& name) {
    struct Row {
        int type;
        Link link;
    };
    static constexpr int kRawIp = 101, kAny2 = 276;
    static constexpr Row kRows[] = {{DLT_EN10MB, Link::ethernet}, {DLT_RAW, Link::raw_ip},  {kRawIp, Link::raw_ip},
                                    {DLT_IPV4, Link::raw_ip},     {DLT_IPV6, Link::raw_ip}, {DLT_LINUX_SLL, Link::linux_any},
                                    {kAny2, Link::linux_any2}};
    const int type = pcap_datalink(file);
    for (const Row& row : kRows)
        if (row.type == type) return row.link;
    const char* text = pcap_datalink_val_to_description(type);
    throw Failure(Ending::not_roce, fmt::format("'{}' has frames of {}, not of Ethernet: no RoCEv2", name,
                                                text != nullptr ? text : "an unknown kind"));
}

/// The largest number of seconds of a time stamp. A larger time in nanoseconds would not fit into 63 bits.
constexpr int64_t kLastSecond = 9'000'000'000;

void read_frames(pcap_t* file, const std::string& path, Link link, Decoder& decoder, Capture& out, size_t most) {
    PcapngPlaces places(path);
    pcap_pkthdr* header = nullptr;
    const u_char* bytes = nullptr;
    int result = 0;
    while ((result = pcap_next_ex(file, &header, &bytes)) == 1) {
        if (out.frames.size() >= most) {
            out.notices.push_back(fmt::format("The capture is long: the page shows its first {} RoCEv2 packets.", most));
            break;
        }
        // tv_usec contains nanoseconds, because open_file() requests this precision from libpcap. A time stamp of pcapng has 64
        // bits, so the time stamp of a damaged file may overflow.
        const int64_t time = std::clamp<int64_t>(header->ts.tv_sec, 0, kLastSecond) * 1'000'000'000 +
                             std::clamp<int64_t>(header->ts.tv_usec, 0, 999'999'999);
        decoder.add(time, {bytes, header->caplen}, header->len, link, places.next());
    }
    if (result == PCAP_ERROR) out.cut = pcap_geterr(file);
    out.places = places.names();
}

Capture read_once(const std::string& path, const std::string& name, size_t most, bool without_icrc, uint64_t& only_without) {
    Capture out;
    out.name = name;
    const Pcap file = open_file(path, name);
    const auto decoder = std::make_unique<Decoder>(out, without_icrc);
    read_frames(file.get(), path, link_of(file.get(), name), *decoder, out, most);
    only_without = decoder->only_without_icrc();
    return out;
}

#else

Capture read_once(const std::string&, const std::string&, size_t, bool, uint64_t&) {
    throw Failure(Ending::failed, "this roci was built without libpcap (Debian: libpcap-dev), which reads captures");
}

#endif

/// Sorts the frames by time. A file with several interfaces may contain the frames in another order.
void sort_by_time(Capture& c) {
    const auto earlier = [](const Frame& a, const Frame& b) { return a.time < b.time; };
    if (std::is_sorted(c.frames.begin(), c.frames.end(), earlier)) return;
    std::stable_sort(c.frames.begin(), c.frames.end(), earlier);
    for (Flow& f : c.flows) f.frames.clear();
    for (uint32_t i = 0; i < c.frames.size(); ++i) c.flows[c.frames[i].flow].frames.push_back(i);
}

}  // namespace

Capture read_capture(const std::string& path, const std::string& name, size_t most_frames) {
    uint64_t only_without = 0;
    Capture out = read_once(path, name, most_frames, false, only_without);
    // A frame without its ICRC, for example an ACK, may be too short for the parser. `only_without` counts the frames that become
    // valid if an ICRC is added. If there are such frames, and no frame has a right ICRC, the capture contains no ICRCs.
    const bool without_icrc = out.counts.icrc_good == 0 && only_without != 0;
    if (without_icrc) out = read_once(path, name, most_frames, true, only_without);
    if (out.frames.empty())
        throw Failure(Ending::not_roce, what_it_has(out) + (out.cut.empty() ? "" : "; it is cut: " + out.cut));
    sort_by_time(out);
    add_notices(out, without_icrc);
    return out;
}

}  // namespace roci::plot
