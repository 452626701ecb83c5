// Passes frames with arbitrary bytes to the parser of frames and to the parser of loss reports. The parser must return one of
// its defined verdicts. If the verdict is ok or bad_icrc, the payload must be within the frame, all accessors must work, and a
// frame built from the packet must give the same packet.
#include <algorithm>
#include <cstring>
#include <memory>

#include "pcap_file.hpp"
#include "samples.hpp"
#include "targets.hpp"
#include "wire/describe.hpp"
#include "wire/loss_report.hpp"

namespace roci::fuzz::parse {
namespace {

using test::Frame;
using wire::Packet;
using wire::Verdict;

constexpr size_t kReports = size_t(Verdict::count_);  ///< the outcome "accepted loss report"

void check_bounds(const Packet& p, Input in) {
    const uint8_t* end = in.data() + in.size();
    require(p.info != nullptr && p.info->valid() && p.info == &wire::opcode_info(p.opcode), "info is the opcode's");
    require(p.frame == in.data(), "frame is the frame");
    require(p.l3 > p.frame && p.l3 < end, "IP header in the frame");
    require(p.payload >= p.l3 + (p.ipv6 ? wire::kIpv6Length : wire::kIpv4Length) + wire::kUdpLength + p.info->header_length,
            "payload after the headers");
    require(p.payload_length <= in.size() && p.payload + p.payload_length + wire::kIcrcLength <= end, "payload before the ICRC");
    require(p.info->has(wire::kPayload) || p.payload_length == 0, "payload only where it belongs");
    require(p.dest_qp.value <= kMask24 && p.psn.value() <= kMask24, "24-bit fields");
}

void check_accessors(const Packet& p) {
    uint8_t grh[40];
    p.copy_grh(grh);
    require(grh[p.ipv6 ? 0 : 20] >> 4 == (p.ipv6 ? 6 : 4), "GRH is the IP header");
    const std::string text = wire::describe(p);
    require(text.find(p.info->name) != std::string::npos, "description names the opcode");
}

/// If a loss report is accepted, it must be unchanged after it is written and read again.
void check_loss_report(const Packet& p, Reach& reach) {
    wire::LossReport report, again;
    if (p.opcode != wire::kLossReportOpcode || !wire::read_loss_report(p.payload, p.payload_length, report)) return;
    reach(kReports);
    uint8_t bytes[wire::LossReport::kBytes];
    wire::write_loss_report(bytes, report);
    require(wire::read_loss_report(bytes, sizeof bytes, again), "a loss report is accepted again");
    require(report.base == again.base && report.newest == again.newest && report.arrived == again.arrived, "it is the same");
    require(report.kind == wire::ReportKind::inquiry || report.length <= wire::LossReport::kMost, "it covers what it has");
}

/// Builds a frame from the packet and parses this frame. Skips payloads above the largest MTU, because no frame can
/// contain them.
void check_rebuild(const Packet& p) {
    if (p.payload_length > 4096) return;
    const bool same_family = p.source_gid().is_ipv4() == p.dest_gid().is_ipv4();
    const bool truly_ipv6 = p.ipv6 && !p.source_gid().is_ipv4();  // the addresses in an IPv6 header may be ::ffff:a.b.c.d, too
    if (!same_family || p.ipv6 != truly_ipv6) return;
    const Frame again = test::build_frame(test::path_of(p), test::headers_of(p), p.payload, p.payload_length);
    Packet q;
    require(wire::parse(again.data(), uint32_t(again.size()), q) == Verdict::ok, "built again, it parses");
    Packet without_marks = p;  // begin_frame sets BECN only in CNPs, and never sets FECN
    without_marks.fecn = q.fecn;
    without_marks.becn = q.becn;
    require(wire::describe(q) == wire::describe(without_marks), "built again, it is the same packet");
    require(p.payload_length == 0 || std::memcmp(p.payload, q.payload, p.payload_length) == 0, "and has the same payload");
}

Bytes report_frame(bool ipv6) {
    wire::LossReport report;
    report.kind = wire::ReportKind::report;
    report.length = 40;
    report.newest = report.base + 50;
    report.set(7);
    uint8_t bytes[wire::LossReport::kBytes];
    wire::write_loss_report(bytes, report);
    return test::build_frame(test::sample_path(ipv6, false), test::sample_headers(wire::kLossReportOpcode), bytes, sizeof bytes);
}

}  // namespace

void run(Input input, Reach& reach) {
    // The block has exactly the size of the frame, so that the address sanitizer detects any read beyond the frame.
    const std::unique_ptr<uint8_t[]> block(new uint8_t[input.size()]);
    std::ranges::copy(input, block.get());
    const Input in(block.get(), input.size());
    Packet p, trusting;
    const Verdict verdict = wire::parse(in.data(), uint32_t(in.size()), p);
    const Verdict without_icrc = wire::parse(in.data(), uint32_t(in.size()), trusting, false);
    require(verdict < Verdict::count_, "known verdict");
    require(without_icrc == (verdict == Verdict::bad_icrc ? Verdict::ok : verdict), "the ICRC is checked last");
    if (without_icrc == Verdict::ok) {
        check_bounds(trusting, in);
        require(trusting.unchecked && !p.unchecked, "the packet says whether its ICRC was checked");
        require(wire::icrc_right(trusting) == (verdict == Verdict::ok), "a later check has the same result");
        require(trusting.frame + wire::frame_bytes(trusting) <= in.data() + in.size(), "the ICRC is within the frame");
        check_accessors(trusting);
        check_rebuild(trusting);
        check_loss_report(trusting, reach);
    }
    if (verdict == Verdict::ok) require(wire::describe(p) == wire::describe(trusting), "same packet with and without ICRC check");
    reach(size_t(verdict));
}

/// Frames of every opcode, over IPv4 and IPv6, with and without a VLAN tag, and the frames of a capture.
std::vector<Bytes> seeds() {
    std::vector<Bytes> all;
    for (unsigned op = 0; op < 256; ++op) {
        const wire::OpcodeInfo& info = wire::opcode_info(uint8_t(op));
        if (!info.valid()) continue;
        for (unsigned kind = 0; kind < 4; ++kind) {
            const uint32_t length = info.has(wire::kPayload) ? (op * 4 + kind) % 131 : 0;
            all.push_back(test::sample_frame(uint8_t(op), (kind & 1) != 0, (kind & 2) != 0, length));
        }
    }
    for (const bool ipv6 : {false, true}) all.push_back(report_frame(ipv6));
    const std::vector<Frame> captured = test::read_pcap(ROCI_TEST_DATA "/rxe-excerpt.pcap");
    require(!captured.empty(), "the capture has frames");
    all.insert(all.end(), captured.begin(), captured.end());
    return all;
}

std::vector<Outcome> outcomes() {
    std::vector<std::string> names;
    for (size_t v = 0; v < size_t(Verdict::count_); ++v) names.emplace_back(wire::verdict_name(Verdict(v)));
    names.emplace_back("accepted loss report");
    return numbered(names);
}

/// Sometimes sets the opcode. Corrects the IP length, the UDP length, the IPv4 checksum and the ICRC; skips each of these
/// corrections with a probability of 1/8.
void repair(Bytes& f, Rng& rng) {
    if (f.size() > 62 && rng.chance(0.1)) f[load_be<uint16_t>(&f[12]) == 0x86dd ? 62 : 42] = uint8_t(rng.next());
    const bool tagged = f.size() > 18 && load_be<uint16_t>(&f[12]) == 0x8100;
    const size_t l3 = tagged ? 18 : 14;
    if (f.size() < l3 + 60) return;
    const bool ipv6 = load_be<uint16_t>(&f[l3 - 2]) == 0x86dd;
    const uint32_t header = ipv6 ? 40 : uint32_t(f[l3] & 15) * 4;
    if (header < 20 || f.size() < l3 + header + 24) return;
    const size_t datagram = f.size() - l3 - header;
    if (datagram > 0xffff - 60) return;
    if (rng.chance(0.875)) store_be<uint16_t>(&f[l3 + (ipv6 ? 4 : 2)], uint16_t(datagram + (ipv6 ? 0 : header)));
    if (rng.chance(0.875)) store_be<uint16_t>(&f[l3 + header + 4], uint16_t(datagram));
    if (!ipv6 && rng.chance(0.875)) test::repair_ipv4_checksum(&f[l3]);
    if (rng.chance(0.875)) test::repair_icrc(f, uint32_t(l3), ipv6, header);
}

}  // namespace roci::fuzz::parse
