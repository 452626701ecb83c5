// Tests of the control socket with well-behaved and hostile clients.
#include <sys/stat.h>
#include <sys/wait.h>

#include <fstream>

#include "control_socket_fixture.hpp"
#include "lingering.hpp"
#include "pmd_glue/eal.hpp"

namespace roci::rocid {
namespace {

TEST_F(Socket, ServesRequestsAndGoesAwayClean) {
    start();
    struct stat s {};
    ASSERT_EQ(stat(path.c_str(), &s), 0);
    EXPECT_EQ(s.st_mode & 0777, 0640u);
    const int before = open_descriptors();
    const int c = connect_client();
    serve();
    EXPECT_EQ(open.size(), 1u);
    ASSERT_EQ(send(c, "hello", 5, 0), 5);
    serve();
    char reply[256];
    EXPECT_EQ(recv(c, reply, sizeof reply, MSG_DONTWAIT), 100);
    close(c);
    serve();
    EXPECT_TRUE(open.empty());
    EXPECT_EQ(settled_descriptors(), before);
    socket.reset();
    EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(Socket, DescriptorsTravelBothWaysAndNoneIsLeft) {
    start();
    with_fds = true;
    const int before = open_descriptors();
    const int c = connect_client();
    serve();
    send_fds(c, 8, {STDIN_FILENO, STDOUT_FILENO});
    serve();
    EXPECT_EQ(fds_seen, 2u);
    char data[256];
    alignas(cmsghdr) char control[256];
    iovec v{data, sizeof data};
    msghdr m{};
    m.msg_iov = &v;
    m.msg_iovlen = 1;
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    ASSERT_EQ(recvmsg(c, &m, MSG_CMSG_CLOEXEC), 100);
    ASSERT_NE(CMSG_FIRSTHDR(&m), nullptr);
    EXPECT_EQ(CMSG_FIRSTHDR(&m)->cmsg_len, CMSG_LEN(2 * sizeof(int)));
    int got[2];
    std::memcpy(got, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof got);
    close(got[0]);
    close(got[1]);
    EXPECT_GE(fcntl(STDIN_FILENO, F_GETFD), 0) << "a shared descriptor stays open";
    close(c);
    serve();
    EXPECT_EQ(settled_descriptors(), before);
}

TEST_F(Socket, GarbageClosesOnlyTheClientThatSentIt) {
    start();
    const int before = open_descriptors();
    const int good = connect_client(), long_one = connect_client(), many = connect_client();
    serve(8);
    ASSERT_EQ(open.size(), 3u);
    const std::string too_long(abi::kMaxMessage + 100, 'g');
    ASSERT_EQ(send(long_one, too_long.data(), too_long.size(), 0), ssize_t(too_long.size()));
    send_fds(many, 8, std::vector<int>(abi::kMaxFdsPerMessage + 1, STDIN_FILENO));
    serve(8);
    EXPECT_TRUE(hung_up(long_one));
    EXPECT_TRUE(hung_up(many));
    EXPECT_EQ(socket->counters().malformed, 2u);
    EXPECT_EQ(open.size(), 1u);
    ASSERT_EQ(send(good, "hello", 5, 0), 5);
    serve();
    EXPECT_FALSE(hung_up(good));
    close(good);
    close(long_one);
    close(many);
    serve(8);
    EXPECT_EQ(settled_descriptors(), before) << "descriptors of refused messages are closed";
}

// rocid closes descriptors of clients on several paths. On each path a close() that blocks must not delay other
// clients.

TEST_F(Socket, ADescriptorThatLingersInARefusedMessageHoldsNobody) {
    start();
    const int attacker = connect_client(), other = connect_client();
    serve(8);
    {
        LingeringSocket slow;
        const int fd = slow.take();
        send_fds(attacker, abi::kMaxMessage + 1, {fd});
        close(fd);
        serve(8);
        EXPECT_TRUE(hung_up(attacker));
        EXPECT_GE(reaper.closing(getuid()), 1u) << "it still lingers";
        ASSERT_EQ(send(other, "hello", 5, 0), 5);
        serve();
        EXPECT_EQ(requests, 1);
    }
    EXPECT_TRUE(reaper.drain(10'000));
    close(attacker);
    close(other);
}

TEST_F(Socket, ADescriptorThatNobodyReceivedHoldsNobody) {
    start();
    const int attacker = connect_client(), other = connect_client();
    serve(8);
    {
        LingeringSocket slow;
        ASSERT_EQ(send(attacker, "bye", 3, 0), 3);  // rocid closes this connection without reading its next message
        const int fd = slow.take();
        send_fds(attacker, 8, {fd});
        close(fd);
        serve(8);
        EXPECT_EQ(open.size(), 1u);
        ASSERT_EQ(send(other, "hello", 5, 0), 5);
        serve();
        EXPECT_EQ(requests, 2);
    }
    EXPECT_TRUE(reaper.drain(10'000));
    close(attacker);
    close(other);
}

TEST_F(Socket, AUserWhoseDescriptorsDoNotCloseGetsNoFurtherSession) {
    start();
    const int attacker = connect_client();
    serve();
    {
        LingeringSocket slow;
        reaper.close(getuid(), slow.take());
        for (size_t i = 1; i < Reaper::kMostClosing; ++i) reaper.close(getuid(), ::open("/dev/null", O_RDONLY | O_CLOEXEC));
        const int another = connect_client();
        serve();
        EXPECT_TRUE(hung_up(another));
        send_fds(attacker, 8, {STDIN_FILENO});
        serve();
        EXPECT_TRUE(hung_up(attacker));
        EXPECT_EQ(fds_seen, 0u);
        close(another);
    }
    EXPECT_TRUE(reaper.drain(10'000));
    const int again = connect_client();
    serve();
    EXPECT_FALSE(hung_up(again));
    close(attacker);
    close(again);
}

TEST_F(Socket, AClientThatReadsNothingIsDroppedAndNeverWaitedFor) {
    start();
    reply_size = 50000;
    const int c = connect_client(), other = connect_client();
    serve(8);
    for (int i = 0; i < 200 && socket->counters().slow_dropped == 0; ++i) {
        if (send(c, "more", 4, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) break;
        socket->serve(5);
    }
    EXPECT_EQ(socket->counters().slow_dropped, 1u);
    EXPECT_EQ(open.size(), 1u);
    EXPECT_FALSE(hung_up(other));
    close(c);
    close(other);
    serve();
}

TEST_F(Socket, TheHandlerMayCloseAfterTheReply) {
    start();
    const int c = connect_client();
    serve();
    ASSERT_EQ(send(c, "bye", 3, 0), 3);
    serve();
    char reply[256];
    EXPECT_EQ(recv(c, reply, sizeof reply, MSG_DONTWAIT), 100);
    EXPECT_TRUE(hung_up(c));
    close(c);
}

TEST_F(Socket, WhoWaitsForADeferredReplyHoldsNobodyUp) {
    start();
    const int waiting = connect_client(), other = connect_client();
    serve();
    ASSERT_EQ(send(waiting, "answer later!", 13, 0), 13);
    ASSERT_EQ(send(waiting, "x", 1, 0), 1);  // the client sends its next request before it gets the reply to its first one
    serve();
    EXPECT_EQ(requests, 1) << "nothing more is read of it";
    ASSERT_EQ(send(other, "x", 1, 0), 1);
    serve();
    char buffer[256];
    EXPECT_EQ(recv(other, buffer, sizeof buffer, MSG_DONTWAIT), 100);
    EXPECT_LT(recv(waiting, buffer, sizeof buffer, MSG_DONTWAIT), 0);
    host::Reply reply;
    reply.bytes.assign(7, std::byte{'a'});
    socket->answer(1, reply, false);
    EXPECT_EQ(recv(waiting, buffer, sizeof buffer, MSG_DONTWAIT), 7);
    serve();
    EXPECT_EQ(recv(waiting, buffer, sizeof buffer, MSG_DONTWAIT), 100) << "now the other request";

    ASSERT_EQ(send(waiting, "answer later!", 13, 0), 13);
    serve();
    close(waiting);  // the client closes its connection before it gets the reply
    serve();
    EXPECT_FALSE(open.contains(1));
    socket->answer(1, reply, false);  // session 1 no longer exists
    close(other);
    serve();
}

TEST_F(Socket, WhoIsTooFastIsNotReadForAWhileAndHoldsNobodyUp) {
    start();
    const int fast = connect_client(), other = connect_client();
    serve();
    char buffer[256];
    const auto sends = [&](int fd) { ASSERT_EQ(send(fd, "x", 1, 0), 1); };
    const auto has_reply = [&](int fd) { return recv(fd, buffer, sizeof buffer, MSG_DONTWAIT) == 100; };
    not_before[1] = now + 1'000'000;
    sends(fast);
    serve();
    EXPECT_TRUE(has_reply(fast)) << "the request before the pause is answered";
    sends(fast);
    sends(other);
    serve();
    EXPECT_TRUE(has_reply(other));
    EXPECT_FALSE(has_reply(fast));
    EXPECT_EQ(requests, 2);
    now += 1'000'000;
    serve();
    EXPECT_TRUE(has_reply(fast)) << "the waiting request is not lost";
    EXPECT_EQ(socket->counters().paused, 1u);

    not_before[1] = now + 1'000'000;
    ASSERT_EQ(send(fast, "answer later!", 13, 0), 13);
    serve();
    host::Reply reply;
    reply.bytes.assign(100, std::byte{'a'});
    socket->answer(1, reply, false);
    EXPECT_TRUE(has_reply(fast));
    sends(fast);
    serve();
    EXPECT_FALSE(has_reply(fast)) << "paused after a deferred reply, too";

    not_before[3] = now + 1'000'000;
    const int fresh = connect_client();
    serve();
    sends(fresh);
    serve();
    EXPECT_FALSE(has_reply(fresh)) << "a new connection of a user who is too fast";
    close(fast);  // the client closes its connection while rocid does not read from it
    serve();
    EXPECT_FALSE(open.contains(1));
    now += 1'000'000;
    serve();
    EXPECT_TRUE(has_reply(fresh));
    close(fresh);
    close(other);
    serve();
}

TEST_F(Socket, TheFileBelongsToItsGroupAndNobodyElseMayConnect) {
    start();
    struct stat s {};
    ASSERT_EQ(stat(path.c_str(), &s), 0);
    EXPECT_EQ(s.st_mode & 0777, 0640u);
    EXPECT_EQ(s.st_gid, getegid());
    give_to_group(path, std::to_string(getegid()));
    EXPECT_THROW(give_to_group(path, "no such group"), pmd::StartError);
    if (geteuid() != 0) GTEST_SKIP() << "only root may give it to any group";
    give_to_group(path, "daemon");
    ASSERT_EQ(stat(path.c_str(), &s), 0);
    EXPECT_NE(s.st_gid, getegid());
    EXPECT_EQ(s.st_uid, geteuid());
}

TEST_F(Socket, TooManySessionsAreRefused) {
    most = 1;
    start();
    const int a = connect_client(), b = connect_client();
    serve(8);
    EXPECT_EQ(open.size(), 1u);
    EXPECT_EQ(socket->counters().refused, 1u);
    EXPECT_TRUE(hung_up(a) != hung_up(b));
    close(a);
    close(b);
    serve();
}

TEST_F(Socket, ASessionEndsWithItsProcessEvenIfAForkHoldsTheSocket) {
    start();
    int report[2];
    ASSERT_EQ(pipe(report), 0);
    const int parent = fork();
    if (parent == 0) {
        connect_client();
        const int heir = fork();
        if (heir == 0) {
            pause();
            _exit(0);
        }
        [[maybe_unused]] const ssize_t n = write(report[1], &heir, sizeof heir);
        pause();
        _exit(0);
    }
    int heir = 0;
    ASSERT_EQ(read(report[0], &heir, sizeof heir), ssize_t(sizeof heir));
    serve();
    EXPECT_EQ(open.size(), 1u);
    kill(parent, SIGKILL);
    waitpid(parent, nullptr, 0);
    serve();
    EXPECT_TRUE(open.empty());
    kill(heir, SIGKILL);
    close(report[0]);
    close(report[1]);
}

// A process closes its connection, and then another process connects. rocid's descriptors for the second process may
// get the numbers that its descriptors for the first process had. When the first process ends, rocid must not close
// the session of the second process.
TEST_F(Socket, ANewConnectionDoesNotInheritTheEndOfAnOldOne) {
    start();
    int go[2], done[2];
    ASSERT_EQ(pipe2(go, O_CLOEXEC), 0);
    ASSERT_EQ(pipe2(done, O_CLOEXEC), 0);
    const auto tell = [](int fd) { EXPECT_EQ(write(fd, "x", 1), 1); };
    const auto hear = [](int fd) {
        char c;
        EXPECT_EQ(read(fd, &c, 1), 1);
    };
    const pid_t child = fork();
    if (child == 0) {
        const int c = connect_client();
        tell(done[1]);
        hear(go[0]);
        close(c);
        tell(done[1]);
        hear(go[0]);
        _exit(0);
    }
    hear(done[0]);
    serve();
    EXPECT_EQ(open.size(), 1u);
    tell(go[1]);
    hear(done[0]);
    const int mine = connect_client();
    tell(go[1]);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
    serve();
    EXPECT_EQ(open.size(), 1u);
    EXPECT_FALSE(hung_up(mine));
    for (const int fd : {mine, go[0], go[1], done[0], done[1]}) close(fd);
    serve();
}

TEST_F(Socket, AStaleFileIsReplacedALivingSocketIsNot) {
    start();
    try {
        ControlSocket second(path, 0600, handler(), reaper);
        FAIL() << "the socket is in use";
    } catch (const pmd::StartError& e) {
        const std::string who = "is taken by another rocid (process " + std::to_string(getpid()) + ")";
        EXPECT_NE(std::string(e.what()).find(who), std::string::npos) << e.what();
    }
    serve();
    socket.reset();

    const int stale = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un a{};
    a.sun_family = AF_UNIX;
    std::memcpy(a.sun_path, path.c_str(), path.size() + 1);
    ASSERT_EQ(bind(stale, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
    close(stale);
    ASSERT_TRUE(std::filesystem::exists(path));
    EXPECT_NO_THROW(start());
    socket.reset();
    EXPECT_TRUE(std::filesystem::is_empty(std::filesystem::path(path).parent_path()));
}

TEST_F(Socket, WhatIsNoSocketIsLeftAlone) {
    std::filesystem::create_directories(folder + "/deep");
    std::ofstream(path) << "precious";
    EXPECT_THROW(start(), pmd::StartError);
    EXPECT_TRUE(std::filesystem::exists(path));
    path = "/proc/rocid/x.sock";
    EXPECT_THROW(start(), pmd::StartError);
    path = "/tmp/" + std::string(200, 'x');
    EXPECT_THROW(start(), pmd::StartError);
}

}  // namespace
}  // namespace roci::rocid
