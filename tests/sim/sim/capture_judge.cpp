#include "sim/capture_judge.hpp"

namespace roci::sim {
namespace {

constexpr uint32_t kMtu = 1024;
constexpr uint8_t kMarked = 3;

enum class Syndrome : uint8_t { ack, rnr_nak, reserved, nak };
Syndrome kind_of(const wire::Packet& p) { return Syndrome(p.syndrome >> 5 & 3); }  // IBA 9.7.5.2.1, table 44
uint8_t code_of(const wire::Packet& p) { return p.syndrome & 0x1f; }

bool has_response(const wire::Packet& p) {
    return p.info->has(wire::kRead | wire::kAtomic | wire::kAtomicWrite | wire::kFlushEth);
}
/// Returns the number of PSNs that a request packet uses. A READ uses one PSN per packet of its response (C9-148).
uint32_t span_of(const wire::Packet& p) {
    const bool read = p.info->has(wire::kRead) && p.info->has(wire::kRequest);
    return read ? std::max<uint32_t>(1, (p.dma_length + kMtu - 1) / kMtu) : 1;
}
bool ends_message(const wire::Packet& p) { return p.info->has(wire::kLast | wire::kOnly) || has_response(p); }
/// Returns the name of the counter for this kind of request, or nullptr if there is no such counter.
const char* counter_of(const wire::Packet& p) {
    if (p.info->has(wire::kRead)) return "read_requests";
    if (p.info->has(wire::kAtomic)) return "atomic_requests";
    return p.info->has(wire::kWrite) ? "write_requests" : nullptr;
}

}  // namespace

void CaptureJudge::take(const Sent& frame) {
    if (frame.from == endpoint_) return sent(frame);
    if (frame.fate == Fate::dropped || frame.fate == Fate::unroutable) return;
    for (int copies = frame.fate == Fate::duplicated ? 2 : 1; copies != 0; --copies) received(frame);
}

void CaptureJudge::sent(const Sent& frame) {
    ++device("tx_frames");
    device("tx_octets") += frame.bytes.size();
    if (frame.parsed && frame.packet.opcode == wire::kCnpOpcode) ++device("cnp_sent");
    if (!frame.parsed || !frame.packet.info->has(wire::kRequest | wire::kResponse)) return;
    ++qp_.at("tx_packets");
    qp_.at("tx_bytes") += frame.bytes.size();
    peer_ = frame.packet.dest_gid();
    if (frame.packet.info->has(wire::kRequest)) return sent_request(frame.packet);
    if (frame.packet.info->has(wire::kAck) && kind_of(frame.packet) != Syndrome::ack) sent_nak(frame.packet);
}

void CaptureJudge::sent_request(const wire::Packet& p) {
    if (!sending_) acked_ = next_ = p.psn;
    sending_ = true;
    if (p.psn.distance_from(next_) < 0) {
        ++device("retransmits");
        return;
    }
    next_ = p.psn + span_of(p);
    if (has_response(p)) answers_[p.psn.value()] = span_of(p);
    if (ends_message(p)) ++device("tx_messages");
}

/// Counts a NAK. The responder has not executed the packet whose PSN is in the NAK. So the counters for this packet
/// are decreased again, and its PSN is expected again.
void CaptureJudge::sent_nak(const wire::Packet& p) {
    Inbound& in = inbound_[last_inbound_];
    if (kind_of(p) == Syndrome::rnr_nak) ++device("rnr_nak_sent");
    if (kind_of(p) == Syndrome::nak) {
        ++naks_[code_of(p)];
        ++device(code_of(p) == 0 ? "seq_nak_sent" : "requests_refused");
    }
    in.expected = p.psn;
    for (const char* name : in.counted_for[p.psn.value()]) --device(name);
    in.counted_for.erase(p.psn.value());
}

void CaptureJudge::received(const Sent& frame) {
    ++device("rx_frames");
    device("rx_octets") += frame.bytes.size();
    wire::Packet p;
    const wire::Verdict v = frame.fate == Fate::corrupted ? wire::Verdict::bad_icrc
                                                          : wire::parse(frame.bytes.data(), uint32_t(frame.bytes.size()), p);
    if (v == wire::Verdict::not_roce) return;
    if (v == wire::Verdict::bad_icrc) ++device("icrc_errors");
    if (v != wire::Verdict::ok) {
        ++device("rx_errors");
        return;
    }
    if (p.opcode == wire::kCnpOpcode) {
        ++device(p.source_gid() == peer_ ? "cnp_received" : "cnp_ignored");
        return;
    }
    if (p.opcode == wire::kLossReportOpcode) return;
    if (p.ecn == kMarked) ++device("ecn_marked");
    ++qp_.at("rx_packets");
    qp_.at("rx_bytes") += p.payload_length;
    p.info->has(wire::kRequest) ? received_request(p) : received_response(p);
}

void CaptureJudge::received_request(const wire::Packet& p) {
    last_inbound_ = p.dest_qp.value;
    Inbound& in = inbound_[last_inbound_];
    if (!in.known) in = {.known = true, .expected = Psn(0x100), .kept = {}, .counted_for = {}};
    const int32_t distance = p.psn.distance_from(in.expected);
    if (distance < 0) {
        ++device("duplicates");
        ++device("duplicate_requests");
        return;
    }
    if (distance > 0) {
        ++device("out_of_order");
        if (keeps_) in.kept[p.psn.value()] = p;
        return;
    }
    execute(in, p);
    for (auto next = in.kept.find(in.expected.value()); next != in.kept.end(); next = in.kept.find(in.expected.value())) {
        execute(in, next->second);
        in.kept.erase(next);
    }
}

void CaptureJudge::execute(Inbound& in, const wire::Packet& p) {
    in.expected = p.psn + span_of(p);
    if (!ends_message(p)) return;
    std::vector<const char*>& counted = in.counted_for[p.psn.value()];
    counted = {"rx_messages"};
    if (const char* kind = counter_of(p); kind != nullptr) counted.push_back(kind);
    for (const char* name : counted) ++device(name);
}

void CaptureJudge::received_response(const wire::Packet& p) {
    const bool awaited = sending_ && p.psn.distance_from(acked_) >= 0 && p.psn.distance_from(next_) < 0;
    if (!awaited) {
        ++device("duplicates");
        return;
    }
    const bool acknowledges = !p.info->has(wire::kAck) || kind_of(p) == Syndrome::ack;
    if (p.info->has(wire::kAck) && kind_of(p) == Syndrome::rnr_nak) ++device("rnr_nak_received");
    if (p.info->has(wire::kAck) && kind_of(p) == Syndrome::nak) {
        static constexpr const char* kCodes[] = {"seq_nak_received", "remote_invalid_requests", "remote_access_errors",
                                                 "remote_operation_errors"};
        ++device(kCodes[code_of(p)]);
    }
    // A response to a later request is an implied NAK if the response to an earlier request is missing (IBA
    // 9.7.5.1.1).
    for (const auto& [psn, packets] : answers_) {
        const Psn end = Psn(psn) + packets;
        if (end.distance_from(acked_) > 0 && Psn(psn).distance_from(p.psn) < 0 &&
            std::max(acked_.value(), psn) != p.psn.value()) {
            ++device("implied_naks");
            return;
        }
    }
    acked_ = acknowledges ? p.psn + 1 : p.psn;
}

}  // namespace roci::sim
