#include "parse_target.hpp"

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "samples.hpp"
#include "wire/describe.hpp"
#include "wire/loss_report.hpp"

namespace roci::test {
namespace {

using wire::Packet;
using wire::Verdict;

struct Input {
    const uint8_t* data;
    size_t size;
};

void require(bool holds, const char* what, const Input& in) {
    if (holds) return;
    std::fprintf(stderr, "property violated: %s\nframe of %zu bytes:", what, in.size);
    for (size_t i = 0; i < in.size; ++i) std::fprintf(stderr, " %02x", in.data[i]);
    std::fputc('\n', stderr);
    std::abort();
}

void check_bounds(const Packet& p, const Input& in) {
    const uint8_t* end = in.data + in.size;
    require(p.info != nullptr && p.info->valid() && p.info == &wire::opcode_info(p.opcode), "info is the opcode's", in);
    require(p.frame == in.data, "frame is the frame", in);
    require(p.l3 > p.frame && p.l3 < end, "IP header in the frame", in);
    require(p.payload >= p.l3 + (p.ipv6 ? wire::kIpv6Length : wire::kIpv4Length) + wire::kUdpLength + p.info->header_length,
            "payload after the headers", in);
    require(p.payload_length <= in.size && p.payload + p.payload_length + wire::kIcrcLength <= end, "payload before the ICRC",
            in);
    require(p.info->has(wire::kPayload) || p.payload_length == 0, "payload only where it belongs", in);
    require(p.dest_qp.value <= kMask24 && p.psn.value() <= kMask24, "24-bit fields", in);
}

void check_accessors(const Packet& p, const Input& in) {
    uint8_t grh[40];
    p.copy_grh(grh);
    require(grh[p.ipv6 ? 0 : 20] >> 4 == (p.ipv6 ? 6 : 4), "GRH is the IP header", in);
    const std::string text = wire::describe(p);
    require(text.find(p.info->name) != std::string::npos, "description names the opcode", in);
}

/// If a loss report is accepted, it must be unchanged after it is written and read again.
void check_loss_report(const Packet& p, const Input& in) {
    wire::LossReport report, again;
    if (p.opcode != wire::kLossReportOpcode || !wire::read_loss_report(p.payload, p.payload_length, report)) return;
    uint8_t bytes[wire::LossReport::kBytes];
    wire::write_loss_report(bytes, report);
    require(wire::read_loss_report(bytes, sizeof bytes, again), "a loss report is accepted again", in);
    require(report.base == again.base && report.newest == again.newest && report.arrived == again.arrived, "it is the same", in);
    require(report.kind == wire::ReportKind::inquiry || report.length <= wire::LossReport::kMost, "it covers what it has", in);
}

/// Builds a frame from the packet and parses this frame. Skips payloads above the largest MTU, because no frame can
/// contain them.
void check_rebuild(const Packet& p, const Input& in) {
    if (p.payload_length > 4096) return;
    const bool same_family = p.source_gid().is_ipv4() == p.dest_gid().is_ipv4();
    const bool truly_ipv6 = p.ipv6 && !p.source_gid().is_ipv4();  // the addresses in an IPv6 header may be ::ffff:a.b.c.d, too
    if (!same_family || p.ipv6 != truly_ipv6) return;
    const Frame again = build_frame(path_of(p), headers_of(p), p.payload, p.payload_length);
    Packet q;
    require(wire::parse(again.data(), uint32_t(again.size()), q) == Verdict::ok, "built again, it parses", in);
    Packet without_marks = p;  // begin_frame sets BECN only in CNPs, and never sets FECN
    without_marks.fecn = q.fecn;
    without_marks.becn = q.becn;
    require(wire::describe(q) == wire::describe(without_marks), "built again, it is the same packet", in);
    require(p.payload_length == 0 || std::memcmp(p.payload, q.payload, p.payload_length) == 0, "and has the same payload", in);
}

}  // namespace

Verdict check_parse(const uint8_t* data, size_t size) {
    const std::unique_ptr<uint8_t[]> block(new uint8_t[size]);
    if (size != 0) std::memcpy(block.get(), data, size);
    const Input in{block.get(), size};
    Packet p, trusting;
    const Verdict verdict = wire::parse(in.data, uint32_t(size), p);
    const Verdict without_icrc = wire::parse(in.data, uint32_t(size), trusting, false);
    require(verdict < Verdict::count_, "known verdict", in);
    require(without_icrc == (verdict == Verdict::bad_icrc ? Verdict::ok : verdict), "the ICRC is the last link of the chain", in);
    if (without_icrc == Verdict::ok) {
        check_bounds(trusting, in);
        check_accessors(trusting, in);
        check_rebuild(trusting, in);
        check_loss_report(trusting, in);
    }
    if (verdict == Verdict::ok)
        require(wire::describe(p) == wire::describe(trusting), "same packet with and without ICRC check", in);
    return verdict;
}

}  // namespace roci::test
