// Tests of the events of connections and datagrams (rdma_get_cm_event(3)): parameters, private data and status, as in
// the kernel's cma.c. The tests use only the public API, so they also run with the kernel's rdma_cm. The environment
// variables CM_SERVER and CM_CLIENT contain the addresses of the devices.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

constexpr uint16_t kPort = 7631;
// Lengths of the private data in an event, by the message that causes the event. Zeros extend the data to the size of
// the MAD's field (IBA 12.6). In a REQ, addresses use the first 36 of the field's 92 bytes, so 56 bytes remain.
constexpr uint8_t kInReq = 56, kInRep = 196, kInRej = 148, kInSidrReq = 180, kInSidrRep = 136;
constexpr int kConsumerReject = 28, kNoSuchService = 8;

const char* address_of(const char* variable, const char* otherwise) {
    const char* text = std::getenv(variable);
    return text != nullptr ? text : otherwise;
}
sockaddr_in ipv4(const char* text, uint16_t port) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(port);
    inet_pton(AF_INET, text, &a.sin_addr);
    return a;
}

/// An event with its private data. The data was copied before the event was acknowledged.
struct Seen {
    int type = -1, status = 0;
    rdma_cm_id* id = nullptr;
    bool listened = false;
    rdma_conn_param conn{};
    rdma_ud_param ud{};
    std::string data;  ///< private data
    bool has_data = false;
};

struct Expected {
    int type;
    int status = 0;
    uint8_t length = 0;     ///< length of the private data
    const char* text = "";  ///< beginning of the private data
};

/// One end of a connection: a channel and an id.
struct End {
    explicit End(rdma_port_space space) : datagram(space == RDMA_PS_UDP), channel(rdma_create_event_channel()) {
        EXPECT_EQ(rdma_create_id(channel, &id, this, space), 0);
    }
    ~End() {
        rdma_destroy_id(id);
        rdma_destroy_event_channel(channel);
    }
    End(const End&) = delete;
    Seen next() {
        Seen seen;
        pollfd p{channel->fd, POLLIN, 0};
        rdma_cm_event* e = nullptr;
        if (poll(&p, 1, 5000) != 1 || rdma_get_cm_event(channel, &e) != 0) return seen;
        seen.type = e->event;
        seen.status = e->status;
        seen.id = e->id;
        seen.listened = e->listen_id != nullptr;
        seen.conn = e->param.conn;
        seen.ud = e->param.ud;
        const void* data = datagram ? e->param.ud.private_data : e->param.conn.private_data;
        const uint8_t length = datagram ? e->param.ud.private_data_len : e->param.conn.private_data_len;
        seen.has_data = data != nullptr;
        if (data != nullptr) seen.data.assign(static_cast<const char*>(data), length);
        rdma_ack_cm_event(e);
        return seen;
    }
    Seen expect(const Expected& want) {
        Seen got = next();
        EXPECT_EQ(got.type, want.type) << rdma_event_str(rdma_cm_event_type(want.type));
        EXPECT_EQ(got.status, want.status) << rdma_event_str(rdma_cm_event_type(want.type));
        EXPECT_EQ(got.data.size(), want.length) << rdma_event_str(rdma_cm_event_type(want.type));
        EXPECT_EQ(got.has_data, want.length != 0);
        EXPECT_EQ(got.data.substr(0, std::strlen(want.text)), want.text);
        return got;
    }
    void resolve(uint16_t port) {
        sockaddr_in from = ipv4(address_of("CM_CLIENT", "10.77.0.2"), 0), to = ipv4(address_of("CM_SERVER", "10.77.0.1"), port);
        ASSERT_EQ(rdma_resolve_addr(id, reinterpret_cast<sockaddr*>(&from), reinterpret_cast<sockaddr*>(&to), 2000), 0);
        expect({RDMA_CM_EVENT_ADDR_RESOLVED});
        ASSERT_EQ(rdma_resolve_route(id, 2000), 0);
        expect({RDMA_CM_EVENT_ROUTE_RESOLVED});
    }
    void listen(uint16_t port) {
        sockaddr_in at = ipv4(address_of("CM_SERVER", "10.77.0.1"), port);
        ASSERT_EQ(rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&at)), 0);
        ASSERT_EQ(rdma_listen(id, 4), 0);
    }
    const bool datagram;
    rdma_event_channel* channel;
    rdma_cm_id* id = nullptr;
};

rdma_conn_param offer(const char* text, uint32_t qpn) {
    rdma_conn_param p{};
    p.private_data = text;
    p.private_data_len = uint8_t(std::strlen(text));
    p.responder_resources = 3;
    p.initiator_depth = 2;
    p.flow_control = 1;
    p.retry_count = 6;
    p.rnr_retry_count = 5;
    p.qp_num = qpn;
    return p;
}

/// Checks the parameters that offer() has sent. The responder resources of one side are the initiator depth of the
/// other side.
void expect_offer(const rdma_conn_param& got, uint32_t qpn) {
    EXPECT_EQ(got.responder_resources, 2);
    EXPECT_EQ(got.initiator_depth, 3);
    EXPECT_EQ(got.flow_control, 1);
    EXPECT_EQ(got.rnr_retry_count, 5);
    EXPECT_EQ(got.srq, 0);
    EXPECT_EQ(got.qp_num, qpn);
}

TEST(CmEvents, OfAConnection) {
    End server(RDMA_PS_TCP), client(RDMA_PS_TCP);
    server.listen(kPort);
    client.resolve(kPort);
    rdma_conn_param p = offer("hello", 0x4711);
    ASSERT_EQ(rdma_connect(client.id, &p), 0);
    const Seen request = server.expect({RDMA_CM_EVENT_CONNECT_REQUEST, 0, kInReq, "hello"});
    EXPECT_TRUE(request.listened);
    expect_offer(request.conn, 0x4711);
    EXPECT_EQ(request.conn.retry_count, 6);
    p = offer("welcome", 0x4712);
    ASSERT_EQ(rdma_accept(request.id, &p), 0);
    const Seen response = client.expect({RDMA_CM_EVENT_CONNECT_RESPONSE, 0, kInRep, "welcome"});
    EXPECT_FALSE(response.listened);
    expect_offer(response.conn, 0x4712);
    EXPECT_EQ(response.conn.retry_count, 0) << "a REP has none";
    ASSERT_EQ(rdma_establish(client.id), 0);
    const Seen up = server.expect({RDMA_CM_EVENT_ESTABLISHED});
    EXPECT_EQ(up.id, request.id);
    EXPECT_EQ(up.conn.qp_num, 0u) << "nothing of the RTU's";
    ASSERT_EQ(rdma_disconnect(client.id), 0);
    server.expect({RDMA_CM_EVENT_DISCONNECTED});
    ASSERT_EQ(rdma_disconnect(request.id), 0);
    client.expect({RDMA_CM_EVENT_DISCONNECTED});
    rdma_destroy_id(request.id);
}

/// Sends a message from `from` to `to`. `to` posts the receive 200 ms after the SEND.
void expect_late_receive(rdma_cm_id* from, rdma_cm_id* to) {
    static char text[16] = "late", room[16];
    ibv_mr* sent = rdma_reg_msgs(from, text, sizeof text);
    ibv_mr* received = rdma_reg_msgs(to, room, sizeof room);
    ASSERT_TRUE(sent != nullptr && received != nullptr);
    ASSERT_EQ(rdma_post_send(from, nullptr, text, sizeof text, sent, IBV_SEND_SIGNALED), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ASSERT_EQ(rdma_post_recv(to, nullptr, room, sizeof room, received), 0);
    ibv_wc wc{};
    ASSERT_EQ(rdma_get_send_comp(from, &wc), 1);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
    rdma_dereg_mr(sent);
    rdma_dereg_mr(received);
}

bool make_qp(rdma_cm_id* id) {
    ibv_qp_init_attr a{};
    a.qp_type = IBV_QPT_RC;
    a.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    return rdma_create_qp(id, nullptr, &a) == 0;
}

// The initiator of libiscsi registers 255 buffers before it posts the receives for the messages that the target may send
// meanwhile. It requests 6 RNR retries.
TEST(CmEvents, AFewRnrRetriesWaitForALateReceive) {
    End server(RDMA_PS_TCP), client(RDMA_PS_TCP);
    server.listen(kPort + 4);
    client.resolve(kPort + 4);
    ASSERT_TRUE(make_qp(client.id));
    rdma_conn_param p = offer("", 0);
    ASSERT_EQ(rdma_connect(client.id, &p), 0);
    rdma_cm_id* accepted = server.next().id;
    ASSERT_TRUE(make_qp(accepted));
    p = offer("", 0);
    ASSERT_EQ(rdma_accept(accepted, &p), 0);
    EXPECT_EQ(client.next().type, RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(server.next().type, RDMA_CM_EVENT_ESTABLISHED);
    expect_late_receive(accepted, client.id);
    expect_late_receive(client.id, accepted);
    ASSERT_EQ(rdma_disconnect(client.id), 0);
    rdma_destroy_qp(accepted);
    rdma_destroy_id(accepted);
    rdma_destroy_qp(client.id);
}

TEST(CmEvents, OfARefusal) {
    End server(RDMA_PS_TCP), client(RDMA_PS_TCP), lost(RDMA_PS_TCP);
    server.listen(kPort + 1);
    client.resolve(kPort + 1);
    rdma_conn_param p = offer("hello", 0x4721);
    ASSERT_EQ(rdma_connect(client.id, &p), 0);
    const Seen request = server.expect({RDMA_CM_EVENT_CONNECT_REQUEST, 0, kInReq, "hello"});
    ASSERT_EQ(rdma_reject(request.id, "no", 2), 0);
    client.expect({RDMA_CM_EVENT_REJECTED, kConsumerReject, kInRej, "no"});
    rdma_destroy_id(request.id);
    lost.resolve(kPort + 9);
    p = offer("hello", 0x4722);
    ASSERT_EQ(rdma_connect(lost.id, &p), 0);
    lost.expect({RDMA_CM_EVENT_REJECTED, kNoSuchService, kInRej});
}

TEST(CmEvents, OfDatagrams) {
    End server(RDMA_PS_UDP), client(RDMA_PS_UDP), refused(RDMA_PS_UDP);
    server.listen(kPort + 2);
    client.resolve(kPort + 2);
    rdma_conn_param p = offer("hello", 0x4731);
    ASSERT_EQ(rdma_connect(client.id, &p), 0);
    const Seen request = server.expect({RDMA_CM_EVENT_CONNECT_REQUEST, 0, kInSidrReq, "hello"});
    EXPECT_TRUE(request.listened);
    p = offer("welcome", 0x4732);
    ASSERT_EQ(rdma_accept(request.id, &p), 0);
    const Seen up = client.expect({RDMA_CM_EVENT_ESTABLISHED, 0, kInSidrRep, "welcome"});
    EXPECT_EQ(up.ud.qp_num, 0x4732u);
    EXPECT_NE(up.ud.qkey, 0u);
    EXPECT_EQ(up.ud.ah_attr.is_global, 1);
    rdma_destroy_id(request.id);
    refused.resolve(kPort + 2);
    p = offer("again", 0x4733);
    ASSERT_EQ(rdma_connect(refused.id, &p), 0);
    const Seen second = server.expect({RDMA_CM_EVENT_CONNECT_REQUEST, 0, kInSidrReq, "again"});
    ASSERT_EQ(rdma_reject(second.id, "no", 2), 0);
    const Seen no = refused.next();
    EXPECT_EQ(no.type, RDMA_CM_EVENT_UNREACHABLE);
    EXPECT_GT(no.status, 0) << "the status of the SIDR_REP";
    rdma_destroy_id(second.id);
}

/// The server and the client use the same device. The server must then see the address of the device as the address
/// of the client. This test needs `roci run --single`, so it does not run with the other tests.
TEST(CmEvents, DISABLED_OnOneHost) {
    End server(RDMA_PS_TCP), client(RDMA_PS_TCP);
    server.listen(kPort + 3);
    sockaddr_in to = ipv4(address_of("CM_SERVER", "10.77.0.1"), kPort + 3);
    ASSERT_EQ(rdma_resolve_addr(client.id, nullptr, reinterpret_cast<sockaddr*>(&to), 2000), 0);
    client.expect({RDMA_CM_EVENT_ADDR_RESOLVED});
    ASSERT_EQ(rdma_resolve_route(client.id, 2000), 0);
    client.expect({RDMA_CM_EVENT_ROUTE_RESOLVED});
    rdma_conn_param p = offer("hello", 0x4741);
    ASSERT_EQ(rdma_connect(client.id, &p), 0);
    const Seen request = server.expect({RDMA_CM_EVENT_CONNECT_REQUEST, 0, kInReq, "hello"});
    const auto* peer = reinterpret_cast<const sockaddr_in*>(rdma_get_peer_addr(request.id));
    ASSERT_EQ(peer->sin_family, AF_INET);
    EXPECT_EQ(peer->sin_addr.s_addr, to.sin_addr.s_addr);
    ASSERT_EQ(rdma_reject(request.id, "no", 2), 0);
    client.expect({RDMA_CM_EVENT_REJECTED, kConsumerReject, kInRej, "no"});
    rdma_destroy_id(request.id);
}

}  // namespace
