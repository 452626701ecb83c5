#include "config.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <numeric>
#include <sstream>

#include "addresses.hpp"
#include "nic.hpp"
#include "options.hpp"
#include "port_kinds.hpp"
#include "user_limits.hpp"

namespace roci::rocid {
namespace {

constexpr std::string_view kDefaultDevices = R"([[device]]
name = "roci0"
port = "loopback"
peer = "roci1"
mac = "02:52:4f:43:49:00"
addresses = ["10.77.0.1/24", "fd77::1/64"]
mtu = 4096

[[device]]
name = "roci1"
port = "loopback"
peer = "roci0"
mac = "02:52:4f:43:49:01"
addresses = ["10.77.0.2/24", "fd77::2/64"]
mtu = 4096
)";

/// The device of `--single`. The device is its own peer, so a client and a server on this device have the same address.
constexpr std::string_view kSingleDevice = R"([[device]]
name = "roci0"
port = "loopback"
peer = "roci0"
mac = "02:52:4f:43:49:00"
addresses = ["10.77.0.1/24", "fd77::1/64"]
)";

// ---- the text of an error ----

/// Escapes the control characters of ASCII, and those from U+0080 to U+009F, which terminals also execute.
std::string escaped(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        const auto byte = uint8_t(text[i]), next = uint8_t(i + 1 < text.size() ? text[i + 1] : 0);
        if (byte == '\n') {
            out += "\\n";
        } else if (byte < 0x20 || byte == 0x7f) {
            out += fmt::format("\\u{:04X}", byte);
        } else if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {
            out += fmt::format("\\u{:04X}", next);
            ++i;
        } else {
            out += text[i];
        }
    }
    return out;
}

/// Limits a text to ConfigError::kMostText bytes. Keeps its beginning, which has the place and the key, and its end, which has
/// the allowed values.
std::string shortened(std::string text) {
    constexpr std::string_view kGap = " ... ";
    constexpr size_t kEnd = 300;
    if (text.size() <= ConfigError::kMostText) return text;
    const auto inside = [&text](size_t at) { return (uint8_t(text[at]) & 0xc0) == 0x80; };  // inside a character of UTF-8
    size_t from = ConfigError::kMostText - kEnd - kGap.size(), to = text.size() - kEnd;
    while (from != 0 && inside(from)) --from;
    while (to != text.size() && inside(to)) ++to;
    return text.replace(from, to - from, kGap);
}

/// The position of an error in the configuration.
struct Place {
    std::string file;
    int line = 0;
};

template <class... Args>
[[noreturn]] void fail(const Place& at, fmt::format_string<Args...> text, Args&&... args) {
    throw ConfigError(fmt::format("{}:{}: {}", at.file, at.line, fmt::format(text, std::forward<Args>(args)...)));
}

Place place(const std::string& file, const toml::source_region& r) { return {file, int(r.begin.line)}; }

// ---- did you mean? ----

size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= a.size(); ++i) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            const size_t above = row[j];
            row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
            diagonal = above;
        }
    }
    return row.back();
}

/// Returns " (did you mean 'x'?)", or "" if no name is similar.
std::string suggestion(std::string_view wrong, const std::vector<std::string_view>& names) {
    std::string_view best;
    size_t distance = std::max<size_t>(2, wrong.size() / 3) + 1;
    for (std::string_view n : names)
        if (const size_t d = edit_distance(wrong, n); d < distance) {
            distance = d;
            best = n;
        }
    return best.empty() ? "" : fmt::format(" (did you mean '{}'?)", best);
}

std::vector<std::string_view> section_names() {
    std::vector<std::string_view> out;
    for (const Option& o : options())
        if (out.empty() || out.back() != o.section) out.push_back(o.section);
    return out;
}

std::vector<std::string_view> key_names(std::string_view section) {
    std::vector<std::string_view> out;
    for (const Option& o : options())
        if (o.section == section) out.push_back(o.key);
    return out;
}

// ---- values ----

std::string value_text(const toml::node& n) {
    std::ostringstream s;
    n.visit([&s](const auto& v) { s << v; });
    return s.str();
}

[[noreturn]] void refuse(const Place& at, const Option& o, const toml::node& n) {
    fail(at, "key '{}.{}' = {}: allowed {}", o.section, o.key, value_text(n), allowed(o));
}

Value text_value(const Place& at, const Option& o, const toml::node& n) {
    const auto v = n.value_exact<std::string>();
    if (!v) refuse(at, o, n);
    if (o.kind != Kind::choice) return *v;
    for (size_t from = 0; from <= o.choices.size();) {
        const size_t bar = std::min(o.choices.find('|', from), o.choices.size());
        if (o.choices.substr(from, bar - from) == *v) return *v;
        from = bar + 1;
    }
    refuse(at, o, n);
}

Value number_value(const Place& at, const Option& o, const toml::node& n) {
    const auto v = n.value_exact<int64_t>();
    if (!v || double(*v) < o.min || double(*v) > o.max) refuse(at, o, n);
    if (o.kind == Kind::integer) return *v;
    return uint64_t(*v);
}

Value fraction_value(const Place& at, const Option& o, const toml::node& n) {
    const auto v = n.is_number() ? n.value<double>() : std::nullopt;
    if (!v || !(*v >= o.min && *v <= o.max)) refuse(at, o, n);
    return *v;
}

Value texts_value(const Place& at, const Option& o, const toml::node& n) {
    const toml::array* a = n.as_array();
    if (a == nullptr) refuse(at, o, n);
    std::vector<std::string> out;
    for (const toml::node& e : *a) {
        const auto v = e.value_exact<std::string>();
        if (!v) refuse(at, o, n);
        out.push_back(*v);
    }
    return out;
}

Value value_of(const Place& at, const Option& o, const toml::node& n) {
    switch (o.kind) {
        case Kind::count:
        case Kind::integer:
        case Kind::octal:
            return number_value(at, o, n);
        case Kind::fraction:
            return fraction_value(at, o, n);
        case Kind::texts:
            return texts_value(at, o, n);
        case Kind::text:
        case Kind::choice:
            break;
    }
    return text_value(at, o, n);
}

// ---- tables ----

void read_section(const std::string& file, std::string_view section, const toml::table& table, Config& c, DeviceSection* device) {
    for (const auto& [key, node] : table) {
        const Place at = place(file, key.source());
        const std::string_view name = key.str();
        const auto o = std::ranges::find_if(options(), [&](const Option& x) { return x.section == section && x.key == name; });
        if (o == options().end()) fail(at, "unknown key '{}.{}'{}", section, name, suggestion(name, key_names(section)));
        o->store(c, device, value_of(at, *o, node));
        if (device != nullptr) device->given[std::string(key.str())] = at.line;
    }
}

void set_defaults(Config& c, DeviceSection* device) {
    for (const Option& o : options()) {
        if ((o.section == "device") != (device != nullptr)) continue;
        const toml::table t = toml::parse(fmt::format("v = {}", o.preset));
        o.store(c, device, value_of({"default", 0}, o, *t.get("v")));
    }
}

void read_devices(const std::string& file, const toml::node& node, const Place& at, Config& c) {
    const toml::array* list = node.as_array();
    if (list == nullptr) fail(at, "'device' must be a list of tables: write [[device]]");
    c.devices.clear();
    for (const toml::node& entry : *list) {
        const toml::table* t = entry.as_table();
        if (t == nullptr) fail(at, "'device' must be a list of tables: write [[device]]");
        DeviceSection& d = c.devices.emplace_back();
        d.line = int(entry.source().begin.line);
        set_defaults(c, &d);
        read_section(file, "device", *t, c, &d);
    }
}

void read_all(const std::string& file, const toml::table& root, Config& c) {
    for (const auto& [key, node] : root) {
        const Place at = place(file, key.source());
        const std::vector<std::string_view> names = section_names();
        if (std::ranges::find(names, key.str()) == names.end())
            fail(at, "unknown section '{}'{}", key.str(), suggestion(key.str(), names));
        if (key.str() == "device") {
            read_devices(file, node, at, c);
            continue;
        }
        const toml::table* t = node.as_table();
        if (t == nullptr) fail(at, "'{}' is a section: write [{}]", key.str(), key.str());
        read_section(file, key.str(), *t, c, nullptr);
    }
}

// ---- rules for several keys ----

std::vector<unsigned> parse_cpus(const std::string& file, const std::string& text) {
    std::vector<unsigned> out;
    const char* p = text.data();
    const char* end = p + text.size();
    const auto number = [&](unsigned& v) {
        const auto [next, error] = std::from_chars(p, end, v);
        const bool ok = error == std::errc{} && v < 4096;
        p = next;
        return ok;
    };
    const auto bad = [&] {
        throw ConfigError(fmt::format("{}: key 'engine.cpus' = \"{}\": allowed a list such as \"2,4-6\"", file, text));
    };
    while (p != end) {
        unsigned first = 0;
        if (!number(first)) bad();
        unsigned last = first;
        if (p != end && *p == '-') {
            ++p;
            if (!number(last) || last < first) bad();
        }
        for (unsigned cpu = first; cpu <= last; ++cpu) out.push_back(cpu);
        if (p == end) break;
        if (*p++ != ',' || p == end) bad();
    }
    return out;
}

void check_cpus(const std::string& file, Config& c) {
    c.cpu_numbers = parse_cpus(file, c.engine.cpus);
    if (c.cpu_numbers.empty()) return;
    if (c.cpu_numbers.size() < c.engine.count)
        throw ConfigError(
            fmt::format("{}: key 'engine.cpus' names {} CPUs for {} engines: name one per engine, or leave it empty", file,
                        c.cpu_numbers.size(), c.engine.count));
}

void check_users(const std::string& file, const Config& c) {
    try {
        (void)parse_user_limits(c.limits.users);
    } catch (const std::invalid_argument& e) {
        throw ConfigError(fmt::format("{}: key 'limits.users': {}", file, e.what()));
    }
}

bool good_name(const std::string& s) {
    const auto ok = [](char ch) { return (ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9') || ch == '_'; };
    return !s.empty() && s.size() <= 15 && std::ranges::all_of(s, ok);
}

/// Checks that the port kind accepts the given keys, that the key which the kind requires is set, and that the values of the keys
/// are valid.
void check_port_keys(const std::string& file, const DeviceSection& d) {
    const PortKind& kind = port_kind(d.port);
    for (const auto& [key, line] : d.given)
        if (!takes_key(kind, key))
            fail({file, line}, "key 'device.{}' is not for port = \"{}\"; its own keys are: {}", key, kind.name, own_keys(kind));
    const auto value = [&d](std::string_view key) -> const std::string& {
        return key == "interface" ? d.interface : key == "pci" ? d.pci : key == "path" ? d.path : d.peer;
    };
    if (!kind.must_have.empty() && kind.must_have != "peer" && value(kind.must_have).empty())
        fail({file, d.line}, "device '{}': port = \"{}\" needs the key '{}'", d.name, kind.name, kind.must_have);
    constexpr std::string_view kSeparators = ",\n";  // these characters separate devargs, so a value must not contain them
    for (const std::string_view key : {"interface", "pci", "path"})
        if (value(key).find_first_of(kSeparators) != std::string::npos)
            fail({file, d.line}, "key 'device.{}' = \"{}\": allowed no comma", key, value(key));
    constexpr size_t kLongestInterface = 15;
    if (d.interface.size() > kLongestInterface)
        fail({file, d.line}, "key 'device.interface' = \"{}\": allowed {} characters", d.interface, kLongestInterface);
    if (!d.pci.empty() && !canonical_pci(d.pci))
        fail({file, d.line}, "key 'device.pci' = \"{}\": allowed such as \"0000:03:00.0\"", d.pci);
    if (d.vlan != 0 && kind.netdev && d.addresses.empty())
        fail({file, d.line},
             "device '{0}': vlan = {1} needs the key 'addresses', for those of '{2}' are not in that VLAN; or leave 'vlan' out "
             "and set interface = \"{2}.{1}\" (ip link add {2}.{1} link {2} type vlan id {1})",
             d.name, d.vlan, d.interface);
    for (const std::string& n : d.neighbours)
        if (!parse_neighbour(n))
            fail({file, d.line}, "key 'device.neighbours' has \"{}\": allowed such as \"10.77.0.2=02:00:00:00:00:02\"", n);
}

void check_device(const std::string& file, Config& c, size_t index) {
    DeviceSection& d = c.devices[index];
    const Place at{file, d.line};
    if (!good_name(d.name)) fail(at, "key 'device.name' = \"{}\": allowed 1 to 15 of a-z, 0-9 and _", d.name);
    for (size_t i = 0; i < index; ++i)
        if (c.devices[i].name == d.name) fail(at, "device '{}' is there twice", d.name);
    if (d.mtu < 256 || d.mtu > 4096 || (d.mtu & (d.mtu - 1)) != 0)
        fail(at, "key 'device.mtu' = {}: allowed 256, 512, 1024, 2048 or 4096", d.mtu);
    check_port_keys(file, d);
    if (!d.pci.empty()) d.pci = canonical_pci(d.pci).value();  // the notation of DPDK and /sys
    if (d.mac.empty() && !port_kind(d.port).has_mac) d.mac = fmt::format("02:52:4f:43:49:{:02x}", index);
    const auto mac = parse_mac(d.mac);
    if (!d.mac.empty() && (!mac || mac->is_zero() || (mac->bytes[0] & 1) != 0))
        fail(at, "key 'device.mac' = \"{}\": allowed a unicast address such as \"02:52:4f:43:49:00\"", d.mac);
    for (const std::string& a : d.addresses)
        if (!parse_address(a))
            fail(at, "key 'device.addresses' has \"{}\": allowed such as \"10.77.0.1/24\" or \"fd77::1/64\"", a);
    for (const std::string& g : d.gateways)
        if (!parse_address(g) || g.find('/') != std::string::npos)
            fail(at, "key 'device.gateways' has \"{}\": allowed such as \"10.77.0.254\"", g);
    constexpr size_t kMaxAddresses = 127;
    if (d.addresses.size() > kMaxAddresses)
        fail(at, "key 'device.addresses' has {} entries: allowed {}", d.addresses.size(), kMaxAddresses);
}

/// Returns true for a UDP port with configured addresses. Such a port can share a kernel interface with other devices.
bool own_address(const DeviceSection& d) { return d.port == "udp" && !d.addresses.empty(); }

/// Checks a UDP port. A UDP port has no VLAN tag. A UDP port without configured addresses receives the datagrams for all
/// addresses of the host, so no other port may have a kernel interface.
void check_udp(const std::string& file, const Config& c, const DeviceSection& d) {
    if (d.port != "udp") return;
    if (d.vlan != 0) fail({file, d.line}, "device '{}': a UDP port has no VLAN tag: give the kernel's VLAN interface", d.name);
    if (own_address(d)) return;
    for (const DeviceSection& other : c.devices)
        if (&other != &d && port_kind(other.port).netdev)
            fail({file, d.line},
                 "device '{}' uses UDP port 4791 of all addresses, also of those of '{}': give it the key 'addresses'", d.name,
                 other.name);
}

void check_peers(const std::string& file, const Config& c) {
    for (const DeviceSection& d : c.devices) {
        const Place at{file, d.line};
        check_udp(file, c, d);
        for (const DeviceSection& other : c.devices)
            if (&other != &d && !d.mac.empty() && parse_mac(other.mac) == parse_mac(d.mac))
                fail(at, "devices '{}' and '{}' have the same MAC {}", d.name, other.name, d.mac);
        // If two ports used the same interface, each port would get only a part of the interface's frames. For example, DPDK's
        // af_packet driver names a fanout group by process and interface, so the sockets of both ports would be in one group.
        for (const DeviceSection& other : c.devices)
            if (&other < &d && !d.interface.empty() && other.interface == d.interface && !(own_address(d) && own_address(other)))
                fail(at,
                     "devices '{0}' and '{1}' are both on interface '{2}', and each would get a share of the frames: give one of "
                     "them a "
                     "VLAN interface of the kernel's (ip link add {2}.100 link {2} type vlan id 100), or a rocid of its own",
                     other.name, d.name, d.interface);
        if (d.port != "loopback") continue;
        const auto peer = std::ranges::find(c.devices, d.peer, &DeviceSection::name);
        if (peer == c.devices.end()) fail(at, "key 'device.peer' = \"{}\": no such device; a loopback device needs one", d.peer);
        if (peer->peer != d.name)
            fail(at, "device '{}' has the peer '{}', but that one has the peer '{}'", d.name, d.peer, peer->peer);
    }
}

void check(const std::string& file, Config& c) {
    constexpr size_t kMaxDevices = 32;  // abi::ListDevicesReply
    if (c.devices.empty() || c.devices.size() > kMaxDevices)
        throw ConfigError(fmt::format("{}: {} devices: allowed 1..{}", file, c.devices.size(), kMaxDevices));
    for (size_t i = 0; i < c.devices.size(); ++i) check_device(file, c, i);
    check_peers(file, c);
    check_cpus(file, c);
    check_users(file, c);
}

toml::table parse_override(const std::string& text) {
    const std::string name = "--set " + text;
    const size_t equals = text.find('=');
    if (equals == std::string::npos || text.find('\n') != std::string::npos)
        throw ConfigError(name + ": write section.key=value");
    const auto is_it = [&](const Option& o) { return fmt::format("{}.{}", o.section, o.key) == text.substr(0, equals); };
    const auto o = std::ranges::find_if(options(), is_it);
    const bool is_text = o != options().end() && (o->kind == Kind::text || o->kind == Kind::choice);
    const std::string value = text.substr(equals + 1);
    if (!is_text || value.starts_with('"') || value.starts_with('\'')) return toml::parse(text, name);
    return toml::parse(text.substr(0, equals) + "=\"" + value + "\"", name);
}

}  // namespace

ConfigError::ConfigError(std::string_view text) : std::runtime_error(shortened(escaped(text))) {}

Config parse_config(const std::string& text, const std::string& name, const std::vector<std::string>& overrides) {
    try {
        Config c;
        set_defaults(c, nullptr);
        const toml::table devices = toml::parse(kDefaultDevices);
        read_all("default", devices, c);
        const toml::table root = toml::parse(text, name);
        read_all(name, root, c);
        for (const std::string& o : overrides) read_all("--set " + o, parse_override(o), c);
        check(name, c);
        return c;
    } catch (const toml::parse_error& e) {
        fail(place(e.source().path ? *e.source().path : name, e.source()), "{}", e.description());
    }
}

Config load_config(const std::string& path, const std::vector<std::string>& overrides) {
    std::ifstream in(path);
    if (!in)
        throw ConfigError(
            fmt::format("cannot read '{}': {}; 'rocid --print-config' prints a sample", path, std::strerror(errno)));
    std::ostringstream text;
    text << in.rdbuf();
    return parse_config(text.str(), path, overrides);
}

Config default_config(const std::vector<std::string>& overrides) { return parse_config("", "default", overrides); }

Config single_config(const std::vector<std::string>& overrides) {
    return parse_config(std::string(kSingleDevice), "single", overrides);
}

namespace {

std::string port_kinds_text() {
    std::string out = "# Kinds of ports, and their keys:\n";
    for (const PortKind& k : port_kinds()) out += fmt::format("#   {}  ({}): {}\n", k.name, own_keys(k), k.what);
    return out;
}

}  // namespace

std::string sample_config() {
    std::string out =
        "# Configuration of rocid. Every key is listed with its default, its allowed values, and the reason to change it.\n"
        "# A missing key has its default. `rocid --print-config` prints this file.\n";
    std::string_view section;
    for (const Option& o : options()) {
        if (o.section != section) {
            section = o.section;
            out += section == "device" ? "\n# Devices. The two below are the default if there is no [[device]] section. Keys:\n"
                                       : fmt::format("\n[{}]\n", section);
        }
        if (section == "device") {
            out += fmt::format("#   {} = {}  ({}): {}\n", o.key, o.preset, allowed(o), o.why);
            if (o.key == key_names("device").back()) out += port_kinds_text() + "\n" + std::string(kDefaultDevices);
            continue;
        }
        out += fmt::format("# {} Allowed: {}.\n{} = {}\n", o.why, allowed(o), o.key, o.preset);
    }
    return out;
}

}  // namespace roci::rocid
