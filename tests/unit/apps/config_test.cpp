// Tests of rocid's configuration: the table of options, the values that the parser accepts, its error messages, and
// addresses.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "apps/rocid/addresses.hpp"
#include "apps/rocid/config.hpp"
#include "apps/rocid/options.hpp"
#include "apps/rocid/port_kinds.hpp"

namespace roci::rocid {
namespace {

std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
    try {
        parse_config(text, "f.toml", overrides);
    } catch (const ConfigError& e) {
        return e.what();
    }
    return "no error";
}

TEST(Config, DefaultsAreTheLoopbackPair) {
    const Config c = default_config();
    EXPECT_EQ(c.socket, "/run/rocinante/rocid.sock");
    EXPECT_EQ(c.socket_mode, 0660u);
    EXPECT_EQ(c.socket_group, "");
    EXPECT_EQ(c.engine.idle, "adaptive");
    EXPECT_EQ(c.engine.rx_burst, 32u);
    EXPECT_EQ(c.limits.max_qps, 65536u);
    EXPECT_EQ(c.fault.drop, 0.0);
    ASSERT_EQ(c.devices.size(), 2u);
    EXPECT_EQ(c.devices[0].name, "roci0");
    EXPECT_EQ(c.devices[0].peer, "roci1");
    EXPECT_EQ(c.devices[1].addresses, (std::vector<std::string>{"10.77.0.2/24", "fd77::2/64"}));
}

TEST(Config, SingleIsOneDeviceThatIsItsOwnPeer) {
    const Config c = single_config({"engine.count=2"});
    ASSERT_EQ(c.devices.size(), 1u);
    EXPECT_EQ(c.devices[0].peer, c.devices[0].name);
    EXPECT_EQ(c.devices[0].addresses, default_config().devices[0].addresses);
    EXPECT_EQ(c.engine.count, 2u);
}

TEST(Config, TheSampleFileIsTheTableAndParsesToTheDefaults) {
    std::ifstream in(ROCI_SAMPLE_CONFIG);
    std::ostringstream text;
    text << in.rdbuf();
    EXPECT_EQ(text.str(), sample_config())
        << "config/rocinante.toml is out of date: rocid --print-config > config/rocinante.toml";
    const Config a = parse_config(sample_config(), "sample"), b = default_config();
    EXPECT_EQ(a.devices.size(), b.devices.size());
    EXPECT_EQ(a.engine.max_inflight, b.engine.max_inflight);
    for (const Option& o : options())
        EXPECT_NE(sample_config().find(std::string(o.key) + " = " + std::string(o.preset)), std::string::npos) << o.key;
}

TEST(Config, EveryOptionIsExplainedAndThereOnce) {
    std::set<std::pair<std::string_view, std::string_view>> seen;
    for (const Option& o : options()) {
        EXPECT_GT(o.why.size(), 10u) << o.key;
        EXPECT_TRUE(seen.emplace(o.section, o.key).second) << o.key;
    }
}

TEST(Config, AValueOutOfRangeSaysFileLineAndWhatIsAllowed) {
    EXPECT_EQ(error_of("[engine]\n\nrx_burst = 999\n"), "f.toml:3: key 'engine.rx_burst' = 999: allowed 1..256");
    EXPECT_EQ(error_of("[engine]\nrx_burst = 0\n"), "f.toml:2: key 'engine.rx_burst' = 0: allowed 1..256");
    EXPECT_EQ(error_of("[engine]\nrx_burst = -1\n"), "f.toml:2: key 'engine.rx_burst' = -1: allowed 1..256");
    EXPECT_EQ(error_of("[engine]\nrx_burst = \"many\"\n"), "f.toml:2: key 'engine.rx_burst' = 'many': allowed 1..256");
    EXPECT_EQ(error_of("[fault]\ndrop = 1.5\n"), "f.toml:2: key 'fault.drop' = 1.5: allowed 0.0..1.0");
    EXPECT_EQ(error_of("[fault]\ndrop = nan\n"), "f.toml:2: key 'fault.drop' = nan: allowed 0.0..1.0");
    EXPECT_EQ(error_of("[memory]\nhugepages = \"sometimes\"\n"),
              "f.toml:2: key 'memory.hugepages' = 'sometimes': allowed auto|always|never");
    EXPECT_EQ(error_of("[memory]\nhugepages = \"\"\n"), "f.toml:2: key 'memory.hugepages' = '': allowed auto|always|never");
    EXPECT_EQ(error_of("[rocid]\nsocket_mode = 0o7777\n"), "f.toml:2: key 'rocid.socket_mode' = 0o7777: allowed 0o0..0o777");
}

TEST(Config, LimitsOfUsersAreCheckedByName) {
    EXPECT_EQ(error_of("[limits]\nusers = [\"* qps=10 keys=5\", \"root qps=3\", \"@root cqs=1\", \"1234 cm_ids=9\"]\n"),
              "no error");
    EXPECT_NE(error_of("[limits]\nusers = [\"* queues=10\"]\n").find("no limit 'queues'; there are sessions, qps"),
              std::string::npos);
    EXPECT_NE(error_of("[limits]\nusers = [\"* qps=many\"]\n").find("'qps=many': write qps=number"), std::string::npos);
    EXPECT_NE(error_of("[limits]\nusers = [\"nobody-of-that-name qps=1\"]\n").find("no user 'nobody-of"), std::string::npos);
    EXPECT_NE(error_of("[limits]\nusers = [\"@no-such-group qps=1\"]\n").find("no group 'no-such-group'"), std::string::npos);
    EXPECT_NE(error_of("[limits]\nusers = [\"root\"]\n").find("names no limit"), std::string::npos);
}

TEST(Config, LimitsOfTheRangesAreAllowed) {
    const Config c = parse_config("[engine]\nrx_burst = 256\ntx_burst = 1\n[fault]\ndrop = 1\n", "f");
    EXPECT_EQ(c.engine.rx_burst, 256u);
    EXPECT_EQ(c.engine.tx_burst, 1u);
    EXPECT_EQ(c.fault.drop, 1.0);
}

TEST(Config, TwoDevicesWithOneMacAreRefusedInAnySpelling) {
    const std::string two =
        "[[device]]\nname = \"a\"\npeer = \"b\"\nmac = \"02:52:4f:43:49:4F\"\n"
        "[[device]]\nname = \"b\"\npeer = \"a\"\nmac = \"02:52:4F:43:49:4f\"\n";
    EXPECT_NE(error_of(two).find("devices 'a' and 'b' have the same MAC"), std::string::npos) << error_of(two);
}

TEST(Config, UnknownKeysAndSectionsAreErrorsWithAGuess) {
    EXPECT_EQ(error_of("[engine]\nrx_brust = 8\n"), "f.toml:2: unknown key 'engine.rx_brust' (did you mean 'rx_burst'?)");
    EXPECT_EQ(error_of("[engin]\n"), "f.toml:1: unknown section 'engin' (did you mean 'engine'?)");
    EXPECT_EQ(error_of("[engine]\nbanana = 8\n"), "f.toml:2: unknown key 'engine.banana'");
    EXPECT_EQ(error_of("engine = 3\n"), "f.toml:1: 'engine' is a section: write [engine]");
    EXPECT_EQ(error_of("[device]\nname = \"a\"\n"), "f.toml:1: 'device' must be a list of tables: write [[device]]");
}

TEST(Config, BrokenTomlSaysWhere) { EXPECT_EQ(error_of("[engine]\ncount = = 1\n").substr(0, 9), "f.toml:2:"); }

// The description of an error of TOML repeats the bytes that were read, here with the line feed. Texts of the file may contain
// control characters of terminals, such as ESC and CSI (U+009B).
TEST(Config, AnErrorIsOneLineWithoutControlCharacters) {
    const std::string broken = error_of("[engine]\ncount = f\n");
    EXPECT_TRUE(broken.starts_with("f.toml:2: ")) << broken;
    EXPECT_TRUE(broken.ends_with("'f\\n'")) << broken;
    EXPECT_EQ(error_of("[engine]\n\"a\\u001b\\u009b\\u00e9\\u007f\\tb\" = 1\n"),
              "f.toml:2: unknown key 'engine.a\\u001B\\u009B\u00e9\\u007F\\u0009b'");
    EXPECT_EQ(error_of("[memory]\nhugepages = [\n1, 2]\n").find('\n'), std::string::npos);
    const std::string list = error_of("[memory]\nhugepages = [\"" + std::string(200, 'a') + "\", \"b\"]\n");
    EXPECT_EQ(list.find('\n'), std::string::npos) << list;
}

TEST(Config, AnErrorIsShortAndKeepsItsBeginningAndItsEnd) {
    for (size_t bytes = 900; bytes < 1100; ++bytes) {
        std::string value(bytes & 1, 'a');
        while (value.size() < bytes) value += "\u00e9";
        const std::string text = error_of("[memory]\nhugepages = \"" + value + "\"\n");
        EXPECT_LE(text.size(), ConfigError::kMostText);
        EXPECT_TRUE(text.starts_with("f.toml:2: key 'memory.hugepages' = ")) << text;
        EXPECT_TRUE(text.ends_with("allowed auto|always|never")) << text;
        const size_t gap = text.find(" ... ");
        if (gap == std::string::npos) continue;
        EXPECT_GT(text.size() + 4, ConfigError::kMostText) << "no more than necessary is removed";
        EXPECT_EQ(text[gap - 1], '\xa9') << "whole characters are removed";
        EXPECT_EQ(text[gap + 5], '\xc3') << "whole characters are removed";
    }
}

TEST(Config, Devices) {
    const std::string b = "[[device]]\nname = \"b\"\npeer = \"a\"\n";
    EXPECT_EQ(error_of("[[device]]\nname = \"a\"\npeer = \"b\"\n" + b), "no error");
    EXPECT_EQ(error_of("[[device]]\nname = \"a\"\npeer = \"a\"\n"), "no error");
    EXPECT_NE(error_of("[[device]]\nname = \"a\"\n").find("f.toml:1: key 'device.peer' = \"\": no such device"),
              std::string::npos);
    EXPECT_NE(error_of("[[device]]\nname = \"a\"\npeer = \"a\"\n" + b)
                  .find("device 'b' has the peer 'a', but that one has the peer 'a'"),
              std::string::npos);
    EXPECT_NE(error_of(b + b).find("is there twice"), std::string::npos);
    const auto alone = [&](const std::string& line) {
        return error_of("[[device]]\nname = \"a\"\npeer = \"a\"\n" + line + "\n");
    };
    EXPECT_NE(alone("mtu = 1500").find("f.toml:1: key 'device.mtu' = 1500: allowed 256, 512, 1024, 2048 or 4096"),
              std::string::npos);
    EXPECT_NE(alone("mac = \"02:00\"").find("key 'device.mac' = \"02:00\""), std::string::npos);
    EXPECT_NE(alone("mac = \"01:00:00:00:00:01\"").find("unicast"), std::string::npos);
    EXPECT_NE(alone("addresses = [\"10.0.0.256\"]").find("key 'device.addresses' has \"10.0.0.256\""), std::string::npos);
    EXPECT_NE(alone("addresses = [\"10.0.0.1/33\"]").find("10.0.0.1/33"), std::string::npos);
    EXPECT_NE(error_of("[[device]]\nname = \"Bad Name\"\npeer = \"a\"\n").find("allowed 1 to 15"), std::string::npos);
}

TEST(Config, EachKindOfPortHasItsOwnKeys) {
    const auto device = [](const std::string& lines) { return error_of("[[device]]\nname = \"a\"\n" + lines + "\n"); };
    EXPECT_EQ(device("port = \"af_packet\"\ninterface = \"eth0\""), "no error");
    EXPECT_EQ(device("port = \"af_packet\"\ninterface = \"eth0\"\npci = \"0000:03:00.0\""),
              "f.toml:5: key 'device.pci' is not for port = \"af_packet\"; its own keys are: interface, descriptors, devargs");
    EXPECT_EQ(device("port = \"af_packet\"\ninterface = \"eth0\"\npeer = \"b\"").substr(0, 50),
              "f.toml:5: key 'device.peer' is not for port = \"af_");
    EXPECT_EQ(device("port = \"af_packet\""), "f.toml:1: device 'a': port = \"af_packet\" needs the key 'interface'");
    EXPECT_EQ(device("port = \"pci\""), "f.toml:1: device 'a': port = \"pci\" needs the key 'pci'");
    EXPECT_EQ(device("port = \"pci\"\npci = \"eth0\""),
              "f.toml:1: key 'device.pci' = \"eth0\": allowed such as \"0000:03:00.0\"");
    EXPECT_EQ(device("port = \"memif\""), "f.toml:1: device 'a': port = \"memif\" needs the key 'path'");
    EXPECT_NE(device("port = \"smoke\"").find("f.toml:3: key 'device.port' = 'smoke': allowed loopback|af_packet"),
              std::string::npos);
    EXPECT_NE(device("port = \"af_packet\"\ninterface = \"e,x=1\"").find("allowed no comma"), std::string::npos);
    EXPECT_NE(device("port = \"af_packet\"\ninterface = \"sixteencharacter\"").find("allowed 15 characters"), std::string::npos);
    EXPECT_NE(
        device("port = \"af_packet\"\ninterface = \"e\"\nneighbours = [\"10.0.0.1\"]").find("\"10.0.0.1\": allowed such as"),
        std::string::npos);
}

TEST(Config, AnInterfaceIsOneDevices) {
    const auto device = [](const std::string& name, const std::string& interface) {
        return "[[device]]\nname = \"" + name + "\"\nport = \"af_packet\"\ninterface = \"" + interface + "\"\n";
    };
    EXPECT_EQ(error_of(device("a", "eth0") + device("b", "eth0.7")), "no error");
    EXPECT_NE(
        error_of(device("a", "eth0") + device("b", "eth0")).find("f.toml:5: devices 'a' and 'b' are both on interface 'eth0'"),
        std::string::npos);
}

TEST(Config, TheTableOfPortKindsAndTheOptionAgree) {
    std::string names;
    for (const PortKind& k : port_kinds()) {
        names += (names.empty() ? "" : "|") + std::string(k.name);
        EXPECT_GT(k.what.size(), 20u) << k.name;
        EXPECT_TRUE(k.must_have.empty() || takes_key(k, k.must_have)) << k.name;
    }
    const auto o = std::ranges::find_if(options(), [](const Option& x) { return x.section == "device" && x.key == "port"; });
    EXPECT_EQ(names, o->choices);
}

TEST(Config, VlanAndTrafficClass) {
    const std::string loopback = "[[device]]\nname = \"a\"\npeer = \"a\"\n",
                      shared = "[[device]]\nname = \"a\"\nport = \"af_packet\"\ninterface = \"eth0\"\n";
    const Config c = parse_config(loopback + "vlan = 4094\ntraffic_class = 106\n", "f");
    EXPECT_EQ(c.devices[0].vlan, 4094u);
    EXPECT_EQ(c.devices[0].traffic_class, 106u);
    EXPECT_NE(error_of(loopback + "vlan = 4095\n").find("key 'device.vlan' = 4095: allowed 0..4094"), std::string::npos);
    EXPECT_NE(error_of(loopback + "traffic_class = 256\n").find("allowed 0..255"), std::string::npos);
    EXPECT_EQ(error_of(shared + "vlan = 7\naddresses = [\"10.0.0.1/24\"]\n"), "no error");
    const std::string why = error_of(shared + "vlan = 7\n");
    EXPECT_NE(why.find("vlan = 7 needs the key 'addresses'"), std::string::npos) << why;
    EXPECT_NE(why.find("ip link add eth0.7 link eth0 type vlan id 7"), std::string::npos) << why;
}

TEST(Config, DevargsOfPorts) {
    const Config c = parse_config(
        "[[device]]\nname = \"a\"\nport = \"af_packet\"\ninterface = \"eth0\"\nmtu = 1024\n"
        "[[device]]\nname = \"b\"\nport = \"af_packet\"\ninterface = \"eth1\"\ndevargs = \"qdisc_bypass=1\"\n"
        "[[device]]\nname = \"c\"\nport = \"pci\"\npci = \"3:0.0\"\n"
        "[[device]]\nname = \"d\"\nport = \"af_xdp\"\ninterface = \"eth2\"\n",
        "f");
    EXPECT_EQ(devargs_of(c.devices[0], 2), "net_af_packet_a,iface=eth0,qpairs=2,framesz=2048,blocksz=65536,framecnt=1024");
    EXPECT_EQ(devargs_of(c.devices[1], 1),
              "net_af_packet_b,iface=eth1,qpairs=1,framesz=4352,blocksz=69632,framecnt=1024,qdisc_bypass=1");
    EXPECT_EQ(devargs_of(c.devices[2], 1), "0000:03:00.0");
    EXPECT_EQ(devargs_of(c.devices[3], 2, 0), "net_af_xdp_d,iface=eth2,start_queue=0,queue_count=1,busy_budget=0");
    EXPECT_EQ(devargs_of(c.devices[3], 2, 1), "net_af_xdp_d.1,iface=eth2,start_queue=1,queue_count=1,busy_budget=0");
}

TEST(Config, PathMtusThatFitAnInterface) {
    EXPECT_EQ(path_mtu_within(1500, 4096), 1024u);
    EXPECT_EQ(path_mtu_within(4200, 4096), 4096u);
    EXPECT_EQ(path_mtu_within(9000, 1024), 1024u);
    EXPECT_EQ(path_mtu_within(300, 4096), 0u);
}

TEST(Config, Cpus) {
    EXPECT_EQ(parse_config("[engine]\ncount = 4\ncpus = \"2,4-6\"\n", "f").cpu_numbers, (std::vector<unsigned>{2, 4, 5, 6}));
    EXPECT_NE(error_of("[engine]\ncount = 2\ncpus = \"3\"\n").find("names 1 CPUs for 2 engines"), std::string::npos);
    for (const char* bad : {"x", "1-", "3-1", "1,", ",1", "1 2", "99999"})
        EXPECT_NE(error_of(std::string("[engine]\ncpus = \"") + bad + "\"\n").find("key 'engine.cpus'"), std::string::npos)
            << bad;
}

TEST(Config, OverridesComeLastAndTextNeedsNoQuotes) {
    const Config c = parse_config("[engine]\nidle = \"backoff\"\n", "f",
                                  {"engine.idle=spin", "fault.drop=0.25", "rocid.socket=/tmp/x.sock", "engine.cpus=3"});
    EXPECT_EQ(c.cpu_numbers, std::vector<unsigned>{3});
    EXPECT_EQ(c.engine.idle, "spin");
    EXPECT_EQ(c.fault.drop, 0.25);
    EXPECT_EQ(c.socket, "/tmp/x.sock");
    EXPECT_NE(error_of("", {"engine.cuont=2"}).find("did you mean 'count'"), std::string::npos);
    EXPECT_NE(error_of("", {"engine.count=99"}).find("allowed 1..16"), std::string::npos);
    EXPECT_NE(error_of("", {"engine"}).find("section.key=value"), std::string::npos);
}

TEST(Config, AFileThatIsNotThere) {
    try {
        load_config("/nowhere.toml");
        FAIL();
    } catch (const ConfigError& e) {
        EXPECT_NE(std::string(e.what()).find("cannot read '/nowhere.toml': No such file"), std::string::npos);
    }
}

TEST(Addresses, LinkLocalIsTheModifiedEui64) {  // RFC 4291 appendix A
    EXPECT_EQ(gid_text(link_local(*parse_mac("02:52:4f:43:49:00"))), "fe80::52:4fff:fe43:4900");
    EXPECT_EQ(gid_text(link_local(*parse_mac("34:56:78:9a:bc:de"))), "fe80::3656:78ff:fe9a:bcde");
}

TEST(Addresses, Ipv4IsMapped) {
    ASSERT_TRUE(parse_address("10.77.0.1/24"));
    EXPECT_TRUE(parse_address("10.77.0.1/24")->is_ipv4());
    EXPECT_EQ(gid_text(*parse_address("10.77.0.1")), "::ffff:10.77.0.1");
    EXPECT_EQ(gid_text(*parse_address("fd77::1/64")), "fd77::1");
    for (const char* bad : {"", "10.77.0", "10.77.0.1/", "10.77.0.1/-1", "fd77::1/129", "fd77::g", "10.77.0.1/24x"})
        EXPECT_FALSE(parse_address(bad)) << bad;
}

TEST(Addresses, Macs) {
    EXPECT_EQ(mac_text(*parse_mac("02:52:4F:43:49:0a")), "02:52:4f:43:49:0a");
    for (const char* bad : {"", "02:52:4f:43:49", "02-52-4f-43-49-00", "02:52:4f:43:49:0g", "02:52:4f:43:49:000"})
        EXPECT_FALSE(parse_mac(bad)) << bad;
}

}  // namespace
}  // namespace roci::rocid
