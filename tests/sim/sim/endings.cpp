// Load of endings. At random times programs reset, break and destroy their QPs, deregister memory in use, and are
// killed. Then the programs connect again. Posted requests must complete at most once and in order. If the program
// moved the QP to ERR, every posted request must complete. A message that arrives must have the right bytes.
#include <infiniband/verbs.h>

#include <array>
#include <set>

#include "sim/load.hpp"

namespace roci::sim {
namespace {

using abi::WcStatus;
using abi::WrOpcode;

constexpr uint32_t kSlots =
    16;  ///< slots per area of a program's memory, and maximum number of outstanding requests and receives

/// A program with one QP. One "life" of the program lasts from one connection to the next connection. The program
/// ignores completions of earlier lives.
class Program {
public:
    Program(Host& host, uint32_t device, uint32_t slot, Rng rng)
        : rng_(rng), slot_(slot), client_(host, device), pd_(client_.alloc_pd()), cq_(client_.create_cq(512)) {
        register_memory();
        create_qp();
    }
    Client& client() { return client_; }
    Qp& qp() { return *qp_; }

    void begin(uint64_t life) {
        life_ = life;
        posted_ = completed_ = receives_ = arrived_ = 0;
        failed_ = must_flush_ = false;
        alive_ = memory_kept_ = true;
        messages_.clear();
    }
    /// Posts receives, so that the peer's requests end, and with `sends` also requests.
    void act(Program& peer, bool sends) {
        poll(peer);
        if (!alive_) return;
        while (receives_ - arrived_ < kSlots && rng_.chance(0.7)) post_recv();
        while (sends && peer.alive_ && posted_ - completed_ < kSlots && rng_.chance(0.5)) post_send(peer);
    }
    void poll(const Program& peer) {
        for (auto e = client_.poll(cq_); e; e = client_.poll(cq_)) {
            if (e->wr_id >> 32 != life_) continue;
            e->queue == abi::kCqeSend ? on_send(*e) : on_recv(*e, peer);
        }
    }

    // ---- endings
    void break_qp() {
        client_.to_state(*qp_, IBV_QPS_ERR);
        must_flush_ = alive_ || failed_;
        alive_ = false;
    }
    void reset_qp() {
        client_.to_state(*qp_, IBV_QPS_RESET);
        end_life();
    }
    void destroy_qp() {
        client_.destroy_qp(*qp_);
        create_qp();
        end_life();
    }
    void change_memory() {
        client_.dereg_mr(*mr_);
        register_memory();
        memory_kept_ = false;
    }
    /// Ends the life and moves the QP to RESET. If the program moved the QP to ERR, all posted requests must have
    /// been flushed.
    void end(const Program& peer) {
        poll(peer);
        check_flushed();
        reset_qp();
    }
    void check_end(const Program& peer) {
        poll(peer);
        check_flushed();
        if (!client_.guards_intact()) broken("memory outside of a registered range was written");
    }

private:
    /// The areas of the program's memory: the source of SENDs and WRITEs, the receive buffers, the results of READs,
    /// the target of the peer's WRITEs, and the source of the peer's READs.
    enum Area : uint32_t { source, inbox, readings, written, library, areas };
    struct Request {
        WrOpcode opcode{};
        uint32_t length = 0;
    };

    void create_qp() { qp_ = &client_.create_qp(pd_, cq_, cq_, {.max_send_wr = 2 * kSlots, .max_recv_wr = 2 * kSlots}); }
    void register_memory() {
        mr_ = &client_.reg_mr(pd_, uint64_t{areas} * kSlots * slot_);
        for (uint32_t i = 0; i < kSlots; ++i) paint(bytes(library, i), slot_, i);
    }
    void end_life() { alive_ = must_flush_ = false; }
    uint64_t offset(Area area, uint64_t number) const { return (area * kSlots + number % kSlots) * slot_; }
    uint8_t* bytes(Area area, uint64_t number) const { return mr_->data() + offset(area, number); }
    Sge sge(Area area, uint64_t number, uint32_t length) const {
        return {mr_->address() + offset(area, number), length, mr_->lkey};
    }
    uint64_t id(uint64_t number) const { return life_ << 32 | number; }

    void post_recv() {
        if (!client_.post_recv(*qp_, id(receives_), {sge(inbox, receives_, slot_)})) broken("a receive was refused");
        ++receives_;
    }
    void post_send(const Program& peer) {
        const WrOpcode op = rng_.pick(WrOpcode::send, WrOpcode::rdma_write, WrOpcode::rdma_read);
        const bool read = op == WrOpcode::rdma_read;
        const auto length = uint32_t(rng_.below(slot_ + 1));
        SendWr wr{.id = id(posted_), .opcode = op, .sges = {sge(read ? readings : source, posted_, length)}};
        if (!read) paint(bytes(source, posted_), length, wr.id);
        wr.remote_addr = peer.mr_->address() + offset(read ? library : written, posted_);
        wr.rkey = peer.mr_->rkey;
        if (!client_.post_send(*qp_, wr)) broken("a request was refused");
        requests_[posted_++ % kSlots] = {op, length};
        if (op == WrOpcode::send) messages_.push_back({wr.id, length});
    }
    void on_send(const abi::Cqe& e) {
        const uint64_t number = uint32_t(e.wr_id);
        if (number != completed_ || completed_ == posted_) broken("request %llx completed out of order", ull(e.wr_id));
        const Request r = requests_[completed_++ % kSlots];
        if (e.status != WcStatus::success) {
            failed_ = true;
            alive_ = false;
            return;
        }
        if (failed_) broken("request %llx succeeded after one that failed", ull(e.wr_id));
        if (r.opcode != WrOpcode::rdma_read || !memory_kept_) return;
        if (first_wrong_byte(bytes(readings, number), r.length, number % kSlots) != -1)
            broken("request %llx read wrong bytes", ull(e.wr_id));
    }
    void on_recv(const abi::Cqe& e, const Program& peer) {
        const uint64_t number = uint32_t(e.wr_id);
        if (number != arrived_ || arrived_ == receives_) broken("receive %llx completed out of order", ull(e.wr_id));
        ++arrived_;
        if (e.status != WcStatus::success) {
            alive_ = false;
            return;
        }
        if (peer.life_ != life_) return;  // the peer was killed, and nothing is known about the messages that it had sent
        if (number >= peer.messages_.size()) broken("receive %llx: nobody sent it", ull(e.wr_id));
        const Message& m = peer.messages_[number];
        if (e.byte_len != m.length) broken("receive %llx has %u bytes instead of %u", ull(e.wr_id), e.byte_len, m.length);
        if (memory_kept_ && peer.memory_kept_ && first_wrong_byte(bytes(inbox, number), m.length, m.tag) != -1)
            broken("receive %llx has wrong bytes", ull(e.wr_id));
    }
    void check_flushed() const {
        if (!must_flush_) return;
        if (completed_ != posted_) broken("in ERR %llu of %llu requests completed", ull(completed_), ull(posted_));
        if (arrived_ != receives_) broken("in ERR %llu of %llu receives completed", ull(arrived_), ull(receives_));
    }

    struct Message {
        uint64_t tag = 0;
        uint32_t length = 0;
    };
    Rng rng_;
    const uint32_t slot_;  ///< bytes per slot
    Client client_;
    uint32_t pd_;
    Cq& cq_;
    Mr* mr_ = nullptr;
    Qp* qp_ = nullptr;
    uint64_t life_ = 0, posted_ = 0, completed_ = 0, receives_ = 0, arrived_ = 0;
    std::array<Request, kSlots> requests_{};
    std::vector<Message> messages_;  ///< SENDs of this life
    bool alive_ = false;             ///< the QP is connected, and no request is known to have failed
    bool failed_ = false;            ///< a request failed
    bool must_flush_ = false;        ///< the program moved the QP to ERR
    bool memory_kept_ = true;        ///< the memory was not deregistered since the connection
};

class Endings final : public Load {
public:
    Endings(const Seats& seats, const Plan& plan, Rng rng)
        : seats_(seats), plan_(plan), rng_(rng), slot_(std::min(plan.largest, 20'000u)), wanted_(3 + plan.messages / 8) {
        for (uint32_t side : {0u, 1u}) start(side);
        join();
    }
    void act() override {
        const bool rests = finished() && world().now() >= next_;  // other loads of the world may need seconds
        for (uint32_t side : {0u, 1u}) programs_[side]->act(*programs_[1 - side], !rests);
        if (finished() || world().now() < next_) return;
        // Clang accepts these functions only in a function of the class, where the class is complete.
        using Step = void (*)(Endings&);
        static constexpr Step kSteps[kPhases] = {[](Endings& e) { e.end(); }, [](Endings& e) { e.reset(); },
                                                 [](Endings& e) { e.join(); }};
        kSteps[phase_](*this);
        phase_ = (phase_ + 1) % kPhases;
        next_ = world().now() + (phase_ == 0 ? rng_.below(400'000) : kRest);
    }
    bool finished() const override { return endings_ == wanted_ && phase_ == 0; }
    uint64_t done() const override { return endings_; }
    bool renews(Qpn qpn) const override { return renewed_.contains(qpn.value); }
    void check_end() override {
        for (uint32_t side : {0u, 1u}) programs_[side]->check_end(*programs_[1 - side]);
    }
    std::string state() const override {
        return "  endings: " + std::to_string(endings_) + " of " + std::to_string(wanted_) + "\n";
    }

private:
    /// Time between the steps of an ending. A flush takes less time than this. Frames leave the network in less time
    /// than this, so no frame of an earlier connection arrives in a later connection of the same QPs.
    static constexpr Nanos kRest = 2'000'000;
    static constexpr uint32_t kPhases = 3;

    World& world() { return seats_.world; }
    void start(uint32_t side) {
        programs_[side].reset();
        Host& host = side == 0 ? seats_.left : seats_.right;
        programs_[side] =
            std::make_unique<Program>(host, side == 0 ? seats_.left_device : seats_.right_device, slot_, rng_.fork());
    }
    void join() {
        Program &a = *programs_[0], &b = *programs_[1];
        PathOptions o = make_path(rng_, plan_);
        o.retry_cnt = uint8_t(rng_.below(8));
        o.rnr_retry = uint8_t(rng_.below(8));
        ++life_;
        for (Program* p : {&a, &b}) {
            p->begin(life_);
            renewed_.insert(p->qp().qpn);
        }
        connect(a.client(), a.qp(), b.client(), b.qp(), o);
    }
    void reset() {
        for (uint32_t side : {0u, 1u}) programs_[side]->end(*programs_[1 - side]);
    }
    void end() {
        const auto side = uint32_t(rng_.below(2));
        Program& p = *programs_[side];
        switch (rng_.below(5)) {
            case 0:
                p.break_qp();
                break;
            case 1:
                p.reset_qp();
                break;
            case 2:
                p.destroy_qp();
                break;
            case 3:
                p.change_memory();
                break;
            default:
                start(side);
        }
        if (rng_.chance(0.3)) programs_[1 - side]->break_qp();
        ++endings_;
    }

    const Seats seats_;
    const Plan& plan_;
    Rng rng_;
    const uint32_t slot_, wanted_;
    std::array<std::unique_ptr<Program>, 2> programs_;
    std::set<uint32_t> renewed_;
    uint64_t life_ = 0;
    uint32_t endings_ = 0;
    uint32_t phase_ = 0;  ///< number of the next step
    Nanos next_ = 0;
};

}  // namespace

std::unique_ptr<Load> make_endings(const Seats& seats, const Plan& plan, Rng& rng) {
    return std::make_unique<Endings>(seats, plan, rng.fork());
}

}  // namespace roci::sim
