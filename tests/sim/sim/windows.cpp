// Load of memory windows. An owner opens parts of its memory by windows of type 1 and type 2. A user accesses these
// parts by WRITE and READ. A SEND with invalidate, a local invalidate or another bind closes a window. At the end the
// user sometimes accesses a closed window, or an open window with a wrong key. This access must fail. All later
// requests must be flushed once and in order.
#include <infiniband/verbs.h>

#include "sim/load.hpp"

namespace roci::sim {
namespace {

using abi::WcStatus;
using abi::WrOpcode;

enum class State : uint8_t { closed, binding, open, closing };

struct Slot {
    Window window;
    bool type2 = false;
    State state = State::closed;
    uint64_t offset = 0, length = 0;  ///< range in the owner's memory
    uint32_t users = 0;               ///< outstanding requests of the user
    uint32_t uses = 0;                ///< number of requests since the window was opened
};

struct Step {
    uint64_t id = 0;
    WrOpcode opcode{};
    size_t slot = 0;
    uint64_t at = 0;
    uint32_t length = 0;
    std::vector<Sge> sges;
    bool doomed = false;  ///< this request or an earlier request has a wrong key, so this request must fail or be flushed
};

class Windows final : public Load {
public:
    static constexpr uint64_t kPart = 64 * 1024;  ///< bytes of the owner's memory per window

    Windows(const Seats& s, const Plan& plan, Rng& rng)
        : plan_(plan),
          rng_(rng.fork()),
          owner_(s.left, s.left_device),
          user_(s.right, s.right_device),
          owner_pd_(owner_.alloc_pd()),
          user_pd_(user_.alloc_pd()),
          owner_cq_(owner_.create_cq(1024)),
          user_cq_(user_.create_cq(1024)),
          owner_qp_(owner_.create_qp(owner_pd_, owner_cq_, owner_cq_)),
          user_qp_(user_.create_qp(user_pd_, user_cq_, user_cq_)) {
        memory_ = &owner_.reg_mr(owner_pd_, 4 * kPart, memory_options(rng_, 0x1f));
        memory2_ = &user_.reg_mr(user_pd_, 1 << 20, memory_options(rng_, 1));
        pool_ = {.mr = memory2_};
        inbox_ = {.client = &owner_, .qp = &owner_qp_, .pool = {.mr = &owner_.reg_mr(owner_pd_, 8192)}, .capacity = 16};
        for (size_t i = 0; i < 4; ++i) {
            slots_[i].type2 = rng_.chance(0.6);
            slots_[i].window = owner_.alloc_mw(owner_pd_, slots_[i].type2 ? 2 : 1);
        }
        ends_badly_ = rng_.chance(0.3);
        PathOptions o = make_path(rng, plan);
        connect(owner_, owner_qp_, user_, user_qp_, o);
    }

    void act() override {
        if (rng_.chance(0.5)) poll_owner();
        if (rng_.chance(0.5)) poll_user();
        if (rng_.chance(0.5)) inbox_.fill(rng_);
        for (size_t i = 0; i < 4; ++i)
            if (rng_.chance(0.3)) work_on(i);
        // The access in try_closed() fails, and its error would flush outstanding requests. So no request may be
        // outstanding.
        const bool at_rest = owner_steps_.empty() && user_steps_.empty();
        if (ends_badly_ && posted_ >= plan_.messages && at_rest && !doomed_) try_closed();
    }
    bool finished() const override {
        return posted_ >= plan_.messages && owner_steps_.empty() && user_steps_.empty() && (!ends_badly_ || doomed_);
    }
    uint64_t done() const override { return completed_; }
    void check_end() override {
        poll_owner();
        poll_user();
        if (!owner_.guards_intact() || !user_.guards_intact()) broken("memory outside of a registered range was written");
        const uint32_t expected = ends_badly_ ? IBV_QPS_ERR : IBV_QPS_RTS;
        if (user_.query(user_qp_).attr.qp_state != expected)
            broken("the user's QP is in state %u", user_.query(user_qp_).attr.qp_state);
    }
    std::string state() const override {
        char t[200];
        std::snprintf(t, sizeof t, "  windows: posted %u, owner's %zu and user's %zu under way; states %d %d %d %d\n", posted_,
                      owner_steps_.size(), user_steps_.size(), int(slots_[0].state), int(slots_[1].state), int(slots_[2].state),
                      int(slots_[3].state));
        return t;
    }

private:
    void work_on(size_t i) {
        Slot& s = slots_[i];
        if (posted_ >= plan_.messages) return;
        if (s.state == State::closed) return open(i);
        if (s.state != State::open) return;
        if (s.uses >= 2 && s.users == 0 && rng_.chance(0.3)) return close(i);
        if (s.users < 3 && user_steps_.size() < kUnderWay) use(i);
    }
    void post_owner(Step step, SendWr wr) {
        wr.id = step.id = ++next_id_;
        wr.opcode = step.opcode;
        if (!owner_.post_send(owner_qp_, wr)) broken("the owner's send queue is full");
        owner_steps_.push_back(step);
        ++posted_;
    }
    void post_user(Step step, SendWr wr) {
        wr.id = step.id = ++next_id_;
        wr.opcode = step.opcode;
        if (!user_.post_send(user_qp_, wr)) broken("the user's send queue is full");
        user_steps_.push_back(step);
        ++posted_;
    }

    /// Opens a window, or gives an open window of type 1 a new range.
    void open(size_t i) {
        Slot& s = slots_[i];
        s.offset = i * kPart + rng_.below(1000);
        s.length = rng_.between(8, 20'000);
        s.window.rkey = (s.window.rkey & ~0xffu) | uint8_t(s.window.rkey + 1);
        s.state = State::binding;
        SendWr wr;
        wr.remote_addr = memory_->address() + s.offset;
        wr.rkey = s.window.rkey;
        wr.bind_lkey = memory_->lkey;
        wr.bind_length = uint32_t(s.length);
        wr.bind_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        post_owner({.opcode = WrOpcode::bind_mw, .slot = i}, wr);
    }
    void use(size_t i) {
        Slot& s = slots_[i];
        Step step{.opcode = rng_.chance(0.5) ? WrOpcode::rdma_write : WrOpcode::rdma_read, .slot = i};
        // Requests use the three thirds of the window in turn, so no other outstanding request uses the same third.
        const uint64_t third = s.length / 3;
        step.length = uint32_t(third == 0 ? 0 : rng_.between(1, third));
        step.at = s.offset + (s.uses % 3) * third;
        step.sges = pool_.carve(step.length, uint32_t(rng_.between(1, 3)));
        SendWr wr;
        wr.sges = step.sges;
        wr.remote_addr = memory_->address() + step.at;
        wr.rkey = s.window.rkey;
        ++s.uses;
        ++s.users;
        const uint64_t tag = next_id_ + 1;
        if (step.opcode == WrOpcode::rdma_write)
            write_sges(step.sges, tag);
        else
            paint(memory_->data() + step.at, step.length, tag);
        post_user(step, wr);
    }
    void close(size_t i) {
        Slot& s = slots_[i];
        if (!s.type2) return open(i);
        s.state = State::closing;
        SendWr wr;
        wr.imm_or_inv = s.window.rkey;
        if (rng_.chance(0.5)) return post_owner({.opcode = WrOpcode::local_inv, .slot = i}, wr);
        post_user({.opcode = WrOpcode::send_inv, .slot = i}, wr);
    }
    void try_closed() {
        for (size_t i = 0; i < 4; ++i) {
            if (slots_[i].state != State::closed && slots_[i].state != State::open) continue;
            SendWr wr;
            wr.sges = pool_.carve(8, 1);
            wr.remote_addr = memory_->address() + i * kPart;
            // The key is that of a closed window, or it is not the current key of an open window.
            wr.rkey = slots_[i].state == State::closed ? slots_[i].window.rkey
                                                       : (slots_[i].window.rkey & ~0xffu) | uint8_t(slots_[i].window.rkey + 100);
            post_user({.opcode = WrOpcode::rdma_write, .slot = i, .doomed = true}, wr);
            for (uint64_t n = rng_.below(3); n > 0; --n)
                post_user({.opcode = WrOpcode::rdma_write, .slot = i, .doomed = true}, {});
            doomed_ = true;
            return;
        }
    }

    void poll_owner() {
        for (auto e = owner_.poll(owner_cq_); e; e = owner_.poll(owner_cq_)) {
            if (e->queue == abi::kCqeSend)
                on_owner(*e);
            else
                on_invalidated(*e);
        }
        resize_by_chance(rng_, owner_, owner_cq_);
    }
    void on_owner(const abi::Cqe& e) {
        if (owner_steps_.empty() || owner_steps_.front().id != e.wr_id)
            broken("owner: %llu completed out of order", ull(e.wr_id));
        const Step step = owner_steps_.front();
        owner_steps_.pop_front();
        ++completed_;
        const bool bind = step.opcode == WrOpcode::bind_mw;
        if (e.status != WcStatus::success)
            broken("%s completed with status %u", bind ? "bind" : "invalidate", unsigned(e.status));
        if (e.opcode != (bind ? abi::WcOpcode::bind_mw : abi::WcOpcode::local_inv)) broken("wrong completion opcode");
        slots_[step.slot].state = bind ? State::open : State::closed;
        slots_[step.slot].uses = 0;
    }
    void on_invalidated(const abi::Cqe& e) {
        inbox_.take(e.wr_id);
        if (e.status == WcStatus::wr_flush_err && doomed_) return;
        if (e.status != WcStatus::success || (e.wc_flags & abi::kWcWithInv) == 0)
            broken("SEND with invalidate: status %u, flags %u", unsigned(e.status), unsigned(e.wc_flags));
        for (const Slot& s : slots_)
            if (s.window.rkey == e.imm_or_inv && s.state == State::closing) return;
        // The user may have polled the completion of its SEND before. Then the owner may already have opened the window again.
        for (const Slot& s : slots_)
            if ((s.window.rkey & ~0xffu) == (e.imm_or_inv & ~0xffu)) return;
        broken("R_Key %x was invalidated, which nobody asked for", e.imm_or_inv);
    }

    void poll_user() {
        for (auto e = user_.poll(user_cq_); e; e = user_.poll(user_cq_)) on_user(*e);
        resize_by_chance(rng_, user_, user_cq_);
    }
    void on_user(const abi::Cqe& e) {
        if (user_steps_.empty() || user_steps_.front().id != e.wr_id) broken("user: %llu completed out of order", ull(e.wr_id));
        const Step step = user_steps_.front();
        user_steps_.pop_front();
        ++completed_;
        if (step.doomed) return on_doomed(e);
        if (e.status != WcStatus::success)
            broken("request %u through an open window: status %u", unsigned(step.opcode), unsigned(e.status));
        Slot& s = slots_[step.slot];
        if (step.opcode == WrOpcode::send_inv) {
            s.state = State::closed;
            return;
        }
        --s.users;
        const int64_t at = step.opcode == WrOpcode::rdma_write ? first_wrong_byte(memory_->data() + step.at, step.length, step.id)
                                                               : wrong_in_sges(step.sges, 0, step.length, step.id);
        if (at >= 0) broken("request %u through a window: byte %lld is wrong", unsigned(step.opcode), static_cast<long long>(at));
    }
    void on_doomed(const abi::Cqe& e) {
        // The QP of the owner refuses the request with one NAK and moves to ERR. If this NAK is lost, the user gets
        // no response.
        const bool nak_lost = !refused_ && e.status == WcStatus::retry_exc_err;
        const WcStatus due = refused_ ? WcStatus::wr_flush_err : WcStatus::rem_access_err;
        if (e.status != due && !nak_lost)
            broken("through a closed window: status %u, %u was due", unsigned(e.status), unsigned(due));
        refused_ = true;
    }

    const Plan& plan_;
    Rng rng_;
    Client owner_, user_;
    uint32_t owner_pd_, user_pd_;
    Cq &owner_cq_, &user_cq_;
    Qp &owner_qp_, &user_qp_;
    Mr *memory_ = nullptr, *memory2_ = nullptr;
    Pool pool_;
    Inbox inbox_;
    Slot slots_[4];
    std::deque<Step> owner_steps_, user_steps_;
    uint64_t next_id_ = 0, completed_ = 0;
    uint32_t posted_ = 0;
    bool ends_badly_ = false, doomed_ = false, refused_ = false;
};

}  // namespace

std::unique_ptr<Load> make_windows(const Seats& s, const Plan& plan, Rng& rng) { return std::make_unique<Windows>(s, plan, rng); }

}  // namespace roci::sim
