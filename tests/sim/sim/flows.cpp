#include "sim/flows.hpp"

#include <infiniband/verbs.h>

#include <algorithm>

namespace roci::sim {
namespace {

struct Flow {
    Client client;
    Client& target;
    uint32_t pd;
    Cq &cq, &target_cq;
    Mr &mr, &target_mr;
    Qp &qp, &target_qp;
    uint32_t posted = 0;
    Nanos begins = 0;  ///< time after the start of the run
    FlowResult result;

    static QpOptions queue() { return {.max_send_wr = 256, .max_recv_wr = 256}; }
    Flow(World& w, uint32_t host, Client& to, uint32_t to_pd, const FlowOptions& o)
        : client(w.host(host), 0),
          target(to),
          pd(client.alloc_pd()),
          cq(client.create_cq(1024)),
          target_cq(to.create_cq(1024)),
          mr(client.reg_mr(pd, o.length)),
          target_mr(to.reg_mr(to_pd, o.length)),
          qp(client.create_qp(pd, cq, cq, queue())),
          target_qp(to.create_qp(to_pd, target_cq, target_cq, queue())) {
        PathOptions path;
        path.mtu = IBV_MTU_4096;
        path.timeout = o.timeout;
        path.max_rd_atomic = path.max_dest_rd_atomic = 16;
        connect(client, qp, to, target_qp, path);
        for (uint32_t i = 0; o.opcode == abi::WrOpcode::send && i < 128; ++i) receive();
    }
    void receive() { target.post_recv(target_qp, 0, {{target_mr.address(), uint32_t(target_mr.length), target_mr.lkey}}); }
    bool finished(const FlowOptions& o) const { return result.done == o.messages || result.failed != 0; }
    void act(const FlowOptions& o, Nanos since_start) {
        for (auto e = target.poll(target_cq); e; e = target.poll(target_cq)) receive();
        for (auto e = client.poll(cq); e; e = client.poll(cq)) {
            result.failed += e->status != abi::WcStatus::success;
            ++result.done;
            if (since_start >= o.from) result.counted += o.length;
            result.ended = since_start;
        }
        if (since_start < begins) return;
        for (; !finished(o) && posted < o.messages && posted - result.done < o.depth; ++posted)
            client.post_send(qp, {.id = posted,
                                  .opcode = o.opcode,
                                  .sges = {{mr.address(), o.length, mr.lkey}},
                                  .remote_addr = target_mr.address(),
                                  .rkey = target_mr.rkey});
    }
};

constexpr uint32_t kNearSwitch = 0, kFarSwitch = 1;
constexpr uint32_t kTcpSender = 1'000'000, kTcpReceiver = 1'000'001;  ///< endpoints of the switches, but not of the Network

/// The number of payload bytes of a TCP segment. With the IP and TCP headers a packet has 4200 bytes, which is the
/// Ethernet MTU for a path MTU of 4096.
constexpr uint32_t kTcpSegment = 4148;

/// Returns the link of the TCP endpoints. Its rate is that of the links of the other senders.
Output tcp_link(const FlowOptions& o) {
    Output link = o.output;
    link.bits_per_second = o.bits_per_second;
    return link;
}

Switches* build_switches(World& w, const FlowOptions& o) {
    if (!o.switched) return nullptr;
    auto s = std::make_unique<Switches>(w.rng().fork());
    const uint32_t near = s->add_switch();
    const uint32_t far = o.spines != 0 ? s->add_switch() : near;
    for (uint32_t i = 0; i < o.spines; ++i) {
        const uint32_t spine = s->add_switch();
        Output way = o.output;
        way.propagation += i * 2000;  // each further path is 2 us longer
        s->join(near, spine, way);
        s->join(far, spine, way);
    }
    for (uint32_t h = 0; h < w.hosts(); ++h) s->attach(w.host(h).endpoint(0), h == 0 ? near : far, o.output);
    s->spread_by_packet(o.by_packet);
    Switches* seen = s.get();
    w.net().set_fabric(std::move(s));
    return seen;
}

WorldOptions world_options(const FlowOptions& o, uint64_t seed) {
    WorldOptions options;
    options.seed = seed;
    options.hosts = o.senders + 1;
    options.traffic_class = 2;  // ECN-capable, so that switches may mark frames
    if (!o.keep) options.engine.reorder_frames = 0;
    options.engine.selective_repeat = o.selective;
    options.engine.loss_reports = o.reports;
    options.engine.congestion = o.limits;
    options.congestion = o.policy;
    options.checks = o.checks;
    return options;
}

/// One end of a ping-pong.
struct Player {
    static constexpr uint32_t kBytes = 64;
    Client client;
    uint32_t pd;
    Cq &sent, &received;
    Mr& mr;
    Qp& qp;
    Player(World& w, uint32_t host)
        : client(w.host(host), 0),
          pd(client.alloc_pd()),
          sent(client.create_cq(64)),
          received(client.create_cq(64)),
          mr(client.reg_mr(pd, kBytes)),
          qp(client.create_qp(pd, sent, received, {.max_send_wr = 16, .max_recv_wr = 16})) {}
    void receive() { client.post_recv(qp, 0, {{mr.address(), kBytes, mr.lkey}}); }
    void send() { client.post_send(qp, {.opcode = abi::WrOpcode::send, .sges = {{mr.address(), kBytes, mr.lkey}}}); }
    /// Polls both CQs. If a message has arrived, posts another receive and returns true.
    bool take() {
        while (client.poll(sent)) {
        }
        if (!client.poll(received)) return false;
        receive();
        return true;
    }
};

}  // namespace

std::vector<Nanos> ping_pong(const FlowOptions& o, uint32_t rounds, uint64_t seed) {
    World w(world_options(o, seed));
    w.net().keep_capture(false);
    w.net().trust_icrc(true);
    for (uint32_t h = 0; h < w.hosts(); ++h)
        w.net().link(w.host(h).endpoint(0)) = {.bits_per_second = o.bits_per_second, .latency = o.propagation};
    Player a(w, 0), b(w, 1);
    PathOptions path;
    path.mtu = IBV_MTU_4096;
    path.timeout = 14;
    connect(a.client, a.qp, b.client, b.qp, path);
    for (Player* p : {&a, &b})
        for (int i = 0; i < 8; ++i) p->receive();
    w.net().set_faults(o.faults);
    std::vector<Nanos> times;
    Nanos begun = w.now();
    a.send();
    w.run_until([&] {
        if (b.take()) b.send();
        if (a.take()) {
            times.push_back(w.now() - begun);
            begun = w.now();
            a.send();
        }
        return times.size() >= rounds;
    });
    std::sort(times.begin(), times.end());
    return times;
}

double RunResult::gigabits() const { return time == 0 ? 0 : double(bytes_needed) * 8 / double(time); }
double RunResult::resent() const { return bytes_needed == 0 ? 0 : double(payload_sent) / double(bytes_needed) - 1; }
double RunResult::resent_per_lost() const {
    return payload_lost == 0 ? 0 : double(payload_sent - bytes_needed) / double(payload_lost);
}
double RunResult::jain() const {
    double sum = 0, squares = 0;
    for (const FlowResult& f : flows) {
        sum += double(f.counted);
        squares += double(f.counted) * double(f.counted);
    }
    return squares == 0 ? 0 : sum * sum / (double(flows.size()) * squares);
}
double RunResult::slowest_to_mean() const {
    double sum = 0, most = 0;
    for (const FlowResult& f : flows) {
        sum += double(f.ended);
        most = std::max(most, double(f.ended));
    }
    return sum == 0 ? 0 : most * double(flows.size()) / sum;
}
uint32_t RunResult::failed() const {
    uint32_t n = 0;
    for (const FlowResult& f : flows) n += f.failed != 0;
    return n;
}

RunResult run_flows(const FlowOptions& o, uint64_t seed) {
    World w(world_options(o, seed));
    RunResult r;
    w.net().keep_capture(false);
    w.net().trust_icrc(true);
    w.net().set_watch([&](const Sent& s) {
        if (s.parsed && s.packet.opcode == wire::kLossReportOpcode) return;
        if (s.parsed) r.payload_sent += s.packet.payload_length;
        if (s.parsed && s.fate == Fate::dropped) r.payload_lost += s.packet.payload_length;
    });
    w.net().set_faults(o.faults);
    for (uint32_t h = 0; h < w.hosts(); ++h) {
        w.net().link(w.host(h).endpoint(0)) = {.bits_per_second = o.bits_per_second, .latency = o.propagation};
        w.net().intake(w.host(h).endpoint(0)) = {.jitter = o.jitter};
        w.host(h).pause_at_random(o.pauses);
    }
    Switches* switches = build_switches(w, o);
    Client target(w.host(0), 0);
    const uint32_t pd = target.alloc_pd();
    std::vector<std::unique_ptr<Flow>> flows;
    for (uint32_t h = 1; h <= o.senders; ++h) flows.push_back(std::make_unique<Flow>(w, h, target, pd, o));
    for (size_t i = o.tcp ? 0 : 1; o.start_within != 0 && i < flows.size(); ++i) flows[i]->begins = w.rng().below(o.start_within);
    std::optional<TcpFlow> tcp;
    if (o.tcp) tcp.emplace(*switches, *o.tcp, kTcpSender, kFarSwitch, kTcpReceiver, kNearSwitch, tcp_link(o), kTcpSegment);
    const Nanos start = w.now();
    if (tcp) tcp->start(start);
    uint64_t tcp_before = 0;
    w.run_until(
        [&] {
            bool all = true;
            if (tcp && w.now() - start < o.from) tcp_before = tcp->delivered();
            for (auto& f : flows) {
                f->act(o, w.now() - start);
                all &= f->finished(o);
            }
            return all;
        },
        o.at_most);
    r.time = w.now() - start;
    if (tcp) r.tcp_counted = tcp->delivered() - tcp_before;
    for (auto& f : flows) {
        r.flows.push_back(f->result);
        r.bytes_needed += f->result.done * o.length;
    }
    r.frames_lost = w.net().lost() + (switches != nullptr ? switches->dropped() : 0);
    if (switches != nullptr) r.queue = switches->towards(w.host(0).endpoint(0));
    return r;
}

}  // namespace roci::sim
