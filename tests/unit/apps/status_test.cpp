// Tests of `roci status`: its tables fit the width of the terminal, its filters select sessions and QPs, and tables
// that are too wide continue below.
#include "status.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "table.hpp"

namespace roci::cli {
namespace {

using json = nlohmann::ordered_json;

json session(uint64_t id, uint64_t uid, const char* device, uint32_t qpn) {
    json counters;
    for (int i = 0; i < 20; ++i) counters["counter_number_" + std::to_string(i)] = 1'000'000'000 + i;
    json qp = {{"handle", 0}, {"qpn", qpn}, {"peer", {{"qpn", 7}, {"gid", "::ffff:10.77.0.2"}}}, {"counters", counters}};
    for (int i = 0; i < 15; ++i) qp["some_field_" + std::to_string(i)] = "value " + std::to_string(i);
    return {{"id", id}, {"pid", 100 + id}, {"uid", uid}, {"program", "app"}, {"device", device}, {"qps", {qp}}};
}
json whole() {
    return {{"devices", {{{"name", "roci0"}}, {{"name", "roci1"}}}},
            {"host", {{"memory", std::string(50, 'm') + " " + std::string(70, 'n')}, {"nothing", ""}}},
            {"sessions",
             {session(1, 1000, "roci0", 18),
              session(2, 1001, "roci1", 19),
              {{"id", 3}, {"device", nullptr}, {"qps", json::array()}}}}};
}
bool has(const std::string& text, const std::string& word) { return text.find(word) != std::string::npos; }

TEST(Status, FitsAHundredColumnsAndHasEveryValue) {
    const std::string text = status_tables(whole());
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
    for (int i = 0; i < 20; ++i)
        EXPECT_TRUE(has(text, "counter_number_" + std::to_string(i) + "=" + std::to_string(1'000'000'000 + i)));
    for (int i = 0; i < 15; ++i) EXPECT_TRUE(has(text, "value " + std::to_string(i))) << text;
    EXPECT_TRUE(has(text, "sessions 2: qps")) << text;
    EXPECT_FALSE(has(text, "qps=")) << "a table in a cell";
}

TEST(Status, FitsFortyColumnsAndHasEveryValue) {
    for (const std::string& text : {status_tables(whole(), 40), qp_page(whole(), 40)}) {
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);) {
            const size_t begin = std::min(line.find_first_not_of(' '), line.size());
            EXPECT_TRUE(line.size() <= 40 || line.find(' ', begin) == std::string::npos) << line;
        }
        for (int i = 0; i < 20; ++i) EXPECT_TRUE(has(text, std::to_string(1'000'000'000 + i))) << text;
        for (int i = 0; i < 15; ++i) EXPECT_TRUE(has(text, "value " + std::to_string(i))) << text;
    }
}

TEST(Status, FiltersBySessionAndQp) {
    const json all = whole();
    StatusOptions o;
    o.device = "roci1";
    EXPECT_EQ(filter_status(all, o)["sessions"].size(), 1u);
    EXPECT_EQ(filter_status(all, o)["devices"].size(), 1u);
    o = {};
    o.user = 1000;
    EXPECT_EQ(filter_status(all, o)["sessions"][0]["id"], 1);
    o.pid = 102;
    EXPECT_TRUE(filter_status(all, o)["sessions"].empty());
    o = {};
    o.qpn = 19;
    ASSERT_EQ(filter_status(all, o)["sessions"].size(), 1u);
    EXPECT_EQ(filter_status(all, o)["sessions"][0]["id"], 2);
    const std::string page = qp_page(filter_status(all, o));
    for (const char* word : {"QP 19", "app (pid 102, user 1001)", "roci1", "counter_number_3", "qpn=7"})
        EXPECT_TRUE(has(page, word)) << word << page;
    o.qpn = 20;
    EXPECT_EQ(qp_page(filter_status(all, o)), "");
}

TEST(Table, ContinuesBelowWithItsFirstColumn) {
    Table t({"id", "first", "second", "third"});
    t.add({"1", std::string(30, 'a'), std::string(30, 'b'), std::string(30, 'c')});
    EXPECT_EQ(t.text(70), "  id first                          second\n  1  " + std::string(30, 'a') + " " +
                              std::string(30, 'b') + "\n  id third\n  1  " + std::string(30, 'c') + "\n");
    EXPECT_TRUE(has(t.text(10), std::string(30, 'c'))) << "a column that is too wide alone stays whole";
}

}  // namespace
}  // namespace roci::cli
