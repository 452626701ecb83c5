#include "engine_host.hpp"
#include "port_kinds.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include <spdlog/spdlog.h>
#include <nlohmann/json.hpp>

#include "engine/counters.hpp"
#include "wire/describe.hpp"

namespace roci::rocid {
namespace {

constexpr Nanos kMicro = 1000;

pmd::FaultSpec fault_spec(const Config& c, uint32_t device, uint32_t engine) {
    pmd::FaultSpec f;
    f.seed = c.fault.seed * 0x10001 + device * abi::kMaxEngines + engine;  // a different seed per device and engine
    f.drop = c.fault.drop;
    f.corrupt = c.fault.corrupt;
    f.reorder = c.fault.reorder;
    f.duplicate = c.fault.duplicate;
    f.ecn = c.fault.ecn;
    f.delay = c.fault.delay_us * kMicro;
    return f;
}

/// Returns the target round trip of a device's port (cc::Limits::target).
Nanos target_of(const Config& c, const DeviceSection& device) {
    constexpr uint64_t kFrames = 30, kSockets = 300;  // us
    if (c.congestion.target_us != 0) return c.congestion.target_us * kMicro;
    return (port_kind(device.port).socket ? kSockets : kFrames) * kMicro;
}

/// Returns true if the port sends by system calls.
bool uses_kernel(const DeviceSection& d) { return d.port == "tap" || port_kind(d.port).netdev; }

cc::Limits congestion_limits(const Config& c) {
    constexpr uint32_t kMegabit = 125;  // bytes per millisecond
    cc::Limits l;
    l.first_window = uint32_t(c.congestion.first_window);
    l.notify_every = c.congestion.cnp_interval_us * kMicro;
    l.raise_every = c.congestion.raise_us * kMicro;
    l.raise_bytes = c.congestion.raise_mb * 1'000'000;
    l.additive = uint32_t(c.congestion.additive_mbps) * kMegabit;
    l.hyper = uint32_t(c.congestion.hyper_mbps) * kMegabit;
    return l;
}

engine::Config engine_config(const Config& c, uint32_t index) {
    engine::Config e;
    e.index = index;
    e.rx_burst = uint32_t(c.engine.rx_burst);
    e.tx_burst = uint32_t(c.engine.tx_burst);
    e.qp_quantum = uint32_t(c.engine.qp_quantum);
    e.max_inflight = uint32_t(c.engine.max_inflight);
    e.ack_every = uint32_t(c.engine.ack_every);
    e.selective_repeat = c.engine.repeat == "selective";
    e.loss_reports = c.engine.loss_reports == "on";
    e.congestion = congestion_limits(c);
    for (const DeviceSection& d : c.devices) e.targets.push_back(target_of(c, d));
    e.reorder_frames = uint32_t(c.engine.reorder_frames);
    e.reorder_bytes = c.engine.reorder_mb << 20;
    return e;
}

/// Returns the policy of an idle lcore. `silent` means that at least one port cannot wake a sleeping lcore. The lcore then wakes
/// at short intervals to poll. `interrupts` means that at least one port wakes the lcore by interrupts of its driver. Interrupts
/// may stop, so the time of a sleep is limited. All other ports wake the lcore by a socket of the kernel, or receive no external
/// frames. If both arguments are false and engine.idle is "adaptive", the time of a sleep is not limited.
pmd::IdlePolicy idle_policy(const Config& c, bool silent, bool interrupts) {
    pmd::IdlePolicy p;
    p.sleeps = c.engine.idle != "spin";
    p.adaptive = c.engine.idle == "adaptive";
    p.spin = c.engine.spin_us * kMicro;
    if (silent || interrupts || !p.adaptive) p.max_sleep = c.engine.max_sleep_us * kMicro;
    if (silent) p.max_sleep = std::min(p.max_sleep, p.look);
    p.share_cpu = c.cpu_numbers.empty();
    return p;
}

/// Adds `change` to the nice value of the calling thread, if this is permitted. Returns the nice value.
int change_nice(int change) {
    errno = 0;
    const int changed = nice(change);
    if (changed != -1 || errno == 0) return changed;
    spdlog::debug("engine.nice = {}: {}", change, std::strerror(errno));
    return getpriority(PRIO_PROCESS, 0);
}

std::string describe_frame(const uint8_t* frame, uint32_t length) {
    wire::Packet p;
    const wire::Verdict v = wire::parse(frame, length, p);
    return v == wire::Verdict::ok ? wire::describe(p) : wire::verdict_name(v);
}

void add_count(nlohmann::json& j, const char* name, const std::atomic<uint64_t>& count) {
    if (const uint64_t n = count.load(std::memory_order_relaxed); n != 0) j[name] = n;
}

void add_udp(nlohmann::json& j, const pmd::UdpPort& port, const pmd::UdpSockets& sockets) {
    nlohmann::json& udp = j["udp"];
    udp = {{"receive_buffer", sockets.receive_buffer()}, {"send_buffer", sockets.send_buffer()}};
    add_count(udp, "send_calls", port.sent().calls);
    add_count(udp, "too_long", port.sent().too_long);
    add_count(udp, "unreachable", port.sent().unreachable);
    add_count(udp, "no_address", port.sent().no_address);
    if (const int e = port.sent().last_error.load(std::memory_order_relaxed); e != 0) udp["last_error"] = std::strerror(e);
    add_count(udp, "receive_calls", port.received().calls);
    add_count(udp, "copied_again", port.received().split);
    add_count(udp, "too_large", port.received().too_large);
    add_count(udp, "identification_unconfirmed", port.received().unconfirmed);
    add_count(udp, "port_changed", port.received().port_changed);
    if (port.lost_while_down() != 0) j["lost_while_down"] = port.lost_while_down();
}

}  // namespace

EngineHost::EngineHost(const Config& config, pmd::Eal& eal, Ports& ports, qp::Shared& shared, abi::EnginePage& page,
                       const CounterPage& counters, EventPipes& events)
    : config_(config), eal_(eal), ports_(ports) {
    if (config_.engine.count > 1) shared.handover = std::make_unique<io::HandoverMatrix>(uint32_t(config_.engine.count));
    for (uint32_t e = 0; e < config_.engine.count; ++e) make_worker(e, shared, page, counters, events);
    start_taps();
}

EngineHost::~EngineHost() {
    stop();
    taps_.reset();
    workers_.clear();
}

EngineHost::Stack EngineHost::make_stack(uint32_t device, uint32_t engine) {
    const DeviceSection& d = config_.devices[device];
    Stack s;
    const OpenPort& port = ports_.port(device);
    if (port.udp.empty()) {
        const PortQueue at = port.queue(engine);
        s.dpdk = std::make_unique<pmd::DpdkPort>(at.port, at.queue, ports_.pool(device, engine), port.carrier.get(),
                                                 port.checksums, ports_.lends(device));
        s.hairpin = std::make_unique<pmd::HairpinPort>(*s.dpdk, port.mac);
    } else {  // without a MAC, because the kernel delivers datagrams to addresses of this host
        s.udp = std::make_unique<pmd::UdpPort>(*port.udp[engine], port.mac, port.descriptors, port.carrier.get());
        s.hairpin = std::make_unique<pmd::HairpinPort>(*s.udp, std::nullopt);
    }
    s.top = s.hairpin.get();
    s.tap = std::make_unique<pmd::TapPort>(*s.top, clock_);
    s.top = s.tap.get();
    if (!config_.capture.file.empty() || !config_.capture.trace.empty()) {
        s.ring = std::make_unique<pmd::TapRing>(d.name, engine);
        s.tap->attach(*s.ring);
    }
    pmd::FaultSpec f = fault_spec(config_, device, engine);
    f.only_payload = s.udp != nullptr;
    if (config_.fault.any()) {
        s.fault = std::make_unique<pmd::FaultPort>(*s.top, f, clock_);
        s.top = s.fault.get();
    }
    return s;
}

void EngineHost::make_worker(uint32_t index, qp::Shared& shared, abi::EnginePage& page, const CounterPage& counters,
                             EventPipes& events) {
    auto w = std::make_unique<Worker>();
    std::vector<io::Port*> tops;
    for (uint32_t d = 0; d < config_.devices.size(); ++d) {
        w->stacks.push_back(make_stack(d, index));
        tops.push_back(w->stacks.back().top);
    }
    const bool interrupts = std::ranges::any_of(ports_.all(), [](const OpenPort& p) { return p.armed_by_sleeper; });
    const bool silent =
        std::ranges::any_of(ports_.all(), [](const OpenPort& p) { return p.ethdev != nullptr && p.signals.empty(); });
    engine::Config config = engine_config(config_, index);
    if (std::ranges::any_of(config_.devices, uses_kernel)) config.clock = &clock_;
    w->engine = std::make_unique<engine::Engine>(config, shared, tops, counters.places(index));
    w->loop = std::make_unique<Loop>(*w->engine, clock_, idle_policy(config_, silent, interrupts), page.engine[index].sleeping,
                                     events.wake_flag(), epoch_);
    w->loop->set_on_events([&events, &ring = w->engine->events()] { events.pushed(ring); });
    watch_ports(*w, index);
    workers_.push_back(std::move(w));
}

/// For each port with a descriptor that signals received frames, adds the descriptor to the lcore's sleeper. Such frames then
/// wake the sleeping lcore.
void EngineHost::watch_ports(Worker& w, uint32_t engine) {
    std::vector<pmd::Waker*> wakers;
    for (uint32_t d = 0; d < w.stacks.size(); ++d) {
        const OpenPort& p = ports_.port(d);
        if (p.signals.empty()) continue;
        std::atomic<bool>* const heard = p.armed_by_sleeper ? &w.stacks[d].dpdk->interrupted() : nullptr;
        if (!w.loop->sleeper().watch(p.signals[engine], heard))
            throw pmd::StartError("device '" + config_.devices[d].name +
                                  "': its descriptor cannot be watched; set engine.idle = \"spin\"");
        if (p.armed_by_sleeper) wakers.push_back(w.stacks[d].dpdk.get());
    }
    w.loop->set_wakers(std::move(wakers));
}

void EngineHost::start_taps() {
    std::vector<pmd::TapRing*> rings;
    std::vector<uint32_t> interface_of;
    std::vector<std::string> names;
    for (const DeviceSection& d : config_.devices) names.push_back(d.name);
    for (auto& w : workers_)
        for (uint32_t d = 0; d < w->stacks.size(); ++d)
            if (w->stacks[d].ring != nullptr) {
                rings.push_back(w->stacks[d].ring.get());
                interface_of.push_back(d);
            }
    if (rings.empty()) return;
    std::vector<std::unique_ptr<pmd::TapSink>> sinks;
    std::string why;
    if (!config_.capture.file.empty())
        sinks.push_back(pmd::open_pcapng(config_.capture.file, names, pmd::Clock::to_realtime(), why));
    if (why.empty() && !config_.capture.trace.empty())
        sinks.push_back(pmd::open_trace(config_.capture.trace, names, describe_frame, why));
    if (!why.empty()) throw pmd::StartError("capture: " + why);
    taps_ = std::make_unique<pmd::TapWriter>(std::move(rings), std::move(interface_of), std::move(sinks));
}

void EngineHost::start() {
    for (auto& w : workers_) w->loop->set_peers(wake_flags());
    for (uint32_t e = 0; e < workers_.size(); ++e)
        eal_.launch(e, [w = workers_[e].get(), nice = int(config_.engine.nice)] {
            w->nice = change_nice(nice);
            w->loop->run();
        });
    running_ = true;
}

void EngineHost::stop() {
    if (!running_) return;
    for (auto& w : workers_) w->loop->stop();
    eal_.join();
    running_ = false;
}

engine::Ticket EngineHost::submit(uint32_t engine, const engine::Command& command) {
    const Worker& w = *workers_[engine];
    engine::Ticket ticket = 0;
    if (w.loop->execute_asleep(command)) return ticket;  // ticket 0: the command is done
    if (w.loop->commands().try_submit(command, ticket)) return ticket;
    w.engine->count_waited_command();
    return w.loop->commands().submit(command);
}

void EngineHost::fence_all() {
    const Epoch::Number epoch = epoch_.advance();
    for (auto& w : workers_) w->loop->commands().begin_fence(epoch);
    for (auto& w : workers_) w->loop->commands().end_fence(epoch);
}

std::vector<pmd::Sleeper*> EngineHost::sleepers() {
    std::vector<pmd::Sleeper*> out;
    for (auto& w : workers_) out.push_back(&w->loop->sleeper());
    return out;
}

std::vector<pmd::WakeFlag*> EngineHost::wake_flags() {
    std::vector<pmd::WakeFlag*> out;
    for (auto& w : workers_) out.push_back(&w->loop->wake_flag());
    return out;
}

std::vector<TapPoint> EngineHost::taps() {
    std::vector<TapPoint> out;
    for (uint32_t e = 0; e < workers_.size(); ++e)
        for (uint32_t d = 0; d < workers_[e]->stacks.size(); ++d) out.push_back({workers_[e]->stacks[d].tap.get(), d, e});
    return out;
}

std::vector<io::EventRing*> EngineHost::event_rings() {
    std::vector<io::EventRing*> out;
    for (auto& w : workers_) out.push_back(&w->engine->events());
    return out;
}

void EngineHost::add_dpdk(nlohmann::json& j, const Stack& s, const OpenPort& port) {
    if (s.dpdk->lost_while_down() != 0) j["lost_while_down"] = s.dpdk->lost_while_down();
    if (s.dpdk->lost_not_taken() != 0) j["lost_not_taken"] = s.dpdk->lost_not_taken();
    if (port.armed_by_sleeper) j["interrupts"] = s.dpdk->wakes() ? "wake" : "none yet";
    if (s.dpdk->too_large() != 0) j["too_large"] = s.dpdk->too_large();
}

std::string EngineHost::status_json() const {
    using nlohmann::json;
    json engines = json::array(), ports = json::array();
    for (uint32_t e = 0; e < workers_.size(); ++e) {
        const Worker& w = *workers_[e];
        json counters, verdicts;
        for (size_t i = 0; i < size_t(engine::Counter::count_); ++i)
            counters[engine::kCounterTexts[i].name] = w.engine->counters().get(engine::Counter(i));
        for (size_t i = 0; i < size_t(wire::Verdict::count_); ++i)
            verdicts[wire::verdict_name(wire::Verdict(i))] = w.engine->counters().get(wire::Verdict(i));
        engines.push_back({{"index", e},
                           {"counters", counters},
                           {"frames_by_verdict", verdicts},
                           {"sleeps", w.loop->counters().sleeps.load(std::memory_order_relaxed)},
                           {"nice", w.nice.load(std::memory_order_relaxed)},
                           {"cpu", config_.cpu_numbers.empty() ? json("any") : json(config_.cpu_numbers[e])}});
        for (uint32_t d = 0; d < w.stacks.size(); ++d) {
            const Stack& s = w.stacks[d];
            json port = {{"device", config_.devices[d].name}, {"engine", e}, {"kind", config_.devices[d].port}};
            port["checksum_offload"] = checksums_text(ports_.port(d).checksums);
            port["icrc_in_frames"] = !ports_.port(d).checksums.no_icrc;
            if (const auto& steering = ports_.port(d).steering; steering != nullptr && e == 0) {
                port["xdp"]["mode"] = steering->native() ? "native" : "generic";
                for (size_t i = 0; i < std::size(pmd::kSteeringCounters); ++i)
                    port["xdp"][pmd::kSteeringCounters[i]] = steering->counter(i);
            }
            if (s.dpdk != nullptr) add_dpdk(port, s, ports_.port(d));
            if (s.udp != nullptr) add_udp(port, *s.udp, *ports_.port(d).udp[e]);
            if (s.fault != nullptr) {
                const pmd::FaultCounts counts = s.fault->counts();
                for (size_t i = 0; i < std::size(pmd::kFaultFields); ++i)
                    port["fault"][pmd::kFaultNames[i]] = counts.*pmd::kFaultFields[i];
            }
            if (s.ring != nullptr) port["capture"] = {{"captured", s.ring->captured()}, {"missed", s.ring->missed()}};
            ports.push_back(port);
        }
    }
    return json{{"memory", eal_.memory_mode()}, {"idle", config_.engine.idle}, {"engines", engines}, {"ports", ports}}.dump();
}

}  // namespace roci::rocid
