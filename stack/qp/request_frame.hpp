// Builds the frames of request packets: headers by opcode and position in the message, payload from the program's memory, ICRC.
// requester.cpp decides which packet is sent and when. The functions are inlined there, because they run once per packet.
#pragma once

#include <algorithm>
#include <cstring>

#include "qp/roles.hpp"
#include "wire/ip_checksum.hpp"

namespace roci::qp::frames {

/// The part of a record that is sent in one packet. A READ request uses the PSNs of its responses.
struct PacketPart {
    uint32_t packet = 0, psns = 1;
};

/// A frame with its headers. `path` is nullptr if the work request refers to no valid path.
struct Begun {
    uint8_t *start = nullptr, *payload = nullptr;
    const wire::PathTemplate* path = nullptr;
};

/// The headers of the Middle packet that was built last. All Middle packets of `message` have these headers, except for PSN and
/// ACK request.
struct RepeatedFrame {
    const SendRecord* message = nullptr;
    wire::RepeatedHeaders headers;
};

inline wire::Operation operation_at(const WorkInfo& info, const SendRecord& r, uint32_t packet) {
    if (r.packets == 1) return info.only;
    if (packet == 0) return info.first;
    return packet + 1 == r.packets ? info.last : info.middle;
}

inline SgeList sges_of(const Context& ctx, const Qp& qp, const abi::SendWqe& w) {
    return {ctx, qp.spec.pd, {reinterpret_cast<const abi::Sge*>(&w + 1), w.num_sge}};
}

/// Copies `length` bytes of the message, from position `offset` on, into the frame. Returns false if the memory cannot be read.
[[gnu::always_inline]] inline bool gather(const Context& ctx, const Qp& qp, const abi::SendWqe& w, uint64_t offset, uint8_t* out,
                                          uint32_t length) {
    if (w.opcode == abi::WrOpcode::atomic_write) {
        std::memcpy(out, &w.compare_add, length);
        return true;
    }
    const auto* tail = reinterpret_cast<const std::byte*>(&w + 1);
    if ((w.send_flags & abi::kSendInline) != 0) {
        std::memcpy(out, tail + offset, length);
        return true;
    }
    return sges_of(ctx, qp, w).gather(offset, out, length);
}

/// Returns true if the packet's payload is an unchanged copy of the program's memory.
inline bool from_memory(const abi::SendWqe& w) {
    return w.opcode != abi::WrOpcode::atomic_write && (w.send_flags & (abi::kSendInline | abi::kSendIpCsum)) == 0;
}

/// Completes a frame whose payload has been written. Fills in the IP checksums inside the payload if requested, then adds
/// padding and the ICRC. Returns the frame's length.
[[gnu::always_inline]] inline uint32_t seal(const abi::SendWqe& w, uint8_t* start, const wire::PathTemplate& path,
                                            uint8_t* payload, uint32_t length) {
    if ((w.send_flags & abi::kSendIpCsum) != 0) wire::fill_ip_checksums(payload, length);
    return wire::finish_frame(start, path, payload, length);
}

/// Adds the payload and the ICRC behind the headers. Returns the frame's length, or 0 if the memory cannot be read directly.
[[gnu::always_inline]] inline uint32_t finish(const Context& ctx, const Qp& qp, const abi::SendWqe& w, uint64_t offset,
                                              uint8_t* start, const wire::PathTemplate& path, uint8_t* payload, uint32_t length) {
    if (wire::copies_with_icrc(length) && from_memory(w)) {
        const mem::InPlace from = sges_of(ctx, qp, w).in_place(offset, length);
        if (from.data != nullptr) {
            const uint32_t bytes = wire::finish_frame_from(start, path, payload, from.data, length);
            return from.intact() ? bytes : 0;
        }
    }
    if (length != 0 && !gather(ctx, qp, w, offset, payload, length)) return 0;
    return seal(w, start, path, payload, length);
}

/// Fills in the RETH of a READ request for the packets of `part`. A repeated request covers its data from the first missing
/// byte on, or only the missing packets. All requests for a packet get responses with the same PSN (C9-148).
inline void fill_read(const Qp& qp, const abi::SendWqe& w, const SendRecord& r, PacketPart part, wire::TransportHeaders& h) {
    const uint64_t offset = uint64_t(part.packet) << qp.mtu_shift;
    const uint64_t end = std::min<uint64_t>(uint64_t(part.packet + part.psns) << qp.mtu_shift, r.length);
    h.va = w.remote_addr + offset;
    h.rkey = Key{w.rkey};
    h.dma_length = uint32_t(end - offset);
}

[[gnu::always_inline]] inline void fill_headers(const Qp& qp, const abi::SendWqe& w, const SendRecord& r, PacketPart part,
                                                wire::TransportHeaders& h) {
    const uint32_t packet = part.packet;
    const WorkInfo& info = work_info(w.opcode);
    h.opcode = wire::make_opcode(service_of(qp.spec.type), operation_at(info, r, packet));
    h.dest_qp = qp.dest;
    h.psn = r.first_psn + packet;
    const bool last = packet + 1 >= r.packets || r.kind == WorkKind::read;
    h.solicited = last && (w.send_flags & abi::kSendSolicited) != 0;
    // Every XRC request carries the number of an SRQ (annex A14).
    h.xrc_srqn = r.kind == WorkKind::atomic ? w.atomic_srqn : uint32_t(w.remote_srqn);
    h.imm_be = w.imm_or_inv;
    h.invalidate = Key{w.imm_or_inv};
    if (r.kind == WorkKind::read) return fill_read(qp, w, r, part, h);
    h.va = w.remote_addr;
    h.rkey = Key{w.rkey};
    h.dma_length = r.length;
    h.flush = w.flush;
    if (w.opcode == abi::WrOpcode::atomic_cmp_swp) {
        h.swap_add = w.swap;
        h.compare = w.compare_add;
    } else {
        h.swap_add = w.compare_add;
    }
}

/// Inlined into transmit(), because a call costs 45 instructions per short message.
[[gnu::always_inline]] inline Begun begin(Context& ctx, Qp& qp, const SendRecord& r, PacketPart part, uint32_t length,
                                          bool ack_request, io::TxFrame& frame) {
    const abi::SendWqe& w = wqe(r);
    wire::TransportHeaders h;
    fill_headers(qp, w, r, part, h);
    h.ack_request = ack_request;
    Begun b;
    b.path = qp.spec.type == Type::ud ? address_datagram(ctx, qp, w, h) : &qp.path;
    if (b.path == nullptr) return b;
    if (h.dest_qp.value == io::kMulticastQpn && qp.spec.type == Type::ud) [[unlikely]]
        count_copies(ctx, w);
    b.start = Outbox::place(frame, wire::header_bytes(*b.path, h.opcode));
    b.payload = wire::begin_frame(b.start, *b.path, h, length);
    return b;
}

/// Starts the frame of a Middle packet. Builds the headers only for the first Middle packet of a message, then copies them.
[[gnu::noinline]] inline Begun begin_middle(Context& ctx, Qp& qp, const SendRecord& r, PacketPart part, bool ack_request,
                                            io::TxFrame& frame, RepeatedFrame& last) {
    if (last.message != &r) {
        const Begun b = begin(ctx, qp, r, part, qp.mtu, ack_request, frame);
        wire::keep_headers(last.headers, b.start, *b.path, b.payload);
        last.message = &r;
        return b;
    }
    uint8_t* start = Outbox::place(frame, last.headers.length);
    return {start, wire::repeat_headers(start, last.headers, r.first_psn + part.packet, ack_request), &qp.path};
}

}  // namespace roci::qp::frames
