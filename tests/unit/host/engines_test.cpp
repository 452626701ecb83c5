// Tests of the conductor (rocid's control thread) with real engines, and a test with hostile clients that send random requests.
#include "engine/engine.hpp"

#include <random>

#include "abi/client_rings.hpp"
#include "fixture.hpp"
#include "host/sessions/dispatch.hpp"
#include "qp/state.hpp"

namespace roci::host::test {
namespace {

using abi::Op;

/// A port that drops all frames.
class Sink : public io::Port {
public:
    unsigned rx_burst(io::RxFrame*, unsigned) override { return 0; }
    void rx_free(io::RxFrame*, unsigned) override {}
    unsigned tx_alloc(io::TxFrame* f, unsigned n) override {
        for (unsigned i = 0; i < n; ++i) f[i] = {new uint8_t[wire::kMaxFrame], wire::kMaxFrame, 0, nullptr};
        return n;
    }
    unsigned tx_burst(io::TxFrame* f, unsigned n) override {
        tx_free(f, n);
        sent += n;
        return n;
    }
    void tx_free(io::TxFrame* f, unsigned n) override {
        for (unsigned i = 0; i < n; ++i) delete[] f[i].data;
    }
    uint64_t sent = 0;
};

struct Engines : engine::CommandPort {
    explicit Engines(qp::Shared& shared) {
        shared.handover = std::make_unique<io::HandoverMatrix>(2);
        for (uint32_t e = 0; e < 2; ++e) {
            engine::Config config;
            config.index = e;
            config.event_ring = 16;  // small, so that events wait inside the engines
            ports[e] = {&sinks[e * 2], &sinks[e * 2 + 1]};
            engine[e] = std::make_unique<engine::Engine>(config, shared, ports[e]);
        }
    }
    uint32_t engines() const override { return 2; }
    engine::Ticket submit(uint32_t e, const engine::Command& c) override {
        engine[e]->execute(c, now);
        return 0;
    }
    void wait(uint32_t, engine::Ticket) override {}
    void fence_all() override {
        for (auto& e : engine) e->let_go();
    }
    void poll(int rounds) {
        for (int i = 0; i < rounds; ++i, now += 10'000) {
            for (auto& e : engine) e->poll(now);
        }
    }
    void drain_events() {
        for (auto& e : engine) {
            io::Event event;
            while (e->events().pop(event)) {
            }
        }
    }
    Nanos now = 1000;
    Sink sinks[4];
    std::array<io::Port*, 2> ports[2];
    std::unique_ptr<engine::Engine> engine[2];
};

class EnginesTest : public ::testing::Test {
protected:
    EnginesTest()
        : shared(256, 512, 64, 2), engines(shared), conductor(small_limits(), two_devices(), shared, engines, platform) {
        platform.backed = true;
    }
    template <class T>
    Result call(Op op, const T& body) {
        Result r = send(conductor, session, packet(op, bytes_of(body)));
        chunks.insert(chunks.end(), r.chunks.begin(), r.chunks.end());
        return r;
    }
    void open() {
        session = conductor.open_session({});
        ASSERT_EQ(call(Op::hello, good_hello()).error, 0);
        ASSERT_EQ(call(Op::open_device, abi::OpenDeviceRequest{}).error, 0);
    }

    qp::Shared shared;
    MemoryPlatform platform;
    Engines engines;
    Conductor conductor;
    uint32_t session = 0;
    std::vector<std::byte*> chunks;
};

TEST_F(EnginesTest, AResizedCqKeepsItsEntriesInOrder) {
    open();
    const auto made = call(Op::create_cq, abi::CreateCqRequest{8, abi::kNoHandle, 0, 0}).as<abi::CreateCqReply>();
    const uint32_t pd = call(Op::alloc_pd, abi::HandleRequest{}).as<abi::HandleReply>().handle;
    abi::CreateQpRequest want{};
    want.pd = pd;
    want.type = IBV_QPT_RC;
    want.send_cq = want.recv_cq = made.handle;
    want.srq = abi::kNoHandle;
    const auto qp = call(Op::create_qp, want).as<abi::CreateQpReply>();
    rings::Cq& ring = *shared.qps.find(qp.qpn)->spec.send_cq;

    abi::CqConsumer client;
    const auto map = [&](const abi::CreateCqReply& r) {
        std::byte* base = chunks.at(r.where.chunk) + r.where.offset;
        client = {};
        client.shared = reinterpret_cast<abi::CqShared*>(base);
        client.lane_base = base + sizeof(abi::CqShared);
        client.lanes = r.lanes;
        client.depth = r.depth;
    };
    const auto push = [&](uint32_t lane, uint64_t id) {
        abi::Cqe e{};
        e.wr_id = id;
        rings::Completions completions;
        const rings::PushResult result = rings::push(ring, lane, e, completions);
        completions.write_out();
        return result;
    };
    const auto poll = [&] {
        std::vector<uint64_t> ids;
        while (const abi::Cqe* e = client.peek()) {
            ids.push_back(e->wr_id);
            client.pop();
        }
        return ids;
    };
    map(made);
    for (uint64_t id : {1, 2, 3, 4, 5}) EXPECT_EQ(push(0, id), rings::PushResult::ok);
    for (uint64_t id : {101, 102, 103}) EXPECT_EQ(push(1, id), rings::PushResult::ok);
    for (int i = 0; i < 2; ++i) client.peek(), client.pop();  // polls entries 1 and 2 of lane 0 (the CQ's part for engine 0)
    client.arm(false);
    const uint32_t armed = client.shared->arm;

    const auto resize = [&](uint32_t cqe) {
        abi::ResizeCqRequest in{.handle = made.handle, .cqe = cqe};
        std::copy(client.index, client.index + made.lanes, in.consumer);
        return call(Op::resize_cq, in);
    };
    EXPECT_EQ(resize(2).error, EINVAL) << "three entries wait in each lane";
    const Result shrunk = resize(4);
    ASSERT_EQ(shrunk.error, 0) << shrunk.reason;
    EXPECT_EQ(shrunk.as<abi::CreateCqReply>().depth, 4u);
    map(shrunk.as<abi::CreateCqReply>());
    EXPECT_EQ(client.shared->arm, armed) << "still armed";
    EXPECT_EQ(push(0, 6), rings::PushResult::ok);
    EXPECT_EQ(poll(), (std::vector<uint64_t>{3, 4, 5, 6, 101, 102, 103}));
    ASSERT_EQ(resize(64).error, 0);
    for (uint32_t i = 0; i < 5; ++i) EXPECT_EQ(push(1, i), rings::PushResult::ok) << "room for more";

    abi::ResizeCqRequest lie{.handle = made.handle, .cqe = 64};
    lie.consumer[0] = 12345;
    EXPECT_EQ(call(Op::resize_cq, lie).error, EINVAL);
    conductor.close_session(session, engines.now);
    EXPECT_TRUE(platform.clean());
}

TEST_F(EnginesTest, AnEngineWithFramesHandedToItDoesNotSleep) {
    engine::Engine& e = *engines.engine[1];
    e.poll(engines.now);
    EXPECT_GT(e.next_deadline(engines.now), engines.now);
    shared.handover->lane(0, 1).there.push({});
    EXPECT_LE(e.next_deadline(engines.now), engines.now);
    EXPECT_TRUE(e.doorbell_pending());
    EXPECT_TRUE(e.poll(engines.now));
    EXPECT_GT(e.next_deadline(engines.now), engines.now);
}

TEST_F(EnginesTest, ACqThatWaitsForTheEventRingCanGo) {
    open();
    const uint32_t channel = call(Op::create_channel, abi::HandleRequest{}).as<abi::HandleReply>().handle;
    const uint32_t pd = call(Op::alloc_pd, abi::HandleRequest{}).as<abi::HandleReply>().handle;
    // More armed CQs get flushed work requests than the event ring can hold. The other events wait inside the
    // engines.
    for (int i = 0; i < 100; ++i) {
        const auto cq = call(Op::create_cq, abi::CreateCqRequest{4, channel, 0, 0}).as<abi::CreateCqReply>();
        reinterpret_cast<abi::CqShared*>(chunks.at(cq.where.chunk) + cq.where.offset)->arm = 2;
        abi::CreateQpRequest want{};
        want.pd = pd;
        want.type = IBV_QPT_UD;
        want.send_cq = want.recv_cq = cq.handle;
        want.srq = abi::kNoHandle;
        const auto qp = call(Op::create_qp, want).as<abi::CreateQpReply>();
        reinterpret_cast<abi::RqShared*>(chunks.at(qp.rq.chunk) + qp.rq.offset)->producer = 1;
        ASSERT_EQ(call(Op::modify_qp, abi::ModifyQpRequest{qp.handle, IBV_QP_STATE, {.qp_state = IBV_QPS_ERR}}).error, 0);
    }
    engines.poll(3);
    conductor.close_session(session, engines.now);
    EXPECT_TRUE(platform.clean());
    engines.poll(3);
    engines.drain_events();
    engines.poll(3);  // if an engine accesses a freed CQ, the address sanitizer reports the access
}

// ---- random requests ----------------------------------------------------------------------------------------------

/// Creates messages that are nearly valid and corrupts some of them.
class Attacker {
public:
    explicit Attacker(uint32_t seed) : random_(seed) {}
    uint32_t below(uint32_t n) { return uint32_t(random_()) % n; }
    bool chance(uint32_t one_in) { return below(one_in) == 0; }

    std::vector<std::byte> message() {
        // The list contains the operations that change the most state, some of them several times.
        static constexpr Op often[] = {Op::alloc_pd,  Op::create_cq,  Op::create_cq, Op::create_qp,  Op::create_qp, Op::modify_qp,
                                       Op::modify_qp, Op::modify_qp,  Op::modify_qp, Op::add_region, Op::reg_mr,    Op::reg_mr,
                                       Op::rereg_mr,  Op::create_srq, Op::create_ah, Op::resize_cq};
        const Op op = chance(50)  ? Op(random_())
                      : chance(3) ? Op(1 + below(uint32_t(Op::last_op)))
                                  : often[below(std::size(often))];
        auto p = packet(op, body(op), uint32_t(random_()));
        if (chance(6)) spoil(p);
        return p;
    }
    std::vector<int> fds(const std::vector<std::byte>& message, int& next) {
        Op op{};
        if (message.size() >= sizeof op) std::memcpy(&op, message.data(), sizeof op);
        const uint32_t n = chance(20) ? below(4) : op == Op::add_region ? 1 : 0;
        std::vector<int> out;
        for (uint32_t i = 0; i < n; ++i) out.push_back(next++);
        return out;
    }

    /// Stores the handles of created objects, so that later requests use these handles.
    void learn(const std::vector<std::byte>& message, const Result& r) {
        Op op;
        if (r.error != 0 || r.body.size() < 4 || message.size() < sizeof op) return;
        std::memcpy(&op, message.data(), sizeof op);
        auto& list = made_[op];
        list.push_back(r.as<uint32_t>());
        if (list.size() > 8) list.erase(list.begin());
    }

private:
    uint32_t handle(Op maker) {
        const auto& list = made_[maker];
        if (list.empty() || chance(15)) return chance(3) ? abi::kNoHandle : chance(3) ? uint32_t(random_()) : below(12);
        return list[below(uint32_t(list.size()))];
    }
    /// Returns the operation that creates the handles that `op` uses.
    static Op maker_of(Op op) {
        switch (op) {
            case Op::dealloc_pd:
                return Op::alloc_pd;
            case Op::remove_region:
                return Op::add_region;
            case Op::dereg_mr:
                return Op::reg_mr;
            case Op::destroy_channel:
                return Op::create_channel;
            case Op::destroy_cq:
                return Op::create_cq;
            case Op::query_srq:
            case Op::destroy_srq:
                return Op::create_srq;
            case Op::destroy_ah:
                return Op::create_ah;
            default:
                return Op::create_qp;
        }
    }
    uint32_t size() { return chance(20) ? uint32_t(random_()) : below(40); }

    std::vector<std::byte> body(Op op) {
        switch (op) {
            case Op::hello: {
                auto h = good_hello();
                if (chance(10)) h.abi_version = uint32_t(random_());
                return bytes_of(h);
            }
            case Op::open_device:
                return bytes_of(abi::OpenDeviceRequest{below(3), 0});
            case Op::add_region:
                return bytes_of(abi::AddRegionRequest{chance(20) ? random_() : uint64_t{below(8)} << 12, below(2), 0});
            case Op::reg_mr:
                return mr(abi::RegMrRequest{});
            case Op::rereg_mr:
                return rereg();
            case Op::create_cq:
                return bytes_of(
                    abi::CreateCqRequest{size(), chance(2) ? abi::kNoHandle : handle(Op::create_channel), below(2), below(2)});
            case Op::resize_cq: {
                abi::ResizeCqRequest r{handle(Op::create_cq), size(), {}};
                for (uint32_t& c : r.consumer) c = chance(2) ? 0 : below(6);
                return bytes_of(r);
            }
            case Op::modify_cq:
                return bytes_of(abi::ModifyCqRequest{handle(Op::create_cq), size(), size(), 0});
            case Op::create_srq:
                return bytes_of(abi::CreateSrqRequest{handle(Op::alloc_pd), below(8) / 7, size(), below(6), size(),
                                                      abi::kNoHandle, abi::kNoHandle, 0, 0});
            case Op::modify_srq:
                return bytes_of(abi::ModifySrqRequest{handle(Op::create_srq), below(5), size(), size()});
            case Op::create_qp:
                return bytes_of(qp());
            case Op::modify_qp:
                return bytes_of(change());
            case Op::create_ah:
                return bytes_of(abi::CreateAhRequest{handle(Op::alloc_pd), 0, av()});
            case Op::list_devices:
            case Op::query_device:
            case Op::query_gid_table:
            case Op::alloc_pd:
            case Op::create_channel:
            case Op::status:
                return {};
            default:
                return bytes_of(abi::HandleRequest{handle(maker_of(op)), 0});
        }
    }
    abi::CreateQpRequest qp() {
        static constexpr uint32_t types[] = {IBV_QPT_RC,       IBV_QPT_UC,       IBV_QPT_UD,
                                             IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, IBV_QPT_RAW_PACKET};
        abi::CreateQpRequest q{};
        q.pd = handle(Op::alloc_pd);
        q.type = types[chance(4) ? below(6) : 0];
        q.send_cq = handle(Op::create_cq);
        q.recv_cq = handle(Op::create_cq);
        q.srq = chance(4) ? handle(Op::create_srq) : abi::kNoHandle;
        q.sq_sig_all = below(2);
        q.cap = {size(), size(), below(8), below(8), size() * 8, 0};
        return q;
    }
    abi::AhAttr av() {
        abi::AhAttr a = good_av(chance(2) ? kGid4 : kOtherGid4);
        if (chance(4)) a.dmac[0] = 2, a.dgid.raw[15] = 77;
        if (chance(8)) a.is_global = 0;
        return a;
    }
    abi::ModifyQpRequest change() {
        const Step steps[] = {to_init(), to_rtr(), to_rts()};
        Step s = steps[below(3)];
        if (chance(8)) s = {IBV_QP_STATE, {.qp_state = below(8)}};
        if (chance(8)) s = {uint32_t(IBV_QP_STATE | IBV_QP_SQ_PSN), {.qp_state = IBV_QPS_RTS}};
        if (chance(6)) s.mask |= 1u << below(32);
        if (chance(6)) s.mask &= ~(1u << below(21));
        if ((s.mask & IBV_QP_AV) != 0) s.attr.ah = av();
        return {handle(Op::create_qp), s.mask, s.attr};
    }
    std::vector<std::byte> mr(abi::RegMrRequest in) {
        std::vector<abi::MrSegment> segments(below(4));
        for (auto& s : segments) {
            s = {chance(10) ? abi::kNoHandle : handle(Op::add_region), 0, uint64_t{below(4)} << 10, uint64_t{below(8)} << 9};
            in.length += s.length;
        }
        in.pd = handle(Op::alloc_pd);
        in.access = chance(2) ? 15u : below(16);
        in.iova = chance(20) ? ~uint64_t{0} - below(8000) : uint64_t{below(100)} << 12;
        in.segments = uint32_t(segments.size());
        if (chance(10)) in.length = random_();
        if (chance(10)) in.segments += below(5);
        auto b = bytes_of(in);
        for (const auto& s : segments) {
            const auto more = bytes_of(s);
            b.insert(b.end(), more.begin(), more.end());
        }
        return b;
    }
    std::vector<std::byte> rereg() {
        auto b = bytes_of(std::pair{handle(Op::reg_mr), below(9)});
        const auto rest = mr({});
        b.insert(b.end(), rest.begin(), rest.end());
        return b;
    }
    void spoil(std::vector<std::byte>& p) {
        for (uint32_t i = below(4); i > 0 && !p.empty(); --i) p[below(uint32_t(p.size()))] ^= std::byte(1u << below(8));
        if (chance(4)) p.resize(below(uint32_t(p.size()) + 1));
        if (chance(8)) p.resize(p.size() + below(100), std::byte(below(2)));
        if (chance(500)) p.resize(abi::kMaxMessage + below(2));
    }
    std::mt19937_64 random_;
    std::map<Op, std::vector<uint32_t>> made_;  ///< handles by the operation that created them
};

/// Runs the conductor and the engines with several clients. The clients send random requests, write random data into
/// their rings, and disconnect.
class HostileTest : public EnginesTest, public ::testing::WithParamInterface<uint32_t> {
protected:
    void scribble(Attacker& dice) {
        if (platform.memory.empty()) return;
        auto it = platform.memory.begin();
        std::advance(it, dice.below(uint32_t(platform.memory.size())));
        for (uint32_t i = 0; i < 64; ++i)
            it->first[dice.below(uint32_t(std::min<uint64_t>(it->second, 16384)))] = std::byte(dice.below(256));
    }
};

TEST_P(HostileTest, NothingBreaksNothingStays) {
    Attacker dice(GetParam());
    std::vector<uint32_t> live;
    std::map<int, uint64_t> answers;
    std::set<int> sent;
    int next_fd = 1;
    for (int i = 0; i < 25'000; ++i) {
        if (live.empty() || (live.size() < 4 && dice.chance(200))) {
            live.push_back(conductor.open_session({.pid = int(dice.below(100))}));
            if (!dice.chance(10)) {
                session = live.back();
                call(Op::hello, good_hello());
                call(Op::open_device, abi::OpenDeviceRequest{});
            }
        }
        const size_t who = dice.below(uint32_t(live.size()));
        const auto message = dice.message();
        const auto fds = dice.fds(message, next_fd);
        sent.insert(fds.begin(), fds.end());
        const Result r = send(conductor, live[who], message, fds);
        ++answers[r.error];
        dice.learn(message, r);
        if (r.error != 0) {
            EXPECT_TRUE(r.body.empty() || r.error == EPROTO) << r.reason;
            EXPECT_TRUE(r.fds.empty());
        }
        if (r.closed || dice.chance(2000)) {
            conductor.close_session(live[who], engines.now);
            live.erase(live.begin() + ptrdiff_t(who));
        }
        if (dice.chance(5)) scribble(dice);
        if (dice.chance(3)) engines.poll(2);
        if (dice.chance(20)) engines.drain_events();
    }
    for (const uint32_t s : live) conductor.close_session(s, engines.now);
    const Conductor::Totals t = conductor.totals();
    for (uint64_t n :
         {t.sessions, t.pds, t.regions, t.mrs, t.channels, t.cqs, t.srqs, t.qps, t.ahs, t.mws, t.arena_bytes, t.mapped_bytes})
        EXPECT_EQ(n, 0u);
    EXPECT_TRUE(platform.clean());
    EXPECT_EQ(platform.taken, sent) << "every descriptor was mapped or closed";
    for (uint32_t n = 0; n < shared.qps.size(); ++n) EXPECT_EQ(shared.qps.find(n), nullptr);
    for (uint32_t n = 0; n < shared.ahs.size(); ++n) EXPECT_EQ(shared.ahs.find(n), nullptr);
    EXPECT_GT(answers[0], 3000u) << "the dice do get somewhere";
    EXPECT_GT(answers[EINVAL], 1000u);
    engines.poll(3);
}

INSTANTIATE_TEST_SUITE_P(Seeds, HostileTest, ::testing::Values(1u, 2u, 3u));

}  // namespace
}  // namespace roci::host::test
