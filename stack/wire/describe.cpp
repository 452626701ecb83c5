#include "wire/describe.hpp"

#include <arpa/inet.h>

#include <cinttypes>
#include <cstdarg>
#include <cstdio>

#include "base/bytes.hpp"

namespace roci::wire {
namespace {

[[gnu::format(printf, 2, 3)]] void append(std::string& line, const char* format, ...) {
    char text[128];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    line += text;
}

void append_extended(std::string& s, const Packet& p) {
    const OpcodeInfo& i = *p.info;
    if (i.has(kXrcEth)) append(s, " srq 0x%06x", p.xrc_srqn);
    if (i.has(kDeth)) append(s, " qkey 0x%08x src_qp 0x%06x", p.qkey, p.src_qp.value);
    if (i.has(kFlushEth)) append(s, " placement %u selectivity %u", p.flush & 0xf, p.flush >> 4 & 3);
    if (i.has(kReth | kAtomicEth)) append(s, " va 0x%" PRIx64 " rkey 0x%08x", p.va, p.rkey.value);
    if (i.has(kReth)) append(s, " length %u", p.dma_length);
    if (i.has(kAtomicEth)) append(s, " swap_add 0x%" PRIx64 " compare 0x%" PRIx64, p.swap_add, p.compare);
    if (i.has(kAeth)) append(s, " syndrome 0x%02x msn %u", p.syndrome, p.msn.value);
    if (i.has(kAtomicAckEth)) append(s, " original 0x%" PRIx64, p.atomic_original);
    if (i.has(kImmDt)) append(s, " imm 0x%08x", __builtin_bswap32(p.imm_be));
    if (i.has(kIeth)) append(s, " invalidate 0x%08x", p.invalidate.value);
}

/// Returns the text of an IP address. For IPv4, removes the prefix "::ffff:" of the GID.
std::string address_text(const Gid& gid) { return to_text(gid).substr(gid.is_ipv4() ? std::size("::ffff:") - 1 : 0); }

}  // namespace

std::string to_text(const Gid& gid) {
    char text[INET6_ADDRSTRLEN] = "";
    inet_ntop(AF_INET6, gid.bytes.data(), text, sizeof text);
    return text;
}

std::string describe(const Packet& p) {
    std::string s = address_text(p.source_gid()) + " > " + address_text(p.dest_gid());
    append(s, " %s qp 0x%06x psn %u", p.info->name, p.dest_qp.value, p.psn.value());
    append_extended(s, p);
    if (p.info->has(kPayload)) append(s, " payload %u", p.payload_length);
    if (p.solicited) s += " SE";
    if (p.ack_request) s += " AckReq";
    if (p.mig_req) s += " MigReq";
    if (p.fecn) s += " FECN";
    if (p.becn) s += " BECN";
    if (p.ecn == 3) s += " CE";
    return s;
}

}  // namespace roci::wire
