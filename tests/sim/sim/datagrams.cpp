// Load of UD: several QPs on each side, unicast and multicast, with receive queues and SRQs. A datagram must arrive
// complete or not at all. It must arrive only at QPs to which it is addressed, and only if it has the right Q_Key. It
// may arrive twice only if the network duplicates frames.
#include <infiniband/verbs.h>

#include <cstring>
#include <set>

#include "sim/load.hpp"

namespace roci::sim {
namespace {

using abi::WrOpcode;

constexpr uint32_t kGrh = 40, kQkey = 0x1b2c, kMulticastQpn = 0xffffff;

/// A sent datagram. Its number is in the immediate data, or in the first four bytes of the payload.
struct Datagram {
    uint32_t from = 0, length = 0;
    bool imm = false, group = false, wrong_key = false;
    uint64_t tag = 0;
    std::set<uint32_t> may_hear;  ///< QPNs of the QPs that may receive the datagram
    std::set<uint32_t> heard;     ///< QPNs of the QPs that have received the datagram
};

struct Member {
    Qp* qp = nullptr;
    Inbox* inbox = nullptr;
    bool attached = false;
    uint32_t pending = 0;
    uint64_t last_id = 0;
};

struct Side {
    Side(Host& on, uint32_t device, const Plan& plan, Rng r)
        : rng(r), host(on), client(on, device), pd(client.alloc_pd()), cq(client.create_cq(2048)) {
        const bool shared = plan.shared_receive;
        for (int i = 0; i < 2; ++i) {
            if (i == 0 || !shared) inboxes.push_back({.client = &client, .window = 16});
            Inbox& inbox = inboxes.back();
            QpOptions o{.type = IBV_QPT_UD, .max_send_wr = 32, .max_recv_wr = 32};
            if (shared && i == 0) inbox.srq = &client.create_srq(pd, 64);
            o.srq = inbox.srq;
            members.push_back({.qp = &client.create_qp(pd, cq, cq, o), .inbox = &inbox});
            if (!shared) inbox.qp = members.back().qp;
            inbox.capacity = kGrh + 4096;
        }
        for (Inbox& i : inboxes) i.pool = {.mr = &client.reg_mr(pd, 64 * (kGrh + 4096 + 64), memory_options(rng, 1))};
        source = {.mr = &client.reg_mr(pd, 64 * 4200, memory_options(rng, 0))};
        PathOptions path;
        for (Member& m : members) {
            client.to_init(*m.qp, kQkey);
            client.to_rtr(*m.qp, path, {});
            client.to_rts(*m.qp, path);
        }
    }
    Rng rng;
    Host& host;
    Client client;
    uint32_t pd;
    Cq& cq;
    std::deque<Inbox> inboxes;
    std::deque<Member> members;
    Pool source;
    uint32_t ah = 0, group_ah = 0;  ///< `ah` addresses the other side, `group_ah` the group
};

class Datagrams final : public Load {
public:
    Datagrams(const Seats& s, const Plan& plan, Rng& rng)
        : plan_(plan), a_(s.left, s.left_device, plan, rng.fork()), b_(s.right, s.right_device, plan, rng.fork()) {
        const uint32_t gid = uint32_t(rng.below(2));
        // The group has the address family of the GIDs. Its address contains the QPN of the first member, so that
        // each load has a different group.
        static_assert(sizeof(Gid) == 16);
        const uint32_t number = a_.members[0].qp->qpn;
        if (gid == 0) {
            const uint8_t v4[4] = {239, uint8_t(number >> 16), uint8_t(number >> 8), uint8_t(number)};
            group_ = Gid::from_ipv4(v4);
        } else {
            group_.bytes[0] = 0xff;
            group_.bytes[1] = 0x05;
            for (int i = 0; i < 3; ++i) group_.bytes[15 - i] = uint8_t(number >> 8 * i);
        }
        for (auto [side, other] : {std::pair{&a_, &b_}, std::pair{&b_, &a_}}) {
            side->ah = side->client.create_ah(side->pd, other->client.self(*other->members[0].qp, gid), gid);
            side->group_ah = side->client.create_ah(side->pd, {kMulticastQpn, group_, {}}, gid);
        }
    }
    void act() override {
        act(a_, b_);
        act(b_, a_);
    }
    bool finished() const override {
        if (sent_ < 2 * plan_.messages) return false;
        for (const Side* s : {&a_, &b_})
            for (const Member& m : s->members)
                if (m.pending != 0) return false;
        return true;
    }
    uint64_t done() const override { return completed_ + arrived_; }
    void check_end() override {
        poll(a_);
        poll(b_);
        for (Side* s : {&a_, &b_}) {
            if (!s->client.guards_intact()) broken("memory outside of a registered range was written");
            for (Member& m : s->members)
                if (s->client.query(*m.qp).attr.qp_state != IBV_QPS_RTS) broken("a UD QP left RTS");
        }
    }
    std::string state() const override {
        char t[120];
        std::snprintf(t, sizeof t, "  datagrams: sent %u, completed %llu, arrived %llu\n", sent_, ull(completed_), ull(arrived_));
        return t;
    }

private:
    void act(Side& s, Side& other) {
        if (s.rng.chance(0.5)) poll(s);
        if (s.rng.chance(0.5))
            for (Inbox& i : s.inboxes) i.fill(s.rng);
        if (s.rng.chance(0.1)) attach_or_detach(s, s.members[s.rng.below(s.members.size())]);
        for (uint64_t n = s.rng.chance(0.3) ? s.rng.below(6) : 0; n > 0; --n) post(s, other);
    }

    /// Attaches a QP to the group or detaches it. Datagrams of the group may be in the network at this time. The QP
    /// may receive them or not, but it must not receive a datagram twice.
    void attach_or_detach(Side& s, Member& m) {
        const abi::Op op = m.attached ? abi::Op::detach_mcast : abi::Op::attach_mcast;
        if (s.client.try_mcast(op, *m.qp, group_) != 0) broken("multicast: %s", s.client.reason().c_str());
        m.attached = !m.attached;
        if (!m.attached) return;
        for (Datagram& d : sent_list_)
            if (d.group && !d.wrong_key && !d.heard.contains(m.qp->qpn)) d.may_hear.insert(m.qp->qpn);
    }

    void post(Side& s, Side& other) {
        Member& m = s.members[s.rng.below(s.members.size())];
        if (sent_ >= 2 * plan_.messages || m.pending >= kUnderWay) return;
        Datagram d;
        d.from = m.qp->qpn;
        d.group = s.rng.chance(0.3);
        d.wrong_key = s.rng.chance(0.05);
        d.imm = s.rng.chance(0.5);
        const uint64_t sizes[] = {0, 4, 5, 256, 1024, 4095, 4096, s.rng.below(4097)};
        d.length = uint32_t(sizes[s.rng.below(std::size(sizes))]);
        if (d.length < 4) d.imm = true;
        const uint32_t number = sent_++;
        d.tag = uint64_t{m.qp->qpn} << 32 | number;
        const Member& to = other.members[s.rng.below(other.members.size())];
        if (d.group) {
            for (Side* hearing : {&a_, &b_})
                for (const Member& h : hearing->members)
                    if (h.attached) d.may_hear.insert(h.qp->qpn);
        } else {
            d.may_hear.insert(to.qp->qpn);
        }
        if (d.wrong_key) d.may_hear.clear();
        SendWr wr{.id = ++m.last_id, .opcode = d.imm ? WrOpcode::send_imm : WrOpcode::send, .imm_or_inv = number};
        wr.sges = s.source.carve(d.length, uint32_t(s.rng.between(1, 4)));
        write_sges(wr.sges, d.tag);
        if (!d.imm) number_of(wr.sges, number, true);
        wr.ah = d.group ? s.group_ah : s.ah;
        wr.remote_qpn = d.group ? kMulticastQpn : to.qp->qpn;
        wr.remote_qkey = kQkey + (d.wrong_key ? 1 : 0);
        if (!s.client.post_send(*m.qp, wr)) broken("post_send of a datagram refused");
        ++m.pending;
        sent_list_.push_back(d);
    }

    /// Reads or writes the four bytes that follow the first `skip` bytes of the SGEs. These four bytes may be in
    /// several SGEs.
    static uint32_t number_of(const std::vector<Sge>& sges, uint32_t number, bool write, uint64_t skip = 0) {
        uint64_t at = 0;
        auto* out = reinterpret_cast<uint8_t*>(&number);
        for (const Sge& s : sges)
            for (uint32_t k = 0; k < s.length; ++k, ++at) {
                if (at < skip || at >= skip + 4) continue;
                auto& byte = reinterpret_cast<uint8_t*>(s.addr)[k];
                (write ? byte : out[at - skip]) = write ? out[at - skip] : byte;
            }
        return number;
    }

    void poll(Side& s) {
        for (auto e = s.client.poll(s.cq); e; e = s.client.poll(s.cq)) {
            if (e->status != abi::WcStatus::success) broken("datagram completion with status %u", unsigned(e->status));
            for (Member& m : s.members)
                if (m.qp->qpn == e->qpn) e->queue == abi::kCqeSend ? on_send(m, *e) : on_recv(m, *e);
        }
        for (Inbox& i : s.inboxes) i.watch_limit(s.rng, s.host);
        resize_by_chance(s.rng, s.client, s.cq);
    }
    void on_send(Member& m, const abi::Cqe& e) {
        if (e.wr_id != m.last_id - m.pending + 1) broken("datagram %llu completed out of order", ull(e.wr_id));
        --m.pending;
        ++completed_;
    }
    void on_recv(Member& m, const abi::Cqe& e) {
        const Posted r = m.inbox->take(e.wr_id);
        ++arrived_;
        const bool imm = (e.wc_flags & abi::kWcWithImm) != 0;
        const uint32_t number = imm ? e.imm_or_inv : number_of(r.sges, 0, false, kGrh);
        if (number >= sent_list_.size()) broken("a datagram arrived that nobody sent");
        Datagram& d = sent_list_[number];
        if (d.imm != imm || e.byte_len != kGrh + d.length || e.src_qp != d.from || (e.wc_flags & abi::kWcGrh) == 0)
            broken("datagram %u: byte_len %u, src_qp %u, flags %u", number, e.byte_len, e.src_qp, unsigned(e.wc_flags));
        if (!d.may_hear.contains(m.qp->qpn))
            broken("datagram %u reached QP %u, which may not hear it (again)", number, m.qp->qpn);
        if (plan_.faults.duplicate == 0) {
            d.may_hear.erase(m.qp->qpn);
            d.heard.insert(m.qp->qpn);
        }
        if (!imm) {  // the number has replaced the first bytes of the pattern, which are restored here
            uint32_t clean;
            uint8_t bytes[4];
            paint(bytes, 4, d.tag);
            std::memcpy(&clean, bytes, 4);
            number_of(r.sges, clean, true, kGrh);
        }
        if (const int64_t at = wrong_in_sges(r.sges, kGrh, d.length, d.tag); at >= 0)
            broken("datagram %u of %u bytes: byte %lld is wrong", number, d.length, static_cast<long long>(at));
        if (!untouched(r.sges, kGrh + d.length)) broken("datagram of %u bytes wrote beyond", d.length);
    }

    const Plan& plan_;
    Side a_, b_;
    Gid group_;
    std::deque<Datagram> sent_list_;
    uint32_t sent_ = 0;
    uint64_t completed_ = 0, arrived_ = 0;
};

}  // namespace

std::unique_ptr<Load> make_datagrams(const Seats& s, const Plan& plan, Rng& rng) {
    return std::make_unique<Datagrams>(s, plan, rng);
}

}  // namespace roci::sim
