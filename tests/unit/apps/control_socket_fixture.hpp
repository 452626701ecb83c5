// A control socket whose handler counts requests and descriptors, and clients of this socket.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "apps/rocid/control_socket.hpp"

namespace roci::rocid {

inline int open_descriptors() {
    int n = 0;
    for (int fd = 0; fd < 1024; ++fd) n += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return n;
}

struct Socket : testing::Test {
    std::string folder = testing::TempDir() + "/rocid-test-" + std::to_string(getpid());
    std::string path = folder + "/deep/rocid.sock";
    std::set<uint32_t> open;
    uint32_t next = 1, most = 100;
    size_t fds_seen = 0;
    int requests = 0;
    size_t reply_size = 100;
    bool with_fds = false;
    Nanos now = 1'000'000'000;
    std::map<uint32_t, Nanos> not_before;  ///< by session: the earliest time at which rocid reads its next request
    Reaper reaper;
    std::unique_ptr<ControlSocket> socket;

    int settled_descriptors() const {
        EXPECT_TRUE(reaper.drain(10'000));
        return open_descriptors();
    }
    SessionHandler handler() {
        SessionHandler h;
        h.open = [this](const host::Client& who) {
            EXPECT_EQ(who.uid, getuid());
            if (open.size() >= most) return abi::kNoHandle;
            open.insert(next);
            return next++;
        };
        h.handle = [this](uint32_t session, const host::Client&, std::span<const std::byte> packet, std::span<const int> fds,
                          bool& close_it) {
            EXPECT_TRUE(open.contains(session));
            fds_seen += fds.size();
            for (const int fd : fds) ::close(fd);
            close_it = packet.size() == 3;
            ++requests;
            if (packet.size() == 13) {
                host::Reply later;
                later.deferred = true;
                return later;
            }
            host::Reply r;
            r.bytes.assign(reply_size, std::byte{'r'});
            if (with_fds) {
                r.fds = {::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO};
                r.shared_fds_mask = {0, 1};
            }
            return r;
        };
        h.close = [this](uint32_t session, const host::Client&) { EXPECT_EQ(open.erase(session), 1u) << "closed once"; };
        h.not_before = [this](uint32_t session) { return not_before[session]; };
        h.now = [this] { return now; };
        return h;
    }
    void start() { socket = std::make_unique<ControlSocket>(path, 0640, handler(), reaper); }
    void serve(int rounds = 4) {
        for (int i = 0; i < rounds; ++i) socket->serve(5);
    }
    int connect_client() {
        sockaddr_un a{};
        a.sun_family = AF_UNIX;
        std::memcpy(a.sun_path, path.c_str(), path.size() + 1);
        const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
        return fd;
    }
    static bool hung_up(int fd) {
        char c[65536];
        ssize_t n;
        while ((n = recv(fd, c, sizeof c, MSG_DONTWAIT)) > 0) {
        }
        return n == 0 || errno == ECONNRESET;
    }
    static void send_fds(int fd, size_t bytes, const std::vector<int>& fds) {
        std::string data(bytes, 'd');
        iovec v{data.data(), data.size()};
        msghdr m{};
        std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
        m.msg_iov = &v;
        m.msg_iovlen = 1;
        m.msg_control = control.data();
        m.msg_controllen = control.size();
        cmsghdr* h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
        std::memcpy(CMSG_DATA(h), fds.data(), fds.size() * sizeof(int));
        EXPECT_EQ(sendmsg(fd, &m, 0), ssize_t(bytes));
    }
    void TearDown() override {
        socket.reset();
        EXPECT_TRUE(open.empty()) << "every session is closed in the end";
        std::filesystem::remove_all(folder);
    }
};

}  // namespace roci::rocid
