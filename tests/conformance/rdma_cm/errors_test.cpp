// Tests of wrong input to rdma_cm. Errors of a single call are rows of kRows, with the errno of the manual page or of
// the kernel. The tests use only the public API.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace {

sockaddr_in ipv4(const char* text, uint16_t port) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(port);
    inet_pton(AF_INET, text, &a.sin_addr);
    return a;
}
sockaddr* generic(sockaddr_in& a) { return reinterpret_cast<sockaddr*>(&a); }

constexpr const char *kServer = "10.77.0.1", *kClient = "10.77.0.2", *kNowhere = "192.0.2.1";
constexpr uint16_t kPort = 7621;

struct Cm : testing::Test {
    Cm() : channel(rdma_create_event_channel()) {
        EXPECT_NE(channel, nullptr);
        EXPECT_EQ(rdma_create_id(channel, &id, this, RDMA_PS_TCP), 0);
    }
    ~Cm() override {
        if (id != nullptr) {
            EXPECT_EQ(rdma_destroy_id(id), 0);
        }
        rdma_destroy_event_channel(channel);
    }
    /// Waits for the next event and acknowledges it. Returns the type of the event, or -1 if no event comes within
    /// two seconds.
    int next(int* status = nullptr, rdma_cm_id** who = nullptr) {
        pollfd p{channel->fd, POLLIN, 0};
        if (poll(&p, 1, 2000) != 1) return -1;
        rdma_cm_event* e = nullptr;
        if (rdma_get_cm_event(channel, &e) != 0) return -1;
        const int type = e->event;
        if (status != nullptr) *status = e->status;
        if (who != nullptr) *who = e->id;
        rdma_ack_cm_event(e);
        return type;
    }
    void resolve_to(rdma_cm_id* of, const char* host, uint16_t port) {
        sockaddr_in to = ipv4(host, port);
        ASSERT_EQ(rdma_resolve_addr(of, nullptr, generic(to), 2000), 0);
        ASSERT_EQ(next(), RDMA_CM_EVENT_ADDR_RESOLVED);
        ASSERT_EQ(rdma_resolve_route(of, 2000), 0);
        ASSERT_EQ(next(), RDMA_CM_EVENT_ROUTE_RESOLVED);
    }
    rdma_event_channel* channel;
    rdma_cm_id* id = nullptr;
};

/// A call on a new id. The call must fail with `error`.
struct Row {
    const char* name;
    std::function<int(rdma_cm_id*)> call;
    int error;
};
void PrintTo(const Row& r, std::ostream* out) { *out << r.name; }

sockaddr_in server = ipv4(kServer, kPort), nowhere = ipv4(kNowhere, 1), foreign = ipv4(kNowhere, 0);
rdma_conn_param plain() {
    rdma_conn_param p{};
    static uint32_t qpn = 0x77;
    p.qp_num = qpn++;  // each request has a new QP number, because a QP has one connection; a second request would end the first
    return p;
}
int connect_plain(rdma_cm_id* id) {
    rdma_conn_param p = plain();
    return rdma_connect(id, &p);
}
int set_byte(rdma_cm_id* id, int option, uint8_t value, size_t length) {
    uint64_t wide = value;
    return rdma_set_option(id, RDMA_OPTION_ID, option, &wide, length);
}
int bind_infiniband(rdma_cm_id* id) {
    sockaddr_storage a{};
    a.ss_family = AF_IB;
    return rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&a));
}
int resolve_infiniband(rdma_cm_id* id) {
    sockaddr_storage a{};
    a.ss_family = AF_IB;
    return rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&a), 1000);
}
int bind_unknown_family(rdma_cm_id* id) {
    sockaddr_storage a{};
    a.ss_family = AF_UNIX;
    return rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&a));
}

const Row kRows[] = {
    {"bind_to_an_address_of_nobody", [](rdma_cm_id* i) { return rdma_bind_addr(i, generic(foreign)); }, ENODEV},
    {"bind_af_ib", bind_infiniband, EINVAL},
    {"bind_unknown_family", bind_unknown_family, EINVAL},
    {"resolve_af_ib", resolve_infiniband, EINVAL},
    {"resolve_route_first", [](rdma_cm_id* i) { return rdma_resolve_route(i, 1000); }, EINVAL},
    {"connect_without_route", connect_plain, EINVAL},
    {"accept_without_request",
     [](rdma_cm_id* i) {
         rdma_conn_param p = plain();
         return rdma_accept(i, &p);
     },
     EINVAL},
    {"reject_without_request", [](rdma_cm_id* i) { return rdma_reject(i, nullptr, 0); }, EINVAL},
    {"establish_without_response", [](rdma_cm_id* i) { return rdma_establish(i); }, EINVAL},
    {"disconnect_without_device", [](rdma_cm_id* i) { return rdma_disconnect(i); }, EINVAL},
    {"notify_without_connection", [](rdma_cm_id* i) { return rdma_notify(i, IBV_EVENT_COMM_EST); }, EINVAL},
    {"tos_of_two_bytes", [](rdma_cm_id* i) { return set_byte(i, RDMA_OPTION_ID_TOS, 32, 2); }, EINVAL},
    {"reuseaddr_of_a_byte", [](rdma_cm_id* i) { return set_byte(i, RDMA_OPTION_ID_REUSEADDR, 1, 1); }, EINVAL},
    {"afonly_of_a_byte", [](rdma_cm_id* i) { return set_byte(i, RDMA_OPTION_ID_AFONLY, 1, 1); }, EINVAL},
    {"ack_timeout_over_31", [](rdma_cm_id* i) { return set_byte(i, RDMA_OPTION_ID_ACK_TIMEOUT, 32, 1); }, EINVAL},
    {"unknown_option", [](rdma_cm_id* i) { return set_byte(i, 99, 1, 1); }, ENOSYS},
    {"unknown_option_level",
     [](rdma_cm_id* i) {
         int v = 1;
         return rdma_set_option(i, 7, 0, &v, sizeof v);
     },
     ENOSYS},
    {"join_without_device", [](rdma_cm_id* i) { return rdma_join_multicast(i, generic(server), nullptr); }, EINVAL},
    {"leave_what_was_not_joined", [](rdma_cm_id* i) { return rdma_leave_multicast(i, generic(server)); }, EADDRNOTAVAIL},
};

struct WrongInput : Cm, testing::WithParamInterface<Row> {};

TEST_P(WrongInput, HasItsErrno) {
    errno = 0;
    EXPECT_EQ(GetParam().call(id), -1);
    EXPECT_EQ(errno, GetParam().error) << std::strerror(errno);
}
INSTANTIATE_TEST_SUITE_P(Rows, WrongInput, testing::ValuesIn(kRows), [](const auto& row) { return row.param.name; });

TEST_F(Cm, UnknownPortSpace) {
    rdma_cm_id* other = nullptr;
    int nonsense = 0x999;
    rdma_port_space space;
    std::memcpy(&space, &nonsense, sizeof space);
    EXPECT_EQ(rdma_create_id(channel, &other, nullptr, space), -1);
    EXPECT_EQ(errno, EPROTONOSUPPORT);
}

TEST_F(Cm, AddressThatDoesNotRouteIsAnErrorOrItsEvent) {
    if (rdma_resolve_addr(id, nullptr, generic(nowhere), 1000) != 0) {
        EXPECT_TRUE(errno == ENETUNREACH || errno == ENODEV || errno == EHOSTUNREACH) << std::strerror(errno);
        return;
    }
    EXPECT_EQ(next(), RDMA_CM_EVENT_ADDR_ERROR);
}

// rdma_destroy_id() leaves the multicast groups of the id. The library must free the memory of these groups.
TEST_F(Cm, GroupsEndWithTheirId) {
    sockaddr_in here = ipv4(kServer, 0), group = ipv4("239.7.7.7", 0);
    const auto join_and_destroy = [&] {
        rdma_cm_id* member = nullptr;
        ASSERT_EQ(rdma_create_id(channel, &member, nullptr, RDMA_PS_UDP), 0);
        ASSERT_EQ(rdma_bind_addr(member, generic(here)), 0);
        ASSERT_EQ(rdma_join_multicast(member, generic(group), nullptr), 0);
        ASSERT_EQ(next(), RDMA_CM_EVENT_MULTICAST_JOIN);
        ASSERT_EQ(rdma_destroy_id(member), 0);
    };
    constexpr int kIds = 1000, kLeast = 64;  // kLeast: minimum number of bytes that a leak per id would have
    for (int i = 0; i < 100 && !HasFatalFailure(); ++i) join_and_destroy();
    const auto before = int64_t(mallinfo2().uordblks);
    for (int i = 0; i < kIds && !HasFatalFailure(); ++i) join_and_destroy();
    EXPECT_LT(int64_t(mallinfo2().uordblks) - before, kIds * kLeast);
}

TEST_F(Cm, PortInUse) {
    sockaddr_in at = ipv4(kServer, kPort);
    ASSERT_EQ(rdma_bind_addr(id, generic(at)), 0);
    EXPECT_EQ(rdma_bind_addr(id, generic(at)), -1);
    EXPECT_EQ(errno, EINVAL) << "bound already";
    rdma_cm_id* other = nullptr;
    ASSERT_EQ(rdma_create_id(channel, &other, nullptr, RDMA_PS_TCP), 0);
    EXPECT_EQ(rdma_bind_addr(other, generic(at)), -1);
    EXPECT_EQ(errno, EADDRINUSE);
    sockaddr_in elsewhere = ipv4(kClient, kPort);
    EXPECT_EQ(rdma_bind_addr(other, generic(elsewhere)), 0) << "another address";
    EXPECT_EQ(rdma_destroy_id(other), 0);
    EXPECT_EQ(rdma_destroy_id(id), 0);
    ASSERT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
    EXPECT_EQ(rdma_bind_addr(id, generic(at)), 0) << "free at once";
}

TEST_F(Cm, ReusedAddressIsBoundTwiceButListenedOnOnce) {
    sockaddr_in at = ipv4(kServer, kPort);
    int yes = 1;
    rdma_cm_id* other = nullptr;
    ASSERT_EQ(rdma_create_id(channel, &other, nullptr, RDMA_PS_TCP), 0);
    for (rdma_cm_id* i : {id, other}) {
        ASSERT_EQ(rdma_set_option(i, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes), 0);
        ASSERT_EQ(rdma_bind_addr(i, generic(at)), 0);
    }
    EXPECT_EQ(rdma_listen(id, 1), 0);
    EXPECT_EQ(rdma_listen(other, 1), -1);
    EXPECT_EQ(errno, EADDRINUSE);
    EXPECT_EQ(rdma_destroy_id(other), 0);
}

TEST_F(Cm, OptionsBelongBeforeTheAddress) {
    sockaddr_in at = ipv4(kServer, 0);
    ASSERT_EQ(rdma_bind_addr(id, generic(at)), 0);
    int yes = 1;
    EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof yes), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_NE(ntohs(rdma_get_src_port(id)), 0) << "an ephemeral port";
}

TEST_F(Cm, TypeOfServiceAndAckTimeoutReachTheQueuePair) {
    uint8_t tos = 0x68, timeout = 17;
    ASSERT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos), 0);
    ASSERT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout), 0);
    sockaddr_in at = ipv4(kServer, kPort);
    rdma_cm_id *listener = nullptr, *request = nullptr;
    ASSERT_EQ(rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP), 0);
    ASSERT_EQ(rdma_bind_addr(listener, generic(at)), 0);
    ASSERT_EQ(rdma_listen(listener, 1), 0);
    resolve_to(id, kServer, kPort);
    ASSERT_EQ(connect_plain(id), 0);
    ASSERT_EQ(next(nullptr, &request), RDMA_CM_EVENT_CONNECT_REQUEST);
    rdma_conn_param p = plain();
    ASSERT_EQ(rdma_accept(request, &p), 0);
    ASSERT_EQ(next(), RDMA_CM_EVENT_CONNECT_RESPONSE);
    ibv_qp_attr attr{};
    int mask = 0;
    attr.qp_state = IBV_QPS_RTR;
    ASSERT_EQ(rdma_init_qp_attr(id, &attr, &mask), 0);
    EXPECT_EQ(attr.ah_attr.grh.traffic_class, tos);
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(rdma_init_qp_attr(id, &attr, &mask), 0);
    EXPECT_EQ(attr.timeout, timeout);
    EXPECT_EQ(rdma_destroy_id(request), 0);
    EXPECT_EQ(rdma_destroy_id(listener), 0);
}

TEST_F(Cm, NobodyListens) {
    resolve_to(id, kServer, 7999);
    ASSERT_EQ(connect_plain(id), 0);
    int status = 0;
    EXPECT_EQ(next(&status), RDMA_CM_EVENT_REJECTED);
    EXPECT_EQ(status, 8);  // invalid service ID (IBA table 115)
}

TEST_F(Cm, PrivateDataThatDoesNotFit) {
    resolve_to(id, kServer, 7999);
    constexpr uint8_t kMost = 56;
    uint8_t data[255] = {};
    rdma_conn_param p = plain();
    p.private_data = data;
    p.private_data_len = kMost + 1;
    EXPECT_EQ(rdma_connect(id, &p), -1);
    EXPECT_EQ(errno, EINVAL);
    p.private_data_len = kMost;
    EXPECT_EQ(rdma_connect(id, &p), 0);
    EXPECT_EQ(next(), RDMA_CM_EVENT_REJECTED);
}

/// Tests the limits of private data in rdma_accept() and rdma_reject(). Both calls are refused because of too much
/// private data. After that, the program must still be able to accept the request.
TEST_F(Cm, PrivateDataThatDoesNotFitAnAnswer) {
    constexpr uint8_t kMostAccept = 196, kMostReject = 148;
    sockaddr_in at = ipv4(kServer, kPort);
    rdma_cm_id* listener = nullptr;
    ASSERT_EQ(rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP), 0);
    ASSERT_EQ(rdma_bind_addr(listener, generic(at)), 0);
    ASSERT_EQ(rdma_listen(listener, 1), 0);
    resolve_to(id, kServer, kPort);
    ASSERT_EQ(connect_plain(id), 0);
    rdma_cm_id* request = nullptr;
    ASSERT_EQ(next(nullptr, &request), RDMA_CM_EVENT_CONNECT_REQUEST);
    uint8_t data[255] = {};
    EXPECT_EQ(rdma_reject(request, data, kMostReject + 1), -1);
    EXPECT_EQ(errno, EINVAL);
    rdma_conn_param p = plain();
    p.private_data = data;
    p.private_data_len = kMostAccept + 1;
    EXPECT_EQ(rdma_accept(request, &p), -1);
    EXPECT_EQ(errno, EINVAL);
    p.private_data_len = kMostAccept;
    EXPECT_EQ(rdma_accept(request, &p), 0);
    EXPECT_EQ(rdma_accept(request, &p), -1);
    EXPECT_EQ(errno, EINVAL) << "accepted already";
    EXPECT_EQ(next(), RDMA_CM_EVENT_CONNECT_RESPONSE);
    EXPECT_EQ(rdma_connect(id, &p), -1);
    EXPECT_EQ(errno, EINVAL) << "connected already";
    EXPECT_EQ(rdma_destroy_id(request), 0);
    EXPECT_EQ(rdma_destroy_id(listener), 0);
}

TEST_F(Cm, ChannelThatMustNotBlockSaysSo) {
    ASSERT_EQ(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
    rdma_cm_event* e = nullptr;
    EXPECT_EQ(rdma_get_cm_event(channel, &e), -1);
    EXPECT_EQ(errno, EAGAIN);
    sockaddr_in to = ipv4(kServer, kPort);
    ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(to), 2000), 0);
    EXPECT_EQ(next(), RDMA_CM_EVENT_ADDR_RESOLVED) << "poll() sees it";
    EXPECT_EQ(rdma_get_cm_event(channel, &e), -1);
    EXPECT_EQ(errno, EAGAIN);
}

TEST_F(Cm, BacklogIsFullBeforeTheProgramLooks) {
    sockaddr_in at = ipv4(kServer, kPort);
    rdma_event_channel* apart = rdma_create_event_channel();
    rdma_cm_id* listener = nullptr;
    ASSERT_EQ(rdma_create_id(apart, &listener, nullptr, RDMA_PS_TCP), 0);
    ASSERT_EQ(rdma_bind_addr(listener, generic(at)), 0);
    ASSERT_EQ(rdma_listen(listener, 2), 0);
    constexpr int kCalls = 3;
    rdma_cm_id* callers[kCalls] = {};
    for (rdma_cm_id*& caller : callers) {
        ASSERT_EQ(rdma_create_id(channel, &caller, nullptr, RDMA_PS_TCP), 0);
        resolve_to(caller, kServer, kPort);
        ASSERT_EQ(connect_plain(caller), 0);
    }
    int status = 0;
    rdma_cm_id* refused = nullptr;
    EXPECT_EQ(next(&status, &refused), RDMA_CM_EVENT_REJECTED);
    EXPECT_EQ(status, 28);  // reason 28: rejected by the consumer
    EXPECT_EQ(refused, callers[kCalls - 1]);
    for (rdma_cm_id* caller : callers) EXPECT_EQ(rdma_destroy_id(caller), 0);
    EXPECT_EQ(rdma_destroy_id(listener), 0);
    rdma_destroy_event_channel(apart);
}

TEST_F(Cm, EventsMoveWithTheirId) {
    sockaddr_in to = ipv4(kServer, kPort);
    // The program does not read the event of this call before the migration.
    ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(to), 2000), 0);
    rdma_event_channel* other = rdma_create_event_channel();
    ASSERT_EQ(rdma_migrate_id(id, other), 0);
    EXPECT_EQ(id->channel, other);
    rdma_cm_event* e = nullptr;
    ASSERT_EQ(rdma_get_cm_event(other, &e), 0);
    EXPECT_EQ(e->event, RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(rdma_ack_cm_event(e), 0);
    EXPECT_EQ(rdma_destroy_id(id), 0);
    id = nullptr;
    rdma_destroy_event_channel(other);
}

/// Waits until the thread is in the system call with this number. Returns false after a minute, or if the kernel does
/// not provide this information.
bool until_in(pid_t thread, long number) {
    const std::string file = "/proc/self/task/" + std::to_string(thread) + "/syscall";
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    for (std::string word; word != std::to_string(number); std::this_thread::yield())
        if (!(std::ifstream(file) >> word) || std::chrono::steady_clock::now() > end) return false;
    return true;
}

#ifdef SYS_pause
constexpr long kPause = SYS_pause;
#else
constexpr long kPause = SYS_ppoll;  // the system call of pause(3) on newer architectures
#endif

/// A thread waits on a channel that another thread destroys, as in rping. The waiting call must not return, and the
/// library must log nothing.
TEST_F(Cm, WhoWaitsOnADestroyedChannelStaysAndNothingIsLogged) {
    rdma_event_channel* doomed = rdma_create_event_channel();
    ASSERT_NE(doomed, nullptr);
    std::atomic<pid_t> waiter{0};
    std::thread([&waiter, doomed] {
        waiter = gettid();
        rdma_cm_event* e = nullptr;
        rdma_get_cm_event(doomed, &e);
        ADD_FAILURE() << "came back";
    }).detach();
    while (waiter == 0) std::this_thread::yield();
    ASSERT_TRUE(until_in(waiter, SYS_read));
    testing::internal::CaptureStderr();
    rdma_destroy_event_channel(doomed);
    EXPECT_TRUE(until_in(waiter, kPause));
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

/// This test runs only if CM_REMOVAL is set. connection_errors.py sets this variable and ends rocid after the line
/// "bound".
TEST_F(Cm, DeviceThatGoesAwayIsAnEvent) {
    if (std::getenv("CM_REMOVAL") == nullptr) GTEST_SKIP() << "run by itself, with CM_REMOVAL set";
    resolve_to(id, kServer, kPort);
    rdma_cm_id* idle = nullptr;
    ASSERT_EQ(rdma_create_id(channel, &idle, nullptr, RDMA_PS_TCP), 0);
    std::printf("bound\n");
    std::fflush(stdout);
    rdma_cm_event* e = nullptr;
    ASSERT_EQ(rdma_get_cm_event(channel, &e), 0) << std::strerror(errno);
    EXPECT_EQ(e->event, RDMA_CM_EVENT_DEVICE_REMOVAL);
    EXPECT_EQ(e->id, id);
    EXPECT_EQ(rdma_ack_cm_event(e), 0);
    EXPECT_EQ(rdma_get_cm_event(channel, &e), -1) << "once for an id, and not for one without a device";
    EXPECT_EQ(errno, EIO);
    EXPECT_EQ(connect_plain(id), -1);
    EXPECT_EQ(rdma_destroy_id(idle), 0);
}

}  // namespace
