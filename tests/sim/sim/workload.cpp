#include "sim/workload.hpp"

#include <infiniband/verbs.h>

#include <cstdio>
#include <cstring>
#include <deque>
#include <stdexcept>

#include "sim/world.hpp"

namespace roci::sim {
namespace {

using abi::WcStatus;
using abi::WrOpcode;

uint8_t pattern(uint64_t tag, uint64_t i) { return uint8_t((tag * 0x9e3779b97f4a7c15 >> 56) + i * 11 + (i >> 8) * 5 + tag); }
void paint(uint8_t* p, uint64_t n, uint64_t tag) {
    for (uint64_t i = 0; i < n; ++i) p[i] = pattern(tag, i);
}

struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};
template <class... T>
[[noreturn]] void broken(const char* format, T... args) {
    char text[400];
    std::snprintf(text, sizeof text, format, args...);
    throw Failure(text);
}

/// What kind of world a seed makes.
struct Plan {
    WorldOptions world;
    Faults faults;
    bool spread_by_chance = false, blackouts = false;
    uint32_t links = 1;       ///< QP pairs
    uint32_t messages = 50;   ///< a direction of a pair
    uint32_t largest = 8192;  ///< bytes of a message
    bool shared_receive = false;
    std::string text() const;
};

std::string Plan::text() const {
    char t[300];
    std::snprintf(
        t, sizeof t,
        "hosts=%u engines=%u links=%u messages=%u largest=%u drop=%.3f dup=%.3f corrupt=%.3f delay=%.3f/%llu burst=%.3f/%u "
        "starve=%.2f pool=%u inflight=%u quantum=%u blackouts=%d spread=%d srq=%d",
        world.hosts, world.engines, links, messages, largest, faults.drop, faults.duplicate, faults.corrupt, faults.delay,
        static_cast<unsigned long long>(faults.max_delay), faults.burst, faults.burst_length, faults.starve, world.tx_pool,
        world.engine.max_inflight, world.engine.qp_quantum, blackouts, spread_by_chance, shared_receive);
    return t;
}

Plan make_plan(Rng& rng, uint64_t seed) {
    Plan p;
    p.world.seed = seed;
    p.world.hosts = uint32_t(rng.pick(1, 2, 2, 2));
    p.world.devices = p.world.hosts == 1 ? 2 : 1;
    p.world.engines = uint32_t(rng.pick(1, 1, 2, 3));
    p.world.tx_pool = uint32_t(rng.pick(40, 128, 1024, 1024));
    p.world.round_cost = rng.pick<uint64_t>(50, 200, 1000);
    p.world.engine.max_inflight = uint32_t(rng.pick(8, 16, 64, 256));
    p.world.engine.qp_quantum = uint32_t(rng.pick(1, 4, 16));
    p.world.engine.rx_burst = uint32_t(rng.pick(1, 7, 32));
    p.world.engine.tx_burst = uint32_t(rng.pick(1, 5, 32));
    p.world.engine.ack_every = uint32_t(rng.pick(1, 8, 32));
    if (rng.chance(0.8)) {
        // now and then everything at once, mostly one kind of trouble
        const bool all = rng.chance(0.3);
        auto maybe = [&](double most) { return all || rng.chance(0.3) ? most * double(rng.below(1000)) / 1000 : 0; };
        p.faults.drop = maybe(0.06);
        p.faults.duplicate = maybe(0.1);
        p.faults.corrupt = maybe(0.05);
        p.faults.delay = maybe(0.2);
        p.faults.max_delay = rng.pick<uint64_t>(5'000, 50'000, 400'000);
        p.faults.burst = maybe(0.01);
        p.faults.burst_length = uint32_t(rng.between(2, 30));
        p.faults.starve = maybe(0.3);
    }
    p.spread_by_chance = rng.chance(0.3);
    p.blackouts = rng.chance(0.2);
    p.links = uint32_t(rng.pick(1, 1, 2, 3, 8));
    p.messages = uint32_t(rng.between(5, 80));
    p.largest = uint32_t(rng.pick(64, 4096, 20'000, 20'000, 100'000));
    if (rng.chance(0.04)) {
        p.largest = 1 << 20;
        p.messages = 3;
        p.links = 1;
    }
    p.shared_receive = rng.chance(0.2);
    return p;
}

/// A receive buffer that was posted.
struct Posted {
    uint64_t id;
    std::vector<Sge> sges;
    uint32_t capacity;
};

/// A work request that was posted, and what must come of it.
struct Work {
    uint64_t tag;
    WrOpcode opcode;
    uint32_t length;
    bool signaled;
    uint32_t imm;
    std::vector<Sge> sges;  ///< where the data is (READ: goes)
    uint64_t remote = 0;    ///< offset in the peer's window
    uint64_t expected = 0;  ///< atomics: the word before
    uint64_t changed = 0;   ///< atomics: the word after
};

bool is_read(WrOpcode o) { return o == WrOpcode::rdma_read; }
bool is_atomic(WrOpcode o) { return o == WrOpcode::atomic_cmp_swp || o == WrOpcode::atomic_fetch_add; }
bool is_write(WrOpcode o) { return o == WrOpcode::rdma_write || o == WrOpcode::rdma_write_imm; }
bool takes_recv(WrOpcode o) { return o == WrOpcode::send || o == WrOpcode::send_imm || o == WrOpcode::rdma_write_imm; }

abi::WcOpcode send_wc(WrOpcode o) {
    if (is_read(o)) return abi::WcOpcode::rdma_read;
    if (is_write(o)) return abi::WcOpcode::rdma_write;
    if (o == WrOpcode::atomic_cmp_swp) return abi::WcOpcode::comp_swap;
    if (o == WrOpcode::atomic_fetch_add) return abi::WcOpcode::fetch_add;
    return abi::WcOpcode::send;
}

/// One QP and everything expected of it.
class Actor {
public:
    Actor(World& world, Host& host, uint32_t device, const Plan& plan, Rng rng);
    void join(Actor& peer, const PathOptions& o);
    /// Posts, polls and checks as the mood is. Throws Failure.
    void act();
    bool finished() const { return posted_ == to_send_ && pending_.empty() && peer_->owed_.empty(); }
    void check_memory() const;
    Client& client() { return client_; }
    const Qp& qp() const { return *qp_; }
    std::string state() const;
    uint64_t done() const { return completed_; }

private:
    static constexpr uint32_t kRecvWindow = 16;
    void post();
    Work plan_work();
    void post_recvs();
    void poll();
    void on_send(const abi::Cqe& e);
    void on_recv(const abi::Cqe& e);
    void check_recv_data(const Work& w, const Posted& r) const;
    void check_done(const Work& w) const;
    std::vector<Sge> carve(Mr& mr, uint64_t& cursor, uint64_t length, uint32_t pieces);
    /// Room in the ring buffer `cursor` of the MR that nobody uses.
    static uint64_t take(uint64_t& cursor, uint64_t length, uint64_t size);

    const Plan& plan_;
    Rng rng_;
    Client client_;
    uint32_t pd_;
    Cq* send_cq_;
    Cq* recv_cq_;
    Mr* source_;  // data that we send
    Mr* target_;  // READ results and atomics' originals
    Mr* inbox_;   // receives
    Mr* window_;  // what the peer may write and read
    Qp* qp_;
    Actor* peer_ = nullptr;
    PathOptions path_;
    uint32_t to_send_ = 0, posted_ = 0;
    uint64_t completed_ = 0;
    uint64_t next_tag_ = 1, next_recv_ = 1;
    uint64_t source_cursor_ = 0, target_cursor_ = 0, inbox_cursor_ = 0, remote_cursor_ = 0;
    uint64_t atomic_word_ = 0;  // what the peer's atomic word is by our order of posting
    std::deque<Work> pending_;  // posted, no completion seen
    std::deque<Work> owed_;     // messages that must still arrive at the peer's receive queue
    std::deque<Posted> recvs_;
    uint32_t starving_ = 0;
    uint32_t silent_ = 0;  // unsignalled requests in a row
};

constexpr uint64_t kAtomicArea = 64;

uint64_t Actor::take(uint64_t& cursor, uint64_t length, uint64_t size) {
    if (cursor + length > size) cursor = 0;
    const uint64_t at = cursor;
    cursor += (length + 15) / 8 * 8;
    return at;
}

Actor::Actor(World& world, Host& host, uint32_t device, const Plan& plan, Rng rng)
    : plan_(plan), rng_(rng), client_(host, device), pd_(client_.alloc_pd()) {
    (void)world;
    const bool one_cq = rng_.chance(0.5);
    send_cq_ = &client_.create_cq(1024);
    recv_cq_ = one_cq ? send_cq_ : &client_.create_cq(1024);
    // big enough that what is under way (at most 24 requests) never overlaps
    const uint64_t room = uint64_t{plan.largest + 64} * 40 + 4096;
    auto options = [&](uint32_t access) {
        MrOptions o;
        o.access = access;
        o.segments = uint32_t(rng_.pick(1, 1, 3, 17));
        o.slow = rng_.chance(0.05);
        return o;
    };
    source_ = &client_.reg_mr(pd_, room, options(0));
    target_ = &client_.reg_mr(pd_, room, options(IBV_ACCESS_LOCAL_WRITE));
    inbox_ = &client_.reg_mr(pd_, room, options(IBV_ACCESS_LOCAL_WRITE));
    MrOptions remote = options(0xf);
    if (remote.slow) remote.segments = 1;
    window_ = &client_.reg_mr(pd_, room + kAtomicArea, remote);
    QpOptions q;
    q.max_send_wr = q.max_recv_wr = uint32_t(rng_.pick(16, 32, 64));
    q.signal_all = rng_.chance(0.2);
    if (plan.shared_receive && rng_.chance(0.7)) q.srq = &client_.create_srq(pd_, 64);
    qp_ = &client_.create_qp(pd_, *send_cq_, *recv_cq_, q);
    to_send_ = plan.messages;
}

void Actor::join(Actor& peer, const PathOptions& o) {
    peer_ = &peer;
    path_ = o;
}

std::vector<Sge> Actor::carve(Mr& mr, uint64_t& cursor, uint64_t length, uint32_t pieces) {
    std::vector<Sge> out;
    const uint64_t at = take(cursor, length, mr.length);
    for (uint32_t i = 0; i < pieces; ++i) {
        const uint64_t from = length * i / pieces, to = length * (i + 1) / pieces;
        out.push_back({mr.address() + at + from, uint32_t(to - from), mr.lkey});
    }
    return out;
}

void write_sges(const std::vector<Sge>& sges, uint64_t tag) {
    uint64_t i = 0;
    for (const Sge& s : sges)
        for (uint32_t k = 0; k < s.length; ++k) reinterpret_cast<uint8_t*>(s.addr)[k] = pattern(tag, i++);
}
int64_t wrong_in_sges(const std::vector<Sge>& sges, uint64_t length, uint64_t tag) {
    uint64_t i = 0;
    for (const Sge& s : sges)
        for (uint32_t k = 0; k < s.length && i < length; ++k, ++i)
            if (reinterpret_cast<const uint8_t*>(s.addr)[k] != pattern(tag, i)) return int64_t(i);
    return -1;
}

Work Actor::plan_work() {
    Work w{};
    w.tag = (uint64_t{qp_->qpn} << 32 | next_tag_++) * 2 + (peer_->qp_->qpn < qp_->qpn);
    w.opcode = rng_.pick(WrOpcode::send, WrOpcode::send, WrOpcode::send_imm, WrOpcode::rdma_write, WrOpcode::rdma_write_imm,
                         WrOpcode::rdma_read, WrOpcode::rdma_read, WrOpcode::atomic_fetch_add, WrOpcode::atomic_cmp_swp);
    const uint32_t mtu = mtu_bytes(path_.mtu);
    const uint64_t sizes[] = {
        0, 1, rng_.below(100), mtu - 1, mtu, mtu + 1, mtu * 2, rng_.below(plan_.largest), rng_.below(plan_.largest)};
    w.length = uint32_t(std::min<uint64_t>(sizes[rng_.below(std::size(sizes))], plan_.largest));
    if (rng_.chance(plan_.largest >= (1 << 20) ? 0.5 : 0.0)) w.length = plan_.largest;
    if (is_atomic(w.opcode)) w.length = 8;
    w.signaled = posted_ + 1 == to_send_ || qp_->sq.free_slots() < 3 || ++silent_ > 6 || rng_.chance(0.6);
    if (w.signaled) silent_ = 0;
    w.imm = uint32_t(rng_.next());
    return w;
}

void Actor::post() {
    if (posted_ == to_send_ || pending_.size() >= 12 || qp_->sq.free_slots() == 0) return;
    Work w = plan_work();
    SendWr wr;
    wr.id = w.tag;
    wr.opcode = w.opcode;
    wr.flags = w.signaled ? abi::kSendSignaled : 0;
    if (rng_.chance(0.1)) wr.flags |= abi::kSendFence;
    if (rng_.chance(0.2)) wr.flags |= abi::kSendSolicited;
    wr.imm_or_inv = w.imm;
    wr.rkey = peer_->window_->rkey;
    const uint32_t pieces = is_atomic(w.opcode) ? 1 : uint32_t(rng_.between(1, 4));
    if (is_read(w.opcode) || is_atomic(w.opcode)) {
        w.sges = carve(*target_, target_cursor_, w.length, pieces);
    } else {
        w.sges = carve(*source_, source_cursor_, w.length, pieces);
        write_sges(w.sges, w.tag);
    }
    if (is_atomic(w.opcode)) {
        wr.remote_addr = peer_->window_->address() + peer_->window_->length - kAtomicArea;
        wr.remote_addr = (wr.remote_addr + 7) / 8 * 8;
        w.expected = atomic_word_;
        if (w.opcode == WrOpcode::atomic_fetch_add) {
            wr.compare_add = rng_.next();
            atomic_word_ += wr.compare_add;
        } else {
            wr.compare_add = rng_.chance(0.5) ? atomic_word_ : rng_.next();
            wr.swap = rng_.next();
            if (wr.compare_add == atomic_word_) atomic_word_ = wr.swap;
        }
        w.changed = atomic_word_;
    } else if (!takes_recv(w.opcode) || is_write(w.opcode)) {
        w.remote = take(remote_cursor_, w.length, peer_->window_->length - kAtomicArea - 8);
        wr.remote_addr = peer_->window_->address() + w.remote;
        // nobody else touches this stretch while the READ is under way
        if (is_read(w.opcode)) paint(peer_->window_->data() + w.remote, w.length, w.tag);
    }
    if (!is_read(w.opcode) && !is_atomic(w.opcode) && w.length <= qp_->cap.max_inline_data && w.length <= 64 &&
        rng_.chance(0.5)) {
        wr.flags |= abi::kSendInline;
        for (uint64_t i = 0; i < w.length; ++i) wr.inline_bytes.push_back(pattern(w.tag, i));
    } else {
        wr.sges = w.sges;
    }
    if (!client_.post_send(*qp_, wr)) broken("post_send refused with %u free slots", qp_->sq.free_slots());
    ++posted_;
    pending_.push_back(w);
    if (takes_recv(w.opcode)) owed_.push_back(w);
}

void Actor::post_recvs() {
    if (starving_ > 0) {
        --starving_;
        return;
    }
    if (rng_.chance(0.02)) {
        starving_ = uint32_t(rng_.below(60));
        return;
    }
    while (recvs_.size() < kRecvWindow && rng_.chance(0.8)) {
        Posted r;
        r.id = next_recv_++;
        r.capacity = plan_.largest + uint32_t(rng_.below(32));
        r.sges = carve(*inbox_, inbox_cursor_, r.capacity, uint32_t(rng_.between(1, 4)));
        for (const Sge& s : r.sges) std::memset(reinterpret_cast<void*>(s.addr), 0xee, s.length);
        const bool ok =
            qp_->srq != nullptr ? client_.post_srq_recv(*qp_->srq, r.id, r.sges) : client_.post_recv(*qp_, r.id, r.sges);
        if (!ok) return;
        recvs_.push_back(r);
    }
}

void Actor::poll() {
    for (Cq* cq : {send_cq_, recv_cq_}) {
        for (auto e = client_.poll(*cq); e; e = client_.poll(*cq)) {
            if (e->qpn != qp_->qpn) broken("completion of QP %u on QP %u's CQ", e->qpn, qp_->qpn);
            e->queue == abi::kCqeSend ? on_send(*e) : on_recv(*e);
        }
        if (send_cq_ == recv_cq_) break;
    }
}

void Actor::check_done(const Work& w) const {
    if (is_read(w.opcode)) {
        if (const int64_t at = wrong_in_sges(w.sges, w.length, w.tag); at >= 0)
            broken("READ %llx of %u bytes: byte %lld is wrong", static_cast<unsigned long long>(w.tag), w.length,
                   static_cast<long long>(at));
    } else if (is_atomic(w.opcode)) {
        uint64_t original;
        std::memcpy(&original, reinterpret_cast<const void*>(w.sges[0].addr), 8);
        if (original != w.expected)
            broken("atomic %llx returned %llx, not %llx", static_cast<unsigned long long>(w.tag),
                   static_cast<unsigned long long>(original), static_cast<unsigned long long>(w.expected));
    } else if (w.opcode == WrOpcode::rdma_write) {
        for (uint64_t i = 0; i < w.length; ++i)
            if (peer_->window_->data()[w.remote + i] != pattern(w.tag, i))
                broken("WRITE %llx of %u bytes: byte %llu is wrong", static_cast<unsigned long long>(w.tag), w.length,
                       static_cast<unsigned long long>(i));
    }
}

void Actor::on_send(const abi::Cqe& e) {
    if (e.status != WcStatus::success)
        broken("QP %u: send %llx completed with status %u (vendor %u), %zu pending", qp_->qpn,
               static_cast<unsigned long long>(e.wr_id), unsigned(e.status), e.vendor_err, pending_.size());
    while (!pending_.empty()) {
        const Work w = pending_.front();
        pending_.pop_front();
        ++completed_;
        check_done(w);
        if (w.tag == e.wr_id) {
            if (e.opcode != send_wc(w.opcode))
                broken("completion opcode %u for request opcode %u", unsigned(e.opcode), unsigned(w.opcode));
            return;
        }
        if (w.signaled) broken("signalled request %llx was skipped", static_cast<unsigned long long>(w.tag));
    }
    broken("completion %llx for nothing that is pending", static_cast<unsigned long long>(e.wr_id));
}

void Actor::check_recv_data(const Work& w, const Posted& r) const {
    if (w.opcode == WrOpcode::rdma_write_imm) {
        for (uint64_t i = 0; i < w.length; ++i)
            if (window_->data()[w.remote + i] != pattern(w.tag, i))
                broken("WRITE_IMM of %u bytes: byte %llu is wrong", w.length, static_cast<unsigned long long>(i));
        if (reinterpret_cast<const uint8_t*>(r.sges[0].addr)[0] != 0xee && r.sges[0].length != 0)
            broken("WRITE_IMM wrote into the receive buffer%s", "");
        return;
    }
    if (const int64_t at = wrong_in_sges(r.sges, w.length, w.tag); at >= 0)
        broken("SEND %llx of %u bytes: byte %lld is wrong", static_cast<unsigned long long>(w.tag), w.length,
               static_cast<long long>(at));
    uint64_t i = 0;
    for (const Sge& s : r.sges)
        for (uint32_t k = 0; k < s.length; ++k, ++i)
            if (i >= w.length && reinterpret_cast<const uint8_t*>(s.addr)[k] != 0xee)
                broken("SEND of %u bytes wrote byte %llu", w.length, static_cast<unsigned long long>(i));
}

void Actor::on_recv(const abi::Cqe& e) {
    if (e.status != WcStatus::success)
        broken("QP %u: receive %llu completed with status %u", qp_->qpn, static_cast<unsigned long long>(e.wr_id),
               unsigned(e.status));
    if (recvs_.empty()) broken("receive completion %llu, but none is posted", static_cast<unsigned long long>(e.wr_id));
    const Posted r = recvs_.front();
    recvs_.pop_front();
    if (e.wr_id != r.id)
        broken("receive %llu completed, %llu was due", static_cast<unsigned long long>(e.wr_id),
               static_cast<unsigned long long>(r.id));
    if (peer_->owed_.empty()) broken("receive %llu completed, but nothing was sent", static_cast<unsigned long long>(e.wr_id));
    const Work w = peer_->owed_.front();
    peer_->owed_.pop_front();
    if (e.byte_len != w.length) broken("receive of %u bytes, %u were sent", e.byte_len, w.length);
    const bool imm = w.opcode != WrOpcode::send;
    if (((e.wc_flags & abi::kWcWithImm) != 0) != imm) broken("immediate flag is wrong%s", "");
    if (imm && e.imm_or_inv != w.imm) broken("immediate is %x, not %x", e.imm_or_inv, w.imm);
    const auto wc = w.opcode == WrOpcode::rdma_write_imm ? abi::WcOpcode::recv_rdma_with_imm : abi::WcOpcode::recv;
    if (e.opcode != wc) broken("receive completion opcode %u", unsigned(e.opcode));
    check_recv_data(w, r);
}

void Actor::act() {
    if (rng_.chance(0.5)) poll();
    if (rng_.chance(0.5)) post_recvs();
    for (uint64_t n = rng_.chance(0.3) ? rng_.below(6) : 0; n > 0; --n) post();
}

void Actor::check_memory() const {
    if (!client_.guards_intact()) broken("memory outside of a registered range was written%s", "");
    uint64_t word;
    const uint64_t at = (peer_->window_->address() + peer_->window_->length - kAtomicArea + 7) / 8 * 8;
    std::memcpy(&word, reinterpret_cast<const void*>(at), 8);
    if (word != atomic_word_)
        broken("the atomic word ended as %llx, not %llx", static_cast<unsigned long long>(word),
               static_cast<unsigned long long>(atomic_word_));
}

std::string Actor::state() const {
    char t[200];
    std::snprintf(t, sizeof t, "  QP %u engine %u: posted %u/%u, pending %zu, owed to the peer %zu, receives posted %zu\n",
                  qp_->qpn, qp_->engine, posted_, to_send_, pending_.size(), owed_.size(), recvs_.size());
    return t;
}

// ---- one world ------------------------------------------------------------------------------------------------------

PathOptions make_path(Rng& rng, const Plan& plan) {
    PathOptions o;
    o.mtu = uint32_t(rng.between(1, 5));
    o.gid_index = uint32_t(rng.below(2));
    o.psn = rng.chance(0.3) ? uint32_t(0xffffff - rng.below(40)) : uint32_t(rng.below(1 << 24));
    o.peer_psn = rng.chance(0.3) ? uint32_t(0xffffff - rng.below(40)) : uint32_t(rng.below(1 << 24));
    // An engine that takes frames slowly has long queues; a timeout shorter than they are would retransmit for ever.
    const bool slow = plan.world.round_cost / plan.world.engine.rx_burst > 100;
    o.timeout = uint8_t(rng.between(7, 10) + (slow ? 4 : 0));
    o.retry_cnt = 7;
    o.rnr_retry = 7;
    o.min_rnr_timer = uint8_t(rng.between(1, 8));
    o.max_rd_atomic = uint8_t(rng.pick(1, 2, 4, 16));
    o.max_dest_rd_atomic = o.max_rd_atomic;
    return o;
}

class Run {
public:
    Run(uint64_t seed, bool trace) : rng_(seed), plan_(make_plan(rng_, seed)), world_(plan_.world), trace_(trace) {
        world_.net().keep_capture(trace);
        world_.net().spread_by_chance(plan_.spread_by_chance);
        result_.summary = plan_.text();
    }

    WorkloadResult go() {
        try {
            build();
            drive();
            for (auto& a : actors_) a->check_memory();
            settle();
        } catch (const std::exception& e) {
            result_.failure = e.what();
            result_.failure += "\n";
            for (auto& a : actors_)
                if (!a->finished()) result_.failure += a->state();
        }
        finish();
        return result_;
    }

private:
    void build() {
        Host& left = world_.host(0);
        Host& right = world_.host(world_.hosts() - 1);
        const uint32_t right_device = world_.hosts() == 1 ? 1 : 0;
        for (uint32_t l = 0; l < plan_.links; ++l) {
            actors_.push_back(std::make_unique<Actor>(world_, left, 0, plan_, rng_.fork()));
            actors_.push_back(std::make_unique<Actor>(world_, right, right_device, plan_, rng_.fork()));
        }
        for (uint32_t l = 0; l < plan_.links; ++l) {
            Actor& a = *actors_[2 * l];
            Actor& b = *actors_[2 * l + 1];
            PathOptions o = make_path(rng_, plan_);
            a.join(b, o);
            b.join(a, o);
            connect(a.client(), const_cast<Qp&>(a.qp()), b.client(), const_cast<Qp&>(b.qp()), o);
        }
        world_.net().set_faults(plan_.faults);
    }

    bool finished() const {
        for (const auto& a : actors_)
            if (!a->finished()) return false;
        return true;
    }
    uint64_t progress() const {
        uint64_t n = 0;
        for (const auto& a : actors_) n += a->done();
        return n;
    }

    void drive() {
        constexpr Nanos kHang = 20'000'000'000;  // virtual; longer than any chain of timeouts that may be
        uint64_t last = 0;
        Nanos since = world_.now();
        while (!finished()) {
            for (auto& a : actors_) a->act();
            if (plan_.blackouts && rng_.chance(0.001))
                world_.net().blackout(uint32_t(rng_.below(2)), world_.now() + rng_.below(1'500'000));
            world_.run_for(rng_.pick<uint64_t>(300, 1000, 5000, 50'000));
            if (progress() != last) {
                last = progress();
                since = world_.now();
            }
            if (world_.now() - since > kHang)
                broken("no progress for %llu virtual seconds", static_cast<unsigned long long>(kHang / 1'000'000'000));
            if (world_.rounds() > 20'000'000) broken("too many rounds%s", "");
        }
    }

    /// After the work is done the network is healed; nothing more may happen, and nothing may be left.
    void settle() {
        world_.net().set_faults({});
        if (!world_.run_idle(5'000'000'000)) broken("the world does not come to rest%s", "");
        for (auto& a : actors_) {
            a->act();
            if (!a->client().guards_intact()) broken("memory outside of a registered range was written%s", "");
        }
    }

    void finish() {
        result_.messages = progress();
        result_.frames = world_.net().frames();
        result_.lost = world_.net().lost();
        result_.virtual_ns = world_.now();
        result_.rounds = world_.rounds();
        if (trace_ && !result_.failure.empty()) {
            const auto& all = world_.net().capture();
            for (size_t i = all.size() > 400 ? all.size() - 400 : 0; i < all.size(); ++i)
                std::fprintf(stderr, "%s\n", all[i].text().c_str());
        }
        const std::string left = world_.shut_down();
        if (result_.failure.empty()) result_.failure = left;
    }

    Rng rng_;
    Plan plan_;
    World world_;
    bool trace_;
    std::vector<std::unique_ptr<Actor>> actors_;
    WorkloadResult result_;
};

}  // namespace

WorkloadResult run_workload(uint64_t seed, bool trace) { return Run(seed, trace).go(); }

}  // namespace roci::sim
