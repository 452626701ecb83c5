// Load of UC. A message must arrive complete or not at all. If the network keeps the order of frames, messages must
// arrive in order.
#include <infiniband/verbs.h>

#include "sim/load.hpp"

namespace roci::sim {
namespace {

using abi::WrOpcode;

struct Message {
    uint64_t tag = 0;
    WrOpcode opcode{};
    uint32_t length = 0, imm = 0;
    uint64_t remote = 0;
};

/// A received message is identified by its opcode, length, immediate data and content.
class UcActor {
public:
    UcActor(Host& host, uint32_t device, const Plan& plan, Rng rng)
        : plan_(plan), rng_(rng), client_(host, device), pd_(client_.alloc_pd()), cq_(client_.create_cq(1024)) {
        const uint64_t room = pool_bytes(plan);
        source_ = {.mr = &client_.reg_mr(pd_, room, memory_options(rng_, 0))};
        window_ = {.mr = &client_.reg_mr(pd_, room, memory_options(rng_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE))};
        qp_ = &client_.create_qp(pd_, cq_, cq_, {.type = IBV_QPT_UC, .max_send_wr = 32, .max_recv_wr = 32});
        inbox_ = {.client = &client_, .qp = qp_, .pool = {.mr = &client_.reg_mr(pd_, room)}, .capacity = plan.largest};
    }
    static void join(UcActor& a, UcActor& b, PathOptions o) {
        a.peer_ = &b;
        b.peer_ = &a;
        a.mtu_ = b.mtu_ = mtu_bytes(o.mtu);
        o.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
        connect(a.client_, *a.qp_, b.client_, *b.qp_, o);
    }
    void act(Nanos now) {
        now_ = now;
        if (rng_.chance(0.5)) poll();
        if (rng_.chance(0.5)) inbox_.fill(rng_);
        for (uint64_t n = rng_.chance(0.3) ? rng_.below(6) : 0; n > 0; --n) post();
    }
    bool finished() const { return posted_ == plan_.messages && pending_ == 0; }
    uint64_t done() const { return completed_; }
    uint64_t arrived() const { return arrived_; }
    void check_end() {
        poll();
        if (!client_.guards_intact()) broken("memory outside of a registered range was written");
        if (client_.query(*qp_).attr.qp_state != IBV_QPS_RTS) broken("a UC QP left RTS because of what it received");
    }
    std::string state() const {
        char t[120];
        std::snprintf(t, sizeof t, "  UC QP %u: posted %u, pending %u\n", qp_->qpn, posted_, pending_);
        return t;
    }

private:
    /// Returns true while the memory of an outstanding message must not be overwritten. After a certain time each
    /// message counts as arrived or lost.
    bool must_wait() {
        if (flying_.size() < kUnderWay) return false;
        const Nanos longest = 20'000'000 + 2 * plan_.faults.max_delay + Nanos{plan_.largest} * 400;
        if (pending_ != 0 || now_ - last_post_ < longest) return true;
        peer_->poll();
        lost_.insert(lost_.end(), flying_.begin(), flying_.end());
        flying_.clear();
        return false;
    }
    void post() {
        if (posted_ == plan_.messages || qp_->sq.free_slots() == 0 || must_wait()) return;
        Message m;
        m.tag = uint64_t{qp_->qpn} << 32 | (posted_ + 1);
        m.opcode = rng_.pick(WrOpcode::send, WrOpcode::send_imm, WrOpcode::rdma_write, WrOpcode::rdma_write_imm);
        const uint64_t sizes[] = {0, 1, mtu_ - 1, mtu_, mtu_ + 1, mtu_ * 2, rng_.below(plan_.largest)};
        m.length = uint32_t(std::min<uint64_t>(sizes[rng_.below(std::size(sizes))], plan_.largest));
        m.imm = uint32_t(rng_.next());
        SendWr wr{.id = m.tag, .opcode = m.opcode, .imm_or_inv = m.imm};
        wr.sges = source_.carve(m.length, uint32_t(rng_.between(1, 4)));
        write_sges(wr.sges, m.tag);
        if (is_write(m)) {
            m.remote = peer_->window_.take(m.length);
            wr.remote_addr = peer_->window_.mr->address() + m.remote;
            wr.rkey = peer_->window_.mr->rkey;
        }
        if (!client_.post_send(*qp_, wr)) broken("post_send refused with %u free slots", qp_->sq.free_slots());
        ++posted_;
        ++pending_;
        last_post_ = now_;
        if (m.opcode != WrOpcode::rdma_write) flying_.push_back(m);
    }
    static bool is_write(const Message& m) { return m.opcode == WrOpcode::rdma_write || m.opcode == WrOpcode::rdma_write_imm; }
    void poll() {
        for (auto e = client_.poll(cq_); e; e = client_.poll(cq_)) {
            if (e->status != abi::WcStatus::success)
                broken("UC completion %llx with status %u", ull(e->wr_id), unsigned(e->status));
            e->queue == abi::kCqeSend ? on_send(*e) : on_recv(*e);
        }
        resize_by_chance(rng_, client_, cq_);
    }
    void on_send(const abi::Cqe& e) {
        if (e.wr_id != (uint64_t{qp_->qpn} << 32 | ++completed_)) broken("UC send %llx completed out of order", ull(e.wr_id));
        --pending_;
    }
    bool fits(const Message& m, const abi::Cqe& e, const Posted& r) const {
        const bool imm = m.opcode != WrOpcode::send;
        const auto wc = is_write(m) ? abi::WcOpcode::recv_rdma_with_imm : abi::WcOpcode::recv;
        if (e.opcode != wc || e.byte_len != m.length || ((e.wc_flags & abi::kWcWithImm) != 0) != imm) return false;
        if (imm && e.imm_or_inv != m.imm) return false;
        if (is_write(m)) return first_wrong_byte(window_.mr->data() + m.remote, m.length, m.tag) == -1 || plan_.reorders();
        return wrong_in_sges(r.sges, 0, m.length, m.tag) == -1;
    }
    /// Finds the sent message that a receive contains. If the network keeps the order, all messages that were sent
    /// before this message count as lost. If the network reorders or duplicates frames, a message may arrive late or
    /// again, because UC cannot detect a late or repeated message of one packet.
    void on_recv(const abi::Cqe& e) {
        const Posted r = inbox_.take(e.wr_id);
        ++arrived_;
        auto& flying = peer_->flying_;
        while (!flying.empty()) {
            const Message m = flying.front();
            const bool found = fits(m, e, r);
            if (!found && plan_.reorders()) break;
            flying.pop_front();
            peer_->lost_.push_back(m);
            if (found) return;
        }
        if (plan_.reorders()) {
            for (const auto* list : {&flying, &peer_->lost_})
                for (const Message& m : *list)
                    if (fits(m, e, r)) return remember(m);
        }
        broken("UC receive %llu of %u bytes is no message that may come now", ull(e.wr_id), e.byte_len);
    }
    void remember(const Message& m) {
        auto& flying = peer_->flying_;
        for (size_t i = 0; i < flying.size(); ++i) {
            if (flying[i].tag != m.tag) continue;
            peer_->lost_.push_back(flying[i]);
            flying.erase(flying.begin() + ptrdiff_t(i));
            return;
        }
    }

    const Plan& plan_;
    Rng rng_;
    Client client_;
    uint32_t pd_;
    Cq& cq_;
    Pool source_, window_;
    Inbox inbox_;
    Qp* qp_ = nullptr;
    UcActor* peer_ = nullptr;
    uint32_t mtu_ = 0, posted_ = 0, pending_ = 0;
    uint64_t completed_ = 0, arrived_ = 0;
    Nanos now_ = 0, last_post_ = 0;
    std::deque<Message> flying_;  ///< messages that may still arrive, in the order of posting
    std::deque<Message> lost_;    ///< messages that have arrived or count as lost; each of them may still arrive late or again
};

class Uc final : public Load {
public:
    Uc(const Seats& s, const Plan& plan, Rng& rng)
        : world_(s.world), a_(s.left, s.left_device, plan, rng.fork()), b_(s.right, s.right_device, plan, rng.fork()) {
        UcActor::join(a_, b_, make_path(rng, plan));
    }
    void act() override {
        a_.act(world_.now());
        b_.act(world_.now());
    }
    bool finished() const override { return a_.finished() && b_.finished(); }
    uint64_t done() const override { return a_.done() + b_.done() + a_.arrived() + b_.arrived(); }
    void check_end() override {
        a_.check_end();
        b_.check_end();
    }
    std::string state() const override { return a_.state() + b_.state(); }

private:
    World& world_;
    UcActor a_, b_;
};

}  // namespace

std::unique_ptr<Load> make_uc(const Seats& s, const Plan& plan, Rng& rng) { return std::make_unique<Uc>(s, plan, rng); }

}  // namespace roci::sim
