#include "sim/connected.hpp"

#include <infiniband/verbs.h>

#include <cstring>

namespace roci::sim {
namespace {

using abi::WcStatus;
using abi::WrOpcode;

enum Nature : uint8_t {
    kSends = 1,
    kWrites = 2,
    kReads = 4,
    kAtomic = 8,
    kTakesRecv = 16,
    kImm = 32,
    kStores = 64,
    kFlushes = 128
};
struct Row {
    WrOpcode opcode;
    abi::WcOpcode wc, recv_wc;
    uint8_t nature;
    uint32_t weight;
};
constexpr Row kRows[] = {
    {WrOpcode::send, abi::WcOpcode::send, abi::WcOpcode::recv, kSends | kTakesRecv, 3},
    {WrOpcode::send_imm, abi::WcOpcode::send, abi::WcOpcode::recv, kSends | kTakesRecv | kImm, 1},
    {WrOpcode::rdma_write, abi::WcOpcode::rdma_write, {}, kWrites, 1},
    {WrOpcode::rdma_write_imm, abi::WcOpcode::rdma_write, abi::WcOpcode::recv_rdma_with_imm, kWrites | kTakesRecv | kImm, 1},
    {WrOpcode::rdma_read, abi::WcOpcode::rdma_read, {}, kReads, 2},
    {WrOpcode::atomic_fetch_add, abi::WcOpcode::fetch_add, {}, kAtomic, 1},
    {WrOpcode::atomic_cmp_swp, abi::WcOpcode::comp_swap, {}, kAtomic, 1},
    {WrOpcode::atomic_write, abi::WcOpcode::atomic_write, {}, kStores, 1},
    {WrOpcode::flush, abi::WcOpcode::flush, {}, kFlushes, 1},
};
const Row& row(WrOpcode o) {
    for (const Row& r : kRows)
        if (r.opcode == o) return r;
    broken("no such opcode");
}
bool is(const Work& w, uint8_t nature) { return (row(w.opcode).nature & nature) != 0; }

WrOpcode draw(Rng& rng) {
    uint32_t all = 0;
    for (const Row& r : kRows) all += r.weight;
    uint64_t n = rng.below(all);
    for (const Row& r : kRows) {
        if (n < r.weight) return r.opcode;
        n -= r.weight;
    }
    return WrOpcode::send;
}

}  // namespace

Actor::Actor(Host& host, uint32_t device, const Plan& plan, Rng rng, bool xrc)
    : plan_(plan), rng_(rng), host_(host), client_(host, device), pd_(client_.alloc_pd()) {
    send_cq_ = &client_.create_cq(1024);
    recv_cq_ = rng_.chance(0.5) ? send_cq_ : &client_.create_cq(1024);
    const auto memory = [&](uint64_t bytes, uint32_t access) {
        return Pool{.mr = &client_.reg_mr(pd_, bytes, memory_options(rng_, access))};
    };
    const uint64_t room = pool_bytes(plan);
    source_ = memory(room, 0);
    target_ = memory(room, IBV_ACCESS_LOCAL_WRITE);
    window_ = memory(room + kWords, kAllRights);
    window_.reserved = kWords + 8;
    create_queues(xrc);
    for (Inbox& i : inboxes_) {
        i.client = &client_;
        i.pool = memory(room, IBV_ACCESS_LOCAL_WRITE);
        i.capacity = plan.largest;
    }
}

void Actor::create_queues(bool xrc) {
    QpOptions q;
    q.max_send_wr = q.max_recv_wr = uint32_t(rng_.pick(16, 32, 64));
    q.signal_all = rng_.chance(0.2);
    if (!xrc) {
        if (plan_.shared_receive && rng_.chance(0.7)) q.srq = &client_.create_srq(pd_, 64);
        in_ = out_ = &client_.create_qp(pd_, *send_cq_, *recv_cq_, q);
        inboxes_.push_back({.qp = in_, .srq = q.srq});
        return;
    }
    const uint32_t xrcd = client_.open_xrcd();
    for (int i = 0; i < 2; ++i) inboxes_.push_back({.srq = &client_.create_xrc_srq(pd_, xrcd, *recv_cq_, 64)});
    q.type = IBV_QPT_XRC_SEND;
    out_ = &client_.create_qp(pd_, *send_cq_, *send_cq_, q);
    q.type = IBV_QPT_XRC_RECV;
    q.xrcd = xrcd;
    in_ = &client_.create_qp(pd_, *send_cq_, *send_cq_, q);
}

void Actor::join(Actor& a, Actor& b, const PathOptions& o) {
    a.peer_ = &b;
    b.peer_ = &a;
    a.path_ = b.path_ = o;
    connect(a.client_, *a.out_, b.client_, *b.in_, o);
    if (a.in_ != a.out_) connect(b.client_, *b.out_, a.client_, *a.in_, o);
}

uint64_t Actor::word(uint64_t n) const {
    uint64_t value;
    std::memcpy(&value, reinterpret_cast<const void*>(word_address(n)), 8);
    return value;
}

// ---- posting -------------------------------------------------------------------------------------------------------

Work Actor::plan_work() {
    Work w{};
    w.tag = (uint64_t{out_->qpn} << 32 | next_tag_++) * 2 + (peer_->out_->qpn < out_->qpn);
    w.opcode = draw(rng_);
    const uint32_t mtu = mtu_bytes(path_.mtu);
    const uint64_t sizes[] = {
        0, 1, rng_.below(100), mtu - 1, mtu, mtu + 1, mtu * 2, rng_.below(plan_.largest), rng_.below(plan_.largest)};
    w.length = uint32_t(std::min<uint64_t>(sizes[rng_.below(std::size(sizes))], plan_.largest));
    if (plan_.largest >= (1 << 20) && rng_.chance(0.5)) w.length = plan_.largest;
    if (is(w, kAtomic | kStores)) w.length = 8;
    if (is(w, kFlushes)) w.length = 0;
    w.signaled = posted_ + 1 == plan_.messages || out_->sq.free_slots() < 3 || ++silent_ > 6 || rng_.chance(0.6);
    if (w.signaled) silent_ = 0;
    w.imm = uint32_t(rng_.next());
    w.inbox = size_t(rng_.below(peer_->inboxes_.size()));
    return w;
}

/// Prepares the data of SENDs, WRITEs and READs.
void Actor::prepare_data(Work& w, SendWr& wr) {
    const auto pieces = uint32_t(rng_.between(1, 4));
    w.sges = (is(w, kReads) ? target_ : source_).carve(w.length, pieces);
    if (!is(w, kReads)) write_sges(w.sges, w.tag);
    if (is(w, kReads | kWrites)) {
        w.remote = peer_->window_.take(w.length);
        wr.remote_addr = peer_->window_.mr->address() + w.remote;
        // No other request uses this part of the window while the READ is outstanding. So the actor can write the
        // data of the READ now.
        if (is(w, kReads)) paint(peer_->window_.mr->data() + w.remote, w.length, w.tag);
    }
    wr.sges = w.sges;
    const bool fits = !is(w, kReads) && w.length <= out_->cap.max_inline_data && w.length <= 64;
    if (!fits || !rng_.chance(0.5)) return;
    wr.flags |= abi::kSendInline;
    wr.sges.clear();
    for (uint64_t i = 0; i < w.length; ++i) wr.inline_bytes.push_back(payload_byte(w.tag, i));
}

/// Prepares atomics and atomic writes. Atomics use word 0 of the peer's window, and atomic writes use word 1.
void Actor::prepare_word(Work& w, SendWr& wr) {
    wr.remote_addr = peer_->word_address(is(w, kStores) ? 1 : 0);
    if (is(w, kStores)) {
        wr.compare_add = written_word_ = w.tag;
        return;
    }
    w.sges = wr.sges = target_.carve(8, 1);
    w.expected = atomic_word_;
    if (w.opcode == WrOpcode::atomic_fetch_add) {
        wr.compare_add = rng_.next();
        atomic_word_ += wr.compare_add;
    } else {
        wr.compare_add = rng_.chance(0.5) ? atomic_word_ : rng_.next();
        wr.swap = rng_.next();
        if (wr.compare_add == atomic_word_) atomic_word_ = wr.swap;
    }
}

/// Prepares a FLUSH of a range, or of the peer's whole window.
void Actor::prepare_flush(SendWr& wr) {
    const bool whole = rng_.chance(0.5);
    const uint64_t offset = rng_.below(kWords);
    wr.remote_addr = whole ? rng_.next() : peer_->window_.mr->address() + offset;
    wr.flush = abi::kFlushGlobal | (whole ? uint32_t{abi::kFlushRegion} : 0);
    wr.flush_length = rng_.below(kWords - offset);
}

void Actor::post() {
    if (posted_ == plan_.messages || pending_.size() >= kUnderWay || out_->sq.free_slots() == 0) return;
    Work w = plan_work();
    SendWr wr;
    wr.id = w.tag;
    wr.opcode = w.opcode;
    wr.flags = w.signaled ? abi::kSendSignaled : 0;
    if (rng_.chance(0.1)) wr.flags |= abi::kSendFence;
    if (rng_.chance(0.2)) wr.flags |= abi::kSendSolicited;
    wr.imm_or_inv = w.imm;
    wr.rkey = peer_->window_.mr->rkey;
    if (const Srq* srq = peer_->inboxes_[w.inbox].srq; srq != nullptr) wr.srqn = srq->srqn;
    if (is(w, kAtomic | kStores))
        prepare_word(w, wr);
    else if (is(w, kFlushes))
        prepare_flush(wr);
    else
        prepare_data(w, wr);
    if (!client_.post_send(*out_, wr)) broken("post_send refused with %u free slots", out_->sq.free_slots());
    ++posted_;
    pending_.push_back(w);
    if (is(w, kTakesRecv)) owed_.push_back(w);
}

// ---- completions ---------------------------------------------------------------------------------------------------

void Actor::poll() {
    for (Cq* cq : {send_cq_, recv_cq_}) {
        for (auto e = client_.poll(*cq); e; e = client_.poll(*cq)) {
            if (e->qpn != (e->queue == abi::kCqeSend ? out_ : in_)->qpn) broken("completion of a strange QP %u", e->qpn);
            e->queue == abi::kCqeSend ? on_send(*e) : on_recv(*e);
        }
        resize_by_chance(rng_, client_, *cq);
        if (send_cq_ == recv_cq_) break;
    }
    for (Inbox& i : inboxes_) {
        i.watch_limit(rng_, host_);
        i.resize_by_chance();
    }
}

void Actor::check_done(const Work& w) const {
    int64_t at = -1;
    if (is(w, kReads)) at = wrong_in_sges(w.sges, 0, w.length, w.tag);
    if (w.opcode == WrOpcode::rdma_write) at = first_wrong_byte(peer_->window_.mr->data() + w.remote, w.length, w.tag);
    if (at >= 0) broken("request %llx of %u bytes: byte %lld is wrong", ull(w.tag), w.length, static_cast<long long>(at));
    if (!is(w, kAtomic)) return;
    uint64_t original;
    std::memcpy(&original, reinterpret_cast<const void*>(w.sges[0].addr), 8);
    if (original != w.expected) broken("atomic %llx returned %llx, not %llx", ull(w.tag), ull(original), ull(w.expected));
}

void Actor::seal(const Work& w) {
    if (is(w, kReads)) read_.add(w.sges);
    if (w.opcode == WrOpcode::rdma_write) written_.add({{peer_->window_.mr->address() + w.remote, w.length, 0}});
}

void Actor::on_send(const abi::Cqe& e) {
    if (e.status != WcStatus::success)
        broken("QP %u: send %llx completed with status %u (vendor %u), %zu pending", out_->qpn, ull(e.wr_id), unsigned(e.status),
               e.vendor_err, pending_.size());
    while (!pending_.empty()) {
        const Work w = pending_.front();
        pending_.pop_front();
        ++completed_;
        check_done(w);
        seal(w);
        if (w.tag == e.wr_id) {
            if (e.opcode != row(w.opcode).wc)
                broken("completion opcode %u for request opcode %u", unsigned(e.opcode), unsigned(w.opcode));
            return;
        }
        if (w.signaled) broken("signalled request %llx was skipped", ull(w.tag));
    }
    broken("completion %llx for nothing that is pending", ull(e.wr_id));
}

void Actor::check_recv_data(const Work& w, const Posted& r) const {
    if (is(w, kWrites)) {
        const int64_t at = first_wrong_byte(window_.mr->data() + w.remote, w.length, w.tag);
        if (at >= 0) broken("WRITE_IMM of %u bytes: byte %lld is wrong", w.length, static_cast<long long>(at));
        if (!untouched(r.sges, 0)) broken("WRITE_IMM wrote into the receive buffer");
        return;
    }
    const int64_t at = wrong_in_sges(r.sges, 0, w.length, w.tag);
    if (at >= 0) broken("SEND %llx of %u bytes: byte %lld is wrong", ull(w.tag), w.length, static_cast<long long>(at));
    if (!untouched(r.sges, w.length)) broken("SEND of %u bytes wrote beyond", w.length);
}

void Actor::on_recv(const abi::Cqe& e) {
    if (e.status != WcStatus::success) broken("receive %llu completed with status %u", ull(e.wr_id), unsigned(e.status));
    if (peer_->owed_.empty()) broken("receive %llu completed, but nothing was sent", ull(e.wr_id));
    const Work w = peer_->owed_.front();
    peer_->owed_.pop_front();
    Inbox& inbox = inboxes_[w.inbox];
    if (inbox.srq != nullptr && e.srq_handle != inbox.srq->handle) broken("message %llx came to another SRQ", ull(w.tag));
    const Posted r = inbox.take(e.wr_id);
    if (e.byte_len != w.length) broken("receive of %u bytes, %u were sent", e.byte_len, w.length);
    if (((e.wc_flags & abi::kWcWithImm) != 0) != is(w, kImm)) broken("immediate flag is wrong");
    if (is(w, kImm) && e.imm_or_inv != w.imm) broken("immediate is %x, not %x", e.imm_or_inv, w.imm);
    if (e.opcode != row(w.opcode).recv_wc) broken("receive completion opcode %u", unsigned(e.opcode));
    check_recv_data(w, r);
    received_.add(r.sges);
}

void Actor::act() {
    if (rng_.chance(0.5)) poll();
    if (rng_.chance(0.5))
        for (Inbox& i : inboxes_) i.fill(rng_);
    for (uint64_t n = rng_.chance(0.3) ? rng_.below(6) : 0; n > 0; --n) post();
}

void Actor::check_end() const {
    if (!client_.guards_intact()) broken("memory outside of a registered range was written");
    for (const Sealed* s : {&read_, &written_, &received_}) s->check();
    if (peer_->word(0) != atomic_word_) broken("the atomic word ended as %llx, not %llx", ull(peer_->word(0)), ull(atomic_word_));
    if (peer_->word(1) != written_word_)
        broken("the written word ended as %llx, not %llx", ull(peer_->word(1)), ull(written_word_));
}

std::string Actor::state() const {
    char t[200];
    std::snprintf(t, sizeof t, "  QP %u engine %u: posted %u, pending %zu, owed to the peer %zu, receives posted %zu\n",
                  out_->qpn, out_->engine, posted_, pending_.size(), owed_.size(), inboxes_[0].posted.size());
    return t;
}

namespace {

class Connected final : public Load {
public:
    Connected(const Seats& s, const Plan& plan, Rng& rng, bool xrc)
        : a_(s.left, s.left_device, plan, rng.fork(), xrc), b_(s.right, s.right_device, plan, rng.fork(), xrc) {
        Actor::join(a_, b_, make_path(rng, plan));
    }
    void act() override {
        a_.act();
        b_.act();
    }
    bool finished() const override { return a_.finished() && b_.finished(); }
    uint64_t done() const override { return a_.done() + b_.done(); }
    void check_end() override {
        act();
        a_.check_end();
        b_.check_end();
    }
    std::string state() const override { return a_.state() + b_.state(); }

private:
    Actor a_, b_;
};

}  // namespace

std::unique_ptr<Load> make_connected(const Seats& s, const Plan& plan, Rng& rng, bool xrc) {
    return std::make_unique<Connected>(s, plan, rng, xrc);
}

}  // namespace roci::sim
