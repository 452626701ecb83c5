#include "host/sessions/story.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "qp/attributes.hpp"
#include "wire/describe.hpp"

namespace roci::host::sessions {
namespace {

using abi::Reason;
using qp::Happening;
using qp::JournalEntry;

std::string rights_text(uint32_t access) {
    static constexpr std::pair<uint32_t, const char*> kNames[] = {
        {mem::kLocalWrite, "local write"},     {mem::kRemoteWrite, "remote write"}, {mem::kRemoteRead, "remote read"},
        {mem::kRemoteAtomic, "remote atomic"}, {mem::kFlushGlobal, "global FLUSH"}, {mem::kFlushPersistent, "persistent FLUSH"}};
    std::string out;
    for (const auto& [right, name] : kNames)
        if ((access & right) != 0) out += (out.empty() ? "" : ", ") + std::string(name);
    return out.empty() ? "local read" : out;
}

/// Describes the key, range, rights and PD of a refused access.
std::string access_text(const qp::RefusedAccess& a) {
    std::string out = fmt::format("wanted: {} of {} bytes at {:#x} by key {:#x} from PD {}", rights_text(a.needed), a.length,
                                  a.va, a.key, a.pd);
    if (a.size == 0) return out + "; no region has this key";
    return out +
           fmt::format("; its region: {} bytes at {:#x}, PD {}, for {}", a.size, a.start, a.region_pd, rights_text(a.allowed));
}

bool of_memory(Reason r) { return r >= Reason::lkey_unknown && r <= Reason::rkey_range; }

constexpr uint32_t kFewRetries = 3;

/// Returns the last entry with a reason other than `flushed`, or nullptr if there is no such entry.
const JournalEntry* cause_of(const qp::Journal& j) {
    for (uint32_t i = j.count(); i-- != 0;)
        if (const JournalEntry& e = j.at(i); e.reason != Reason::none && e.reason != Reason::flushed) return &e;
    return nullptr;
}

std::string cause_text(const QpFacts& qp) {
    const JournalEntry* e = cause_of(qp.journal);
    const abi::ReasonText* r = e != nullptr ? abi::find_reason(uint32_t(e->reason)) : nullptr;
    if (r == nullptr) return "";
    std::string out = fmt::format("cause: {} (vendor_err {})\n", r->text, uint32_t(r->reason));
    if (of_memory(e->reason) && qp.journal.access.fault != mem::Fault::ok)
        out += fmt::format("  {}\n", access_text(qp.journal.access));
    if ((e->reason == Reason::peer_silent || e->reason == Reason::packets_lost) && qp.attr.retry_cnt < kFewRetries)
        out += fmt::format("  retry_cnt is {}: {} can end the connection\n", qp.attr.retry_cnt,
                           qp.attr.retry_cnt == 0 ? "a single loss" : fmt::format("{} losses", qp.attr.retry_cnt + 1));
    return out + fmt::format("look at: {}\n", r->advice);
}

std::string entry_text(const JournalEntry& e) {
    const std::string code = e.what == Happening::state ? qp::state_name(qp::State(e.code)) : std::to_string(e.code);
    std::string out = fmt::format(fmt::runtime(qp::kHappeningTexts[size_t(e.what)]), code);
    if (const abi::ReasonText* r = abi::find_reason(uint32_t(e.reason))) out += std::string(": ") + r->text;
    if (e.what != Happening::state && e.what != Happening::overrun) out += fmt::format(", PSN {}", e.psn.value());
    if (e.times > 1) out += fmt::format(", {} times in {:.6f} s", e.times, double(e.last - e.first) / 1e9);
    return out;
}

/// Merges the steps of ibv_modify_qp that the conductor (rocid's control thread) has recorded (StateSteps) with the events of the
/// engine's journal, in the order of time. Both sources record changes of the state, so an entry with the same state as the
/// previous entry is removed.
std::vector<JournalEntry> all_events(const QpFacts& qp) {
    std::vector<JournalEntry> all;
    for (uint32_t i = 0; i < qp.steps.count(); ++i) {
        const auto [at, to] = qp.steps.at(i);
        all.push_back({at, at, 1, {}, Happening::state, uint8_t(to), Reason::none});
    }
    for (uint32_t i = 0; i < qp.journal.count(); ++i) all.push_back(qp.journal.at(i));
    std::ranges::stable_sort(all, {}, &JournalEntry::first);
    int state = -1;
    std::erase_if(all, [&](const JournalEntry& e) {
        return e.what == Happening::state && std::exchange(state, int(e.code)) == int(e.code);
    });
    return all;
}

std::string events_text(const QpFacts& qp) {
    const std::vector<JournalEntry> all = all_events(qp);
    if (all.empty()) return "";
    std::string out = "what happened:\n";
    for (const JournalEntry& e : all)
        out += fmt::format("  +{:.6f} s  {}\n", double(e.first - all.front().first) / 1e9, entry_text(e));
    return out;
}

/// Returns true for limits that one sample shows reliably. Other limits change from packet to packet, so one sample is not enough
/// to report them.
bool lasts(qp::Limit l) {
    return l == qp::Limit::credits || l == qp::Limit::congestion || l == qp::Limit::reads || l == qp::Limit::memory ||
           l == qp::Limit::window;
}

/// A condition that slows a working QP, and its description.
struct Finding {
    bool (*applies)(const QpFacts&);
    std::string (*text)(const QpFacts&);
};
double lost_share(const QpFacts& q) {
    return double(q.now.counters.events.retransmits) / double(std::max<uint64_t>(q.now.counters.tx_packets, 1));
}
constexpr uint32_t kManyQps = 1000, kManySenders = 8, kManyMessages = 1000;
const Finding kFindings[] = {
    {[](const QpFacts& q) { return q.now.counters.events.rnr_nak_received != 0; },
     [](const QpFacts& q) {
         return fmt::format(
             "the peer had no receive posted {} times, and the sender waited: let the peer post more receives, earlier",
             q.now.counters.events.rnr_nak_received);
     }},
    {[](const QpFacts& q) { return q.now.counters.events.rnr_nak_sent != 0; },
     [](const QpFacts& q) {
         return fmt::format("messages came {} times while no receive was posted here: post more receives, earlier",
                            q.now.counters.events.rnr_nak_sent);
     }},
    {[](const QpFacts& q) { return q.now.counters.events.retransmits != 0; },
     [](const QpFacts& q) {
         return fmt::format(
             "the network loses or delays packets: {} of {} packets ({:.2f} %) were sent again, {} after a timeout",
             q.now.counters.events.retransmits, q.now.counters.tx_packets, 100 * lost_share(q), q.now.counters.events.timeouts);
     }},
    {[](const QpFacts& q) { return q.now.counters.events.out_of_order != 0; },
     [](const QpFacts& q) {
         return fmt::format("packets were lost or overtaken on the way here: {} came before an earlier one",
                            q.now.counters.events.out_of_order);
     }},
    {[](const QpFacts& q) { return q.receiving >= kManySenders && q.disturbed >= q.receiving / 2; },
     [](const QpFacts& q) {
         return fmt::format(
             "incast: {} QPs receive on this device, and packets to {} of them were lost or overtaken: together their "
             "senders are faster than the path to it; let fewer send at once, or use congestion control",
             q.receiving, q.disturbed);
     }},
    {[](const QpFacts& q) { return q.slow_ops != 0; },
     [](const QpFacts& q) {
         return fmt::format(
             "memory of the program is reached by address, which is slow ({} accesses): register ordinary heap memory, "
             "not stacks or private file mappings",
             q.slow_ops);
     }},
    {[](const QpFacts& q) { return q.engine_qps > kManyQps; },
     [](const QpFacts& q) {
         return fmt::format("its engine serves {} QPs and SRQs: more engines (engine.count) share them", q.engine_qps);
     }},
    {[](const QpFacts& q) {
         return !q.gone && q.attr.path_mtu != 0 && mtu_bytes(q.attr.path_mtu) < 4096 && q.type != qp::Type::ud;
     },
     [](const QpFacts& q) {
         return fmt::format("the path MTU is {}: a larger one, where network and peer permit it, sends fewer packets",
                            mtu_bytes(q.attr.path_mtu));
     }},
    {[](const QpFacts& q) {
         const qp::Habits& h = q.now.habits;
         return !q.gone && h.looked != 0 && h.signaled == h.looked && q.now.counters.events.tx_messages >= kManyMessages;
     },
     [](const QpFacts& q) {
         return fmt::format(
             "every work request is signalled (each of the last {}): the program polls a completion for each of {} messages; "
             "one signalled request in 16 is enough to free the send queue",
             q.now.habits.looked, q.now.counters.events.tx_messages);
     }},
    {[](const QpFacts& q) { return !q.gone && q.now.habits.unaligned != 0 && q.now.habits.unaligned * 2 >= q.now.habits.looked; },
     [](const QpFacts& q) {
         return fmt::format(
             "the buffers of {} of the last {} send requests are not aligned: begin them at a multiple of 64 bytes, so that no "
             "copy crosses cache lines",
             q.now.habits.unaligned, q.now.habits.looked);
     }},
    {[](const QpFacts& q) { return !q.gone && lasts(q.now.limit); },
     [](const QpFacts& q) {
         const qp::LimitText& l = qp::kLimits[size_t(q.now.limit)];
         return fmt::format("at this moment the limit is \"{}\": {}", l.name, l.text);
     }},
    {[](const QpFacts& q) { return !q.gone && q.now.state == qp::State::rts && q.send_depth != 0 && q.now.send_queued == 0; },
     [](const QpFacts&) { return std::string("nothing waits to be sent: at this moment the program is what it waits for"); }},
};

std::string findings_text(const QpFacts& qp) {
    std::string out;
    for (const Finding& f : kFindings)
        if (f.applies(qp)) out += fmt::format("  {}\n", f.text(qp));
    return out.empty() ? "nothing went wrong, and nothing slows it that rocid can see\n" : "what slows it:\n" + out;
}

bool same(const Gid& a, const abi::GidValue& b) { return std::equal(a.bytes.begin(), a.bytes.end(), std::begin(b.raw)); }

bool has(const DeviceConfig& d, const abi::GidValue& gid) {
    return std::ranges::any_of(d.gids, [&](const Gid& g) { return same(g, gid); });
}

}  // namespace

std::string story_of(const QpFacts& qp, const std::string& device) {
    std::string out = fmt::format("QP {}, {} on {}, of {} (pid {}): {}{}\n", qp.qpn, qp::type_name(qp.type), device, qp.program,
                                  qp.pid, qp.gone ? "destroyed, last in " : "in ", qp::state_name(qp.now.state));
    const std::string cause = cause_text(qp);
    const bool broken = qp.now.state == qp::State::err || qp.now.state == qp::State::sqe;
    out += cause;
    if (cause.empty() && broken)
        out += "cause: nothing failed here; the program, or the end of the connection, put it into this state\n";
    if (cause.empty() && qp.now.state < qp::State::rtr)
        out += qp.refused.empty() ? "cause: it is not connected: the program must take it to RTR and RTS with ibv_modify_qp\n"
                                  : fmt::format("cause: it is not connected: {}\n", qp.refused);
    if (cause.empty() && qp.now.state == qp::State::rtr && !qp.refused.empty())
        out += fmt::format("cause: it cannot send: {}\n", qp.refused);
    if (!broken && qp.now.state >= qp::State::rtr) out += findings_text(qp);
    return out + events_text(qp);
}

std::vector<std::string> mismatches(const QpFacts& a, const QpFacts& b, const DeviceConfig& device_of_a,
                                    const DeviceConfig& device_of_b) {
    std::vector<std::string> out;
    const auto add = [&](bool wrong, std::string text) {
        if (wrong) out.push_back(std::move(text));
    };
    const bool connected = a.type != qp::Type::ud;
    add(b.gone, fmt::format("QP {} is destroyed", b.qpn));
    add(!b.gone && b.now.state < qp::State::rtr,
        fmt::format("QP {} is in {}: it must be in RTR or RTS to receive", b.qpn, qp::state_name(b.now.state)));
    if (!connected || b.now.state == qp::State::reset || b.now.state == qp::State::init) return out;
    add(b.attr.dest_qp_num != a.qpn, fmt::format("QP {} is connected to QP {}, not to QP {}", b.qpn, b.attr.dest_qp_num, a.qpn));
    add(a.attr.path_mtu != b.attr.path_mtu, fmt::format("path MTU {} at QP {} but {} at QP {}: both ends must have the same",
                                                        mtu_bytes(a.attr.path_mtu), a.qpn, mtu_bytes(b.attr.path_mtu), b.qpn));
    add(!has(device_of_b, a.attr.ah.dgid), fmt::format("the destination GID of QP {} is not one of {}", a.qpn, device_of_b.name));
    add(!has(device_of_a, b.attr.ah.dgid), fmt::format("the destination GID of QP {} is not one of {}", b.qpn, device_of_a.name));
    add(a.now.state >= qp::State::rts && a.now.counters.events.rx_messages + b.now.counters.events.rx_messages == 0 &&
            a.attr.sq_psn != b.attr.rq_psn,
        fmt::format("QP {} starts at PSN {} (IBV_QP_SQ_PSN), but QP {} expects {} (IBV_QP_RQ_PSN)", a.qpn, a.attr.sq_psn, b.qpn,
                    b.attr.rq_psn));
    return out;
}

}  // namespace roci::host::sessions
