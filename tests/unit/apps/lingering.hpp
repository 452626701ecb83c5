// A descriptor whose last close() blocks: a TCP socket with SO_LINGER and data that its peer does not read.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace roci::rocid {

class LingeringSocket {
public:
    LingeringSocket() {
        const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in a{};
        a.sin_family = AF_INET;
        a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof a;
        EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
        EXPECT_EQ(listen(listener, 1), 0);
        EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&a), &length), 0);
        fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
        peer_ = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        close(listener);
        char bytes[65536] = {};
        while (send(fd_, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
        }
        const linger l{.l_onoff = 1, .l_linger = 3600};
        EXPECT_EQ(setsockopt(fd_, SOL_SOCKET, SO_LINGER, &l, sizeof l), 0);
    }
    LingeringSocket(const LingeringSocket&) = delete;
    /// Closes the peer, so that a thread that waits in close() returns.
    ~LingeringSocket() { close(peer_); }

    /// Passes the descriptor to the caller, who closes it.
    int take() { return fd_; }

private:
    int fd_ = -1, peer_ = -1;
};

}  // namespace roci::rocid
