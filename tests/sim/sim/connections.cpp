// Load of connections. Programs repeatedly connect by rdma_cm, send messages and disconnect. If the load is not
// strict, programs also reject requests, destroy their ids at random times, and are killed. The load checks four
// rules. The events of an id have a legal order. Private data is complete. A REQ arrives once. A message that has
// completed at the sender has arrived.
#include <infiniband/verbs.h>

#include <cstring>
#include <set>

#include "abi/cm_control.hpp"
#include "host/rdma_cm/service.hpp"
#include "sim/load.hpp"

namespace roci::sim {
namespace {

using abi::Op;
using Kind = host::rdma_cm::CmEventType;

constexpr uint32_t kTcp = 0x106;
constexpr uint16_t kPort = 7174;
constexpr uint32_t kMostMessages = 4, kLinks = 3, kPlaces = 32;
constexpr uint32_t kInit = 0, kRtr = 1, kRts = 2;  ///< indices of CmEventReply::qp

/// One attempt to connect. The first three members are the private data of the REQ.
struct Attempt {
    uint32_t number = 0, messages = 0, length = 0;
    uint32_t requests = 0;     ///< number of times that the listening program got the REQ
    uint32_t sent = 0;         ///< messages that completed with success at the caller
    uint32_t arrived = 0;      ///< messages that the callee received
    bool established = false;  ///< the connection is established at the caller
    bool disturbed = false;    ///< a program rejected the attempt, destroyed one of its ids, or was killed
    uint64_t tag(uint32_t message) const { return uint64_t{number} << 8 | message; }
};
/// State that remains after a program is killed.
struct Shared {
    std::deque<Attempt> attempts;
    std::set<uint32_t> qpns;  ///< QPNs of all QPs created so far
};

enum class Step : uint8_t { resolving, routing, connecting, answered, requested, accepted, connected, leaving, ended, over };

struct Rule {
    Step from;
    Kind event;
    Step to;
    /// Legal only if the load is not strict. In such a load, programs disturb attempts, or the network loses many
    /// frames.
    bool disturbed;
};
/// The legal events of an id, as rdma_get_cm_event(3) describes them.
constexpr Rule kRules[] = {
    {Step::resolving, Kind::addr_resolved, Step::routing, false},
    {Step::routing, Kind::route_resolved, Step::connecting, false},
    {Step::connecting, Kind::connect_response, Step::answered, false},
    {Step::connecting, Kind::rejected, Step::ended, true},
    {Step::connecting, Kind::unreachable, Step::ended, true},
    {Step::answered, Kind::rejected, Step::ended, true},
    {Step::answered, Kind::disconnected, Step::ended, true},
    {Step::requested, Kind::rejected, Step::ended, true},
    {Step::requested, Kind::disconnected, Step::ended, true},
    {Step::accepted, Kind::established, Step::connected, false},
    {Step::accepted, Kind::rejected, Step::ended, true},
    {Step::accepted, Kind::unreachable, Step::ended, true},
    {Step::accepted, Kind::disconnected, Step::ended, false},  // the DREQ arrived before the RTU
    {Step::connected, Kind::disconnected, Step::ended, false},
    {Step::leaving, Kind::disconnected, Step::ended, false},
    {Step::ended, Kind::timewait_exit, Step::over, false},
};

/// One id and its queue pair.
struct Link {
    uint32_t id = 0;
    Attempt* attempt = nullptr;
    Step step = Step::resolving;
    Qp* qp = nullptr;
    uint32_t place = 0;  ///< index that determines the buffers of the id in the program's memory
    uint32_t posted = 0, completed = 0;
    bool failed = false;
    abi::CmQpAttrReply attributes[3]{};
};

/// A program with an event channel. If `strict` is true, no program disturbs a connection.
class Program {
public:
    Program(Host& host, uint32_t device, Shared& shared, uint32_t largest, bool strict, Rng rng)
        : rng_(rng),
          shared_(shared),
          largest_(largest),
          strict_(strict),
          device_(device),
          client_(host, device),
          pd_(client_.alloc_pd()),
          cq_(client_.create_cq(2 * kPlaces * kMostMessages)),
          mr_(client_.reg_mr(pd_, uint64_t{kPlaces} * kMostMessages * largest)) {
        abi::HandleReply r{};
        must(client_.try_call(Op::cm_open_channel, abi::Empty{}, r), "cm_open_channel");
        channel_ = r.handle;
        for (uint32_t p = 0; p < kPlaces; ++p) places_.insert(p);
    }
    virtual ~Program() = default;
    Client& client() { return client_; }
    uint64_t events() const { return events_; }
    size_t links() const { return links_.size(); }
    /// Marks all attempts of this program as disturbed, so that they may fail.
    void disturb_all() {
        for (auto& [id, link] : links_) link.attempt->disturbed = true;
    }
    void poll() {
        for (auto e = client_.poll(cq_); e; e = client_.poll(cq_))
            if (Link* link = by_qpn(e->qpn)) on_completion(*link, *e);
        abi::CmEventReply e{};
        while (client_.try_call(Op::cm_get_event, abi::HandleRequest{channel_, 0}, e) == 0) {
            ++events_;
            on_event(e);
        }
    }
    void check_end() const {
        if (!client_.guards_intact()) broken("memory outside of a registered range was written");
    }
    std::string state() const {
        std::string all;
        for (const auto& [id, l] : links_)
            all += "  id " + std::to_string(id) + " attempt " + std::to_string(l.attempt->number) + " step " +
                   std::to_string(int(l.step)) + " completed " + std::to_string(l.completed) + "\n";
        return all;
    }

protected:
    virtual void on_completion(Link& link, const abi::Cqe& e) = 0;
    virtual void on_step(Link& link, const abi::CmEventReply& e) = 0;
    virtual void on_request(const abi::CmEventReply& e) = 0;

    void must(int error, const char* what) {
        if (error != 0) broken("%s: %s: %s", what, std::strerror(error), client_.reason().c_str());
    }
    uint32_t create_id() {
        abi::HandleReply r{};
        must(client_.try_call(Op::cm_create_id, abi::CmCreateIdRequest{channel_, kTcp, IBV_QPT_RC, 0}, r), "cm_create_id");
        return r.handle;
    }
    Link& add_link(uint32_t id, Attempt& attempt, Step step) {
        const auto [at, fresh] = links_.try_emplace(id);
        if (!fresh) broken("id %u was handed out twice", id);
        at->second.id = id;
        at->second.attempt = &attempt;
        at->second.step = step;
        return at->second;
    }
    bool has_place() const { return !places_.empty(); }
    void create_qp(Link& link) {
        link.place = *places_.begin();
        places_.erase(places_.begin());
        link.qp = &client_.create_qp(pd_, cq_, cq_, {.max_send_wr = kMostMessages, .max_recv_wr = kMostMessages});
        shared_.qpns.insert(link.qp->qpn);
        apply(link, kInit);
    }
    void destroy_qp(Link& link) {
        if (link.qp == nullptr) return;
        client_.destroy_qp(*link.qp);
        link.qp = nullptr;
        places_.insert(link.place);
    }
    /// Moves the QP to `state` with the attributes of the last event, as librdmacm does.
    void apply(Link& link, uint32_t state) {
        const abi::CmQpAttrReply& a = link.attributes[state];
        if (a.mask == 0) broken("no attributes for QP state %u at step %d", state + 1, int(link.step));
        must(client_.try_modify(*link.qp, a.mask, a.attr), "modify_qp by the attributes of rdma_cm");
    }
    /// Destroys the id. Marks an attempt that has not ended as disturbed.
    void destroy(Link& link) {
        if (link.step != Step::ended && link.step != Step::over) link.attempt->disturbed = true;
        if (rng_.chance(0.5)) destroy_qp(link);
        abi::CmEventsReply r{};
        must(client_.try_call(Op::cm_destroy_id, abi::HandleRequest{link.id, 0}, r), "cm_destroy_id");
        destroy_qp(link);
        links_.erase(link.id);
    }
    int call(Op op, uint32_t id) { return client_.try_call(op, abi::HandleRequest{id, 0}); }
    /// Checks the errno of a call. If the program is not strict, EINVAL is legal, because the other end may have
    /// ended the connection.
    void must_unless_disturbed(const Link& link, int error, const char* what) {
        if (error != 0 && (strict_ || error != EINVAL)) must(error, what);
        (void)link;
    }
    Link* by_qpn(uint32_t qpn) {
        for (auto& [id, link] : links_)
            if (link.qp != nullptr && link.qp->qpn == qpn) return &link;
        return nullptr;
    }
    uint64_t offset(const Link& link, uint32_t message) const {
        return (uint64_t{link.place} * kMostMessages + message) * largest_;
    }
    uint8_t* bytes(const Link& link, uint32_t message) const { return mr_.data() + offset(link, message); }
    Sge sge(const Link& link, uint32_t message, uint32_t length) const {
        return {mr_.address() + offset(link, message), length, mr_.lkey};
    }

    Rng rng_;
    Shared& shared_;
    const uint32_t largest_;
    const bool strict_;
    const uint32_t device_;
    Client client_;
    uint32_t pd_, channel_ = 0;
    Cq& cq_;
    Mr& mr_;
    std::map<uint32_t, Link> links_;
    std::set<uint32_t> places_;
    uint64_t events_ = 0;

private:
    void on_event(const abi::CmEventReply& e) {
        if (Kind(e.event) == Kind::connect_request) return on_request(e);
        const auto at = links_.find(e.id);
        if (at == links_.end()) broken("event %u for id %u, which does not exist", e.event, e.id);
        Link& link = at->second;
        for (const Rule& r : kRules) {
            if (r.from != link.step || r.event != Kind(e.event)) continue;
            if (r.disturbed && strict_) break;
            link.step = r.to;
            std::copy(std::begin(e.qp), std::end(e.qp), link.attributes);
            return on_step(link, e);
        }
        broken("event %u (status %d) at step %d of attempt %u", e.event, e.status, int(link.step), link.attempt->number);
    }
};

// ---- the caller ----------------------------------------------------------------------------------------------------

class Caller final : public Program {
public:
    using Program::Program;
    /// Runs one step of the caller. `left` is the number of attempts that the caller has not started yet.
    void act(const Peer& server, uint32_t& left) {
        poll();
        if (left > 0 && links_.size() < kLinks && rng_.chance(0.3)) {
            --left;
            call_up(server);
        }
        for (auto at = links_.begin(); at != links_.end();) {
            Link& link = (at++)->second;  // destroy() erases the link
            if (!strict_ && rng_.chance(0.004))
                destroy(link);
            else
                advance(link);
        }
    }

private:
    void call_up(const Peer& server) {
        Attempt& a = shared_.attempts.emplace_back();
        a.number = uint32_t(shared_.attempts.size() - 1);
        a.messages = uint32_t(rng_.below(kMostMessages + 1));
        a.length = uint32_t(rng_.below(largest_ + 1));
        Link& link = add_link(create_id(), a, Step::resolving);
        abi::CmResolveRequest r{};
        r.id = link.id;
        r.timeout_ms = 1000;
        r.source = host::rdma_cm::to_address(client_.host().device(device_).gids.at(server.gid.is_ipv4() ? 0 : 1), 0);
        r.dest = host::rdma_cm::to_address(server.gid, kPort);
        std::copy(server.mac.bytes.begin(), server.mac.bytes.end(), r.mac);
        must(client_.try_call(Op::cm_resolve_addr, r), "cm_resolve_addr");
    }
    void on_request(const abi::CmEventReply&) override { broken("a caller got a connection request"); }
    void on_step(Link& link, const abi::CmEventReply& e) override {
        if (link.step == Step::routing) must(call(Op::cm_resolve_route, link.id), "cm_resolve_route");
        if (link.step == Step::connecting) connect(link);
        if (link.step == Step::answered && std::memcmp(e.param.private_data, &link.attempt->number, 4) != 0)
            broken("attempt %u: the private data of the REP is wrong", link.attempt->number);
    }
    void connect(Link& link) {
        create_qp(link);
        abi::CmConnectRequest r{};
        r.id = link.id;
        r.param.qpn = link.qp->qpn;
        r.param.responder_resources = r.param.initiator_depth = 2;
        r.param.retry_count = r.param.rnr_retry_count = 7;
        r.param.private_length = 3 * sizeof(uint32_t);
        std::memcpy(r.param.private_data, link.attempt, r.param.private_length);
        must(client_.try_call(Op::cm_connect, r), "cm_connect");
    }
    void advance(Link& link) {
        if (link.step == Step::answered && rng_.chance(0.5)) establish(link);
        if (link.step == Step::connected) work(link);
        if (link.step == Step::ended) destroy_qp(link);
        if (link.step == Step::over || (link.step == Step::ended && rng_.chance(0.1))) destroy(link);
    }
    void establish(Link& link) {
        apply(link, kRtr);
        apply(link, kRts);
        const int error = call(Op::cm_establish, link.id);
        must_unless_disturbed(link, error, "cm_establish");
        if (error != 0) return;  // an event reports the reason
        link.step = Step::connected;
        link.attempt->established = true;
    }
    void work(Link& link) {
        Attempt& a = *link.attempt;
        while (link.posted < a.messages && !link.failed && rng_.chance(0.5)) {
            paint(bytes(link, link.posted), a.length, a.tag(link.posted));
            const SendWr wr{.id = a.tag(link.posted), .sges = {sge(link, link.posted, a.length)}};
            if (!client_.post_send(*link.qp, wr)) broken("a request was refused");
            ++link.posted;
        }
        if (!link.failed && link.completed < a.messages) return;
        if (rng_.chance(0.8)) return;
        client_.to_state(*link.qp, IBV_QPS_ERR);
        must_unless_disturbed(link, call(Op::cm_disconnect, link.id), "cm_disconnect");
        link.step = Step::leaving;
    }
    void on_completion(Link& link, const abi::Cqe& e) override {
        Attempt& a = *link.attempt;
        if (e.wr_id != a.tag(link.completed)) broken("attempt %u: a request completed out of order", a.number);
        ++link.completed;
        if (e.status == abi::WcStatus::success) {
            if (link.failed) broken("attempt %u: a request succeeded after one that failed", a.number);
            ++a.sent;
            return;
        }
        if (strict_) broken("attempt %u: request %u failed with status %u", a.number, link.completed - 1, unsigned(e.status));
        link.failed = true;
    }
};

// ---- the callee ----------------------------------------------------------------------------------------------------

class Callee final : public Program {
public:
    Callee(Host& host, uint32_t device, Shared& shared, uint32_t largest, bool strict, Rng rng)
        : Program(host, device, shared, largest, strict, rng) {
        const Gid& gid = host.device(device).gids.at(rng_.below(2));
        address_ = {0, gid, host.device(device).mac};
        const uint32_t id = create_id();
        must(client_.try_call(Op::cm_bind, abi::CmBindRequest{id, 0, host::rdma_cm::to_address(gid, kPort)}), "cm_bind");
        must(client_.try_call(Op::cm_listen, abi::CmListenRequest{id, 16}), "cm_listen");
    }
    const Peer& address() const { return address_; }
    void act() {
        poll();
        for (auto at = links_.begin(); at != links_.end();) {
            Link& link = (at++)->second;  // destroy() erases the link
            if (!strict_ && rng_.chance(0.004))
                destroy(link);
            else
                advance(link);
        }
    }

private:
    void on_request(const abi::CmEventReply& e) override {
        uint32_t seen[3];
        std::memcpy(seen, e.param.private_data, sizeof seen);
        if (seen[0] >= shared_.attempts.size()) broken("a request with unknown private data");
        Attempt& a = shared_.attempts[seen[0]];
        if (seen[1] != a.messages || seen[2] != a.length) broken("attempt %u: the private data of the REQ is wrong", a.number);
        // A REQ may arrive again after the REJ. rocid then treats this delayed copy as a new request.
        if (++a.requests != 1 && !a.disturbed) broken("attempt %u was delivered %u times", a.number, a.requests);
        std::copy(std::begin(e.qp), std::end(e.qp), add_link(e.id, a, Step::requested).attributes);
    }
    void on_step(Link&, const abi::CmEventReply&) override {}
    void advance(Link& link) {
        if (link.step == Step::ended) return leave(link);
        if (link.step == Step::requested && rng_.chance(0.3)) answer(link);
    }
    void answer(Link& link) {
        if (!strict_ && (rng_.chance(0.1) || !has_place())) {
            link.attempt->disturbed = true;
            abi::CmRejectRequest r{};
            r.id = link.id;
            (void)client_.try_call(Op::cm_reject, r);  // the call may fail, because the caller may have ended the attempt
            link.step = Step::over;
            return destroy(link);
        }
        create_qp(link);
        apply(link, kRtr);
        apply(link, kRts);
        for (uint32_t i = 0; i < link.attempt->messages; ++i)
            if (!client_.post_recv(*link.qp, link.attempt->tag(i), {sge(link, i, largest_)})) broken("a receive was refused");
        abi::CmConnectRequest r{};
        r.id = link.id;
        r.param.qpn = link.qp->qpn;
        r.param.responder_resources = r.param.initiator_depth = 2;
        r.param.rnr_retry_count = 7;
        r.param.private_length = 4;
        std::memcpy(r.param.private_data, &link.attempt->number, 4);
        const int error = client_.try_call(Op::cm_accept, r);
        must_unless_disturbed(link, error, "cm_accept");
        if (error == 0) link.step = Step::accepted;
    }
    /// Ends the link after the connection has ended. Every message that has completed at the caller must have
    /// arrived.
    void leave(Link& link) {
        if (link.qp != nullptr) {
            const Attempt& a = *link.attempt;
            if (link.completed < a.sent)
                broken("attempt %u: %u messages arrived, %u completed", a.number, link.completed, a.sent);
            (void)call(Op::cm_disconnect, link.id);  // sends the DREP for the peer's DREQ
            destroy_qp(link);
        }
        if (rng_.chance(0.2)) destroy(link);
    }
    void on_completion(Link& link, const abi::Cqe& e) override {
        Attempt& a = *link.attempt;
        if (e.status != abi::WcStatus::success) return;
        const uint32_t message = link.completed++;
        a.arrived = link.completed;
        if (e.wr_id != a.tag(message)) broken("attempt %u: message %u arrived out of order", a.number, message);
        if (e.byte_len != a.length) broken("attempt %u: message %u has %u bytes", a.number, message, e.byte_len);
        if (first_wrong_byte(bytes(link, message), a.length, a.tag(message)) != -1)
            broken("attempt %u: message %u has wrong bytes", a.number, message);
    }

    Peer address_;
};

// ---- both ----------------------------------------------------------------------------------------------------------

class Connections final : public Load {
public:
    Connections(const Seats& seats, const Plan& plan, Rng rng)
        : seats_(seats),
          rng_(rng),
          largest_(std::min(plan.largest, 8000u)),
          left_(2 + plan.messages / 8),
          strict_(rng_.chance(0.5) && plan.faults.burst == 0 && !plan.blackouts &&
                  plan.faults.drop + plan.faults.corrupt < 0.05) {
        start_caller();
        start_callee();
    }
    void act() override {
        callee_->act();
        caller_->act(callee_->address(), left_);
        if (!strict_ && rng_.chance(0.0005)) kill(caller_), start_caller();
        if (!strict_ && rng_.chance(0.0005)) kill(callee_), start_callee();
        if (done() == last_) return;
        last_ = done();
        since_ = seats_.world.now();
    }
    bool finished() const override { return left_ == 0 && caller_->links() == 0 && callee_->links() == 0; }
    uint64_t done() const override { return ended_ + caller_->events() + callee_->events() + shared_.attempts.size(); }
    bool renews(Qpn qpn) const override { return shared_.qpns.contains(qpn.value); }
    Nanos patience() const override { return 1'000'000'000'000; }
    bool waits() const override { return seats_.world.now() - since_ > 10'000'000; }
    void check_end() override {
        caller_->poll();
        callee_->poll();
        caller_->check_end();
        callee_->check_end();
        for (const Attempt& a : shared_.attempts) {
            if (a.arrived < a.sent && !a.disturbed) broken("attempt %u: a message that completed did not arrive", a.number);
            if (strict_ && (!a.established || a.sent != a.messages)) broken("attempt %u did not come about", a.number);
        }
    }
    std::string state() const override {
        return "  connections: " + std::to_string(left_) + " attempts left\n  caller:\n" + caller_->state() + "  callee:\n" +
               callee_->state();
    }

private:
    void start_caller() {
        caller_ = std::make_unique<Caller>(seats_.left, seats_.left_device, shared_, largest_, strict_, rng_.fork());
    }
    void start_callee() {
        callee_ = std::make_unique<Callee>(seats_.right, seats_.right_device, shared_, largest_, strict_, rng_.fork());
    }
    template <class P>
    void kill(std::unique_ptr<P>& program) {
        program->disturb_all();
        ended_ += program->events();
        program.reset();
    }

    const Seats seats_;
    Rng rng_;
    const uint32_t largest_;
    uint32_t left_;
    const bool strict_;
    Shared shared_;
    std::unique_ptr<Caller> caller_;
    std::unique_ptr<Callee> callee_;
    uint64_t ended_ = 0;  ///< number of events of killed programs
    uint64_t last_ = 0;
    Nanos since_ = 0;
};

}  // namespace

std::unique_ptr<Load> make_connections(const Seats& seats, const Plan& plan, Rng& rng) {
    return std::make_unique<Connections>(seats, plan, rng.fork());
}

}  // namespace roci::sim
