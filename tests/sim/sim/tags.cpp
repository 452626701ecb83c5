// Load of tag matching. A sender sends eager, rendezvous and untagged messages while the list of tagged buffers
// changes. Every operation on the list completes. So the order of the completions determines which entry each message
// must match.
#include <infiniband/verbs.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/bytes.hpp"
#include "sim/load.hpp"

namespace roci::sim {
namespace {

using abi::TagOpcode;
using abi::WcOpcode;
using abi::WcStatus;

constexpr uint32_t kTmh = 16, kRndv = 32, kLongestEager = 8000, kMaxTags = 32, kMaxOps = 16;
enum Kind : uint8_t { no_tag = 0, rendezvous = 1, fin = 2, eager = 3 };

struct Message {
    Kind kind = eager;
    uint64_t tag = 0, pattern = 0;
    uint32_t number = 0;  ///< app_ctx of the message
    uint32_t length = 0;  ///< bytes of data
    uint8_t header[kRndv] = {};
};
struct Entry {
    uint64_t id = 0, tag = 0, mask = 0;
    uint32_t handle = 0, capacity = 0;
    uint64_t place = 0;
    bool waits = false;
    std::vector<Sge> sges;
};
struct Operation {
    uint64_t id = 0;
    TagOpcode opcode{};
    uint32_t handle = 0;
    Entry entry;
};

class Tags final : public Load {
public:
    Tags(const Seats& s, const Plan& plan, Rng& rng)
        : plan_(plan),
          rng_(rng.fork()),
          sender_(s.left, s.left_device),
          receiver_(s.right, s.right_device),
          sender_pd_(sender_.alloc_pd()),
          receiver_pd_(receiver_.alloc_pd()),
          sender_cq_(sender_.create_cq(1024)),
          receiver_cq_(receiver_.create_cq(1024)),
          srq_(receiver_.create_tag_srq(receiver_pd_, receiver_cq_, 32, kMaxTags, kMaxOps)),
          sender_qp_(sender_.create_qp(sender_pd_, sender_cq_, sender_cq_)),
          receiver_qp_(receiver_.create_qp(receiver_pd_, receiver_cq_, receiver_cq_, {.srq = &srq_})) {
        const uint64_t room = pool_bytes(plan) + 40 * 300;
        headers_ = {.mr = &sender_.reg_mr(sender_pd_, 64 * (kLongestEager + 64), memory_options(rng_, 0))};
        data_ = {.mr = &sender_.reg_mr(sender_pd_, room, memory_options(rng_, IBV_ACCESS_REMOTE_READ))};
        longest_eager_ = std::min(plan.largest, kLongestEager);
        tagged_ = &receiver_.reg_mr(receiver_pd_, kMaxTags * uint64_t{plan.largest}, memory_options(rng_, 1));
        for (uint64_t i = 0; i < kMaxTags; ++i) places_.push_back(tagged_->address() + i * plan.largest);
        ordinary_ = {.client = &receiver_, .srq = &srq_, .capacity = kLongestEager + kTmh};
        ordinary_.pool = {.mr = &receiver_.reg_mr(receiver_pd_, 40 * (kLongestEager + 128))};
        fins_ = {.client = &sender_, .qp = &sender_qp_, .capacity = kRndv};
        fins_.pool = {.mr = &sender_.reg_mr(sender_pd_, 8192)};
        connect(sender_, sender_qp_, receiver_, receiver_qp_, make_path(rng, plan));
    }

    void act() override {
        if (rng_.chance(0.5)) poll_receiver();
        if (rng_.chance(0.5)) poll_sender();
        if (rng_.chance(0.5)) ordinary_.fill(rng_);
        if (rng_.chance(0.7)) fins_.fill(rng_);
        for (uint64_t n = rng_.chance(0.4) ? rng_.below(5) : 0; n > 0; --n) change_list();
        for (uint64_t n = rng_.chance(0.3) ? rng_.below(5) : 0; n > 0; --n) send();
    }
    bool finished() const override {
        return sent_ >= plan_.messages && pending_.empty() && coming_.empty() && fetching_.empty() && awaited_fins_ == 0 &&
               operations_.empty();
    }
    uint64_t done() const override { return completed_; }
    void check_end() override {
        poll_receiver();
        poll_sender();
        if (!sender_.guards_intact() || !receiver_.guards_intact()) broken("memory outside of a registered range was written");
    }
    std::string state() const override {
        char t[200];
        std::snprintf(t, sizeof t, "  tags: sent %u, pending %zu, coming %zu, fetching %zu, FINs %u, operations %zu, list %zu\n",
                      sent_, pending_.size(), coming_.size(), fetching_.size(), awaited_fins_, operations_.size(), list_.size());
        return t;
    }

private:
    // ---- the sender
    void send() {
        if (sent_ >= plan_.messages || coming_.size() >= kUnderWay || pending_.size() >= kUnderWay) return;
        if (fetching_.size() + awaited_fins_ >= kUnderWay) return;
        Message m;
        m.number = ++sent_;
        m.kind = rng_.pick(eager, eager, rendezvous, rendezvous, no_tag);
        m.tag = rng_.below(6);
        m.pattern = uint64_t{sender_qp_.qpn} << 32 | m.number;
        m.length = uint32_t(rng_.below((m.kind == rendezvous ? plan_.largest : longest_eager_) + 1));
        const uint32_t head = m.kind == rendezvous ? kRndv : kTmh;
        m.header[0] = m.kind;
        store_be<uint32_t>(m.header + 4, m.number);
        store_be<uint64_t>(m.header + 8, m.tag);
        SendWr wr{.id = m.number};
        if (m.kind == rendezvous) {
            const uint64_t at = data_.take(m.length);
            paint(data_.mr->data() + at, m.length, m.pattern);
            store_be<uint64_t>(m.header + 16, data_.mr->address() + at);
            store_be<uint32_t>(m.header + 24, data_.mr->rkey);
            store_be<uint32_t>(m.header + 28, m.length);
        }
        const uint32_t payload = m.kind == rendezvous ? 0 : m.length;
        const uint64_t at = headers_.take(head + payload);
        std::memcpy(headers_.mr->data() + at, m.header, head);
        paint(headers_.mr->data() + at + head, payload, m.pattern);
        wr.sges = {{headers_.mr->address() + at, head + payload, headers_.mr->lkey}};
        if (!sender_.post_send(sender_qp_, wr)) broken("the sender's queue is full");
        pending_.push_back(m);
        coming_.push_back(m);
    }
    void poll_sender() {
        for (auto e = sender_.poll(sender_cq_); e; e = sender_.poll(sender_cq_)) {
            if (e->status != WcStatus::success) broken("sender's completion with status %u", unsigned(e->status));
            e->queue == abi::kCqeSend ? on_sent(*e) : on_fin(*e);
        }
        resize_by_chance(rng_, sender_, sender_cq_);
    }
    void on_sent(const abi::Cqe& e) {
        if (pending_.empty() || pending_.front().number != e.wr_id) broken("message %llu completed out of order", ull(e.wr_id));
        pending_.pop_front();
        ++completed_;
    }
    void on_fin(const abi::Cqe& e) {
        const Posted r = fins_.take(e.wr_id);
        uint8_t bytes[kRndv];
        uint64_t i = 0;
        for (const Sge& s : r.sges)
            for (uint32_t k = 0; k < s.length && i < kRndv; ++k) bytes[i++] = reinterpret_cast<const uint8_t*>(s.addr)[k];
        // The receiver writes the completion of the data before it sends the FIN, so the completion can be polled
        // now.
        poll_receiver();
        const auto m = finished_.find(load_be<uint32_t>(bytes + 4));
        if (e.byte_len != kRndv || bytes[0] != fin || m == finished_.end()) broken("a FIN for no rendezvous that was fetched");
        if (std::memcmp(bytes + 1, m->second.header + 1, kRndv - 1) != 0) broken("a FIN does not repeat its request");
        finished_.erase(m);
        --awaited_fins_;
    }

    // ---- the list
    void change_list() {
        if (operations_.size() >= kMaxOps) return;
        Operation o;
        const bool done = sent_ >= plan_.messages && coming_.empty();
        o.opcode = rng_.pick(TagOpcode::add, TagOpcode::add, TagOpcode::add, TagOpcode::add, TagOpcode::sync, TagOpcode::del);
        if (done || (o.opcode == TagOpcode::add && places_.size() <= kMaxTags / 2)) return;
        abi::TagOp op{};
        op.wr_id = o.id = ++next_operation_;
        op.opcode = o.opcode;
        op.flags = abi::kTagSignaled;
        if (o.opcode == TagOpcode::sync || rng_.chance(0.5)) {
            op.flags |= abi::kTagSync;
            op.unexpected_count = unexpected_;
        }
        if (o.opcode == TagOpcode::add) describe(o.entry, op);
        if (o.opcode == TagOpcode::del && !choose_handle(op.handle)) return;
        if (const int error = receiver_.post_tag(srq_, op); error != 0) broken("post_tag: errno %d", error);
        o.handle = o.entry.handle = op.handle;
        operations_.push_back(o);
    }
    void describe(Entry& entry, abi::TagOp& op) {
        op.recv_wr_id = entry.id = 1'000'000 + op.wr_id;
        op.mask = entry.mask = rng_.pick(~uint64_t{0}, ~uint64_t{0}, uint64_t{1}, uint64_t{0});
        op.tag = entry.tag = rng_.below(6) & (rng_.chance(0.95) ? entry.mask : 7);
        entry.capacity = rng_.chance(0.2) ? longest_eager_ : plan_.largest;
        entry.place = places_.front();
        places_.pop_front();
        const uint64_t pieces = rng_.between(1, abi::kMaxTagSge);
        for (uint64_t i = 0; i < pieces; ++i) {
            const uint64_t from = entry.capacity * i / pieces, to = entry.capacity * (i + 1) / pieces;
            entry.sges.push_back({entry.place + from, uint32_t(to - from), tagged_->lkey});
        }
        empty_sges(entry.sges);
        op.num_sge = uint16_t(entry.sges.size());
        for (size_t i = 0; i < entry.sges.size(); ++i)
            op.sges[i] = {entry.sges[i].addr, entry.sges[i].length, entry.sges[i].lkey};
    }
    /// Chooses the handle of an entry that is in the list, or of the last entry that has left the list.
    bool choose_handle(uint32_t& handle) {
        if (!list_.empty() && rng_.chance(0.7))
            handle = list_[rng_.below(list_.size())].handle;
        else if (last_gone_ != 0)
            handle = last_gone_;
        return handle != 0;
    }
    void on_operation(const abi::Cqe& e) {
        if (operations_.empty() || operations_.front().id != e.wr_id)
            broken("operation %llu completed out of order", ull(e.wr_id));
        const Operation o = operations_.front();
        operations_.pop_front();
        ++completed_;
        const bool out_of_phase = (e.wc_flags & abi::kWcTmSyncReq) != 0;
        if (!out_of_phase)
            for (Entry& entry : list_) entry.waits = false;
        if (o.opcode == TagOpcode::del) return on_deleted(o, e);
        if (e.status != WcStatus::success) broken("operation %u on the list: status %u", unsigned(o.opcode), unsigned(e.status));
        if (o.opcode != TagOpcode::add) return;
        list_.push_back(o.entry);
        list_.back().waits = out_of_phase;
    }
    void on_deleted(const Operation& o, const abi::Cqe& e) {
        const auto at = std::find_if(list_.begin(), list_.end(), [&](const Entry& entry) { return entry.handle == o.handle; });
        const WcStatus due = at != list_.end() ? WcStatus::success : WcStatus::tm_err;
        if (e.status != due) broken("delete of a tag: status %u, %u was due", unsigned(e.status), unsigned(due));
        if (at == list_.end()) return;
        last_gone_ = o.handle;
        places_.push_back(at->place);
        list_.erase(at);
    }

    // ---- the receiver
    void poll_receiver() {
        for (auto e = receiver_.poll(receiver_cq_); e; e = receiver_.poll(receiver_cq_)) {
            const bool operation =
                e->opcode == WcOpcode::tm_add || e->opcode == WcOpcode::tm_del || e->opcode == WcOpcode::tm_sync;
            if (operation)
                on_operation(*e);
            else if (e->queue == abi::kCqeSrq)
                on_ordinary(*e);
            else if ((e->wc_flags & abi::kWcTmMatch) != 0)
                on_match(*e);
            else
                on_data(*e);
        }
        resize_by_chance(rng_, receiver_, receiver_cq_);
    }
    std::deque<Entry>::iterator matching(uint64_t tag) {
        return std::find_if(list_.begin(), list_.end(),
                            [&](const Entry& entry) { return !entry.waits && (tag & entry.mask) == entry.tag; });
    }
    const Message& next_message(const abi::Cqe& e) {
        if (coming_.empty()) broken("message completion %llu, but nothing was sent", ull(e.wr_id));
        if (taken_) broken("a message completed before the one that was matched earlier");
        return coming_.front();
    }
    void message_done() {
        coming_.pop_front();
        ++completed_;
    }
    void on_ordinary(const abi::Cqe& e) {
        if (e.status != WcStatus::success) broken("ordinary receive with status %u", unsigned(e.status));
        const Posted r = ordinary_.take(e.wr_id);
        const Message m = next_message(e);
        const bool unexpected = e.opcode == WcOpcode::tm_recv;
        if (unexpected != (m.kind != no_tag))
            broken("message %u of kind %u completed with opcode %u", m.number, m.kind, unsigned(e.opcode));
        if (unexpected && matching(m.tag) != list_.end())
            broken("message %u is unexpected, but its tag is in the list", m.number);
        const uint32_t head = m.kind == rendezvous ? kRndv : kTmh, payload = m.kind == rendezvous ? 0 : m.length;
        if (e.byte_len != head + payload) broken("ordinary receive of %u bytes, %u were sent", e.byte_len, head + payload);
        const int64_t at = wrong_in_sges(r.sges, head, payload, m.pattern);
        if (at >= 0 || !untouched(r.sges, head + payload))
            broken("message %u, kind %u, of %u bytes: byte %lld is wrong", m.number, unsigned(m.kind), m.length,
                   static_cast<long long>(at));
        if (unexpected) ++unexpected_;
        message_done();
    }
    void on_match(const abi::Cqe& e) {
        const Message m = next_message(e);
        const auto at = matching(m.tag);
        if (m.kind == no_tag || at == list_.end()) broken("message %u matched, but nothing in the list fits", m.number);
        if (at->id != e.wr_id || e.tag != m.tag || e.src_qp != m.number)
            broken("message %u took entry %llu, %llu was the first to fit (tag %llu)", m.number, ull(e.wr_id), ull(at->id),
                   ull(e.tag));
        Entry entry = *at;
        last_gone_ = entry.handle;
        list_.erase(at);
        if (m.kind == eager) return on_eager(e, m, entry);
        if (m.length > entry.capacity) {
            if (e.status != WcStatus::tm_rndv_incomplete)
                broken("rendezvous longer than its buffer: status %u", unsigned(e.status));
            places_.push_back(entry.place);
            return message_done();
        }
        if (e.status != WcStatus::success) broken("rendezvous with status %u", unsigned(e.status));
        fetching_.emplace(entry.id, std::pair{m, entry});
        message_done();
    }
    /// Handles the completion that reports the match of an eager message. If the message has several packets, a later
    /// completion reports its data.
    void on_eager(const abi::Cqe& e, const Message& m, const Entry& entry) {
        taken_ = std::make_unique<Entry>(entry);
        if ((e.wc_flags & abi::kWcTmDataValid) != 0) return on_eager_data(e, m);
        if (e.status != WcStatus::success) broken("eager match with status %u", unsigned(e.status));
    }
    void on_eager_data(const abi::Cqe& e, const Message& m) {
        check_data(e, m, *taken_);
        places_.push_back(taken_->place);
        taken_.reset();
        message_done();
    }
    static void check_data(const abi::Cqe& e, const Message& m, const Entry& entry) {
        if (e.status != WcStatus::success || e.wr_id != entry.id || (e.wc_flags & abi::kWcTmDataValid) == 0)
            broken("data of message %u: status %u, id %llu, flags %u", m.number, unsigned(e.status), ull(e.wr_id),
                   unsigned(e.wc_flags));
        if (e.byte_len != m.length) broken("message %u has %u bytes, not %u", m.number, m.length, e.byte_len);
        const int64_t at = wrong_in_sges(entry.sges, 0, m.length, m.pattern);
        if (at >= 0 || !untouched(entry.sges, m.length))
            broken("data of message %u, kind %u, of %u bytes: byte %lld is wrong", m.number, unsigned(m.kind), m.length,
                   static_cast<long long>(at));
    }
    void on_data(const abi::Cqe& e) {
        if (taken_ && taken_->id == e.wr_id) return on_eager_data(e, Message(coming_.front()));
        const auto at = fetching_.find(e.wr_id);
        if (at == fetching_.end()) broken("data for entry %llu, which matched nothing", ull(e.wr_id));
        check_data(e, at->second.first, at->second.second);
        finished_.emplace(at->second.first.number, at->second.first);
        ++awaited_fins_;
        places_.push_back(at->second.second.place);
        fetching_.erase(at);
        ++completed_;
    }

    const Plan& plan_;
    Rng rng_;
    Client sender_, receiver_;
    uint32_t sender_pd_, receiver_pd_;
    Cq &sender_cq_, &receiver_cq_;
    Srq& srq_;
    Qp &sender_qp_, &receiver_qp_;
    Pool headers_, data_;
    Mr* tagged_ = nullptr;
    std::deque<uint64_t> places_;  ///< free places in the tagged memory
    Inbox ordinary_, fins_;
    uint32_t longest_eager_ = 0;
    std::deque<Message> pending_;       ///< messages whose send completion was not polled yet
    std::deque<Message> coming_;        ///< messages that the receiver has not reported yet
    std::deque<Entry> list_;            ///< the list of entries that results from the completions
    std::deque<Operation> operations_;  ///< posted operations without a completion
    std::unique_ptr<Entry> taken_;      ///< entry of an eager message whose data is still arriving
    /// Rendezvous messages that have matched but whose data is not complete, by entry id.
    std::map<uint64_t, std::pair<Message, Entry>> fetching_;
    std::map<uint32_t, Message> finished_;  ///< rendezvous messages whose data was read and whose FIN has not arrived
    uint32_t sent_ = 0, unexpected_ = 0, awaited_fins_ = 0, last_gone_ = 0;
    uint64_t next_operation_ = 0, completed_ = 0;
};

}  // namespace

std::unique_ptr<Load> make_tags(const Seats& s, const Plan& plan, Rng& rng) { return std::make_unique<Tags>(s, plan, rng); }

}  // namespace roci::sim
