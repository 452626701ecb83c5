// Tests of the counter page: what engines store in it, what `roci stat` prints from it, and the files of the sysfs
// view.
#include "stat.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "apps/rocid/counter_page.hpp"
#include "engine/counters.hpp"
#include "live_counters.hpp"
#include "qp/counters.hpp"
#include "sysfs_view.hpp"
#include "temporary_folder.hpp"

namespace roci::cli {
namespace {

namespace fs = std::filesystem;

struct Page {
    const std::vector<std::string> names{"roci0", "roci1"};
    rocid::CounterPage page{2, names};
    engine::CounterPlaces a = page.places(0), b = page.places(1);
    std::vector<std::byte> copy() const {
        std::vector<std::byte> bytes(size_t(lseek(page.fd(), 0, SEEK_END)));
        EXPECT_EQ(pread(page.fd(), bytes.data(), bytes.size(), 0), ssize_t(bytes.size()));
        return bytes;
    }
};

uint64_t value(const std::vector<CounterLabel>& labels, const std::vector<uint64_t>& values, const std::string& name) {
    for (size_t i = 0; i < labels.size(); ++i)
        if (labels[i].name == name) return values[i];
    ADD_FAILURE() << "no counter " << name;
    return 0;
}

TEST(CounterPage, ShowsWhatEnginesCount) {
    Page p;
    p.a.engine->add(engine::Counter::commands, 3);
    p.a.engine->add(wire::Verdict::bad_icrc);
    qp::bump(p.a.devices[1]->timeouts, 4);
    qp::bump(p.b.devices[1]->timeouts, 5);
    qp::bump(*p.b.devices[0], qp::RequestFault::access);
    const auto bytes = p.copy();
    std::string why;
    const auto reader = CounterReader::of(bytes, why);
    ASSERT_TRUE(reader) << why;
    EXPECT_EQ(reader->devices(), p.names);
    EXPECT_EQ(reader->engines(), 2u);
    EXPECT_EQ(value(reader->engine_labels(), reader->engine_values(0), "commands"), 3u);
    EXPECT_EQ(value(reader->engine_labels(), reader->engine_values(0), "frames_bad_icrc"), 1u);
    EXPECT_EQ(value(reader->engine_labels(), reader->engine_values(1), "commands"), 0u);
    EXPECT_EQ(value(reader->device_labels(), reader->device_values(1), "timeouts"), 9u);
    EXPECT_EQ(value(reader->device_labels(), reader->device_values(0), "request_access"), 1u);
}

TEST(CounterPage, NobodyElseWritesIt) {
    const Page p;
    EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, p.page.fd(), 0), MAP_FAILED);
    EXPECT_EQ(pwrite(p.page.fd(), "x", 1, 0), -1);
    EXPECT_EQ(ftruncate(p.page.fd(), 0), -1);
}

TEST(CounterPage, ADamagedOneIsRefused) {
    const Page p;
    const auto good = p.copy();
    std::string why;
    EXPECT_FALSE(CounterReader::of(std::span(good).first(good.size() - 1), why));
    EXPECT_FALSE(CounterReader::of(std::span(good).first(8), why));
    for (size_t word = 0; word < sizeof(abi::CounterPageHeader) / 4 - 1; ++word) {  // only `roci top` reads the last word
        auto bad = good;
        const uint32_t huge = 0xfffffff0;
        if (word * 4 == offsetof(abi::CounterPageHeader, pid)) continue;
        std::memcpy(bad.data() + word * 4, &huge, sizeof huge);
        EXPECT_FALSE(CounterReader::of(bad, why)) << "word " << word;
    }
    EXPECT_NE(why.find("counter page"), std::string::npos);
}

TEST(Stat, FitsAHundredColumnsAndLeavesZerosOut) {
    const std::vector<CounterLabel> labels = {{"tx_frames"}, {"a_counter_of_thirty_characters"}, {"zero"}, {"held", true}};
    const uint64_t huge = 10'000'000'000'000'000'000u;
    std::vector<StatColumn> columns;
    for (const char* name : {"a", "b", "c"}) columns.push_back({name, {0, 0, 0, 9}, {huge, 2500, 0, 7}});
    const std::string text = stat_table("devices", labels, columns, 0.5, false);
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) EXPECT_LE(line.size(), 100u) << line;
    EXPECT_NE(text.find("5.00k"), std::string::npos) << text;
    EXPECT_EQ(text.find("zero"), std::string::npos);
    EXPECT_EQ(text.find("-"), std::string::npos) << "a level has no rate";
    EXPECT_NE(stat_table("devices", labels, columns, 0, true).find("zero"), std::string::npos);
}

std::string text_of(const fs::path& file) {
    std::ifstream in(file);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
}

TEST(LiveCounters, FilesFollowThePage) {
    Page p;
    const TemporaryFolder folder;
    const fs::path& root = folder.path;
    for (const qp::CounterInfo& c : qp::kDeviceCounters) {
        if (c.file[0] == 0) continue;
        const fs::path file = root / "roci1/ports/1" / c.file;
        fs::create_directories(file.parent_path());
        std::ofstream(file) << "0\n";
    }
    void* at = mmap(nullptr, 4096 * 16, PROT_READ, MAP_SHARED, p.page.fd(), 0);
    ASSERT_NE(at, MAP_FAILED);
    std::string why;
    auto reader = CounterReader::of({static_cast<const std::byte*>(at), p.copy().size()}, why);
    ASSERT_TRUE(reader) << why;
    CounterFiles files(std::move(*reader), root);
    EXPECT_EQ(files.renew(), 0u);
    qp::bump(p.a.devices[1]->tx_octets, 4000);
    qp::bump(p.b.devices[1]->tx_frames, 9);
    qp::bump(p.b.devices[1]->tx_messages, 9);  // this counter has no file
    EXPECT_EQ(files.renew(), 2u);
    EXPECT_EQ(text_of(root / "roci1/ports/1/counters/port_xmit_data"), "1000\n");
    EXPECT_EQ(text_of(root / "roci1/ports/1/counters/port_xmit_packets"), "9\n");
    qp::bump(p.a.devices[1]->tx_frames, 1);
    EXPECT_EQ(files.renew(), 1u);
    EXPECT_EQ(text_of(root / "roci1/ports/1/counters/port_xmit_packets"), "10\n");
    munmap(at, 4096 * 16);
}

TEST(SysfsView, HasAFileForEachCounterThatToolsKnow) {
    Device device;
    device.name = "roci0";
    const auto view = sysfs_view(std::span(&device, 1), HostFacts{});
    for (const char* file :
         {"counters/port_rcv_data", "hw_counters/out_of_sequence", "hw_counters/packet_seq_err",
          "hw_counters/local_ack_timeout_err", "hw_counters/rnr_nak_retry_err", "hw_counters/duplicate_request",
          "hw_counters/np_cnp_sent", "hw_counters/np_ecn_marked_roce_packets", "hw_counters/rp_cnp_handled",
          "hw_counters/rx_icrc_encapsulated", "hw_counters/req_remote_access_errors", "hw_counters/resp_local_length_error"})
        EXPECT_TRUE(std::ranges::any_of(view, [&](const ViewEntry& e) { return e.path == std::string("roci0/ports/1/") + file; }))
            << file;
}

}  // namespace
}  // namespace roci::cli
