// Tests of the tables of counters and of docs/counters.md. If ROCI_WRITE_TABLES=1 is set, the test writes this
// document.
#include "engine/counters.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <span>
#include <sstream>

#include "abi/counter_page.hpp"
#include "qp/counters.hpp"

namespace roci::qp {
namespace {

constexpr const char* kIntroduction = R"(# Counters

The unit test `unit_qp` generates this page from the tables in `stack/qp/counters.hpp`, `stack/qp/faults.hpp` and
`stack/engine/counters.hpp`.

- `roci stat` shows the counters of devices and engines, with rates. `roci status --json` shows those of each QP.
- A program under `roci run` finds counters in the files of its `/sys/class/infiniband/DEVICE/ports/1`. The column "file" names these files. `roci run` renews
  them every second. Their names are those of the InfiniBand Architecture Specification and of NVIDIA's mlx5 driver.
- All counters of devices and engines are in one page of memory, which any user may map read-only (`verbs_api/abi/counter_page.hpp`). A reader of this page sends
  no request to rocid. An engine writes its counts of frames and messages into the page every 128 rounds (usually less than 1 ms), and before it yields its CPU or sleeps.
  It writes all other counters at once.

All counters are 0 when rocid starts. A counter of a device is the sum over all QPs of the device, including destroyed ones.
An engine is the transport of one lcore. The conductor is the thread of rocid that executes the calls of programs and rdma_cm.

)";

std::string row(const std::string& name, const std::string& unit, const std::string& file, const std::string& text) {
    return "| `" + name + "` | " + unit + " | " + (file.empty() ? "" : "`" + file + "`") + " | " + text + " |\n";
}

std::string document() {
    std::string out = kIntroduction;
    const auto section = [&](const char* title, std::span<const CounterInfo> rows) {
        out += std::string("## ") + title + "\n\n| counter | unit | file | counts |\n| --- | --- | --- | --- |\n";
        for (const CounterInfo& c : rows) out += row(c.name, c.unit, c.file, c.text);
        out += "\n";
    };
    section("Of a device", kDeviceCounters);
    section("Of a QP", kQpCounters);
    out += "## Of an engine\n\n| counter | counts |\n| --- | --- |\n";
    for (const engine::CounterText& c : engine::kCounterTexts) out += std::string("| `") + c.name + "` | " + c.text + " |\n";
    for (size_t v = 0; v < engine::kVerdicts; ++v)
        out += "| `" + engine::verdict_counter(wire::Verdict(v)) + "` | frames with the parser's result `" +
               wire::verdict_name(wire::Verdict(v)) + "` |\n";
    return out;
}

TEST(CounterTable, MakesTheDocument) {
    if (std::getenv("ROCI_WRITE_TABLES") != nullptr) std::ofstream(ROCI_COUNTER_DOCUMENT) << document();
    std::ifstream in(ROCI_COUNTER_DOCUMENT);
    std::ostringstream stored;
    stored << in.rdbuf();
    EXPECT_EQ(stored.str(), document()) << "docs/counters.md: write it with ROCI_WRITE_TABLES=1";
}

void expect_complete(std::span<const CounterInfo> table) {
    std::set<std::string> names, files;
    for (const CounterInfo& c : table) {
        EXPECT_TRUE(names.insert(c.name).second) << c.name << " twice";
        EXPECT_TRUE(c.file[0] == 0 || files.insert(c.file).second) << c.file << " twice";
        EXPECT_TRUE(c.text[0] != 0 && c.unit[0] != 0) << c.name;
        EXPECT_LT(std::string(c.name).size(), sizeof abi::CounterName::text);
    }
}

TEST(CounterTable, EveryCounterHasANameOfItsOwnAndAMeaning) {
    expect_complete(kDeviceCounters);
    expect_complete(kQpCounters);
}

TEST(CounterTable, ValuesAreInTheOrderOfTheTable) {
    Counters c;
    c.tx_packets = 1;
    c.events.dropped = 2;
    EXPECT_EQ(values(c).front(), 1u);
    EXPECT_EQ(values(c).back(), 2u);
    EXPECT_STREQ(kQpCounters[0].name, "tx_packets");
    EXPECT_STREQ(kQpCounters[kQpCounterCount - 1].name, "dropped");
}

TEST(CounterTable, EachFaultHasACounterOfTheDevice) {
    DeviceCounters d;
    bump(d, RequestFault::wrong_qkey);
    const auto* words = reinterpret_cast<const uint64_t*>(&d);
    EXPECT_EQ(words[kDeviceCounterCount - 1], 1u);
    EXPECT_STREQ(kDeviceCounters[kDeviceCounterCount - 1].name, "request_wrong_qkey");
}

}  // namespace
}  // namespace roci::qp
