#include "up.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <array>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "daemon.hpp"
#include "devices.hpp"
#include "fail.hpp"

namespace roci::cli {
namespace {

/// Returns the interface of the IPv4 default route. If there is no IPv4 default route, returns the interface of the IPv6 default
/// route. If there is no default route, returns "".
std::string default_interface() {
    std::string line;
    std::ifstream four("/proc/net/route");
    while (std::getline(four, line)) {
        std::istringstream words(line);
        std::string name, destination;
        if (words >> name >> destination && destination == "00000000") return name;
    }
    std::ifstream six("/proc/net/ipv6_route");
    while (std::getline(six, line)) {
        std::istringstream words(line);
        std::array<std::string, 10> field;  // destination, its prefix length, …, the interface
        for (std::string& f : field) words >> f;
        if (field[1] == "00" && field[9] != "lo" && field[0].find_first_not_of('0') == std::string::npos) return field[9];
    }
    return {};
}

bool write_config(const std::string& path, const UpOptions& o) {
    std::ofstream file(path, std::ios::trunc);
    file << fmt::format("# Made by `roci up`.\n[[device]]\nname = \"roci0\"\nport = \"udp\"\ninterface = \"{}\"\n", o.interface);
    if (!o.address.empty()) file << fmt::format("addresses = [\"{}\"]\n", o.address);
    return bool(file.flush());
}

/// Returns true if the text contains no quote, no backslash and no line feed, so that it can stand between quotes in the
/// configuration. rocid checks the meaning of the text.
bool plain(const std::string& text) { return text.find_first_of("\"\\\n") == std::string::npos; }

std::string ip_text(const abi::GidValue& gid) {
    constexpr std::array<uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    const bool four = std::memcmp(gid.raw, kMapped.data(), kMapped.size()) == 0;
    char text[INET6_ADDRSTRLEN] = "";
    inet_ntop(four ? AF_INET : AF_INET6, gid.raw + (four ? kMapped.size() : 0), text, sizeof text);
    return text;
}

/// Prints the GIDs of the first device as IP addresses, and two commands to try. Returns the exit code.
int show(const std::string& socket) {
    std::string why;
    const std::vector<Device> devices = query_devices(socket, why);
    if (devices.empty()) return fail(why);
    const Device& d = devices.front();
    std::string first;
    uint32_t index = 0;
    fmt::print("{} on {}, without privilege:\n", d.name, d.netdev);
    for (const abi::GidEntry& g : d.gids) {
        const std::string text = ip_text(g.gid);
        fmt::print("  GID {}: {}\n", g.index, text);
        if (!first.empty() || g.index == 0) continue;
        first = text;
        index = g.index;
    }
    if (first.empty()) {
        fmt::print("The interface has no address yet: ip addr add ADDRESS/PREFIX dev {}\n", d.netdev);
        return 0;
    }
    fmt::print(
        "Here:              roci run -- ib_write_bw -d {0} -x {1} -F\n"
        "On another machine, after `roci up` there:\n"
        "                   roci run -- ib_write_bw -d {0} -x {1} -F {2}\n"
        "A firewall must let UDP port 4791 pass in both directions. `roci down` ends it.\n",
        d.name, index, first);
    return 0;
}

/// Returns the process ID of the rocid to which the client is connected, or 0 if unknown.
pid_t process_of(const ControlClient& client) {
    ucred who{};
    socklen_t length = sizeof who;
    return getsockopt(client.fd(), SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 ? who.pid : 0;
}

}  // namespace

int up(const UpOptions& wanted) {
    std::string why;
    const std::string socket = up_socket(why);
    if (socket.empty()) return fail(why);
    std::string unused;
    if (ControlClient::connect(socket, unused)) {
        fmt::print("rocid runs already; `roci down` ends it.\n");
        return show(socket);
    }
    UpOptions options = wanted;
    if (options.interface.empty()) options.interface = default_interface();
    if (options.interface.empty())
        return fail("no default route: name the interface (roci up --interface NAME; ip link lists them)");
    if (!plain(options.interface) || !plain(options.address)) return fail("an interface or address has no quotes");
    Where where;
    where.config = socket + ".toml";
    where.keep = true;
    if (!write_config(where.config, options)) return fail(fmt::format("cannot write {}: {}", where.config, std::strerror(errno)));
    if (!start_daemon(where, socket, why)) return fail(why);
    return show(socket);
}

int down() {
    std::string why;
    const std::string socket = up_socket(why);
    if (socket.empty()) return fail(why);
    pid_t process = 0;
    {
        const auto client = ControlClient::connect(socket, why);
        if (!client) return fail("no rocid of `roci up` runs for this user");
        process = process_of(*client);
    }
    if (process <= 0) return fail("rocid is in another container: end it there");
    if (kill(process, SIGTERM) != 0) return fail(fmt::format("process {}: {}", process, std::strerror(errno)));
    constexpr int kTries = 500;
    for (int i = 0; i < kTries && kill(process, 0) == 0; ++i) usleep(10'000);
    if (kill(process, 0) == 0) return fail(fmt::format("rocid (process {}) does not end", process));
    fmt::print("rocid has ended\n");
    return 0;
}

}  // namespace roci::cli
