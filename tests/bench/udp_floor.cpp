// Measures plain UDP sockets, for comparison with port = "udp" (udp.py):
//   udp_floor receive PORT                          prints the receive rate in MB/s
//   udp_floor send ADDRESS PORT SEGMENT SECONDS     sends datagrams of up to 64 segments (UDP_SEGMENT)
//   udp_floor take PORT PAYLOAD                     like receive, and checks an ICRC and copies the payload per segment
//   udp_floor give ADDRESS PORT PAYLOAD SECONDS     like send, and copies a payload and computes an ICRC per segment
//   udp_floor pong PORT                             returns each datagram; ends two seconds after the last one
//   udp_floor ping ADDRESS PORT BYTES COUNT         prints the median half round trip in microseconds; both ends block in recv
#include <arpa/inet.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "wire/icrc.hpp"
#include "wire/packet.hpp"

namespace {

using namespace roci;

using Clock = std::chrono::steady_clock;
constexpr size_t kDatagram = 65000;
constexpr int kSegments = 64;

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

[[noreturn]] void die(const char* what) {
    std::perror(what);
    std::exit(1);
}

/// Returns a socket with large buffers. If `port` is not 0, the socket is bound to `port`. A receive call fails after
/// two seconds without a datagram.
int open_socket(uint16_t port) {
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0) die("socket");
    const int bytes = 8 << 20, discover = IP_PMTUDISC_DO;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) != 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) != 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover);
    const timeval limit{.tv_sec = 2, .tv_usec = 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_port = htons(port);
    if (port != 0 && bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0) die("bind");
    return fd;
}

int open_to(char** words) {
    const int fd = open_socket(0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(uint16_t(std::atoi(words[1])));
    if (inet_pton(AF_INET, words[0], &to.sin_addr) != 1) die(words[0]);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) die("connect");
    return fd;
}

int receive(char** words) {
    const int fd = open_socket(uint16_t(std::atoi(words[0])));
    const int on = 1;
    setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof on);
    std::puts("ready");
    std::fflush(stdout);
    std::vector<uint8_t> buffer(1 << 16);
    uint64_t bytes = 0, calls = 0;
    Clock::time_point first, last;
    for (int waited = 0; waited < 10;) {
        const ssize_t n = recv(fd, buffer.data(), buffer.size(), 0);
        if (n <= 0) {
            if (calls != 0) break;
            ++waited;
            continue;
        }
        last = Clock::now();
        if (calls++ == 0) first = last;
        bytes += uint64_t(n);
    }
    const double time = std::chrono::duration<double>(last - first).count();
    std::printf("%.1f MB/s, %.0f bytes per call\n", time > 0 ? double(bytes) / time / 1e6 : 0,
                calls != 0 ? double(bytes) / double(calls) : 0);
    return calls == 0;
}

int send(char** words) {
    const int fd = open_to(words);
    const int segment = std::atoi(words[2]);
    const double seconds = std::atof(words[3]);
    if (segment <= 0 || setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment) != 0) die("UDP_SEGMENT");
    const size_t bytes = size_t(segment) * std::min(kDatagram / size_t(segment), size_t(kSegments));
    const std::vector<uint8_t> buffer(bytes, 1);
    for (const auto start = Clock::now(); seconds_since(start) < seconds;)
        if (::send(fd, buffer.data(), bytes, 0) < 0 && errno != ECONNREFUSED && errno != ENOBUFS) die("send");
    return 0;
}

/// The segments of one datagram, each in its own buffer, as an engine has them: space for IP and UDP headers, a BTH, the payload
/// and the ICRC.
class Segments {
public:
    static constexpr uint32_t kHeaders = wire::kIpv4Length + wire::kUdpLength;

    explicit Segments(uint32_t payload) : payload_(payload), count_(std::min<uint32_t>(kDatagram / segment(), kSegments)) {
        for (uint32_t i = 0; i < count_; ++i) {
            slots_.push_back(std::make_unique<Slot>());
            pieces_.push_back({slots_[i]->bytes + kHeaders, segment()});
        }
    }
    uint32_t segment() const { return wire::kBthLength + payload_ + wire::kIcrcLength; }
    uint32_t count() const { return count_; }
    msghdr message() {
        msghdr m{};
        m.msg_iov = pieces_.data();
        m.msg_iovlen = pieces_.size();
        return m;
    }
    /// Copies the payload of segment `i` from `from` and computes the ICRC in the same pass.
    void fill(uint32_t i, const uint8_t* from) {
        uint8_t* l3 = slots_[i]->bytes;
        const uint32_t crc = wire::icrc_copying(l3, kHead, false, from, payload_);
        std::memcpy(l3 + kHead + payload_, &crc, sizeof crc);
    }
    /// Checks the ICRC of segment `i` and copies its payload to `to`. Returns false if the ICRC is wrong.
    bool empty(uint32_t i, uint8_t* to) const {
        const uint8_t* l3 = slots_[i]->bytes;
        uint32_t crc;
        std::memcpy(&crc, l3 + kHead + payload_, sizeof crc);
        if (crc != wire::icrc(l3, kHead + payload_, false, wire::kIpv4Length)) return false;
        std::memcpy(to, l3 + kHead, payload_);
        return true;
    }

private:
    static constexpr uint32_t kHead = kHeaders + wire::kBthLength;
    struct alignas(64) Slot {
        uint8_t bytes[wire::kMaxFrame + 64] = {};
    };
    const uint32_t payload_, count_;
    std::vector<std::unique_ptr<Slot>> slots_;
    std::vector<iovec> pieces_;
};

uint32_t payload_of(const char* word) {
    const int n = std::atoi(word);
    if (n <= 0 || n > 4096 || n % int(wire::kCopyingStep) != 0) die("PAYLOAD is no multiple of 256 up to 4096");
    return uint32_t(n);
}

int take(char** words) {
    const int fd = open_socket(uint16_t(std::atoi(words[0])));
    const int on = 1;
    setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof on);
    const uint32_t payload = payload_of(words[1]);
    Segments segments(payload);
    std::vector<uint8_t> memory(size_t{payload} * segments.count());
    std::puts("ready");
    std::fflush(stdout);
    uint64_t bytes = 0, wrong = 0;
    Clock::time_point first, last;
    for (int waited = 0; waited < 10;) {
        msghdr m = segments.message();
        const ssize_t n = recvmsg(fd, &m, 0);
        if (n <= 0) {
            if (bytes != 0) break;
            ++waited;
            continue;
        }
        if (bytes == 0) first = Clock::now();
        for (uint32_t i = 0; i < uint32_t(n) / segments.segment(); ++i) wrong += !segments.empty(i, &memory[size_t{i} * payload]);
        bytes += uint64_t(n) / segments.segment() * payload;
        last = Clock::now();
    }
    const double time = std::chrono::duration<double>(last - first).count();
    std::printf("%llu wrong; %.1f MB/s\n", static_cast<unsigned long long>(wrong), time > 0 ? double(bytes) / time / 1e6 : 0);
    return bytes == 0 || wrong != 0;
}

int give(char** words) {
    const int fd = open_to(words);
    const uint32_t payload = payload_of(words[2]);
    Segments segments(payload);
    const int segment = int(segments.segment());
    if (setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment) != 0) die("UDP_SEGMENT");
    const std::vector<uint8_t> memory(size_t{payload} * segments.count(), 1);
    const double seconds = std::atof(words[3]);
    for (const auto start = Clock::now(); seconds_since(start) < seconds;) {
        for (uint32_t i = 0; i < segments.count(); ++i) segments.fill(i, &memory[size_t{i} * payload]);
        const msghdr m = segments.message();
        if (sendmsg(fd, &m, 0) < 0 && errno != ECONNREFUSED && errno != ENOBUFS) die("sendmsg");
    }
    return 0;
}

int pong(char** words) {
    const int fd = open_socket(uint16_t(std::atoi(words[0])));
    std::puts("ready");
    std::fflush(stdout);
    std::vector<uint8_t> buffer(1 << 16);
    sockaddr_in from{};
    for (int waited = 0; waited < 10;) {
        socklen_t length = sizeof from;
        const ssize_t n = recvfrom(fd, buffer.data(), buffer.size(), 0, reinterpret_cast<sockaddr*>(&from), &length);
        if (n < 0)
            waited += from.sin_port != 0 ? 10 : 1;
        else if (sendto(fd, buffer.data(), size_t(n), 0, reinterpret_cast<const sockaddr*>(&from), length) != n)
            die("sendto");
    }
    return 0;
}

int ping(char** words) {
    const int fd = open_to(words);
    std::vector<uint8_t> buffer(size_t(std::max(std::atoi(words[2]), 1)), 1);
    std::vector<double> times;
    const int count = std::max(std::atoi(words[3]), 1);
    for (int i = 0; i < count; ++i) {
        const auto start = Clock::now();
        if (::send(fd, buffer.data(), buffer.size(), 0) < 0) die("send");
        if (recv(fd, buffer.data(), buffer.size(), 0) < 0) die("recv");
        times.push_back(seconds_since(start) * 1e6 / 2);
    }
    std::ranges::nth_element(times, times.begin() + count / 2);
    std::printf("%.2f us\n", times[size_t(count / 2)]);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    struct Word {
        int arguments;
        int (*run)(char**);
    };
    const std::map<std::string, Word> words{{"receive", {1, receive}}, {"send", {4, send}}, {"take", {2, take}},
                                            {"give", {4, give}},       {"pong", {1, pong}}, {"ping", {4, ping}}};
    const auto word = words.find(argc > 1 ? argv[1] : "");
    if (word == words.end() || argc - 2 != word->second.arguments) {
        std::fputs(
            "udp_floor receive PORT | send ADDRESS PORT SEGMENT SECONDS | take PORT PAYLOAD | "
            "give ADDRESS PORT PAYLOAD SECONDS | pong PORT | ping ADDRESS PORT BYTES COUNT\n",
            stderr);
        return 2;
    }
    return word->second.run(argv + 2);
}
