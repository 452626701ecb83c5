// Configuration files with arbitrary text. parse_config must return a configuration or throw a ConfigError of one short line
// that begins with the name of the file. An accepted configuration that is printed and read again must be the same.
#include "apps/rocid/config.hpp"

#include <toml++/toml.h>

#include <algorithm>
#include <sstream>

#include "apps/rocid/options.hpp"
#include "targets.hpp"

namespace roci::fuzz::config {
namespace {

using rocid::Config;
using rocid::DeviceSection;
using rocid::Option;
using rocid::Value;

enum : size_t { kAccepted, kWithDevices, kRefused };

void insert(toml::table& table, const Option& o, const Value& value) {
    struct {
        toml::table& to;
        const Option& option;
        void operator()(const std::string& v) { to.insert(option.key, v); }
        void operator()(uint64_t v) { to.insert(option.key, int64_t(v)); }
        void operator()(int64_t v) { to.insert(option.key, v); }
        void operator()(double v) { to.insert(option.key, v); }
        void operator()(const std::vector<std::string>& v) {
            toml::array list;
            for (const std::string& text : v) list.push_back(text);
            to.insert(option.key, std::move(list));
        }
    } put{table, o};
    std::visit(put, value);
}

/// Returns a configuration file with all keys. The section of a device has only the keys that the configuration gives
/// for this device.
std::string print(const Config& c) {
    toml::table root;
    toml::array devices;
    for (const DeviceSection& d : c.devices) {
        toml::table device;
        for (const Option& o : rocid::options())
            if (o.section == "device" && d.given.contains(std::string(o.key))) insert(device, o, o.load(c, &d));
        devices.push_back(std::move(device));
    }
    root.insert("device", std::move(devices));
    for (const Option& o : rocid::options()) {
        if (o.section == "device") continue;
        if (!root.contains(o.section)) root.insert(o.section, toml::table{});
        insert(*root[o.section].as_table(), o, o.load(c, nullptr));
    }
    std::ostringstream text;
    text << root;
    return text.str();
}

void check_same(const Config& a, const Config& b) {
    require(a.devices.size() == b.devices.size(), "printed and read again, it has the same devices");
    for (const Option& o : rocid::options()) {
        if (o.section != "device") {
            require(o.load(a, nullptr) == o.load(b, nullptr), "printed and read again, it is the same");
            continue;
        }
        for (size_t d = 0; d < a.devices.size(); ++d)
            require(o.load(a, &a.devices[d]) == o.load(b, &b.devices[d]), "printed and read again, its devices are the same");
    }
    require(a.cpu_numbers == b.cpu_numbers, "printed and read again, it has the same CPUs");
}

bool is_control(char c) { return uint8_t(c) < 0x20 || c == 0x7f; }

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

void run(Input in, Reach& reach) {
    constexpr std::string_view kName = "fuzz.toml";
    try {
        const Config c = rocid::parse_config({in.begin(), in.end()}, std::string(kName));
        check_same(c, rocid::parse_config(print(c), "printed"));
        reach(kAccepted);
        reach(kWithDevices, c.devices[0].line != 0);
    } catch (const rocid::ConfigError& e) {
        const std::string what = e.what();
        require(what.starts_with(kName), "an error begins with the name of the file");
        require(std::ranges::none_of(what, is_control), "an error is one line without control characters");
        require(what.size() <= rocid::ConfigError::kMostText, "an error is short");
        reach(kRefused);
    }
}

/// The sample file, and one text per key.
std::vector<Bytes> seeds() {
    std::vector<Bytes> all = {bytes_of(rocid::sample_config())};
    for (const Option& o : rocid::options()) {
        const std::string line = std::string(o.key) + " = " + std::string(o.preset) + "\n";
        if (o.section != "device") all.push_back(bytes_of("[" + std::string(o.section) + "]\n" + line));
    }
    return all;
}

std::vector<Outcome> outcomes() { return numbered({"accepted", "accepted, with devices", "refused"}); }

}  // namespace roci::fuzz::config
