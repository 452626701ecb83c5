#include "sim/world.hpp"

#include <algorithm>
#include <stdexcept>

#include "io/handover.hpp"

namespace roci::sim {
namespace {

Gid ipv4_gid(uint32_t n) {
    const uint8_t a[4] = {10, 0, uint8_t(n / 250), uint8_t(n % 250 + 1)};
    return Gid::from_ipv4(a);
}
Gid ipv6_gid(uint32_t n) {
    Gid g;
    g.bytes[0] = 0xfd;
    g.bytes[15] = uint8_t(n + 1);
    g.bytes[14] = uint8_t((n + 1) >> 8);
    return g;
}
MacAddress mac_of(uint32_t n) { return {{0x02, 0, 0, 0, uint8_t((n + 1) >> 8), uint8_t(n + 1)}}; }

}  // namespace

// ---- host -----------------------------------------------------------------------------------------------------------

Host::Host(World& world, uint32_t number, const WorldOptions& o)
    : world_(world),
      commands_travel_(o.commands_travel),
      checks_(o.checks),
      users_(o.users),
      pause_rng_(o.seed << 8 | number),
      platform_(o.seed << 8 | number, o.engines) {
    shared_ = std::make_unique<qp::Shared>(o.limits.max_qps, o.limits.max_keys, o.limits.max_ahs, o.devices, *o.chunks);
    if (o.engines > 1) shared_->handover = std::make_unique<io::HandoverMatrix>(o.engines);
    addresses_.resize(o.devices);
    for (uint32_t d = 0; d < o.devices; ++d) {
        const uint32_t n = number * o.devices + d;
        devices_.push_back(
            {.name = "roci" + std::to_string(d), .netdev = "", .mac = mac_of(n), .gids = {ipv4_gid(n), ipv6_gid(n)}});
        const uint32_t end = world.net().add_endpoint(mac_of(n), o.engines, o.tx_pool, o.best_burst);
        for (uint32_t q = 0; q < o.engines; ++q) world.net().port(end, q).lend(o.rx_lends);
        if (d == 0) first_endpoint_ = end;
        devices_[d].resolver = o.resolver;
        devices_[d].vlan = o.vlan;
        devices_[d].traffic_class = o.traffic_class;
        devices_[d].port_sums = o.port_sums;
        devices_[d].port_icrc = o.port_icrc;
        devices_[d].congestion = o.congestion;
        devices_[d].prefixes = {112, 64};  // 10.0.0.0/16, fd00::/64
        addresses_[d] = {devices_[d].mac, devices_[d].gids, devices_[d].mtu_bytes};
        shared_->addresses.publish(d, &addresses_[d]);
    }
    for (uint32_t e = 0; e < o.engines; ++e) {
        std::vector<io::Port*> ports;
        for (uint32_t d = 0; d < o.devices; ++d)
            ports.push_back(o.port ? o.port(endpoint(d), e) : &world.net().port(endpoint(d), e));
        engine::Config c = o.engine;
        c.index = e;
        engines_.push_back(std::make_unique<engine::Engine>(c, *shared_, ports));
        commands_.push_back(std::make_unique<engine::CommandRing>());
    }
    conductor_ = std::make_unique<host::Conductor>(o.limits, devices_, *shared_, *this, platform_);
}

Host::~Host() = default;

engine::Ticket Host::submit(uint32_t e, const engine::Command& command) {
    engine::Ticket ticket = 0;
    if (!commands_travel_)
        engines_[e]->execute(command, world_.now());
    else
        while (!commands_[e]->push(command, ticket)) world_.run_engines();
    return ticket;
}
void Host::wait(uint32_t e, engine::Ticket ticket) {
    while (!commands_[e]->done(ticket)) world_.run_engines();
}
void Host::fence_all() {
    if (commands_travel_) world_.run_engines();
    for (const auto& e : engines_) e->let_go();
}

/// Executes a random number of commands. The maximum is the number that an lcore executes per round.
bool Host::run_commands(uint32_t e) {
    if (!commands_[e]->waiting()) return false;
    constexpr uint32_t kMost = 4;
    const auto most = uint32_t(world_.rng().below(kMost + 1));
    commands_[e]->execute(most, [&](const engine::Command& command) { engines_[e]->execute(command, world_.now()); });
    return true;
}

uint64_t Host::counter(engine::Counter c) const {
    uint64_t n = 0;
    for (const auto& e : engines_) n += e->counters().get(c);
    return n;
}
uint64_t Host::counter(wire::Verdict v) const {
    uint64_t n = 0;
    for (const auto& e : engines_) n += e->counters().get(v);
    return n;
}

void Host::pause_at_random(const Pauses& p) {
    pauses_ = p;
    next_pause_ = p.apart == 0 ? kNever : world_.now() + pause_rng_.below(p.apart + 1);
}

/// Begins a pause if it is due. Returns false during a pause.
bool Host::has_cpu() {
    if (world_.now() >= next_pause_) {
        paused_until_ = world_.now() + pause_rng_.below(pauses_.longest + 1);
        next_pause_ = paused_until_ + pause_rng_.below(pauses_.apart + 1);
    }
    return world_.now() >= paused_until_;
}

void Host::wake(Nanos slept_from, Nanos now) {
    if (slept_from < paused_until_) return;
    for (const auto& e : engines_) e->slept(slept_from, now);
}

bool Host::poll_engine(uint32_t e) {
    const bool worked = engines_[e]->poll(world_.now());
    if (!worked) engines_[e]->settle_sleepers();  // as an lcore does before it sleeps
    const bool commands = run_commands(e);
    if (const char* wrong = checks_ ? engines_[e]->check() : nullptr) throw std::logic_error(wrong);
    (void)engines_[e]->take_wake_mask();  // no engine sleeps here
    return worked || commands;
}

bool Host::poll_engines() {
    bool any = platform_.run_workers(world_.now());
    if (!has_cpu()) return any;
    for (uint32_t e = 0; e < engines_.size(); ++e) any |= poll_engine(e);
    return any;
}

bool Host::poll() {
    const bool any = poll_engines();
    for (uint32_t e = 0; e < engines_.size(); ++e) drain_events(e);
    if (conductor_->next_deadline() > world_.now()) return any;
    conductor_->service(world_.now());
    return true;
}

host::Conductor& Host::serviced() {
    conductor_->service(world_.now());
    return *conductor_;
}

void Host::close_session(uint32_t session) { conductor_->close_session(session, world_.now()); }

host::Reply Host::await_reply(uint32_t wanted) {
    uint32_t session = 0;
    host::Reply reply;
    bool close = false;
    const bool came = world_.run_until([&] { return conductor_->next_reply(session, reply, close); });
    if (!came || session != wanted) throw std::runtime_error("the deferred reply does not come");
    return reply;
}

void Host::drain_events(uint32_t index) {
    io::Event e;
    while (engines_[index]->events().pop(e)) {
        if (e.kind == io::Event::Kind::gsi) {
            conductor_->service(world_.now());
        } else if (e.kind == io::Event::Kind::completion) {
            if (platform_.pipe_open(e.session, e.channel))
                platform_.completions[{e.session, e.channel}].push_back({e.handle, e.generation});
        } else {
            platform_.send_async(e.session, {e.type, e.handle, e.generation, 0});
        }
    }
}

bool Host::has_events() const {
    return std::any_of(engines_.begin(), engines_.end(), [](const auto& e) { return !e->events().empty(); });
}

Nanos Host::next_deadline() const {
    Nanos work = kNever;  // earliest time at which an engine with a CPU has work
    for (const auto& e : engines_) work = std::min(work, e->doorbell_pending() ? 0 : e->next_deadline(world_.now()));
    for (const auto& c : commands_) work = c->waiting() ? 0 : work;
    // Frames may have arrived during the pause.
    if (world_.now() < paused_until_) work = paused_until_;
    return std::min({work, conductor_->next_deadline(), platform_.next_worker()});
}

std::string Host::shut_down() {
    pauses_ = {};
    paused_until_ = 0;
    next_pause_ = kNever;
    const auto clients = clients_;
    for (const auto& [session, client] : clients) client->close();
    std::string left;
    const auto t = conductor_->totals();
    const std::pair<const char*, uint64_t> totals[] = {{"sessions", t.sessions},
                                                       {"PDs", t.pds},
                                                       {"regions", t.regions},
                                                       {"MRs", t.mrs},
                                                       {"channels", t.channels},
                                                       {"CQs", t.cqs},
                                                       {"SRQs", t.srqs},
                                                       {"QPs", t.qps},
                                                       {"AHs", t.ahs},
                                                       {"MWs", t.mws},
                                                       {"arena bytes", t.arena_bytes},
                                                       {"mapped bytes", t.mapped_bytes}};
    for (const auto& [name, n] : totals)
        if (n != 0) left += std::to_string(n) + " " + name + " left; ";
    platform_.finish_workers(world_.now());
    for (int i = 0; i < 3; ++i) poll();  // returns the frames that other engines have passed to these engines
    conductor_.reset();
    engines_.clear();
    if (platform_.blocks() != 0) left += std::to_string(platform_.blocks()) + " blocks of shared memory left; ";
    if (platform_.mapped() != 0) left += std::to_string(platform_.mapped()) + " mappings left; ";
    for (uint32_t d = 0; d < devices_.size(); ++d) {
        for (uint32_t q = 0; q < world_.net().queues(endpoint(d)); ++q) {
            const SimPort& p = world_.net().port(endpoint(d), q);
            if (p.tx_held() != 0) left += std::to_string(p.tx_held()) + " tx frames not given back; ";
            if (p.rx_held() != 0) left += std::to_string(p.rx_held()) + " rx frames not given back; ";
        }
    }
    return left;
}

// ---- world ----------------------------------------------------------------------------------------------------------

World::World(const WorldOptions& o) : rng_(o.seed), options_(o), net_(rng_.fork(), now_) {
    net_.sum_headers(o.port_sums);
    for (uint32_t h = 0; h < o.hosts; ++h) hosts_.push_back(std::make_unique<Host>(*this, h, o));
}
World::~World() { shut_down(); }

bool World::round() {
    bool any = net_.deliver();
    for (auto& h : hosts_) any |= h->poll();
    ++rounds_;
    return any;
}

void World::run_engines() {
    now_ += options_.round_cost;
    (void)net_.deliver();
    for (auto& h : hosts_) (void)h->poll_engines();
    ++rounds_;
}

bool World::advance(bool worked, Nanos end) {
    if (worked) {
        now_ += options_.round_cost;
        return true;
    }
    Nanos next = net_.next_arrival();
    for (auto& h : hosts_) next = std::min(next, h->next_deadline());
    idle_ = next == kNever;
    if (idle_) return false;
    const Nanos from = now_;
    now_ = next > end ? end : std::max(next, now_ + options_.round_cost);
    for (auto& h : hosts_) h->wake(from, now_);
    return true;
}

bool World::run_until(const std::function<bool()>& done, Nanos at_most) {
    const Nanos end = now_ + at_most;
    idle_ = false;
    while (!done()) {
        if (now_ >= end) return false;
        if (!advance(round(), end)) return done();
    }
    return true;
}

void World::run_for(Nanos time) {
    const Nanos end = now_ + time;
    run_until([&] { return now_ >= end; }, time);
    now_ = std::max(now_, end);
}

std::string World::shut_down() {
    std::string left;
    for (auto& h : hosts_) {
        left += h->shut_down();
    }
    if (net_.overflows() != 0) left += std::to_string(net_.overflows()) + " frames written beyond their buffer; ";
    hosts_.clear();
    return left;
}

}  // namespace roci::sim
