// Makes and ends many connections by address, as fast as possible. Prints the rate, and the number of failed
// connections per event.
//
//     cm_load server ADDRESS PORT
//     cm_load client ADDRESS PORT TOTAL AT_ONCE [hold]
//
// The server runs until it is killed. The client keeps up to AT_ONCE connections in progress at the same time. With `hold`, the
// client ends no connection until each of the TOTAL connections is open or has failed. Each connection has an RC QP at both ends.
// The program uses only the public API, so it runs with any provider.
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <sys/resource.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void die(const char* what) {
    std::perror(what);
    std::exit(1);
}

double cpu_seconds() {
    rusage u{};
    getrusage(RUSAGE_SELF, &u);
    const auto seconds = [](const timeval& t) { return double(t.tv_sec) + double(t.tv_usec) * 1e-6; };
    return seconds(u.ru_utime) + seconds(u.ru_stime);
}

addrinfo* resolve(const char* host, const char* port) {
    addrinfo hints{}, *out = nullptr;
    hints.ai_flags = AI_NUMERICHOST;
    hints.ai_socktype = SOCK_STREAM;
    if (const int rc = getaddrinfo(host, port, &hints, &out); rc != 0) {
        std::fprintf(stderr, "%s: %s\n", host, gai_strerror(rc));
        std::exit(1);
    }
    return out;
}

/// The CQ that all QPs of a side share.
struct Queues {
    ibv_cq* cq = nullptr;

    bool make_qp(rdma_cm_id* id) {
        if (cq == nullptr) cq = ibv_create_cq(id->verbs, 16, nullptr, nullptr, 0);
        if (cq == nullptr) return false;
        ibv_qp_init_attr attr{};
        attr.qp_type = IBV_QPT_RC;
        attr.send_cq = attr.recv_cq = cq;
        attr.cap = {1, 1, 1, 1, 0};
        return rdma_create_qp(id, id->pd, &attr) == 0;
    }
};

rdma_conn_param parameters() {
    rdma_conn_param p{};
    p.responder_resources = p.initiator_depth = 1;
    p.retry_count = p.rnr_retry_count = 7;
    return p;
}

void destroy(rdma_cm_id* id) {
    if (id->qp != nullptr) rdma_destroy_qp(id);
    if (rdma_destroy_id(id) != 0) die("rdma_destroy_id");
}

/// A copy of an event. The event itself is acknowledged, so the program may destroy its id.
struct Event {
    rdma_cm_event_type type;
    int status;
    rdma_cm_id* id;
};
Event next_event(rdma_event_channel* channel) {
    rdma_cm_event* e = nullptr;
    if (rdma_get_cm_event(channel, &e) != 0) die("rdma_get_cm_event");
    const Event copy{e->event, e->status, e->id};
    rdma_ack_cm_event(e);
    return copy;
}

[[noreturn]] void serve(const char* address, const char* port) {
    constexpr int kBacklog = 1024;
    rdma_event_channel* channel = rdma_create_event_channel();
    rdma_cm_id* listener = nullptr;
    if (channel == nullptr || rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP) != 0) die("rdma_create_id");
    if (rdma_bind_addr(listener, resolve(address, port)->ai_addr) != 0) die("rdma_bind_addr");
    if (rdma_listen(listener, kBacklog) != 0) die("rdma_listen");
    Queues queues;
    for (;;) {
        const Event e = next_event(channel);
        rdma_conn_param p = parameters();
        switch (e.type) {
            case RDMA_CM_EVENT_CONNECT_REQUEST:
                if (!queues.make_qp(e.id) || rdma_accept(e.id, &p) != 0) {
                    std::perror("accept");
                    rdma_reject(e.id, nullptr, 0);
                    destroy(e.id);
                }
                break;
            case RDMA_CM_EVENT_DISCONNECTED:
                rdma_disconnect(e.id);
                destroy(e.id);
                break;
            case RDMA_CM_EVENT_REJECTED:
            case RDMA_CM_EVENT_UNREACHABLE:
            case RDMA_CM_EVENT_CONNECT_ERROR:
                destroy(e.id);
                break;
            default:
                break;
        }
    }
}

class Client {
public:
    Client(const char* address, const char* port, long total, bool hold)
        : to_(resolve(address, port)), total_(total), hold_(hold) {
        channel_ = rdma_create_event_channel();
        if (channel_ == nullptr) die("rdma_create_event_channel");
    }

    int run(long at_once) {
        const auto start = Clock::now();
        while (started_ < total_ && started_ - established_ - failed_ < at_once) begin();
        while (ended_ < total_) {
            step(next_event(channel_));
            while (started_ < total_ && on_their_way() < at_once) begin();
        }
        const std::chrono::duration<double> took = Clock::now() - start;
        std::printf(
            "%ld connections in %.2f s: %.0f per second; %ld established, %ld failed, %ld open at once, %.0f us CPU each\n",
            total_, took.count(), double(total_) / took.count(), established_, failed_, most_open_,
            cpu_seconds() * 1e6 / double(total_));
        for (size_t i = 0; i < failures_.size(); ++i)
            if (failures_[i] != 0) std::printf("%ld ended in %s\n", failures_[i], rdma_event_str(rdma_cm_event_type(i)));
        return failed_ == 0 ? 0 : 2;
    }

private:
    long on_their_way() const { return hold_ ? started_ - established_ - failed_ : started_ - ended_; }

    void begin() {
        constexpr int kPatienceMs = 2000;
        rdma_cm_id* id = nullptr;
        if (rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) != 0) die("rdma_create_id");
        ++started_;
        if (rdma_resolve_addr(id, nullptr, to_->ai_addr, kPatienceMs) != 0) die("rdma_resolve_addr");
    }
    void connect(rdma_cm_id* id) {
        rdma_conn_param p = parameters();
        if (!queues_.make_qp(id)) die("rdma_create_qp");
        if (rdma_connect(id, &p) != 0) die("rdma_connect");
    }
    void established(rdma_cm_id* id) {
        ++established_;
        ++open_;
        if (open_ > most_open_) most_open_ = open_;
        if (!hold_) {
            rdma_disconnect(id);
            return;
        }
        held_.push_back(id);
        if (established_ + failed_ == total_) let_go();
    }
    void let_go() {
        for (rdma_cm_id* id : held_) rdma_disconnect(id);
        held_.clear();
    }
    void fail(const Event& e) {
        ++failed_;
        ++failures_[size_t(e.type)];
        ++ended_;
        destroy(e.id);
        if (hold_ && established_ + failed_ == total_) let_go();
    }
    void step(const Event& e) {
        constexpr int kPatienceMs = 2000;
        switch (e.type) {
            case RDMA_CM_EVENT_ADDR_RESOLVED:
                if (rdma_resolve_route(e.id, kPatienceMs) != 0) die("rdma_resolve_route");
                break;
            case RDMA_CM_EVENT_ROUTE_RESOLVED:
                connect(e.id);
                break;
            case RDMA_CM_EVENT_ESTABLISHED:
                established(e.id);
                break;
            case RDMA_CM_EVENT_DISCONNECTED:
                --open_;
                ++ended_;
                destroy(e.id);
                break;
            case RDMA_CM_EVENT_TIMEWAIT_EXIT:
                break;
            default:
                fail(e);
        }
    }

    addrinfo* to_;
    const long total_;
    const bool hold_;
    rdma_event_channel* channel_ = nullptr;
    Queues queues_;
    long started_ = 0, established_ = 0, failed_ = 0, ended_ = 0, open_ = 0, most_open_ = 0;
    std::array<long, 32> failures_{};
    std::vector<rdma_cm_id*> held_;
};

}  // namespace

int main(int argc, char** argv) {
    const std::string role = argc > 1 ? argv[1] : "";
    if (role == "server" && argc == 4) serve(argv[2], argv[3]);
    if (role != "client" || argc < 6) {
        std::fprintf(stderr, "cm_load server ADDRESS PORT | cm_load client ADDRESS PORT TOTAL AT_ONCE [hold]\n");
        return 1;
    }
    return Client(argv[2], argv[3], std::atol(argv[4]), argc > 6 && std::string(argv[6]) == "hold").run(std::atol(argv[5]));
}
