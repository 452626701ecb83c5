#include "view.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <stdexcept>

#include "devices.hpp"
#include "ending_signals.hpp"
#include "fail.hpp"
#include "live_counters.hpp"
#include "paths.hpp"

namespace roci::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kTicksPerView = 10;  // states of ports and GIDs change less often than counters

/// Writes the view of all devices of the rocid at `socket`. On failure sets `why` and returns false.
bool renew(const ViewFolder& folder, const ViewOptions& o, const std::string& socket, bool keep_counters, std::string& why) {
    const std::vector<Device> devices = query_devices(socket, why);
    if (devices.empty()) return false;
    std::vector<std::string> names;
    names.reserve(devices.size());
    for (const Device& device : devices) names.push_back(device.name);
    folder.copy_classes("/sys", o.host_network);
    folder.write_devices(sysfs_view(devices, host_facts()), names, keep_counters);
    return true;
}

std::optional<CounterFiles> counters(ControlClient& client, const ViewFolder& folder) {
    std::string why;
    auto reader = CounterReader::open(client, why);
    if (!reader) return std::nullopt;
    CounterFiles files(std::move(*reader), folder.devices());
    files.renew();
    return files;
}

/// Waits for a tick. Returns true at SIGINT or SIGTERM.
bool ended(int signals) {
    pollfd p{signals, POLLIN, 0};
    return poll(&p, 1, kCounterPeriodMs) != 0;
}

bool alive(const ControlClient& client) {
    pollfd p{client.fd(), POLLIN, 0};
    return poll(&p, 1, 0) == 0;
}

/// Renews the view until SIGINT or SIGTERM. If rocid ends, the view stays as it is until rocid runs again.
void watch(const ViewFolder& folder, const ViewOptions& o, const std::string& socket, ControlClient client) {
    const UniqueFd signals = ending_signals();
    std::optional<ControlClient> session(std::move(client));
    auto files = counters(*session, folder);
    std::string why;
    for (int tick = 1; !ended(signals.get()); ++tick) {
        if (!session || !alive(*session)) {
            files.reset();
            session = ControlClient::connect(socket, why);
            if (session && renew(folder, o, socket, false, why)) files = counters(*session, folder);
        } else if (tick % kTicksPerView == 0 && renew(folder, o, socket, true, why)) {
            files = counters(*session, folder);
        }
        if (files) files->renew();
    }
}

void show(const fs::path& folder, const std::string& socket) {
    std::string flags;
    for (const ViewMount& m : view_mounts()) flags += fmt::format(" -v {}:{}:ro", (folder / m.from).string(), m.to);
    fmt::print(
        "{} has the view. A container without privileges sees the devices with:\n"
        "  podman run{} -v {} -e {}={} -e LD_LIBRARY_PATH={} IMAGE\n",
        folder.string(), flags, fmt::format("{0}:{0}", fs::path(socket).parent_path().string()), abi::kSocketEnv, socket,
        view_mounts().back().to);
}

void write_file(const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::trunc);
    file << text;
    if (!file.flush()) throw std::system_error(errno, std::generic_category(), path);
}

}  // namespace

int view(const ViewOptions& options) {
    std::string why;
    auto daemon = find_daemon(options.where, why);
    if (!daemon) return fail(why);
    const std::string socket = fs::absolute(daemon->socket).lexically_normal();  // the paths in a container are absolute
    umask(022);                                                                  // every user of a container may read the view
    const fs::path path = fs::absolute(options.folder).lexically_normal();
    const ViewFolder folder(path);
    folder.copy_libraries(library_folders());
    if (!renew(folder, options, socket, false, why)) return fail(why);
    if (!options.cdi.empty()) write_file(options.cdi, cdi_specification(path, socket));
    show(path, socket);
    std::fflush(stdout);
    if (options.watch)
        watch(folder, options, socket, std::move(daemon->session));
    else
        counters(daemon->session, folder);
    return 0;
}

}  // namespace roci::cli
