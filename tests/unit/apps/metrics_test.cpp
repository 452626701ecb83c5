// Tests of the metrics endpoint: its text, its server, and the request by which the server's thread gets text from the conductor
// (rocid's control thread).
#include "apps/rocid/metrics.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "apps/rocid/metrics_text.hpp"
#include "engine/counters.hpp"
#include "pmd_glue/eal.hpp"
#include "qp/counters.hpp"
#include "temporary_folder.hpp"

namespace roci::rocid {
namespace {

size_t occurrences(const std::string& text, const std::string& word) {
    size_t n = 0;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
    return n;
}

MetricsSample sample(size_t qps) {
    MetricsSample s;
    s.devices = {{"roci0", std::vector<uint64_t>(qp::kDeviceCounterCount, 5)},
                 {"a\"b", std::vector<uint64_t>(qp::kDeviceCounterCount, 6)}};
    s.engines = {std::vector<uint64_t>(engine::kCounters + engine::kVerdicts, 7)};
    nlohmann::json session = {{"uid", 1000},
                              {"device", "roci0"},
                              {"objects", {{"qps", qps}, {"mrs", 2}}},
                              {"memory", {{"registered_bytes", 4096}}},
                              {"qps", nlohmann::json::array()}};
    for (size_t i = 0; i < qps; ++i)
        session["qps"].push_back({{"qpn", 100 + i}, {"counters", {{"tx_bytes", i}, {"rx_bytes", 0}, {"timeouts", 3}}}});
    s.status = nlohmann::json{{"sessions", {session, session}}}.dump();
    return s;
}

TEST(MetricsText, HasDevicesEnginesAndUsers) {
    const std::string text = metrics_text(sample(1));
    for (const char* line :
         {"# TYPE roci_device_timeouts counter\n", "roci_device_timeouts_total{device=\"roci0\",port=\"1\"} 5\n",
          "roci_device_timeouts_total{device=\"a\\\"b\",port=\"1\"} 6\n", "roci_engine_polls_total{engine=\"0\"} 7\n",
          "# TYPE roci_engine_reorder_held gauge\n", "roci_engine_reorder_held{engine=\"0\"} 7\n",
          "roci_user_sessions{uid=\"1000\"} 2\n", "roci_user_registered_bytes{uid=\"1000\"} 8192\n",
          "roci_qp_timeouts_total{qpn=\"100\",device=\"roci0\",uid=\"1000\"} 3\n"})
        EXPECT_EQ(occurrences(text, line) != 0, true) << line;
    EXPECT_TRUE(text.ends_with("# EOF\n"));
}

TEST(MetricsText, QpsDoNotMakeSeriesWithoutEnd) {
    const std::string text = metrics_text(sample(500));
    EXPECT_EQ(occurrences(text, "roci_qp_timeouts_total{"), kMostQpSeries);
    EXPECT_NE(text.find("qpn=\"599\""), std::string::npos) << "those with the most bytes";
    EXPECT_EQ(text.find("qpn=\"100\""), std::string::npos);
}

TEST(MetricsText, WithoutAnAnswerOfTheConductorTheRestIsThere) {
    MetricsSample s = sample(1);
    s.status.clear();
    const std::string text = metrics_text(s);
    EXPECT_NE(text.find("roci_device_timeouts_total"), std::string::npos);
    EXPECT_EQ(text.find("roci_user"), std::string::npos);
}

int connect_to(int port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(uint16_t(port));
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a), 0);
    return fd;
}
sockaddr_un address_of(const std::string& path) {
    sockaddr_un a{};
    a.sun_family = AF_UNIX;
    std::strcpy(a.sun_path, path.c_str());
    return a;
}
int connect_to(const std::string& path) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_un a = address_of(path);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a), 0);
    return fd;
}
std::string talk(int fd, const std::string& request) {
    EXPECT_EQ(send(fd, request.data(), request.size(), MSG_NOSIGNAL), ssize_t(request.size()));
    std::string out;
    char buffer[4096];
    for (ssize_t n; (n = recv(fd, buffer, sizeof buffer, 0)) > 0;) out.append(buffer, size_t(n));
    close(fd);
    return out;
}

TEST(MetricsServer, AnswersAGetAndNothingElse) {
    const std::string large(1 << 20, 'x');  // more bytes than the buffer of a socket holds
    MetricsServer server("127.0.0.1:0", [&] { return large; });
    const std::string answer = talk(connect_to(server.port()), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n"));
    EXPECT_NE(answer.find("Content-Type: application/openmetrics-text"), std::string::npos);
    EXPECT_NE(answer.find("Content-Length: 1048576\r\n"), std::string::npos);
    EXPECT_TRUE(answer.ends_with(large));
    EXPECT_TRUE(talk(connect_to(server.port()), "GET /other HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    EXPECT_TRUE(talk(connect_to(server.port()), "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    close(connect_to(server.port()));  // a client that connects, sends nothing and closes
    EXPECT_TRUE(talk(connect_to(server.port()), "GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200"));
}

TEST(MetricsServer, AUnixSocketIsForItsUserOnly) {
    const TemporaryFolder folder;
    const std::string path = folder / "socket";
    {
        MetricsServer server(path, [] { return std::string("text\n# EOF\n"); });
        struct stat s {};
        ASSERT_EQ(stat(path.c_str(), &s), 0);
        EXPECT_EQ(s.st_mode & 0777u, 0600u);
        EXPECT_TRUE(talk(connect_to(path), "GET /metrics HTTP/1.1\r\n\r\n").ends_with("text\n# EOF\n"));
    }
    EXPECT_NE(access(path.c_str(), F_OK), 0);
}

std::string refusal(const std::string& where) {
    try {
        MetricsServer server(where, [] { return std::string(); });
    } catch (const pmd::StartError& e) {
        return e.what();
    }
    return "";
}

TEST(MetricsServer, RefusesWhatIsNoAddress) {
    for (const char* where : {"localhost", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:94x", "nowhere:9471", ":9471",
                              "/nonexistent/folder/socket", "192.0.2.1:9471"})
        EXPECT_NE(refusal(where).find("metrics = \"" + std::string(where) + "\""), std::string::npos) << where;
    MetricsServer first("127.0.0.1:0", [] { return std::string(); });
    EXPECT_NE(refusal("127.0.0.1:" + std::to_string(first.port())).find("in use"), std::string::npos);
}

TEST(MetricsServer, ASocketThatIsServedIsNotRemoved) {
    const TemporaryFolder folder;
    const std::string path = folder / "socket";
    {
        MetricsServer first(path, [] { return std::string("first"); });
        EXPECT_NE(refusal(path).find("another rocid"), std::string::npos);
        EXPECT_TRUE(talk(connect_to(path), "GET /metrics HTTP/1.1\r\n\r\n").ends_with("first"));
    }
    const int foreign = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_un a = address_of(path);
    ASSERT_EQ(bind(foreign, reinterpret_cast<const sockaddr*>(&a), sizeof a), 0);
    ASSERT_EQ(listen(foreign, 1), 0);
    EXPECT_NE(refusal(path).find("another process serves it"), std::string::npos);
    EXPECT_EQ(access(path.c_str(), F_OK), 0);
    close(foreign);  // the file of the socket remains, as after a rocid that was killed
    {
        MetricsServer next(path, [] { return std::string("next"); });
    }
    EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST(MetricsServer, AFileThatIsNoSocketStays) {
    const TemporaryFolder folder;
    const std::string path = folder / "file";
    close(creat(path.c_str(), 0600));
    EXPECT_NE(refusal(path).find("not a socket"), std::string::npos);
    EXPECT_EQ(access(path.c_str(), F_OK), 0);
}

TEST(TextRequest, IsFulfilledByAnotherThread) {
    TextRequest request;
    std::thread other([&] {
        pollfd waiting{request.fd(), POLLIN, 0};
        poll(&waiting, 1, -1);
        request.fulfil("here");
    });
    EXPECT_EQ(request.wait_for_text(60'000), "here");
    other.join();
}

TEST(TextRequest, EndsWhenItIsClosed) {
    TextRequest request;
    request.close();
    EXPECT_EQ(request.wait_for_text(60'000), "");
}

}  // namespace
}  // namespace roci::rocid
