#include "daemon.hpp"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <utility>

#include <spdlog/spdlog.h>
#include <nlohmann/json.hpp>

#include "addresses.hpp"
#include "huge_registered.hpp"
#include "icrc_kernel.hpp"
#include "machine.hpp"
#include "metrics_text.hpp"
#include "service_manager.hpp"
#include "sigbus_guard.hpp"
#include "user_limits.hpp"

namespace roci::rocid {
namespace {

pmd::Hugepages hugepages_of(const Config& c) {
    if (c.hugepages == "always") return pmd::Hugepages::always;
    return c.hugepages == "never" ? pmd::Hugepages::never : pmd::Hugepages::automatic;
}

pmd::EalOptions eal_options(const Config& c, const NicTroubles& troubles, bool verbose) {
    pmd::EalOptions o;
    o.engines = uint32_t(c.engine.count);
    o.cpus = c.cpu_numbers;
    o.hugepages = hugepages_of(c);
    o.memory_bytes = Ports::memory_bytes(c);
    o.pci = Ports::pci_addresses(c, troubles);
    o.verbose = verbose;
    return o;
}

std::vector<std::string> device_names(const Config& c) {
    std::vector<std::string> names;
    names.reserve(c.devices.size());
    for (const DeviceSection& d : c.devices) names.push_back(d.name);
    return names;
}

void check_cpus(const Config& c) {
    const std::vector<unsigned> allowed = pmd::allowed_cpus();
    for (const unsigned cpu : c.cpu_numbers)
        if (std::find(allowed.begin(), allowed.end(), cpu) == allowed.end())
            throw pmd::StartError("engine.cpus names CPU " + std::to_string(cpu) + ", but this process may use only " +
                                  pmd::cpu_list(allowed));
}

/// Returns vm.max_map_count, the kernel's limit of mappings per process.
uint64_t most_mappings() {
    constexpr uint64_t kUsual = 65530;
    uint64_t n = 0;
    return std::ifstream("/proc/sys/vm/max_map_count") >> n && n != 0 ? n : kUsual;
}

host::Limits limits_of(const Config& c) {
    host::Limits l;
    l.max_sessions = uint32_t(c.limits.max_sessions);
    l.max_qps = uint32_t(c.limits.max_qps);
    l.max_keys = uint32_t(c.limits.max_keys);
    l.max_ahs = uint32_t(c.limits.max_ahs);
    l.max_qp_wr = uint32_t(c.limits.max_qp_wr);
    l.max_sge = uint32_t(c.limits.max_sge);
    l.max_inline = uint32_t(c.limits.max_inline);
    l.max_cqe = uint32_t(c.limits.max_cqe);
    l.max_arena_bytes = c.limits.max_arena_mb << 20;
    // A quarter of the mappings is reserved for rocid itself.
    l.max_mappings = most_mappings() / 4 * 3;
    // By default one user may have half of the sessions, QPs, keys, address handles and mappings. The key limits.users changes
    // the limits of users.
    l.user.sessions = std::max<uint64_t>(1, l.max_sessions / 2);
    l.user.qps = std::max<uint64_t>(1, l.max_qps / 2);
    l.user.keys = std::max<uint64_t>(1, l.max_keys / 2);
    l.user.address_handles = std::max<uint64_t>(1, l.max_ahs / 2);
    l.user.mappings = l.max_mappings / 2;
    l.rules = parse_user_limits(c.limits.users);
    return l;
}

constexpr uint8_t kLinkLocalPrefix = 64;

/// Returns true if the device uses the addresses of its kernel interface, because no addresses are configured. For configured
/// addresses, rocid itself answers ARP and neighbour discovery, except on a UDP port.
bool follows_kernel(const DeviceSection& d, const OpenPort& port) { return !port.netdev.empty() && d.addresses.empty(); }

/// Returns the congestion policy of a device. The value `auto` means `fixed` for a loopback port, because no other host uses the
/// loopback, and `adaptive` for other ports.
cc::Policy congestion_policy(const std::string& name, const DeviceSection& d) {
    if (name == "auto") return d.port == "loopback" ? cc::Policy::fixed_window : cc::Policy::adaptive;
    for (uint8_t p = 0; p < uint8_t(cc::Policy::count_); ++p)
        if (name == cc::policy_name(cc::Policy(p))) return cc::Policy(p);
    return cc::Policy::fixed_window;
}

host::DeviceConfig device_of(const DeviceSection& d, const OpenPort& port) {
    host::DeviceConfig out;
    out.name = d.name;
    out.netdev = port.netdev;
    out.mac = port.mac;
    out.gids.push_back(link_local(out.mac));
    for (const std::string& a : d.addresses) out.gids.push_back(parse_address(a).value());
    out.mtu_bytes = port.path_mtu;
    out.peer = d.peer;
    out.prefixes.push_back(kLinkLocalPrefix);
    for (const std::string& a : d.addresses) out.prefixes.push_back(prefix_of(a));
    for (const std::string& g : d.gateways) out.gateways.push_back(parse_address(g).value());
    out.active = port.up;
    out.vlan = uint16_t(d.vlan);
    out.traffic_class = uint8_t(d.traffic_class);
    out.port_sums = port.checksums.sent;
    out.port_icrc = port.checksums.no_icrc;
    if (d.port != "loopback") out.resolver = follows_kernel(d, port) ? host::Resolver::kernel : host::Resolver::own;
    if (!port.udp.empty()) {
        out.resolver = host::Resolver::socket;
        out.udp_source = wire::kRoceUdpPort;  // the local UDP port of the sockets
    }
    for (const std::string& n : d.neighbours) out.neighbours.insert(parse_neighbour(n).value());
    return out;
}

std::vector<host::DeviceConfig> devices_of(const Config& c, const Ports& ports) {
    std::vector<host::DeviceConfig> out;
    for (uint32_t i = 0; i < c.devices.size(); ++i) {
        out.push_back(device_of(c.devices[i], ports.port(i)));
        out.back().congestion = congestion_policy(c.congestion.policy, c.devices[i]);
    }
    return out;
}

}  // namespace

int prepare_process() {
    signal(SIGPIPE, SIG_IGN);
    sigset_t ending;
    sigemptyset(&ending);
    for (const int s : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&ending, s);
    pthread_sigmask(SIG_BLOCK, &ending, nullptr);
    const int fd = signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) throw pmd::StartError("no descriptor for signals");
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    SigbusGuard::instance();
    return fd;
}

SessionHandler Daemon::session_handler() {
    SessionHandler handler;
    handler.open = [this](const host::Client& who) {
        conductor_->service(pmd::Clock::monotonic());
        return conductor_->open_session(who);
    };
    handler.not_before = [this](uint32_t session) { return conductor_->not_before(session); };
    handler.close = [this](uint32_t session, const host::Client& who) {
        platform_->set_current_client(who);
        conductor_->close_session(session, pmd::Clock::monotonic());
    };
    handler.handle = [this](uint32_t session, const host::Client& who, std::span<const std::byte> packet,
                            std::span<const int> fds, bool& close) { return handle(session, who, packet, fds, close); };
    return handler;
}

Daemon::Daemon(const Config& config, const RunOptions& options, int signals)
    : config_(config), options_(options), signals_(signals) {
    try {
        begin();
    } catch (...) {
        end();
        throw;
    }
}

void Daemon::begin() {
    check_cpus(config_);
    check_machine(needs_of(unsigned(config_.engine.count)));
    check_icrc_kernel();
    huge_page_error_ = try_huge_page();
    socket_ = std::make_unique<ControlSocket>(config_.socket, uint32_t(config_.socket_mode), session_handler(), reaper_);
    if (!config_.socket_group.empty()) give_to_group(config_.socket, config_.socket_group);
    socket_->watch(signals_, [this] { on_signal(); });

    const NicTroubles troubles = Ports::nic_troubles(config_);
    eal_ = std::make_unique<pmd::Eal>(eal_options(config_, troubles, options_.verbose));
    ports_ = std::make_unique<Ports>(config_, *eal_, troubles);
    page_ = std::make_unique<EnginePageMemory>();
    const std::vector<std::string> names = device_names(config_);
    counters_ = std::make_unique<CounterPage>(uint32_t(config_.engine.count), names);
    events_ = std::make_unique<EventPipes>();
    shared_ = std::make_unique<qp::Shared>(uint32_t(config_.limits.max_qps), uint32_t(config_.limits.max_keys),
                                           uint32_t(config_.limits.max_ahs), uint32_t(config_.devices.size()), chunks_);
    engines_ = std::make_unique<EngineHost>(config_, *eal_, *ports_, *shared_, page_->page(), *counters_, *events_);
    platform_ = std::make_unique<OsPlatform>(*events_, *page_, hugepages_of(config_), reaper_, budget_);
    platform_->set_sleepers(engines_->sleepers());
    captures_ = std::make_unique<Captures>(engines_->taps(), names, *engines_);
    platform_->set_captures(captures_.get());
    slow_threads_ = std::make_unique<SlowThreads>(engines_->wake_flags());
    platform_->set_slow_threads(slow_threads_.get());
    platform_->set_counter_page(counters_->fd());
    device_page_ = std::make_unique<DevicePage>(uint32_t(config_.devices.size()));
    platform_->set_device_page(device_page_.get());
    platform_->set_status([this] { return status_json(); });
    gsi_wake_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (gsi_wake_ < 0) throw pmd::StartError("no descriptor for management datagrams");
    events_->set_on_gsi([fd = gsi_wake_] { eventfd_write(fd, 1); });
    socket_->watch(gsi_wake_, [this] {
        eventfd_t n;
        eventfd_read(gsi_wake_, &n);
        service();
    });
    events_->start(engines_->event_rings());
    engines_->start();
    const std::vector<host::DeviceConfig> devices = devices_of(config_, *ports_);
    for (uint32_t i = 0; i < devices.size(); ++i) serve_addresses(i, devices[i].gids);
    conductor_ = std::make_unique<host::Conductor>(limits_of(config_), devices, *shared_, *engines_, *platform_);
    follow_kernel();
    socket_->watch(SigbusGuard::instance().event_fd(), [this] { end_robbed_sessions(); });
    socket_->watch(platform_->hole_timer_fd(), [this] { platform_->renew_hole_credit(); });
    socket_->watch(ports_->link_fd(), [this] { follow_links(); });
    follow_links();
    serve_metrics();
}

void Daemon::serve_metrics() {
    if (config_.metrics.empty()) return;
    status_request_ = std::make_unique<TextRequest>();
    socket_->watch(status_request_->fd(), [this] { status_request_->fulfil(conductor_->status_json()); });
    metrics_ = std::make_unique<MetricsServer>(config_.metrics, [this] { return metrics(); });
    spdlog::info("metrics at {}", config_.metrics);
}

/// Returns the response to GET /metrics. The thread of the metrics server calls this function.
std::string Daemon::metrics() {
    constexpr int kPatienceMs = 2000;
    MetricsSample s;
    for (uint32_t d = 0; d < counters_->devices(); ++d)
        s.devices.push_back({config_.devices[d].name, counters_->device_values(d)});
    for (uint32_t e = 0; e < counters_->engines(); ++e) s.engines.push_back(counters_->engine_values(e));
    s.status = status_request_->wait_for_text(kPatienceMs);
    return metrics_text(s);
}

Daemon::~Daemon() { end(); }

void Daemon::end() {
    if (status_request_ != nullptr) status_request_->close();
    metrics_.reset();
    if (device_page_ != nullptr) device_page_->end();
    socket_.reset();        // ends the sessions while the engines still run
    slow_threads_.reset();  // waits up to one second for submitted requests, which use memory of conductor_
    conductor_.reset();
    captures_.reset();
    if (events_ != nullptr) events_->stop();  // stopped before engines_ is destroyed, because the event thread reads its rings
    if (gsi_wake_ >= 0) close(std::exchange(gsi_wake_, -1));
    engines_.reset();
    ports_.reset();
    platform_.reset();
    shared_.reset();
    events_.reset();
    eal_.reset();
}

host::Reply Daemon::handle(uint32_t session, const host::Client& who, std::span<const std::byte> packet, std::span<const int> fds,
                           bool& close) {
    platform_->set_current_client(who);
    conductor_->service(pmd::Clock::monotonic());
    return conductor_->handle(session, packet, fds, close);
}

/// Ends each session whose client has removed pages of its doorbells or queues.
void Daemon::end_robbed_sessions() {
    eventfd_t n;
    eventfd_read(SigbusGuard::instance().event_fd(), &n);
    for (const uint32_t session : conductor_->sessions_without_memory())
        socket_->end(session, "the client took away the memory of its queues");
}

void Daemon::follow_kernel() {
    const auto all = ports_->all();
    if (std::none_of(all.begin(), all.end(), [](const OpenPort& p) { return !p.netdev.empty(); })) return;
    KernelNet::Handler handler;
    handler.links = [this] { follow_links(); };
    handler.addresses = [this](int index) { follow_addresses(index); };
    handler.neighbour = [this](int index, const Gid& address, const MacAddress& mac) {
        for (uint32_t i = 0; i < config_.devices.size(); ++i) {
            if (ports_->port(i).netdev_index != index) continue;
            if (mac.is_zero())
                conductor_->neighbour_gone(i, address, pmd::Clock::monotonic());
            else
                conductor_->neighbour_heard(i, address, mac, pmd::Clock::monotonic());
        }
    };
    kernel_ = std::make_unique<KernelNet>(std::move(handler));
    platform_->set_follow_group([this](uint32_t device, const Gid& group, bool joined) -> int {
        // Only the socket of engine 0 joins the group. If several sockets joined the group, each socket would get a copy of a
        // datagram. But the engines already pass copies of multicast datagrams to each other.
        const OpenPort& port = ports_->port(device);
        return port.udp.empty() ? 0 : port.udp.front()->follow_group(group, joined);
    });
    platform_->set_kernel(
        {[this](uint32_t device, const Gid& source, const Gid& dest, Gid& next) {
             return kernel_->route(ports_->port(device).netdev_index, source, dest, next);
         },
         [this](uint32_t device, const Gid& address) { kernel_->solicit(ports_->port(device).netdev_index, address); }});
    socket_->watch(kernel_->fd(), [this] {
        kernel_->read_changes();
        service();
    });
    followed_.resize(config_.devices.size());
    follow_addresses(0);
}

/// Passes the current addresses of a kernel interface to the conductor (rocid's control thread). If `index` is 0, passes the
/// addresses of all interfaces. GID 0 is always the link-local address of the MAC address.
void Daemon::follow_addresses(int index) {
    for (uint32_t i = 0; i < config_.devices.size(); ++i) {
        const OpenPort& port = ports_->port(i);
        if (!follows_kernel(config_.devices[i], port) || (index != 0 && index != port.netdev_index)) continue;
        std::vector<host::DeviceAddress> all{{link_local(port.mac), kLinkLocalPrefix}};
        for (const host::DeviceAddress& a : kernel_->addresses(port.netdev_index)) all.push_back(a);
        if (followed_[i] == all) continue;  // for example, only a lifetime was renewed
        followed_[i] = all;
        std::vector<Gid> gids;
        gids.reserve(all.size());
        for (const host::DeviceAddress& a : all) gids.push_back(a.gid);
        serve_addresses(i, gids);
        if (conductor_->set_addresses(i, all))
            spdlog::info("{}: {} address(es) of interface {}", config_.devices[i].name, all.size(), port.netdev);
        if (all.size() == 1)
            spdlog::warn("{0}: interface {1} has no address, so the device has GID 0 only: ip addr add ADDRESS/PREFIX dev {1}",
                         config_.devices[i].name, port.netdev);
    }
}

/// Passes the addresses of a device to ports that filter frames. The device receives all traffic to a configured address that the
/// kernel does not have. The device receives only RDMA traffic to any other address, such as GID 0, which may be the link-local
/// address of the kernel interface.
void Daemon::serve_addresses(uint32_t device, std::span<const Gid> gids) {
    std::vector<pmd::ServedAddress> served;
    const bool own = !follows_kernel(config_.devices[device], ports_->port(device));
    for (size_t i = 0; i < gids.size(); ++i) served.push_back({gids[i], own && i != 0 && !kernel_has_address(gids[i])});
    ports_->set_addresses(device, served);
}

/// Passes changes of link states and MTUs to the conductor. The conductor sends port events to programs.
void Daemon::follow_links() {
    for (uint32_t i = 0; i < config_.devices.size(); ++i) {
        const LinkState now = ports_->link(i, uint32_t(config_.devices[i].mtu));
        if (!conductor_->set_link(i, now.up, now.path_mtu)) continue;
        spdlog::info("{}: the port is {}, path MTU {}", config_.devices[i].name, now.up ? "active" : "down", now.path_mtu);
    }
}

void Daemon::service() {
    conductor_->service(pmd::Clock::monotonic());
    uint32_t session = 0;
    host::Reply reply;
    bool close = false;
    while (conductor_->next_reply(session, reply, close)) socket_->answer(session, reply, close);
}

std::string Daemon::status_json() const {
    nlohmann::json j = nlohmann::json::parse(engines_->status_json());
    const ControlSocket::Counters& s = socket_->counters();
    j["socket"] = {{"path", config_.socket},         {"connections", socket_->connections()},
                   {"accepted", s.accepted},         {"refused", s.refused},
                   {"requests", s.requests},         {"malformed", s.malformed},
                   {"slow_dropped", s.slow_dropped}, {"paused", s.paused}};
    const EventPipes::Counters& e = events_->counters();
    j["events"] = {{"pipes", events_->pipes()},
                   {"written", e.written.load()},
                   {"kept", e.kept.load()},
                   {"merged", e.merged.load()},
                   {"by_lcore", e.by_lcore.load()}};
    j["icrc"] = icrc_kernel();
    j["registered_huge_pages"] = huge_registered_text(huge_page_error_);
    j["letting_go"] = reaper_.pending();
    j["poisoned_regions"] = SigbusGuard::instance().poisoned();
    j["pid"] = getpid();
    return j.dump();
}

void Daemon::on_signal() {
    signalfd_siginfo info{};
    if (read(signals_, &info, sizeof info) != ssize_t(sizeof info)) return;
    if (stop_) _exit(1);  // a second signal ends rocid at once
    spdlog::info("signal {}: ending", info.ssi_signo);
    stop_ = true;
}

void Daemon::say_ready() {
    std::string names;
    for (const DeviceSection& d : config_.devices) names += (names.empty() ? "" : ", ") + d.name;
    spdlog::info("serving {} at {}; {} engine(s), idle = {}; memory: {}; ICRC by {}", names, config_.socket, config_.engine.count,
                 config_.engine.idle, eal_->memory_mode(), icrc_kernel());
    log_icrc_warnings();
    tell_service_manager("READY=1\nSTATUS=serving " + names);
    if (options_.ready_fd < 0) return;
    if (write(options_.ready_fd, "ready\n", 6) != 6) spdlog::warn("nobody reads --ready-fd {}", options_.ready_fd);
    close(options_.ready_fd);
}

/// Returns the milliseconds until the conductor's next timer, but at most `most` (-1: no limit).
int Daemon::wait_ms(int most) const {
    constexpr Nanos kMs = 1'000'000;
    constexpr int kLongest = 60'000;
    const Nanos next = conductor_->next_deadline(), now = pmd::Clock::monotonic();
    if (next == kNever) return most;
    const int wait = next <= now ? 0 : int(std::min<Nanos>((next - now) / kMs + 1, kLongest));
    return most < 0 ? wait : std::min(most, wait);
}

void Daemon::run() {
    using Steady = std::chrono::steady_clock;
    say_ready();
    const auto patience = std::chrono::seconds(options_.exit_when_idle_s);
    auto busy_at = Steady::now();
    while (!stop_) {
        constexpr int kTick = 200;
        const bool look = ports_->must_look();
        socket_->serve(wait_ms(options_.exit_when_idle_s == 0 && !look ? -1 : kTick));
        service();
        if (look) follow_links();
        if (options_.exit_when_idle_s == 0) continue;
        if (socket_->connections() != 0) busy_at = Steady::now();
        if (Steady::now() - busy_at < patience) continue;
        spdlog::info("no connection for {} s: ending", options_.exit_when_idle_s);
        break;
    }
    tell_service_manager("STOPPING=1");
}

}  // namespace roci::rocid
