#include "fake_rocid.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>

namespace roci::test {
namespace {

using abi::Op;
constexpr uint64_t kArenaBytes = 8 << 20;

template <class T>
std::vector<std::byte> bytes_of(const T& value) {
    const auto* p = reinterpret_cast<const std::byte*>(&value);
    return {p, p + sizeof value};
}

template <class T>
T read_as(const std::vector<std::byte>& bytes) {
    T out{};
    std::memcpy(&out, bytes.data(), std::min(sizeof out, bytes.size()));
    return out;
}

std::byte* shared(uint64_t length, int& fd) {
    fd = memfd_create("fake_rocid", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, off_t(length)) != 0) throw std::runtime_error("memfd");
    void* p = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) throw std::runtime_error("mmap");
    return static_cast<std::byte*>(p);
}

void make_pipe(int& read_end, int& write_end) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    read_end = ends[0];
    write_end = ends[1];
}

void close_once(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
}

void send_reply(int fd, uint32_t cookie, int error, const std::vector<std::byte>& body, const std::vector<int>& fds,
                uint64_t wanted_chunk) {
    const std::string reason = error != 0 ? "because the test says so" : "";
    abi::ReplyHeader header{error, cookie, uint32_t(body.size()), uint32_t(reason.size()), wanted_chunk};
    iovec parts[] = {{&header, sizeof header},
                     {const_cast<std::byte*>(body.data()), body.size()},
                     {const_cast<char*>(reason.data()), reason.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 3;
    std::vector<char> control(CMSG_SPACE(sizeof(int) * fds.size()));
    if (!fds.empty()) {
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        cmsghdr* c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
        std::memcpy(CMSG_DATA(c), fds.data(), sizeof(int) * fds.size());
    }
    sendmsg(fd, &message, MSG_NOSIGNAL);
}

}  // namespace

FakeRocid::FakeRocid() {
    arena_ = shared(kArenaBytes, arena_fd_);
    doorbells_ = shared(kEngines * kDoorbellStride, doorbell_fd_);
    engine_page_ = reinterpret_cast<abi::EnginePage*>(shared(4096, engine_page_fd_));
    for (int& fd : wake_fd_) fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    char name[] = "/tmp/fake_rocid_XXXXXX";
    folder_ = mkdtemp(name);
    path_ = folder_ + "/rocid.sock";
    listen_on(path_);
    setenv(abi::kSocketEnv, path_.c_str(), 1);
    acceptor_ = std::thread([this] { accept_loop(); });
}

FakeRocid::~FakeRocid() {
    die();
    munmap(arena_, kArenaBytes);
    munmap(doorbells_, kEngines * kDoorbellStride);
    munmap(engine_page_, 4096);
    if (device_page_ != nullptr) munmap(device_page_, kDevicePageBytes);
    close_once(device_page_fd_);
    for (int fd : {arena_fd_, doorbell_fd_, engine_page_fd_, wake_fd_[0], wake_fd_[1]}) close(fd);
    unlink(path_.c_str());
    rmdir(folder_.c_str());
}

void FakeRocid::die() {
    if (listener_ < 0) return;
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    close_once(listener_);
    {
        std::lock_guard guard(mutex_);
        for (int fd : connections_) shutdown(fd, SHUT_RDWR);
    }
    for (std::thread& t : servers_) t.join();
    for (int fd : connections_) close(fd);
    close_once(async_write_);
    close_once(channel_write_);
}

void FakeRocid::listen_on(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(listener_, 16) != 0)
        throw std::runtime_error("listen");
}

void FakeRocid::accept_loop() {
    for (;;) {
        const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd < 0) return;
        std::lock_guard guard(mutex_);
        connections_.push_back(fd);
        servers_.emplace_back([this, fd] { serve(fd); });
    }
}

void FakeRocid::serve(int fd) {
    std::vector<std::byte> packet(abi::kMaxMessage);
    bool has_chunk = false;
    for (;;) {
        iovec part{packet.data(), packet.size()};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 4)];
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        const ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
        if (n < ssize_t(sizeof(abi::RequestHeader))) return;
        if (cmsghdr* c = CMSG_FIRSTHDR(&message)) {
            int passed;
            std::memcpy(&passed, CMSG_DATA(c), sizeof passed);
            if (Op op; std::memcpy(&op, packet.data(), sizeof op), op == Op::add_chunk)
                mmap(arena_, kArenaBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, passed, 0);
            else if (op != Op::open_device)
                ++received_fds_;
            close(passed);
        }
        abi::RequestHeader header;
        std::memcpy(&header, packet.data(), sizeof header);
        const std::vector<std::byte> body(packet.begin() + sizeof header, packet.begin() + n);
        std::lock_guard guard(mutex_);
        if (!has_chunk && (header.op == Op::create_cq || header.op == Op::create_qp || header.op == Op::create_srq)) {
            send_reply(fd, header.cookie, ENOMEM, {}, {}, kArenaBytes);
            continue;
        }
        has_chunk |= header.op == Op::add_chunk;
        ++counts_[header.op];
        last_[header.op] = body;
        Reply reply;
        if (const auto it = refused_.find(header.op); it != refused_.end())
            reply.error = it->second;
        else
            reply = answer(header.op, body);
        send_reply(fd, header.cookie, reply.error, reply.body, reply.fds, 0);
        if (reply.pipe >= 0) close(reply.pipe);
    }
}

FakeRocid::Reply FakeRocid::answer(Op op, const std::vector<std::byte>& body) {
    switch (op) {
        case Op::hello:
            return {bytes_of(abi::HelloReply{abi_min, abi_max, 1, kEngines}), {}, abi_min > abi::kAbiVersion ? EPROTO : 0};
        case Op::list_devices: {
            abi::ListDevicesReply r{};
            r.count = 1;
            std::strcpy(r.device[0].name, "roci0");
            r.device[0].node_guid = 0x8877665544332211;
            r.device[0].index = kDevice;
            return {bytes_of(r), {}};
        }
        case Op::open_device:
            return open_device(body);
        case Op::query_device: {
            abi::DeviceAttr a{};
            a.max_qp = 100;
            a.max_inline = 64;
            a.comp_vectors = 2;
            a.phys_ports = 1;
            a.device_cap_flags = uint64_t{1} << 34 | 1 << 20;
            a.completion_timestamp_mask = ~uint64_t{0};
            a.hca_core_clock_khz = 1'000'000;
            std::strcpy(a.fw_ver, "0.1");
            return {bytes_of(a), {}};
        }
        case Op::query_port: {
            abi::PortAttr a{};
            a.state = 4;
            a.max_mtu = a.active_mtu = 5;
            a.active_width = 2;   // 4 lanes
            a.active_speed = 64;  // 50 Gb/s
            a.gid_table_length = 16;
            a.pkey_table_length = 1;
            return {bytes_of(a), {}};
        }
        case Op::query_gid_table: {
            abi::QueryGidTableReply r{};
            r.count = 2;
            r.entry[0] = {{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}}, 0, 2, "lo"};
            r.entry[1] = {{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1}}, 3, 2, "lo"};
            return {bytes_of(r), {}};
        }
        case Op::create_cq:
            return create_cq(body);
        case Op::resize_cq:
            return resize_cq(body);
        case Op::create_qp:
            return create_qp(body);
        case Op::create_srq:
            return create_srq(body);
        case Op::create_channel:
            return create_channel();
        case Op::reg_mr:
        case Op::rereg_mr: {
            const uint32_t h = new_handle();
            return {bytes_of(abi::RegMrReply{h, h << 8 | 1, h << 8 | 2, 0}), {}};
        }
        case Op::alloc_mw: {
            const uint32_t h = new_handle();
            return {bytes_of(abi::AllocMwReply{h, h << 8 | 0xff}), {}};
        }
        case Op::query_qp: {
            abi::QueryQpReply r{};
            r.attr.qp_state = 3;
            r.attr.sq_psn = 77;
            return {bytes_of(r), {}};
        }
        case Op::query_srq:
            return {bytes_of(abi::QuerySrqReply{8, 2, 3, 0}), {}};
        case Op::add_chunk:
            return {bytes_of(abi::HandleReply{0, 0}), {}};
        case Op::alloc_pd:
        case Op::add_region:
        case Op::create_ah:
        case Op::open_xrcd:
        case Op::open_qp:
            return {bytes_of(abi::HandleReply{new_handle(), 1}), {}};
        default:
            return {};
    }
}

void FakeRocid::make_device_page(const abi::DeviceSnapshot& now) {
    device_page_ = shared(kDevicePageBytes, device_page_fd_);
    const abi::DevicePageHeader header{
        abi::kDevicePageMagic, kDevicePageBytes, kDevice + 1, kFirstAt, sizeof(abi::DeviceRecord), kOwnerAt, 0};
    std::memcpy(device_page_, &header, sizeof header);
    page_owner() = uint32_t(getpid());
    device_record().write(now);
}

FakeRocid::Reply FakeRocid::open_device(const std::vector<std::byte>& body) {
    close_once(async_write_);
    int read_end;
    make_pipe(read_end, async_write_);
    Reply reply{bytes_of(abi::OpenDeviceReply{kEngines, 1, kDoorbellStride, 0, 0}),
                {read_end, engine_page_fd_, doorbell_fd_, wake_fd_[0], wake_fd_[1]}};
    reply.pipe = read_end;
    if (device_page_ == nullptr || (read_as<abi::OpenDeviceRequest>(body).flags & abi::kWantsDevicePage) == 0) return reply;
    reply.body = bytes_of(abi::OpenDeviceReply{kEngines, 1, kDoorbellStride, abi::kDevicePage, 0});
    reply.fds.push_back(device_page_fd_);
    return reply;
}

FakeRocid::Reply FakeRocid::create_channel() {
    close_once(channel_write_);
    int read_end;
    make_pipe(read_end, channel_write_);
    fcntl(read_end, F_SETFL, O_NONBLOCK);  // the library must clear O_NONBLOCK
    Reply reply{bytes_of(abi::HandleReply{new_handle(), 1}), {read_end}};
    reply.pipe = read_end;
    return reply;
}

abi::Location FakeRocid::allocate(uint64_t bytes) {
    const abi::Location where{0, 0, arena_used_, bytes};
    arena_used_ += (bytes + 63) & ~uint64_t{63};
    if (arena_used_ > kArenaBytes) throw std::runtime_error("arena of the test is too small");
    return where;
}

FakeRocid::Reply FakeRocid::create_cq(const std::vector<std::byte>& body) {
    const auto request = read_as<abi::CreateCqRequest>(body);
    abi::CreateCqReply r{};
    r.handle = new_handle();
    r.generation = 40 + r.handle;
    r.depth = std::bit_ceil(request.cqe);
    r.lanes = lanes;
    r.where = allocate(sizeof(abi::CqShared) + lanes * abi::CqConsumer::lane_bytes(r.depth));
    std::byte* base = at(r.where);
    cqs_[r.handle] = {r, reinterpret_cast<abi::CqShared*>(base), base + sizeof(abi::CqShared), std::vector<uint32_t>(lanes)};
    return {bytes_of(r), {}};
}

FakeRocid::Reply FakeRocid::resize_cq(const std::vector<std::byte>& body) {
    const auto request = read_as<abi::ResizeCqRequest>(body);
    Cq& old = cqs_.at(request.handle);
    Cq fresh = old;
    fresh.reply.depth = std::bit_ceil(request.cqe);
    fresh.reply.where = allocate(sizeof(abi::CqShared) + old.reply.lanes * abi::CqConsumer::lane_bytes(fresh.reply.depth));
    std::byte* base = at(fresh.reply.where);
    fresh.shared = reinterpret_cast<abi::CqShared*>(base);
    fresh.lanes = base + sizeof(abi::CqShared);
    for (uint32_t l = 0; l < old.reply.lanes; ++l) {
        const auto* from =
            reinterpret_cast<abi::Cqe*>(old.lanes + l * abi::CqConsumer::lane_bytes(old.reply.depth) + sizeof(abi::CqLane));
        auto* to =
            reinterpret_cast<abi::Cqe*>(fresh.lanes + l * abi::CqConsumer::lane_bytes(fresh.reply.depth) + sizeof(abi::CqLane));
        fresh.produced[l] = 0;
        for (uint32_t i = request.consumer[l]; i != old.produced[l]; ++i) {
            to[fresh.produced[l]] = from[i & (old.reply.depth - 1)];
            to[fresh.produced[l]].seq = fresh.produced[l] + 1;
            ++fresh.produced[l];
        }
    }
    old = fresh;
    return {bytes_of(fresh.reply), {}};
}

FakeRocid::Reply FakeRocid::create_qp(const std::vector<std::byte>& body) {
    const auto request = read_as<abi::CreateQpRequest>(body);
    if (request.cap.max_inline_data > 64) return {{}, {}, EINVAL};
    abi::CreateQpReply r{};
    r.handle = new_handle();
    r.generation = 40 + r.handle;
    r.qpn = 0x1000 + r.handle;
    r.engine = engine_of_next_qp;
    r.slot = next_slot_++;
    r.cap = request.cap;
    r.cap.max_send_wr = r.sq_depth = std::bit_ceil(request.cap.max_send_wr);
    r.sq_stride = 128;
    r.cap.max_send_sge = 4;
    r.cap.max_inline_data = 64;
    r.sq = allocate(sizeof(abi::SqShared) + r.sq_depth * r.sq_stride);
    if (request.srq == abi::kNoHandle) {
        r.cap.max_recv_wr = r.rq_depth = std::bit_ceil(request.cap.max_recv_wr);
        r.cap.max_recv_sge = 2;
        r.rq_stride = 64;
        r.rq = allocate(sizeof(abi::RqShared) + r.rq_depth * r.rq_stride);
    }
    Qp& q = qps_[r.handle];
    q = {r, reinterpret_cast<abi::SqShared*>(at(r.sq)), at(r.sq) + sizeof(abi::SqShared), nullptr, nullptr};
    if (r.rq_depth != 0) {
        q.rq = reinterpret_cast<abi::RqShared*>(at(r.rq));
        q.rq_slots = at(r.rq) + sizeof(abi::RqShared);
    }
    q.sq->idle = 1;
    return {bytes_of(r), {}};
}

FakeRocid::Reply FakeRocid::create_srq(const std::vector<std::byte>& body) {
    const auto request = read_as<abi::CreateSrqRequest>(body);
    abi::CreateSrqReply r{};
    r.handle = new_handle();
    r.generation = 40 + r.handle;
    r.srqn = 0x50;
    r.depth = r.max_wr = std::bit_ceil(request.max_wr);
    r.max_sge = 2;
    r.stride = 64;
    r.where = allocate(sizeof(abi::RqShared) + r.depth * r.stride);
    srqs_[r.handle] = {r, reinterpret_cast<abi::RqShared*>(at(r.where)), at(r.where) + sizeof(abi::RqShared)};
    return {bytes_of(r), {}};
}

void FakeRocid::refuse(Op op, int error) {
    std::lock_guard guard(mutex_);
    if (error == 0)
        refused_.erase(op);
    else
        refused_[op] = error;
}

uint32_t FakeRocid::count(Op op) const {
    std::lock_guard guard(mutex_);
    const auto it = counts_.find(op);
    return it != counts_.end() ? it->second : 0;
}

std::vector<std::byte> FakeRocid::last(Op op) const {
    std::lock_guard guard(mutex_);
    const auto it = last_.find(op);
    return it != last_.end() ? it->second : std::vector<std::byte>{};
}

const abi::SendWqe& FakeRocid::send_wqe(uint32_t handle, uint32_t index) {
    const Qp& q = qp(handle);
    return *reinterpret_cast<const abi::SendWqe*>(q.sq_slots + (index & (q.reply.sq_depth - 1)) * q.reply.sq_stride);
}

const abi::RecvWqe& FakeRocid::recv_wqe(uint32_t handle, uint32_t index) {
    const Qp& q = qp(handle);
    return *reinterpret_cast<const abi::RecvWqe*>(q.rq_slots + (index & (q.reply.rq_depth - 1)) * q.reply.rq_stride);
}

void FakeRocid::complete(uint32_t handle, uint32_t lane, const abi::Cqe& completion) {
    abi::Cqe entry = completion;
    Cq& c = cq(handle);
    auto* entries =
        reinterpret_cast<abi::Cqe*>(c.lanes + lane * abi::CqConsumer::lane_bytes(c.reply.depth) + sizeof(abi::CqLane));
    const uint32_t i = c.produced[lane]++;
    abi::Cqe& slot = entries[i & (c.reply.depth - 1)];
    const uint32_t old_seq = slot.seq;
    entry.seq = old_seq;
    slot = entry;
    std::atomic_ref(slot.seq).store(i + 1, std::memory_order_release);
}

uint64_t FakeRocid::wakes(uint32_t engine) {
    uint64_t n = 0;
    return read(wake_fd_[engine], &n, sizeof n) == sizeof n ? n : 0;
}

void FakeRocid::send_comp_event(const abi::CompEventRecord& record) {
    if (write(channel_write_, &record, sizeof record) != sizeof record) throw std::runtime_error("pipe");
}

void FakeRocid::send_async_event(const abi::AsyncEventRecord& record) {
    if (write(async_write_, &record, sizeof record) != sizeof record) throw std::runtime_error("pipe");
}

}  // namespace roci::test
