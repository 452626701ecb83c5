// Runs operations between two machines. One process of this program runs at each end. Each of the given operations is
// executed in both directions. The program checks every byte, and the status of errors. It uses only
// <infiniband/verbs.h>, so it runs with rocid on this machine and with Soft-RoCE in the guest.
//
//     ops -d DEVICE -g GID [-m MTU] [-t rc|uc|ud] [-q QPS] [-r ROUNDS] [-p PORT] [-s SIZE,SIZE…] [SERVER] OPERATION…
//
// Without SERVER, the program waits for a client. Otherwise it is the client of the server with the address SERVER.
// Operations are names of kOps or kFaults. On success the last line is "ops: N checks passed" and the exit status is
// 0.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] __attribute__((format(printf, 1, 2))) void die(const char* text, ...) {
    va_list args;
    va_start(args, text);
    std::fputs("ops: ", stderr);
    std::vfprintf(stderr, text, args);
    std::fputc('\n', stderr);
    va_end(args);
    std::exit(1);
}

struct Options {
    const char* device = nullptr;
    int gid = 1, mtu = 1024, qps = 1, rounds = 1, port = 18700, retries = 7;
    int timeout = 16;  // 0.27 s; an emulated peer on a busy machine may respond later than the usual 67 ms
    ibv_qp_type type = IBV_QPT_RC;
    std::vector<uint32_t> sizes{0, 1, 4, 1024, 65536};
    const char* server = nullptr;
    std::vector<std::string> operations;
} options;

// ---- the side channel -----------------------------------------------------------------------------------------------

class Line {
public:
    void open() {
        if (options.server != nullptr)
            connect_to();
        else
            wait_for();
    }
    void put(const void* p, size_t n) {
        if (write(fd_, p, n) != ssize_t(n)) die("the side channel broke");
    }
    void get(void* p, size_t n) {
        for (auto* to = static_cast<char*>(p); n != 0;) {
            const ssize_t got = read(fd_, to, n);
            if (got <= 0) die("the other side is gone");
            to += got;
            n -= size_t(got);
        }
    }
    template <class T>
    T exchange(const T& mine) {
        T theirs;
        put(&mine, sizeof mine);
        get(&theirs, sizeof theirs);
        return theirs;
    }
    void meet() { (void)exchange(uint8_t{1}); }

private:
    static addrinfo* look_up(const char* host) {
        addrinfo hints{}, *found = nullptr;
        hints.ai_socktype = SOCK_STREAM;
        hints.ai_flags = (host == nullptr ? AI_PASSIVE : 0) | AI_NUMERICHOST;
        hints.ai_family = host == nullptr ? AF_INET6 : AF_UNSPEC;
        if (getaddrinfo(host, std::to_string(options.port).c_str(), &hints, &found) != 0) die("no address %s", host);
        return found;
    }
    void connect_to() {
        addrinfo* to = look_up(options.server);
        for (int i = 0; i < 300; ++i) {
            fd_ = socket(to->ai_family, SOCK_STREAM, 0);
            if (connect(fd_, to->ai_addr, to->ai_addrlen) == 0) return freeaddrinfo(to);
            close(fd_);
            poll(nullptr, 0, 100);
        }
        die("nobody listens at %s", options.server);
    }
    void wait_for() {
        addrinfo* at = look_up(nullptr);
        const int l = socket(at->ai_family, SOCK_STREAM, 0), on = 1, off = 0;
        setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        setsockopt(l, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        if (bind(l, at->ai_addr, at->ai_addrlen) != 0 || listen(l, 1) != 0) die("port %d is taken", options.port);
        freeaddrinfo(at);
        fd_ = accept(l, nullptr, nullptr);
        if (fd_ < 0) die("accept");
        close(l);
    }
    int fd_ = -1;
} line;

// ---- verbs ----------------------------------------------------------------------------------------------------------

constexpr uint32_t kQkey = 0x1234, kGrh = 40, kSlack = 64;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

struct Ends {
    uint32_t qpn, psn, rkey;
    uint64_t address;
    ibv_gid gid;
};

struct Device {
    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    ibv_cq* cq = nullptr;
    ibv_gid gid{};
} device;

struct Connection {
    ibv_qp* qp = nullptr;
    ibv_mr* mr = nullptr;
    ibv_ah* ah = nullptr;
    std::vector<uint8_t> memory;
    Ends mine{}, theirs{};
    uint8_t* data() { return memory.data() + kGrh; }
};
std::vector<Connection> connections;
uint32_t checks = 0;

void open_device() {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    for (int i = 0; i < count; ++i)
        if (std::strcmp(ibv_get_device_name(list[i]), options.device) == 0) device.context = ibv_open_device(list[i]);
    if (device.context == nullptr) die("no device %s", options.device);
    ibv_free_device_list(list);
    device.pd = ibv_alloc_pd(device.context);
    device.cq = ibv_create_cq(device.context, 1024, nullptr, nullptr, 0);
    if (device.pd == nullptr || device.cq == nullptr) die("no PD or CQ");
    if (ibv_query_gid(device.context, 1, options.gid, &device.gid) != 0) die("no GID %d", options.gid);
}

ibv_mtu mtu() {
    for (int i = IBV_MTU_256; i <= IBV_MTU_4096; ++i)
        if (128 << i == options.mtu) return ibv_mtu(i);
    die("MTU %d", options.mtu);
}

ibv_ah_attr path(const Ends& to) {
    ibv_ah_attr a{};
    a.is_global = 1;
    a.port_num = 1;
    a.grh.dgid = to.gid;
    a.grh.sgid_index = uint8_t(options.gid);
    a.grh.hop_limit = 64;
    return a;
}

void modify(Connection& c, ibv_qp_attr& a, int mask, const char* to) {
    if (const int e = ibv_modify_qp(c.qp, &a, mask); e != 0) die("QP to %s: %s", to, std::strerror(e));
}

bool datagrams() { return options.type == IBV_QPT_UD; }
bool reliable() { return options.type == IBV_QPT_RC; }

/// Moves the QP from any state to RTS with the agreed PSNs. `rnr` is the number of RNR retries.
void bring_up(Connection& c, uint8_t rnr) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RESET;
    modify(c, a, IBV_QP_STATE, "RESET");
    a = {};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qp_access_flags = kAccess;
    a.qkey = kQkey;
    modify(c, a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | int(datagrams() ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS), "INIT");
    a = {};
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = mtu();
    a.dest_qp_num = c.theirs.qpn;
    a.rq_psn = c.theirs.psn;
    a.max_dest_rd_atomic = 8;
    a.min_rnr_timer = 12;
    a.ah_attr = path(c.theirs);
    int mask = IBV_QP_STATE;
    if (!datagrams()) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (reliable()) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    modify(c, a, mask, "RTR");
    a.qp_state = IBV_QPS_RTS;
    a.sq_psn = c.mine.psn;
    a.timeout = uint8_t(options.timeout);
    a.retry_cnt = uint8_t(options.retries);
    a.rnr_retry = rnr;
    a.max_rd_atomic = 8;
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (reliable()) mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    modify(c, a, mask, "RTS");
}

void join(uint8_t rnr = 7) {
    for (Connection& c : connections) {
        c.mine.psn = uint32_t(std::rand()) & 0xffffff;
        c.theirs = line.exchange(c.mine);
        bring_up(c, rnr);
    }
    line.meet();
}

void make_connections(uint32_t bytes) {
    connections.resize(size_t(options.qps));
    for (Connection& c : connections) {
        c.memory.resize(kGrh + bytes + kSlack);
        c.mr = ibv_reg_mr(device.pd, c.memory.data(), c.memory.size(), kAccess);
        ibv_qp_init_attr a{};
        a.send_cq = a.recv_cq = device.cq;
        a.qp_type = options.type;
        a.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
        c.qp = ibv_create_qp(device.pd, &a);
        if (c.mr == nullptr || c.qp == nullptr) die("no MR or QP: %s", std::strerror(errno));
        c.mine = {c.qp->qp_num, 0, c.mr->rkey, reinterpret_cast<uint64_t>(c.data()), device.gid};
    }
    join();
    for (Connection& c : connections) {
        ibv_ah_attr a = path(c.theirs);
        if (datagrams() && (c.ah = ibv_create_ah(device.pd, &a)) == nullptr) die("no AH: %s", std::strerror(errno));
    }
}

// ---- operations -----------------------------------------------------------------------------------------------------

struct Op {
    const char* name;
    ibv_wr_opcode code;
    bool receives;             ///< consumes a receive request at the other side
    ibv_wc_opcode arrives_as;  ///< opcode of the receive completion
    bool immediate;
};
constexpr Op kOps[] = {
    {"send", IBV_WR_SEND, true, IBV_WC_RECV, false},
    {"send_imm", IBV_WR_SEND_WITH_IMM, true, IBV_WC_RECV, true},
    {"write", IBV_WR_RDMA_WRITE, false, IBV_WC_RECV, false},
    {"write_imm", IBV_WR_RDMA_WRITE_WITH_IMM, true, IBV_WC_RECV_RDMA_WITH_IMM, true},
    {"read", IBV_WR_RDMA_READ, false, IBV_WC_RECV, false},
    {"fetch_add", IBV_WR_ATOMIC_FETCH_AND_ADD, false, IBV_WC_RECV, false},
    {"compare_swap", IBV_WR_ATOMIC_CMP_AND_SWP, false, IBV_WC_RECV, false},
};
constexpr uint32_t kImmediate = 0xfeedbeef;
constexpr uint64_t kBefore = 0x1122334455667788, kOperand = 0x0101010101010101;

bool is_atomic(const Op& op) { return op.code == IBV_WR_ATOMIC_FETCH_AND_ADD || op.code == IBV_WR_ATOMIC_CMP_AND_SWP; }

uint8_t pattern(uint32_t tag, uint32_t i) { return uint8_t(tag * 101 + i * 7 + (i >> 8) * 13 + (i >> 16) * 29); }
void fill(Connection& c, uint32_t size, uint32_t tag) {
    for (uint32_t i = 0; i < size; ++i) c.data()[i] = pattern(tag, i);
}
void clear(Connection& c, uint32_t size) { std::memset(c.data(), 0xee, size + 4); }
/// Waits at most 5 seconds until the last byte of an unacknowledged WRITE has arrived. The peer reports over TCP that it
/// has sent the WRITE, and this report may arrive before the WRITE.
void await_last_byte(Connection& c, uint32_t size, uint32_t tag) {
    const auto end = Clock::now() + std::chrono::seconds(5);
    while (size != 0 && *const_cast<volatile uint8_t*>(c.data() + size - 1) != pattern(tag, size - 1) && Clock::now() < end) {
    }
}
void verify(Connection& c, uint32_t size, uint32_t tag, const char* what) {
    for (uint32_t i = 0; i < size; ++i)
        if (c.data()[i] != pattern(tag, i))
            die("%s of %u bytes: byte %u is %02x, not %02x", what, size, i, c.data()[i], pattern(tag, i));
    if (size + 4 <= c.memory.size() - kGrh - 4 && c.data()[size] != 0xee) die("%s of %u bytes wrote beyond", what, size);
    ++checks;
}

ibv_wc wait_one(const char* what) {
    const auto end = Clock::now() + std::chrono::seconds(60);
    ibv_wc wc{};
    for (int n; (n = ibv_poll_cq(device.cq, 1, &wc)) != 1;) {
        if (n < 0) die("poll");
        if (Clock::now() > end) die("%s does not complete", what);
    }
    return wc;
}
ibv_wc wait_good(const char* what) {
    const ibv_wc wc = wait_one(what);
    if (wc.status != IBV_WC_SUCCESS) die("%s completes with %s (%d)", what, ibv_wc_status_str(wc.status), wc.status);
    return wc;
}

void post_recv(Connection& c, uint32_t size) {
    const uint32_t grh = datagrams() ? kGrh : 0;
    ibv_sge sge{reinterpret_cast<uint64_t>(c.data() - grh), size + grh, c.mr->lkey};
    ibv_recv_wr wr{}, *bad;
    wr.wr_id = 1;
    wr.sg_list = &sge;
    wr.num_sge = sge.length != 0 ? 1 : 0;
    if (ibv_post_recv(c.qp, &wr, &bad) != 0) die("post_recv");
}

void post_send(Connection& c, const Op& op, uint32_t size, uint32_t rkey) {
    ibv_sge sge{c.mine.address, size, c.mr->lkey};
    ibv_send_wr wr{}, *bad;
    wr.opcode = op.code;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = size != 0 ? 1 : 0;
    wr.imm_data = htonl(kImmediate);
    wr.wr.rdma.remote_addr = c.theirs.address;
    wr.wr.rdma.rkey = rkey;
    if (is_atomic(op)) {
        wr.wr.atomic.remote_addr = c.theirs.address;
        wr.wr.atomic.rkey = rkey;
        wr.wr.atomic.compare_add = op.code == IBV_WR_ATOMIC_FETCH_AND_ADD ? kOperand : kBefore;
        wr.wr.atomic.swap = kOperand;
    }
    if (datagrams()) {
        wr.wr.ud.ah = c.ah;
        wr.wr.ud.remote_qpn = c.theirs.qpn;
        wr.wr.ud.remote_qkey = kQkey;
    }
    if (ibv_post_send(c.qp, &wr, &bad) != 0) die("post_send of %s", op.name);
}

void act(const Op& op, uint32_t size, uint32_t tag) {
    const bool reads = op.code == IBV_WR_RDMA_READ;
    for (Connection& c : connections) reads ? clear(c, size) : fill(c, size, tag);
    line.meet();  // waits until the other side is ready
    for (Connection& c : connections) post_send(c, op, size, c.theirs.rkey);
    for (size_t i = 0; i < connections.size(); ++i) wait_good(op.name);
    for (Connection& c : connections) {
        uint64_t original;
        std::memcpy(&original, c.data(), sizeof original);
        if (reads) verify(c, size, tag, op.name);
        if (is_atomic(op) && original != kBefore) die("%s gives %016lx", op.name, original);
    }
    line.meet();  // waits until the other side has finished
}

void react(const Op& op, uint32_t size, uint32_t tag) {
    const bool reads = op.code == IBV_WR_RDMA_READ;
    for (Connection& c : connections) {
        reads ? fill(c, size, tag) : clear(c, size);
        if (is_atomic(op)) std::memcpy(c.data(), &kBefore, sizeof kBefore);
        if (op.receives) post_recv(c, size);
    }
    line.meet();
    for (size_t i = 0; op.receives && i < connections.size(); ++i) {
        const ibv_wc wc = wait_good(op.name);
        if (wc.opcode != op.arrives_as) die("%s arrives as opcode %d", op.name, wc.opcode);
        if (wc.byte_len != size + (datagrams() ? kGrh : 0)) die("%s of %u bytes arrives with %u", op.name, size, wc.byte_len);
        if (op.immediate && ((wc.wc_flags & IBV_WC_WITH_IMM) == 0 || wc.imm_data != htonl(kImmediate)))
            die("%s arrives without its immediate", op.name);
    }
    line.meet();
    for (Connection& c : connections) {
        if (options.type == IBV_QPT_UC) await_last_byte(c, size, tag);
        if (!reads && !is_atomic(op)) verify(c, size, tag, op.name);
        uint64_t now;
        std::memcpy(&now, c.data(), sizeof now);
        const uint64_t wanted = op.code == IBV_WR_ATOMIC_FETCH_AND_ADD ? kBefore + kOperand : kOperand;
        if (is_atomic(op) && now != wanted) die("%s leaves %016lx", op.name, now);
    }
}

/// Executes an operation in both directions. The client is the first requester.
void run(const Op& op) {
    uint32_t tag = 1;
    for (int round = 0; round < options.rounds; ++round)
        for (uint32_t size : options.sizes)
            for (bool client_acts : {true, false}) {
                const uint32_t n = is_atomic(op) ? 8 : datagrams() ? std::min(size, uint32_t(options.mtu)) : size;
                client_acts == (options.server != nullptr) ? act(op, n, ++tag) : react(op, n, ++tag);
                ++checks;
            }
}

// ---- errors ---------------------------------------------------------------------------------------------------------

struct Fault {
    const char* name;
    ibv_wr_opcode code;
    uint32_t size, room;  ///< bytes of the request and of the receive buffer; room 0: no receive is posted
    bool bad_key, peer_gone;
    uint8_t rnr;
    ibv_wc_status active, passive;  ///< expected status of the request and, if a receive is posted, of the receive
    /// The statuses if the responder is Soft-RoCE and differs from the specification. IBV_WC_SUCCESS means no
    /// difference.
    ibv_wc_status rxe_active = IBV_WC_SUCCESS, rxe_passive = IBV_WC_SUCCESS;
};
constexpr Fault kFaults[] = {
    {"bad_write", IBV_WR_RDMA_WRITE, 4096, 0, true, false, 7, IBV_WC_REM_ACCESS_ERR, IBV_WC_SUCCESS},
    {"bad_read", IBV_WR_RDMA_READ, 4096, 0, true, false, 7, IBV_WC_REM_ACCESS_ERR, IBV_WC_SUCCESS},
    {"bad_atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0, true, false, 7, IBV_WC_REM_ACCESS_ERR, IBV_WC_SUCCESS},
    {"too_long", IBV_WR_SEND, 4096, 1000, false, false, 7, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_OP_ERR,
     IBV_WC_LOC_QP_OP_ERR},
    {"not_ready", IBV_WR_SEND, 64, 0, false, false, 1, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_SUCCESS},
    // If a QP of Soft-RoCE enters ERR with a posted receive, Linux 6.1 and the whole guest hang. So this QP moves to
    // RESET and has no receive.
    {"gone", IBV_WR_SEND, 64, 0, false, true, 7, IBV_WC_RETRY_EXC_ERR, IBV_WC_SUCCESS},
};

void expect(const char* what, ibv_wc_status wanted) {
    const ibv_wc wc = wait_one(what);
    if (wc.status != wanted) die("%s completes with %s, not %s", what, ibv_wc_status_str(wc.status), ibv_wc_status_str(wanted));
    ++checks;
}

bool is_rxe() { return std::strncmp(options.device, "rxe", 3) == 0; }

void run(const Fault& f) {
    const int retries = std::exchange(options.retries, 3);  // for Soft-RoCE, 7 means endless retries
    for (bool client_acts : {true, false}) {
        join(f.rnr);
        Connection& c = connections[0];
        const bool acts = client_acts == (options.server != nullptr);
        if (!acts && f.room != 0) post_recv(c, f.room);
        ibv_qp_attr gone{};
        gone.qp_state = IBV_QPS_RESET;
        if (!acts && f.peer_gone) modify(c, gone, IBV_QP_STATE, "RESET");
        line.meet();
        const Op op{f.name, f.code, false, IBV_WC_RECV, false};
        if (acts) {
            post_send(c, op, f.size, f.bad_key ? c.theirs.rkey ^ 0x5500 : c.theirs.rkey);
            expect(f.name, !is_rxe() && f.rxe_active != IBV_WC_SUCCESS ? f.rxe_active : f.active);
        } else if (f.room != 0) {
            expect(f.name, is_rxe() && f.rxe_passive != IBV_WC_SUCCESS ? f.rxe_passive : f.passive);
        }
        line.meet();
    }
    options.retries = retries;
    join();
}

void run(const std::string& name) {
    for (const Op& op : kOps)
        if (name == op.name) return run(op);
    for (const Fault& f : kFaults)
        if (name == f.name) return run(f);
    die("no operation %s", name.c_str());
}

void parse(int argc, char** argv) {
    for (int c; (c = getopt(argc, argv, "d:g:m:t:q:r:p:s:")) != -1;) {
        if (c == 'd') options.device = optarg;
        if (c == 'g') options.gid = std::atoi(optarg);
        if (c == 'm') options.mtu = std::atoi(optarg);
        if (c == 'q') options.qps = std::atoi(optarg);
        if (c == 'r') options.rounds = std::atoi(optarg);
        if (c == 'p') options.port = std::atoi(optarg);
        if (c == 't') options.type = *optarg == 'r' ? IBV_QPT_RC : optarg[1] == 'c' ? IBV_QPT_UC : IBV_QPT_UD;
        if (c != 's') continue;
        options.sizes.clear();
        for (char* p = optarg; *p != '\0';) {
            options.sizes.push_back(uint32_t(std::strtoul(p, &p, 10)));
            if (*p == ',') ++p;
        }
    }
    if (optind < argc && std::strpbrk(argv[optind], ".:") != nullptr) options.server = argv[optind++];
    for (; optind < argc; ++optind) options.operations.emplace_back(argv[optind]);
    if (options.device == nullptr || options.operations.empty()) die("see the head of its source");
}

}  // namespace

int main(int argc, char** argv) {
    parse(argc, argv);
    std::srand(unsigned(getpid()));
    uint32_t largest = 4096;
    for (uint32_t s : options.sizes) largest = std::max(largest, s);
    line.open();
    open_device();
    make_connections(largest);
    for (const std::string& name : options.operations) run(name);
    line.meet();
    std::printf("ops: %u checks passed\n", checks);
    for (Connection& c : connections) {
        if (c.ah != nullptr) ibv_destroy_ah(c.ah);
        ibv_destroy_qp(c.qp);
        ibv_dereg_mr(c.mr);
    }
}
