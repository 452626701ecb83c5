// A conductor (rocid's control thread) without an operating system. It uses heap memory instead of memfds, plain numbers instead
// of descriptors, and engines that only record commands. The fixture counts all resources of the conductor, so that a test can
// detect leaks.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "host/conductor.hpp"
#include "neighbour/frames.hpp"
#include "qp/attributes.hpp"
#include "qp/state.hpp"

namespace roci::host::test {

class MemoryPlatform : public Platform {
public:
    MemoryPlatform() { current = this; }
    ~MemoryPlatform() override {
        current = nullptr;
        for (const auto& [base, length] : memory) std::free(base);
    }
    static inline MemoryPlatform* current = nullptr;  ///< platform of the running test
    uint64_t random() override { return randoms += 0x9e3779b97f4a7c15u; }
    SharedMemory make_memory(uint64_t length, std::string& why) override {
        if (refuse_memory) {
            why = "test says so";
            return {};
        }
        auto* base = static_cast<std::byte*>(std::aligned_alloc(4096, (length + 4095) / 4096 * 4096));
        std::memset(base, 0, length);
        memory[base] = length;
        by_fd[next_fd] = base;
        return {base, length, next_fd++};
    }
    /// Returns the block that make_memory() has made for this descriptor.
    SharedMemory map_chunk(int fd, uint64_t length, std::string& why) override {
        const auto it = by_fd.find(fd);
        if (it == by_fd.end() || memory.at(it->second) != length) {
            taken.insert(fd);
            why = "no such memory";
            return {};
        }
        return {it->second, length, fd};
    }
    bool has_memory(uint64_t, std::string& why) override {
        if (short_of_memory) why = "test says so";
        return !short_of_memory;
    }
    int follow_group(uint32_t device, const Gid&, bool joined) override {
        followed.emplace_back(device, joined);
        return refuse_group;
    }
    bool is_lost(const SharedMemory& m) const override { return lost.contains(m.base); }
    void free_memory(const SharedMemory& m) override {
        ASSERT_EQ(memory.erase(m.base), 1u);
        std::free(m.base);
    }
    std::unique_ptr<mem::MappedRegion> map_region(int fd, uint64_t length, bool writable, std::string& why) override {
        taken.insert(fd);
        if (refuse_map || (backed && length > kLargestBacked)) {
            why = "test says so";
            return nullptr;
        }
        auto region = std::make_unique<mem::MappedRegion>();
        // The conductor never accesses the memory of a region. If no engine runs, the base is only a number that
        // differs per region.
        region->base = backed ? new std::byte[length]{} : reinterpret_cast<std::byte*>(next_base);
        next_base += (length + 0xfff) / 0x1000 * 0x1000 + 0x1000;
        region->length = length;
        region->writable = writable;
        mapped.insert(region.get());
        return region;
    }
    void unmap_region(mem::MappedRegion& r) override {
        EXPECT_EQ(mapped.erase(&r), 1u);
        if (backed) delete[] r.base;
    }
    void close_fd(int fd) override { EXPECT_TRUE(taken.insert(fd).second) << "closed twice"; }
    /// Two descriptors with the same last three digits identify the same file.
    bool identify_file(int fd, FileIdentity& out) override {
        out = {1, uint64_t(fd) % 1000};
        return true;
    }
    std::unique_ptr<mem::RemoteProcess> remote_process(int) override {
        struct Process : mem::RemoteProcess {
            bool read(uint64_t, std::byte*, uint64_t) override { return false; }
            bool write(uint64_t, const std::byte*, uint64_t) override { return false; }
        };
        return allow_process ? std::make_unique<Process>() : nullptr;
    }
    int make_event_pipe(uint32_t session, uint32_t channel) override {
        if (refuse_fds) return -1;
        EXPECT_TRUE(pipes.insert({session, channel}).second);
        return next_fd++;
    }
    void signal_channel(uint32_t session, uint32_t channel, uint32_t) override { ++signals[{session, channel}]; }
    void close_event_pipe(uint32_t session, uint32_t channel) override { pipes.erase({session, channel}); }
    void send_async(uint32_t session, const abi::AsyncEventRecord& r) override {
        asyncs.push_back({session, r.event_type});
        published_at_async.push_back(published);
    }
    int device_page_fd() override { return page_fd; }
    void publish_device(uint32_t device, const abi::DeviceSnapshot& now) override { published[device] = now; }
    int route(uint32_t, const Gid&, const Gid&, Gid& next) override {
        if (!gateway.is_zero()) next = gateway;
        return route_error;
    }
    void solicit(uint32_t, const Gid& address) override { solicited.push_back(address); }
    int make_wake_fd(uint32_t session, uint32_t) override {
        if (refuse_fds) return -1;
        wake.insert(session);
        return next_fd++;
    }
    void close_wake_fds(uint32_t session) override { wake.erase(session); }
    int engine_page_fd() override { return 7; }
    std::string host_status_json() override { return host_json; }
    int make_text_fd(const std::string& text) override {
        status = text;
        return next_fd++;
    }
    bool clean() const { return memory.empty() && mapped.empty() && pipes.empty() && wake.empty(); }

    int start_capture(uint32_t, const CaptureSpec& spec, std::string&) override {
        last_capture = spec;
        return next_fd++;
    }

    std::map<std::byte*, uint64_t> memory;
    std::set<std::byte*> lost;
    std::vector<std::pair<uint32_t, bool>> followed;  ///< device and `joined` of each call of follow_group()
    CaptureSpec last_capture;
    std::map<int, std::byte*> by_fd;  ///< memory block of each descriptor
    std::set<mem::MappedRegion*> mapped;
    std::set<int> taken;
    std::set<std::pair<uint32_t, uint32_t>> pipes;
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> signals;
    std::set<uint32_t> wake;
    std::vector<std::pair<uint32_t, uint32_t>> asyncs;                        ///< pairs of session and event type
    std::map<uint32_t, abi::DeviceSnapshot> published;                        ///< last snapshot by device
    std::vector<std::map<uint32_t, abi::DeviceSnapshot>> published_at_async;  ///< `published` at the time of each async event
    int page_fd = -1;
    std::vector<Gid> solicited;
    Gid gateway;
    int route_error = 0;
    std::string status, host_json = R"({"lcores":2})";
    uint64_t randoms = 0;
    int next_fd = 1000;
    uintptr_t next_base = 0x100000000;
    static constexpr uint64_t kLargestBacked = 1 << 20;
    bool backed = false;   ///< true: regions are real memory, for engines that access it
    int refuse_group = 0;  // errno with which follow_group() fails, or 0
    bool short_of_memory = false, refuse_memory = false, refuse_map = false, refuse_fds = false, allow_process = true;
};

/// The kind of a record of RecordingPort: the index of a command's alternative in engine::Command, or a fence.
enum class Kind : size_t { fence = std::variant_size_v<engine::Command> };
template <class Operation>
inline constexpr Kind kind_of = Kind(engine::Command(static_cast<Operation*>(nullptr)).index());

/// Engines that only record commands, and imitate those effects of commands that tests need.
class RecordingPort : public engine::CommandPort {
public:
    struct Record {
        Kind kind;
        uint32_t engine;  ///< 0 for a fence
    };
    explicit RecordingPort(uint32_t engines) : engines_(engines) {}
    uint32_t engines() const override { return engines_; }
    void wait(uint32_t engine, engine::Ticket ticket) override {
        EXPECT_LE(ticket, submitted[engine]);
        ++waits;
    }
    void fence_all() override { log.push_back({Kind::fence, 0}); }
    engine::Ticket submit(uint32_t engine, const engine::Command& command) override {
        EXPECT_LT(engine, engines_);
        const auto kind = Kind(command.index());
        log.push_back({kind, engine});
        if (kind == refuse && engine == refuse_engine && refuse_times != 0) {
            --refuse_times;
            engine::refuse(command, refuse_error);
        } else {
            engine::visit(command, [&](auto& c) { take(engine, c); });
        }
        return ++submitted[engine];
    }
    size_t count(Kind k) const {
        size_t n = 0;
        for (const Record& r : log) n += r.kind == k;
        return n;
    }

    std::vector<Record> log;
    std::map<uint32_t, engine::Ticket> submitted;  ///< last ticket per engine
    size_t waits = 0;
    std::map<qp::Qp*, qp::State> state;
    std::vector<uint32_t> consumers;
    std::vector<io::GsiSend> mads;
    std::vector<neighbour::Frame> frames;
    std::vector<qp::UserRate*> rates;  ///< rates of attached sessions
    qp::Change last_change;
    size_t changes = 0;  ///< number of executed changes
    uint32_t limit = 0;
    qp::Counters counters{};  ///< the counters that a query of any QP returns
    Kind refuse = Kind::fence;
    uint32_t refuse_engine = ~0u;
    int refuse_times = -1;  ///< number of commands to refuse; a negative number: all
    int refuse_error = EINVAL;

private:
    template <class Other>
    void take(uint32_t, Other&) {}
    void take(uint32_t, engine::ModifyQp& c) {
        *c.step = qp::check_step(c.qp->spec.type, state[c.qp], *c.change);
        if (c.step->refusal != qp::Refusal::none) {
            c.error = EINVAL;
            return;
        }
        if (c.change->trial) return;
        ++changes;
        last_change = *c.change;
        state[c.qp] = c.step->to;
    }
    void take(uint32_t, engine::QueryQp& c) {
        *c.snapshot = {
            .state = state[const_cast<qp::Qp*>(c.qp)], .counters = counters, .send_psn = Psn(11), .expected_psn = Psn(22)};
    }
    void take(uint32_t, engine::AttachSession& c) { rates.push_back(c.rate); }
    void take(uint32_t, engine::RemoveQp& c) { state.erase(c.qp); }
    void take(uint32_t, engine::ModifySrq& c) { limit = c.limit; }
    void take(uint32_t, engine::QuerySrq& c) { c.limit = limit; }
    void take(uint32_t, engine::ResizeSrq& c) { c.srq->rq = *c.new_queue; }
    void take(uint32_t engine, engine::ResizeCq& c) {
        c.cq->lanes[engine] = c.new_lane;
        consumers.push_back(c.consumer);
    }
    void take(uint32_t, engine::SendFrame& c) { frames.push_back(*c.frame); }
    void take(uint32_t, const engine::SendGsi& c) { mads.push_back(c.datagram); }

    uint32_t engines_;
};

inline constexpr Gid kGid4{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1}};
inline constexpr Gid kGid6{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
inline constexpr Gid kOtherGid4{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2}};

inline std::vector<DeviceConfig> two_devices() {
    return {{"roci0", "eth0", {{2, 0, 0, 0, 0, 1}}, {kGid6, Gid{}, kGid4}, 4096},
            {"roci1", "", {{2, 0, 0, 0, 0, 2}}, {kOtherGid4}, 1500}};
}

inline Limits small_limits() {
    Limits l;
    l.max_qps = 256;
    l.max_keys = 512;
    l.max_ahs = 64;
    l.max_qp_wr = 1024;
    l.max_cqe = 4096;
    l.max_arena_bytes = uint64_t{16} << 20;
    return l;
}

struct Result {
    int error = -1;
    std::string reason;
    std::vector<std::byte> body;
    std::vector<int> fds;
    uint32_t cookie = 0;
    uint64_t wanted_chunk = 0;
    std::vector<std::byte*> chunks;  ///< bases of the chunks that the client added for this request
    uint32_t last_chunk = 0;         ///< number of the last added chunk
    bool closed = false;

    template <class T>
    T as() const {
        T t{};
        std::copy_n(body.begin(), std::min(body.size(), sizeof t), reinterpret_cast<std::byte*>(&t));
        return t;
    }
    bool says(const std::string& text) const { return reason.find(text) != std::string::npos; }
};

template <class T>
std::vector<std::byte> bytes_of(const T& t) {
    const auto* p = reinterpret_cast<const std::byte*>(&t);
    return {p, p + sizeof t};
}

/// Sends a packet. Parses and checks the reply.
inline Result send_once(Conductor& conductor, uint32_t session, const std::vector<std::byte>& packet,
                        const std::vector<int>& fds = {}) {
    Result r;
    const Reply reply = conductor.handle(session, packet, fds, r.closed);
    abi::ReplyHeader h{};
    EXPECT_GE(reply.bytes.size(), sizeof h);
    std::memcpy(&h, reply.bytes.data(), sizeof h);
    EXPECT_EQ(reply.bytes.size(), sizeof h + h.body_length + h.reason_length);
    EXPECT_LE(reply.bytes.size(), abi::kMaxMessage);
    EXPECT_EQ(reply.fds.size(), reply.shared_fds_mask.size());
    EXPECT_GE(h.error, 0);
    EXPECT_EQ(h.error != 0, h.reason_length != 0) << "an error has a reason, success has none";
    EXPECT_TRUE(h.wanted_chunk == 0 || h.error == ENOMEM);
    r.error = h.error;
    r.cookie = h.cookie;
    r.wanted_chunk = h.wanted_chunk;
    r.fds = reply.fds;
    r.body.assign(reply.bytes.begin() + sizeof h, reply.bytes.begin() + sizeof h + h.body_length);
    for (size_t i = sizeof h + h.body_length; i < reply.bytes.size(); ++i) r.reason += char(reply.bytes[i]);
    return r;
}

inline std::vector<std::byte> packet(abi::Op op, const std::vector<std::byte>& body, uint32_t cookie = 5) {
    const auto header = bytes_of(abi::RequestHeader{op, 0, cookie});
    std::vector<std::byte> p(header.size() + body.size());
    std::copy(body.begin(), body.end(), std::copy(header.begin(), header.end(), p.begin()));
    return p;
}

/// Sends a packet. If the conductor needs chunks for the request, adds the chunks as a client does and sends the
/// packet again.
inline Result send(Conductor& conductor, uint32_t session, const std::vector<std::byte>& bytes,
                   const std::vector<int>& fds = {}) {
    std::vector<std::byte*> chunks;
    uint32_t last = 0;
    for (;;) {
        Result r = send_once(conductor, session, bytes, fds);
        if (r.wanted_chunk != 0) {
            std::string why;
            const SharedMemory m = MemoryPlatform::current->make_memory(r.wanted_chunk, why);
            if (m.base == nullptr) return r;
            const Result added =
                send_once(conductor, session, packet(abi::Op::add_chunk, bytes_of(abi::AddChunkRequest{m.length})), {m.fd});
            if (added.error == 0) {
                last = added.as<abi::HandleReply>().handle;
                chunks.push_back(m.base);
                continue;
            }
            MemoryPlatform::current->free_memory(m);
            r = added;
        }
        r.chunks = chunks;
        r.last_chunk = last;
        return r;
    }
}

inline abi::HelloRequest good_hello() { return {abi::kHelloMagic, abi::kAbiVersion, "unit test"}; }

/// A conductor with two engines and two devices, and one session that has opened device 0.
class ConductorTest : public ::testing::Test {
protected:
    ConductorTest() : ConductorTest(small_limits()) {}
    explicit ConductorTest(const Limits& limits) : ConductorTest(limits, two_devices()) {}
    ConductorTest(const Limits& limits, std::vector<DeviceConfig> devices)
        : shared(256, 512, 64, 2), port(2), conductor(limits, std::move(devices), shared, port, platform) {
        session = open();
    }
    void TearDown() override {
        for (uint32_t s : all_sessions) close(s);
        expect_nothing_left();
        EXPECT_TRUE(platform.clean());
    }
    void expect_nothing_left() {
        const Conductor::Totals t = conductor.totals();
        for (uint64_t n :
             {t.sessions, t.pds, t.regions, t.mrs, t.channels, t.cqs, t.srqs, t.qps, t.ahs, t.mws, t.arena_bytes, t.mapped_bytes})
            EXPECT_EQ(n, 0u);
    }
    uint32_t connect(uint32_t uid = 1000) {
        const uint32_t s = conductor.open_session({.pid = 42, .uid = uid, .gid = uid});
        if (s != abi::kNoHandle) all_sessions.push_back(s);
        return s;
    }
    uint32_t open(uint32_t device = 0, uint32_t uid = 1000) {
        const uint32_t s = connect(uid);
        EXPECT_EQ(call_as(s, abi::Op::hello, good_hello()).error, 0);
        EXPECT_EQ(call_as(s, abi::Op::open_device, abi::OpenDeviceRequest{device, 0}).error, 0);
        return s;
    }
    void close(uint32_t s) { conductor.close_session(s, now); }
    template <class T>
    Result call_as(uint32_t s, abi::Op op, const T& body, const std::vector<int>& fds = {}) {
        return send(conductor, s, packet(op, bytes_of(body)), fds);
    }
    template <class T>
    Result call(abi::Op op, const T& body, const std::vector<int>& fds = {}) {
        return call_as(session, op, body, fds);
    }
    Result call(abi::Op op) { return send(conductor, session, packet(op, {})); }
    Result on(abi::Op op, uint32_t handle) { return call(op, abi::HandleRequest{handle, 0}); }

    uint32_t pd() { return handle_of(call(abi::Op::alloc_pd)); }
    uint32_t cq(uint32_t cqe = 16, uint32_t channel = abi::kNoHandle) {
        const Result r = call(abi::Op::create_cq, abi::CreateCqRequest{cqe, channel, 0, 0});
        EXPECT_EQ(r.error, 0) << r.reason;
        return r.as<abi::CreateCqReply>().handle;
    }
    uint32_t region(uint64_t length, bool writable = true) {
        return handle_of(call(abi::Op::add_region, abi::AddRegionRequest{length, writable, 0}, {next_sent_fd++}));
    }
    uint32_t handle_of(const Result& r) {
        EXPECT_EQ(r.error, 0) << r.reason;
        return r.as<abi::HandleReply>().handle;
    }
    static abi::CreateQpRequest qp_request(uint32_t pd_handle, uint32_t cq_handle, uint32_t type = IBV_QPT_RC) {
        abi::CreateQpRequest q{};
        q.pd = pd_handle;
        q.type = type;
        q.send_cq = q.recv_cq = cq_handle;
        q.srq = q.xrcd = abi::kNoHandle;
        q.cap = {.max_send_wr = 10, .max_recv_wr = 20, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 100};
        return q;
    }
    abi::CreateQpReply qp(uint32_t type = IBV_QPT_RC) {
        const Result r = call(abi::Op::create_qp, qp_request(pd(), cq(), type));
        EXPECT_EQ(r.error, 0) << r.reason;
        return r.as<abi::CreateQpReply>();
    }
    Result modify(uint32_t handle, uint32_t mask, const abi::QpAttr& attr) {
        return call(abi::Op::modify_qp, abi::ModifyQpRequest{handle, mask, attr});
    }

    qp::Shared shared;
    MemoryPlatform platform;
    RecordingPort port;
    Conductor conductor;
    uint32_t session = 0;
    std::vector<uint32_t> all_sessions;
    int next_sent_fd = 1;
    Nanos now = 0;  ///< time of the next call that needs a time
};

/// The attributes and mask of one transition of a QP, as in ibv_modify_qp(3).
struct Step {
    uint32_t mask;
    abi::QpAttr attr;
};
inline abi::AhAttr good_av(const Gid& to = kOtherGid4) {
    abi::AhAttr av{};
    std::copy(to.bytes.begin(), to.bytes.end(), av.dgid.raw);
    av.sgid_index = to.is_ipv4() ? 2 : 0;
    av.port_num = 1;
    av.is_global = 1;
    return av;
}
inline Step to_init() {
    return {IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
            {.qp_state = IBV_QPS_INIT, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE, .port_num = 1}};
}
inline Step to_rtr() {
    return {IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                IBV_QP_MIN_RNR_TIMER,
            {.qp_state = IBV_QPS_RTR,
             .path_mtu = IBV_MTU_1024,
             .rq_psn = 0x01000007,
             .dest_qp_num = 0x55,
             .ah = good_av(),
             .max_dest_rd_atomic = 4,
             .min_rnr_timer = 12}};
}
inline Step to_rts() {
    return {IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT,
            {.qp_state = IBV_QPS_RTS, .sq_psn = 9, .max_rd_atomic = 4, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7}};
}

}  // namespace roci::host::test
