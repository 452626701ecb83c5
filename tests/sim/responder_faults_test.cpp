// Tests of requests that a responder refuses, by service. Each row contains the response, the status of the receive,
// the event and the new state of the QP (IBA 9.9.3). The letters of the fault classes come from IBA tables 57 and 58.
#include <set>

#include "fixture.hpp"

namespace roci::sim {
namespace {

using wire::Service;
using wire::TransportHeaders;

constexpr int kSilence = -1, kNone = -1;
constexpr int kUntaken = -2;  // the fault consumes no receive: an RQ flushes the receive, an SRQ keeps it
constexpr uint32_t kQkey = 0x11111111, kFirst = 0x100, kMtuBytes = 1024, kShort = 100;
constexpr int kFlushed = int(WcStatus::wr_flush_err), kInvalid = int(WcStatus::rem_inv_req_err);
constexpr int kReqErr = IBV_EVENT_QP_REQ_ERR, kAccessErr = IBV_EVENT_QP_ACCESS_ERR, kFatal = IBV_EVENT_QP_FATAL;

/// One fault of one service, in its own world.
class Case {
public:
    explicit Case(Service service) : service_(service), qp_(make_qp()) {
        puppet.talk_to(a.client.self(qp_));
        (void)a.poll_all();
    }
    void send(Operation op, uint32_t psn, uint32_t bytes = 0, TransportHeaders h = {}) {
        h.psn = Psn(psn);
        h.ack_request = true;
        h.xrc_srqn = srq_ != nullptr && h.xrc_srqn == 0 ? srq_->srqn : h.xrc_srqn;
        h.qkey = h.qkey == 0 ? kQkey : h.qkey;
        h.src_qp = Qpn{Puppet::kQpn};
        puppet.send_raw(puppet.build(wire::make_opcode(service_, op), h, bytes_of(bytes, 1)));
    }
    TransportHeaders reth(uint32_t length, uint32_t wrong_key = 0, uint64_t offset = 0) const {
        TransportHeaders h;
        h.va = a.mr.address() + 4096 + offset;
        h.rkey = Key{a.mr.rkey ^ wrong_key};
        h.dma_length = length;
        return h;
    }
    TransportHeaders naming(uint32_t key) const {
        TransportHeaders h;
        h.invalidate = Key{key};
        return h;
    }
    void post(uint64_t id, uint32_t bytes, uint32_t wrong_key = 0) {
        Sge s = a.sge(0, bytes);
        s.lkey ^= wrong_key;
        ASSERT_TRUE(srq_ != nullptr ? a.client.post_srq_recv(*srq_, id, {s}) : a.client.post_recv(qp_, id, {s}));
    }
    /// Posts a receive with more SGEs than the queue permits.
    void post_malformed(uint64_t id) {
        abi::RqProducer& rq = srq_ != nullptr ? srq_->ring : qp_.rq;
        *rq.slot(rq.head++) = {id, 255, 0};
        (void)rq.publish();
    }
    /// Writes a producer index that claims more posted receives than the queue can hold.
    void claim_receives() {
        abi::RqProducer& rq = srq_ != nullptr ? srq_->ring : qp_.rq;
        std::atomic_ref(rq.shared->producer).store(1000);
    }
    /// Returns the key of a window of type `type`. Another QP of the protection domain has bound this window.
    uint32_t bound_elsewhere(uint32_t type) {
        Qp& other = a.qp();
        connect(a.client, other, puppet, {});
        Window w = a.client.alloc_mw(a.pd, type);
        SendWr wr;
        wr.opcode = WrOpcode::bind_mw;
        wr.remote_addr = mr_.address();
        wr.rkey = (w.rkey & ~0xffu) | uint8_t(w.rkey + 1);
        wr.bind_lkey = mr_.lkey;
        wr.bind_length = 64;
        wr.bind_access = IBV_ACCESS_REMOTE_WRITE;
        a.client.post_send(other, wr);
        EXPECT_EQ(a.wait_status(), WcStatus::success);
        puppet.talk_to(a.client.self(qp_));
        return wr.rkey;
    }
    /// forbid() removes all rights of remote access from the QP. permit() sets the rights.
    void forbid() { permit(0); }
    void permit(uint32_t rights) {
        abi::QpAttr attr{};
        attr.qp_access_flags = rights;
        ASSERT_EQ(a.client.try_modify(qp_, IBV_QP_ACCESS_FLAGS, attr), 0) << a.client.reason();
    }
    uint32_t state() { return a.client.query(qp_).attr.qp_state; }
    std::vector<int> events() {
        std::vector<int> seen;
        for (const auto& e : a.client.host().platform().asyncs[a.client.session()])
            if (e.event_type != uint32_t(IBV_EVENT_COMM_EST)) seen.push_back(int(e.event_type));
        return seen;
    }

    World world{{.hosts = 1}};
    Puppet puppet{world};
    Side a{world, world.host(0)};

private:
    Qp& make_qp() {
        if (service_ == Service::ud) return datagram();
        if (service_ == Service::xrc) return target();
        Qp& q = a.qp({.type = uint32_t(service_ == Service::uc ? IBV_QPT_UC : IBV_QPT_RC)});
        if (service_ == Service::rc) {
            connect(a.client, q, puppet, {});
            return q;
        }
        a.client.to_init(q, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        a.client.to_rtr(q, {}, puppet.peer());
        a.client.to_rts(q, {});
        return q;
    }
    Qp& datagram() {
        Qp& q = a.qp({.type = IBV_QPT_UD});
        a.client.to_init(q, kQkey);
        a.client.to_rtr(q, {}, puppet.peer());
        a.client.to_rts(q, {});
        return q;
    }
    Qp& target() {
        const uint32_t xrcd = a.client.open_xrcd();
        srq_ = &a.client.create_xrc_srq(a.pd, xrcd, a.cq, 16);
        Qp& q = a.qp({.type = IBV_QPT_XRC_RECV, .xrcd = xrcd});
        a.client.to_init(q);
        a.client.to_rtr(q, {}, puppet.peer());
        a.client.to_rts(q, {});
        return q;
    }
    const Service service_;
    Srq* srq_ = nullptr;
    Mr& mr_ = a.client.reg_mr(a.pd, 4096, {.access = 0x1f});
    Qp& qp_;
};

struct Row {
    const char* fault;
    std::set<Service> services;
    void (*make)(Case&);
    int answer;   ///< AETH syndrome of the last response, or kSilence
    int receive;  ///< status of the first receive's completion, or kNone if it does not complete
    int event;
    uint32_t state;
    uint32_t buffer = 4096;  ///< size in bytes of the receive that is posted before the fault; 0: no receive
};

const std::set<Service> kAcknowledged{Service::rc, Service::xrc};
constexpr uint32_t kUp = IBV_QPS_RTS, kErr = IBV_QPS_ERR;

void end_without_begin(Case& c) { c.send(Operation::send_last, kFirst, 10); }
void write_goes_on_as_send(Case& c) {
    c.send(Operation::write_first, kFirst, kMtuBytes, c.reth(2000));
    c.send(Operation::send_last, kFirst + 1, 976);
}
void begins_twice(Case& c) {
    c.send(Operation::send_first, kFirst, kMtuBytes);
    c.send(Operation::send_first, kFirst + 1, kMtuBytes);
}
void middle_without_first(Case& c) { c.send(Operation::send_middle, kFirst, kMtuBytes); }
void write_middle_without_first(Case& c) { c.send(Operation::write_middle, kFirst, kMtuBytes); }
void only_after_first(Case& c) {
    c.send(Operation::send_first, kFirst, kMtuBytes);
    c.send(Operation::send_only, kFirst + 1, 10);
}
void read_after_first(Case& c) {
    c.send(Operation::send_first, kFirst, kMtuBytes);
    c.send(Operation::read_request, kFirst + 1, 0, c.reth(10));
}
void atomic_after_first(Case& c) {
    c.send(Operation::send_first, kFirst, kMtuBytes);
    c.send(Operation::fetch_add, kFirst + 1, 0, c.reth(0));
}
void not_full_middle(Case& c) {
    c.send(Operation::send_first, kFirst, kMtuBytes);
    c.send(Operation::send_middle, kFirst + 1, kMtuBytes - 4);
}
void empty_last(Case& c) {
    c.send(Operation::send_first, kFirst, kMtuBytes);
    c.send(Operation::send_last, kFirst + 1);
}
void over_the_path_mtu(Case& c) { c.send(Operation::send_only, kFirst, kMtuBytes + 4); }
void write_names_too_much(Case& c) { c.send(Operation::write_first, kFirst, kMtuBytes, c.reth((1u << 31) + 1)); }
void write_ends_beyond(Case& c) {
    c.send(Operation::write_first, kFirst, kMtuBytes, c.reth(kMtuBytes + 10));
    c.send(Operation::write_last, kFirst + 1, 11);
}
void write_ends_early(Case& c) {
    c.send(Operation::write_first, kFirst, kMtuBytes, c.reth(kMtuBytes + 10));
    c.send(Operation::write_last, kFirst + 1, 9);
}
void write_does_not_end(Case& c) { c.send(Operation::write_first, kFirst, kMtuBytes, c.reth(kMtuBytes)); }
void write_forbidden(Case& c) {
    c.forbid();
    c.send(Operation::write_only, kFirst, 10, c.reth(10));
}
void read_forbidden(Case& c) {
    c.forbid();
    c.send(Operation::read_request, kFirst, 0, c.reth(10));
}
void atomic_forbidden(Case& c) {
    c.forbid();
    c.send(Operation::fetch_add, kFirst, 0, c.reth(0));
}
void reads_too_much(Case& c) { c.send(Operation::read_request, kFirst, 0, c.reth((1u << 31) + 1)); }
void reads_beyond_the_region(Case& c) { c.send(Operation::read_request, kFirst, 0, c.reth(10, 0, 1 << 20)); }
void too_many_reads(Case& c) {
    constexpr uint32_t kPackets = 100;  // the response to the first READ is not complete when the last request arrives
    for (uint32_t i = 0; i < 8; ++i) c.send(Operation::read_request, kFirst + i * kPackets, 0, c.reth(kPackets * kMtuBytes));
}
void write_imm_without_receive(Case& c) { c.send(Operation::write_only_imm, kFirst, 10, c.reth(10)); }
void not_full_first(Case& c) { c.send(Operation::send_first, kFirst, kMtuBytes - 4); }
void longer_than_receive(Case& c) { c.send(Operation::send_only, kFirst, kShort + 1); }
void out_of_sequence(Case& c) { c.send(Operation::send_only, kFirst + 5, 10); }
void nothing_posted(Case& c) { c.send(Operation::send_only, kFirst, 10); }
void wrong_key(Case& c) { c.send(Operation::write_only, kFirst, 10, c.reth(10, 1)); }
void wrong_key_with_immediate(Case& c) { c.send(Operation::write_only_imm, kFirst, 10, c.reth(10, 1)); }
void beyond_the_region(Case& c) { c.send(Operation::write_only, kFirst, 10, c.reth(10, 0, 1 << 20)); }
void other_length_than_named(Case& c) { c.send(Operation::write_only, kFirst, 10, c.reth(11)); }
void reads_with_wrong_key(Case& c) { c.send(Operation::read_request, kFirst, 0, c.reth(10, 1)); }
void atomic_with_wrong_key(Case& c) { c.send(Operation::fetch_add, kFirst, 0, c.reth(0, 1)); }
void atomic_misaligned(Case& c) { c.send(Operation::fetch_add, kFirst, 0, c.reth(0, 0, 4)); }
void atomic_write_of_another_length(Case& c) { c.send(Operation::atomic_write, kFirst, 8, c.reth(16)); }
void atomic_write_with_wrong_key(Case& c) { c.send(Operation::atomic_write, kFirst, 8, c.reth(8, 1)); }
void atomic_write_misaligned(Case& c) { c.send(Operation::atomic_write, kFirst, 8, c.reth(8, 0, 4)); }
void flush(Case& c, uint32_t fields, TransportHeaders h) {
    h.flush = fields;
    c.send(Operation::flush, kFirst, 0, h);
}
void flush_without_placement(Case& c) { flush(c, 0, c.reth(64)); }
void flush_with_reserved_placement(Case& c) { flush(c, 1 << 2 | abi::kFlushGlobal, c.reth(64)); }
void flush_with_reserved_level(Case& c) { flush(c, 2 << 4 | abi::kFlushGlobal, c.reth(64)); }
void flush_with_wrong_key(Case& c) { flush(c, abi::kFlushGlobal, c.reth(64, 1)); }
void flush_of_nothing_with_wrong_key(Case& c) { flush(c, abi::kFlushGlobal, c.reth(0, 1)); }
void flush_of_wrong_region(Case& c) { flush(c, abi::kFlushGlobal | abi::kFlushRegion, c.reth(0, 1)); }
void flush_beyond_the_region(Case& c) { flush(c, abi::kFlushGlobal, c.reth(10, 0, 1 << 20)); }
void flush_too_much(Case& c) { flush(c, abi::kFlushGlobal, c.reth((1u << 31) + 1)); }
void flush_forbidden(Case& c) {
    c.forbid();
    flush(c, abi::kFlushGlobal, c.reth(64));
}
void flush_to_persistence(Case& c) {
    c.permit(kAllRights | mem::kFlushPersistent);
    flush(c, abi::kFlushPersistent, c.reth(64));
}
void flush_after_first(Case& c) {
    c.send(Operation::send_first, kFirst, kMtuBytes);
    TransportHeaders h = c.reth(64);
    h.flush = abi::kFlushGlobal;
    c.send(Operation::flush, kFirst + 1, 0, h);
}
void too_many_flushes(Case& c) {
    constexpr uint32_t kPackets = 100;  // the response to the READ is not complete when the last FLUSH arrives
    c.send(Operation::read_request, kFirst, 0, c.reth(kPackets * kMtuBytes));
    TransportHeaders h = c.reth(64);
    h.flush = abi::kFlushGlobal;
    for (uint32_t i = 0; i < 8; ++i) c.send(Operation::flush, kFirst + kPackets + i, 0, h);
}
void invalidates_no_key(Case& c) { c.send(Operation::send_only_inv, kFirst, 10, c.naming(0xdead00)); }
void invalidates_a_region(Case& c) { c.send(Operation::send_only_inv, kFirst, 10, c.naming(c.a.mr.rkey)); }
void invalidates_type_1(Case& c) { c.send(Operation::send_only_inv, kFirst, 10, c.naming(c.bound_elsewhere(1))); }
void invalidates_anothers(Case& c) { c.send(Operation::send_only_inv, kFirst, 10, c.naming(c.bound_elsewhere(2))); }
void names_no_srq(Case& c) {
    TransportHeaders h;
    h.xrc_srqn = 0xabcdef;
    c.send(Operation::send_only, kFirst, 10, h);
}
void wrong_qkey(Case& c) {
    TransportHeaders h;
    h.qkey = kQkey + 1;
    c.send(Operation::send_only, kFirst, 10, h);
}
void receive_is_nowhere(Case& c) {
    c.post(1, 4096, 1);
    c.send(Operation::send_only, kFirst, 10);
}
void receive_is_malformed(Case& c) {
    c.post_malformed(1);
    c.send(Operation::send_only, kFirst, 10);
}
void receives_are_claimed(Case& c) {
    c.claim_receives();
    c.send(Operation::send_only, kFirst, 10);
}

const Row kRows[] = {
    // Classes A and B: sequence errors and lack of resources. The QP keeps its state.
    {"PSN ahead (9.7.4.1.1)", kAcknowledged, out_of_sequence, kNakSequence, kNone, kNone, kUp},
    {"no receive (9.7.5.2.8)", kAcknowledged, nothing_posted, 0x21, kNone, kNone, kUp, 0},
    {"no receive (9.8.2.2)", {Service::uc, Service::ud}, nothing_posted, kSilence, kNone, kNone, kUp, 0},
    {"no receive, WRITE with immediate", kAcknowledged, write_imm_without_receive, 0x21, kNone, kNone, kUp, 0},
    {"no receive, WRITE with immediate", {Service::uc}, write_imm_without_receive, kSilence, kNone, kNone, kUp, 0},
    // Class C: a fault of the peer on a reliable service. The responder sends a NAK, and its QP changes to ERR.
    {"Last without First (9.7.4.1.3)", kAcknowledged, end_without_begin, kNakInvalid, kUntaken, kReqErr, kErr},
    {"Middle without First", kAcknowledged, middle_without_first, kNakInvalid, kUntaken, kReqErr, kErr},
    {"Middle of a WRITE without First", kAcknowledged, write_middle_without_first, kNakInvalid, kUntaken, kReqErr, kErr},
    {"WRITE goes on as SEND", kAcknowledged, write_goes_on_as_send, kNakInvalid, kUntaken, kReqErr, kErr},
    {"First after First", kAcknowledged, begins_twice, kNakInvalid, kInvalid, kReqErr, kErr},
    {"Only after First", kAcknowledged, only_after_first, kNakInvalid, kInvalid, kReqErr, kErr},
    {"READ after First", kAcknowledged, read_after_first, kNakInvalid, kInvalid, kReqErr, kErr},
    {"atomic after First", kAcknowledged, atomic_after_first, kNakInvalid, kInvalid, kReqErr, kErr},
    {"First that is not full (9.7.4.1.6)", kAcknowledged, not_full_first, kNakInvalid, kInvalid, kReqErr, kErr},
    {"Middle that is not full", kAcknowledged, not_full_middle, kNakInvalid, kInvalid, kReqErr, kErr},
    {"Last without payload", kAcknowledged, empty_last, kNakInvalid, kInvalid, kReqErr, kErr},
    {"longer than the path MTU", kAcknowledged, over_the_path_mtu, kNakInvalid, kInvalid, kReqErr, kErr},
    {"longer than the receive", kAcknowledged, longer_than_receive, kNakInvalid, int(WcStatus::loc_len_err), kReqErr, kErr,
     kShort},
    {"WRITE, R_Key (9.7.4.1.7)", kAcknowledged, wrong_key, kNakAccess, kUntaken, kAccessErr, kErr},
    {"WRITE, range", kAcknowledged, beyond_the_region, kNakAccess, kUntaken, kAccessErr, kErr},
    {"WRITE with immediate, R_Key (11.6.2)", kAcknowledged, wrong_key_with_immediate, kNakAccess, int(WcStatus::loc_access_err),
     kAccessErr, kErr},
    {"WRITE, payload is not the length", kAcknowledged, other_length_than_named, kNakInvalid, kUntaken, kReqErr, kErr},
    {"WRITE, more than 2^31 bytes", kAcknowledged, write_names_too_much, kNakInvalid, kUntaken, kReqErr, kErr},
    {"WRITE, Last has too much", kAcknowledged, write_ends_beyond, kNakInvalid, kUntaken, kReqErr, kErr},
    {"WRITE, Last has too little", kAcknowledged, write_ends_early, kNakInvalid, kUntaken, kReqErr, kErr},
    {"WRITE, First has everything", kAcknowledged, write_does_not_end, kNakInvalid, kUntaken, kReqErr, kErr},
    {"WRITE, the QP forbids it (9.7.4.1.4)", kAcknowledged, write_forbidden, kNakInvalid, kUntaken, kReqErr, kErr},
    {"READ, R_Key", kAcknowledged, reads_with_wrong_key, kNakAccess, kUntaken, kAccessErr, kErr},
    {"READ, range", kAcknowledged, reads_beyond_the_region, kNakAccess, kUntaken, kAccessErr, kErr},
    {"READ, more than 2^31 bytes", kAcknowledged, reads_too_much, kNakInvalid, kUntaken, kReqErr, kErr},
    {"READ, the QP forbids it", kAcknowledged, read_forbidden, kNakInvalid, kUntaken, kReqErr, kErr},
    {"more READs than agreed (9.7.4.1.5)", kAcknowledged, too_many_reads, kNakInvalid, kUntaken, kReqErr, kErr},
    {"atomic, R_Key", kAcknowledged, atomic_with_wrong_key, kNakAccess, kUntaken, kAccessErr, kErr},
    {"atomic, misaligned (9.4.5)", kAcknowledged, atomic_misaligned, kNakInvalid, kUntaken, kReqErr, kErr},
    {"atomic, the QP forbids it", kAcknowledged, atomic_forbidden, kNakInvalid, kUntaken, kReqErr, kErr},
    {"ATOMIC WRITE, length", kAcknowledged, atomic_write_of_another_length, kNakInvalid, kUntaken, kReqErr, kErr},
    {"ATOMIC WRITE, R_Key", kAcknowledged, atomic_write_with_wrong_key, kNakAccess, kUntaken, kAccessErr, kErr},
    {"ATOMIC WRITE, misaligned", kAcknowledged, atomic_write_misaligned, kNakInvalid, kUntaken, kReqErr, kErr},
    {"FLUSH after First", kAcknowledged, flush_after_first, kNakInvalid, kInvalid, kReqErr, kErr},
    {"FLUSH, no placement type", kAcknowledged, flush_without_placement, kNakInvalid, kUntaken, kReqErr, kErr},
    {"FLUSH, reserved placement type", kAcknowledged, flush_with_reserved_placement, kNakInvalid, kUntaken, kReqErr, kErr},
    {"FLUSH, reserved selectivity level", kAcknowledged, flush_with_reserved_level, kNakInvalid, kUntaken, kReqErr, kErr},
    {"FLUSH, the QP forbids it", kAcknowledged, flush_forbidden, kNakInvalid, kUntaken, kReqErr, kErr},
    {"FLUSH, more than 2^31 bytes", kAcknowledged, flush_too_much, kNakInvalid, kUntaken, kReqErr, kErr},
    {"more FLUSHes than agreed", kAcknowledged, too_many_flushes, kNakInvalid, kUntaken, kReqErr, kErr},
    {"FLUSH, R_Key", kAcknowledged, flush_with_wrong_key, kNakAccess, kUntaken, kAccessErr, kErr},
    {"FLUSH of length 0, R_Key", kAcknowledged, flush_of_nothing_with_wrong_key, kNakAccess, kUntaken, kAccessErr, kErr},
    {"FLUSH of a whole region, R_Key", kAcknowledged, flush_of_wrong_region, kNakAccess, kUntaken, kAccessErr, kErr},
    {"FLUSH, range", kAcknowledged, flush_beyond_the_region, kNakAccess, kUntaken, kAccessErr, kErr},
    {"FLUSH to persistence", kAcknowledged, flush_to_persistence, kNakAccess, kUntaken, kAccessErr, kErr},
    {"SRQ that is not there (A14.2.4)", {Service::xrc}, names_no_srq, kNakInvalid, kNone, kReqErr, kErr},
    // Class D: a fault of the peer on an unreliable service. The responder drops the message, consumes no receive and leaves the
    // QP in its state.
    {"Last without First (9.8.2.2)", {Service::uc}, end_without_begin, kSilence, kNone, kNone, kUp},
    {"Middle without First", {Service::uc}, middle_without_first, kSilence, kNone, kNone, kUp},
    {"Middle of a WRITE without First", {Service::uc}, write_middle_without_first, kSilence, kNone, kNone, kUp},
    {"WRITE goes on as SEND", {Service::uc}, write_goes_on_as_send, kSilence, kNone, kNone, kUp},
    {"First after First", {Service::uc}, begins_twice, kSilence, kNone, kNone, kUp},
    {"First that is not full", {Service::uc}, not_full_first, kSilence, kNone, kNone, kUp},
    {"Middle that is not full", {Service::uc}, not_full_middle, kSilence, kNone, kNone, kUp},
    {"Last without payload", {Service::uc}, empty_last, kSilence, kNone, kNone, kUp},
    {"longer than the path MTU", {Service::uc}, over_the_path_mtu, kSilence, kNone, kNone, kUp},
    {"longer than the receive", {Service::uc, Service::ud}, longer_than_receive, kSilence, kNone, kNone, kUp, kShort},
    {"WRITE, R_Key", {Service::uc}, wrong_key, kSilence, kNone, kNone, kUp},
    {"WRITE, range", {Service::uc}, beyond_the_region, kSilence, kNone, kNone, kUp},
    {"WRITE with immediate, R_Key", {Service::uc}, wrong_key_with_immediate, kSilence, kNone, kNone, kUp},
    {"WRITE, payload is not the length", {Service::uc}, other_length_than_named, kSilence, kNone, kNone, kUp},
    {"WRITE, more than 2^31 bytes", {Service::uc}, write_names_too_much, kSilence, kNone, kNone, kUp},
    {"WRITE, Last has too much", {Service::uc}, write_ends_beyond, kSilence, kNone, kNone, kUp},
    {"WRITE, Last has too little", {Service::uc}, write_ends_early, kSilence, kNone, kNone, kUp},
    {"WRITE, First has everything", {Service::uc}, write_does_not_end, kSilence, kNone, kNone, kUp},
    {"WRITE, the QP forbids it", {Service::uc}, write_forbidden, kSilence, kNone, kNone, kUp},
    {"Q_Key (9.6.1.5.1)", {Service::ud}, wrong_qkey, kSilence, kNone, kNone, kUp},
    // Class E: a fault of the QP's owner.
    {"receive names no memory", kAcknowledged, receive_is_nowhere, kNakOperational, int(WcStatus::loc_prot_err), kFatal, kErr, 0},
    {"receive names no memory", {Service::uc}, receive_is_nowhere, kSilence, int(WcStatus::loc_prot_err), kFatal, kErr, 0},
    {"receive names no memory", {Service::ud}, receive_is_nowhere, kSilence, int(WcStatus::loc_prot_err), kNone, kErr, 0},
    {"receive is malformed", kAcknowledged, receive_is_malformed, kNakOperational, int(WcStatus::loc_qp_op_err), kFatal, kErr, 0},
    {"receive is malformed", {Service::uc}, receive_is_malformed, kSilence, int(WcStatus::loc_qp_op_err), kFatal, kErr, 0},
    {"receive is malformed", {Service::ud}, receive_is_malformed, kSilence, int(WcStatus::loc_qp_op_err), kNone, kErr, 0},
    {"index of the receive queue", kAcknowledged, receives_are_claimed, kNakOperational, kNone, kFatal, kErr, 0},
    {"index of the receive queue", {Service::uc, Service::ud}, receives_are_claimed, kSilence, kNone, kFatal, kErr, 0},
    // Class J: a SEND with invalidate names a key that cannot be invalidated. The responder sends no NAK.
    {"invalidate, no such key", kAcknowledged, invalidates_no_key, kSilence, kInvalid, kNone, kErr},
    {"invalidate, a region's key", kAcknowledged, invalidates_a_region, kSilence, kInvalid, kNone, kErr},
    {"invalidate, a window of type 1", {Service::rc}, invalidates_type_1, kSilence, kInvalid, kNone, kErr},
    {"invalidate, another QP's window", {Service::rc}, invalidates_anothers, kSilence, kInvalid, kNone, kErr},
};

void expect_row(const Row& row, Service service) {
    Case c(service);
    if (row.buffer != 0) c.post(1, row.buffer);
    row.make(c);
    int answer = kSilence;
    for (const auto& got : c.puppet.listen(200'000)) answer = got.op() == Operation::ack ? got.packet.syndrome : -2;
    EXPECT_EQ(answer, row.answer);
    EXPECT_EQ(c.state(), row.state);
    const auto done = c.a.poll_all();
    const int untaken = service == Service::rc ? kFlushed : kNone;
    EXPECT_EQ(done.empty() ? kNone : int(done.front().status), row.receive == kUntaken ? untaken : row.receive);
    const auto events = c.events();
    EXPECT_EQ(events.empty() ? kNone : events.front(), row.event);
    EXPECT_LE(events.size(), 1u);
    EXPECT_TRUE(c.a.client.guards_intact());
    EXPECT_EQ(c.world.shut_down(), "");
}

TEST(ResponderFaults, EachDoesWhatItsClassSays) {
    for (const Row& row : kRows)
        for (const Service service : row.services) {
            SCOPED_TRACE(std::string(row.fault) + ", service " + std::to_string(int(service)));
            expect_row(row, service);
        }
}

/// A dropped message must consume no receive. The next valid message must use the first receive.
TEST(ResponderFaults, WhatIsDroppedTakesNoReceive) {
    for (const Service service : {Service::uc, Service::ud})
        for (void (*fault)(Case&) : {longer_than_receive, wrong_key_with_immediate, wrong_qkey}) {
            if ((service == Service::ud && fault == wrong_key_with_immediate) || (service == Service::uc && fault == wrong_qkey))
                continue;
            Case c(service);
            c.post(7, kShort);
            c.post(8, kShort);
            fault(c);
            c.send(Operation::send_only, kFirst + 1, 20);
            EXPECT_TRUE(c.puppet.listen(200'000).empty());
            const auto done = c.a.poll_all();
            ASSERT_EQ(done.size(), 1u);
            EXPECT_EQ(done[0].wr_id, 7u);
            EXPECT_EQ(done[0].status, WcStatus::success);
            EXPECT_EQ(c.world.shut_down(), "");
        }
}

}  // namespace
}  // namespace roci::sim
