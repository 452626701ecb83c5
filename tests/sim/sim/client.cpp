#include "sim/client.hpp"

#include <infiniband/verbs.h>

#include <cstring>
#include <stdexcept>

#include "sim/world.hpp"

namespace roci::sim {

bool Mr::guards_intact() const {
    const auto* all = reinterpret_cast<const uint8_t*>(memory.get());
    for (uint64_t i = 0; i < kGuard; ++i)
        if (all[i] != kGuardByte || all[kGuard + length + i] != kGuardByte) return false;
    return true;
}

// ---- control --------------------------------------------------------------------------------------------------------

int Client::add_chunk(uint64_t length) {
    const host::SharedMemory chunk = host_.platform().make_memory(length, reason_);
    if (chunk.base == nullptr) return ENOMEM;
    abi::HandleReply reply{};
    const abi::AddChunkRequest request{length};
    const int error = call_once(abi::Op::add_chunk, std::as_bytes(std::span(&request, 1)),
                                std::as_writable_bytes(std::span(&reply, 1)), std::span(&chunk.fd, 1));
    if (error != 0) {
        host_.platform().free_memory(chunk);
        return error;
    }
    if (reply.handle != chunks_.size()) throw std::runtime_error("arena chunks out of order");
    chunks_.push_back(chunk.base);
    return 0;
}

int Client::call(abi::Op op, std::span<const std::byte> request, std::span<std::byte> body, std::span<const int> fds) {
    if (watch_) watch_(op, request);
    for (;;) {
        const int error = call_once(op, request, body, fds);
        if (error != ENOMEM || wanted_chunk_ == 0) return error;
        if (const int failed = add_chunk(wanted_chunk_); failed != 0) return failed;
    }
}

int Client::call_once(abi::Op op, std::span<const std::byte> request, std::span<std::byte> body, std::span<const int> fds) {
    std::vector<std::byte> packet(sizeof(abi::RequestHeader) + request.size());
    const abi::RequestHeader head{op, 0, 0x5eed};
    std::memcpy(packet.data(), &head, sizeof head);
    if (!request.empty()) std::memcpy(packet.data() + sizeof head, request.data(), request.size());
    bool close = false;
    host::Reply reply = host_.serviced().handle(session_, packet, fds, close);
    if (reply.deferred) reply = host_.await_reply(session_);
    abi::ReplyHeader h;
    if (reply.bytes.size() < sizeof h) throw std::runtime_error("reply is shorter than its header");
    std::memcpy(&h, reply.bytes.data(), sizeof h);
    if (h.cookie != 0x5eed || reply.bytes.size() != sizeof h + h.body_length + h.reason_length)
        throw std::runtime_error("malformed reply");
    wanted_chunk_ = h.wanted_chunk;
    reply_fds_ = reply.fds;
    const std::byte* p = reply.bytes.data() + sizeof h;
    if (h.body_length != 0 && !body.empty()) std::memcpy(body.data(), p, std::min<size_t>(h.body_length, body.size()));
    reason_.assign(reinterpret_cast<const char*>(p + h.body_length), h.reason_length);
    return h.error;
}

void Client::must(int error, const char* what) {
    if (error != 0) throw std::runtime_error(std::string(what) + ": " + std::strerror(error) + ": " + reason_);
}

std::byte* Client::at(const abi::Location& where) { return chunks_.at(where.chunk) + where.offset; }

Client::Client(Host& host, uint32_t device, uint32_t uid) : host_(host), device_(device) {
    pid_ = host_.platform().new_pid();
    session_ = host_.serviced().open_session({.pid = pid_, .uid = uid != kNextUser ? uid : host_.user_of(pid_)});
    open_ = true;
    abi::HelloRequest hello{abi::kHelloMagic, abi::kAbiVersion, "simulator"};
    abi::HelloReply hi{};
    must(try_call(abi::Op::hello, hello, hi), "hello");
    abi::OpenDeviceReply opened{};
    must(try_call(abi::Op::open_device, abi::OpenDeviceRequest{device, 0}, opened), "open_device");
    engines_ = opened.engines;
    engine_page_ = reinterpret_cast<const abi::EnginePage*>(host_.platform().memory_of(reply_fds_.at(1)));
    doorbell_base_ = host_.platform().memory_of(reply_fds_.at(2));
    doorbell_stride_ = opened.doorbell_stride;
    host_.add_client(session_, this);
}

Client::~Client() { close(); }

void Client::close() {
    if (!open_) return;
    open_ = false;
    host_.platform().end_process(pid_);
    host_.close_session(session_);
    host_.remove_client(session_);
}

abi::DoorbellPage* Client::doorbells(uint32_t engine) {
    return reinterpret_cast<abi::DoorbellPage*>(doorbell_base_ + engine * doorbell_stride_);
}

void Client::ring(uint32_t engine, uint32_t slot) {
    (void)abi::ring_doorbell({doorbells(engine), &engine_page_->engine[engine]}, slot);
}

// ---- addresses and states -----------------------------------------------------------------------------------------------

namespace {

abi::AhAttr address(const Peer& peer, uint32_t gid_index) {
    abi::AhAttr a{};
    std::memcpy(a.dgid.raw, peer.gid.bytes.data(), 16);
    a.sgid_index = uint8_t(gid_index);
    a.hop_limit = 64;
    a.port_num = 1;
    a.is_global = 1;
    std::memcpy(a.dmac, peer.mac.bytes.data(), 6);
    return a;
}

}  // namespace

uint32_t Client::create_ah(uint32_t pd, const Peer& peer, uint32_t gid_index) {
    abi::HandleReply r{};
    must(try_call(abi::Op::create_ah, abi::CreateAhRequest{pd, 0, address(peer, gid_index)}, r), "create_ah");
    return r.handle;
}

int Client::try_modify(Qp& qp, uint32_t mask, const abi::QpAttr& attr) {
    const int error = try_call(abi::Op::modify_qp, abi::ModifyQpRequest{qp.handle, mask, attr});
    if (error == 0 && (mask & IBV_QP_STATE) != 0 && attr.qp_state == IBV_QPS_RESET) {
        qp.sq.reset();
        if (qp.rq.depth != 0) qp.rq.reset();
    }
    return error;
}

namespace {

bool reliable(uint32_t type) { return type != IBV_QPT_UC && type != IBV_QPT_UD; }
/// answers() is true for QP types that respond to READs and atomics and send RNR NAKs. asks() is true for QP types
/// that send READs and atomics.
bool answers(uint32_t type) { return reliable(type) && type != IBV_QPT_XRC_SEND; }
bool asks(uint32_t type) { return reliable(type) && type != IBV_QPT_XRC_RECV; }

}  // namespace

void Client::to_init(Qp& qp, uint32_t access) {
    abi::QpAttr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qp_access_flags = a.qkey = access;
    const uint32_t own = qp.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    must(try_modify(qp, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | own, a), "modify to INIT");
}

void Client::to_rtr(Qp& qp, const PathOptions& o, const Peer& peer) {
    abi::QpAttr a{};
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = o.mtu;
    a.dest_qp_num = peer.qpn;
    a.rq_psn = o.peer_psn;
    a.max_dest_rd_atomic = o.max_dest_rd_atomic;
    a.min_rnr_timer = o.min_rnr_timer;
    a.ah = address(peer, o.gid_index);
    uint32_t mask = IBV_QP_STATE;
    if (qp.type != IBV_QPT_UD) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (answers(qp.type)) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    must(try_modify(qp, mask, a), "modify to RTR");
}

void Client::to_rts(Qp& qp, const PathOptions& o) {
    abi::QpAttr a{};
    a.qp_state = IBV_QPS_RTS;
    a.timeout = o.timeout;
    a.retry_cnt = o.retry_cnt;
    a.rnr_retry = o.rnr_retry;
    a.sq_psn = o.psn;
    a.max_rd_atomic = o.max_rd_atomic;
    uint32_t mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (reliable(qp.type)) mask |= IBV_QP_TIMEOUT;
    if (asks(qp.type)) mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    must(try_modify(qp, mask, a), "modify to RTS");
}

void Client::to_state(Qp& qp, uint32_t state) {
    abi::QpAttr a{};
    a.qp_state = state;
    must(try_modify(qp, IBV_QP_STATE, a), "modify state");
}

abi::QueryQpReply Client::query(Qp& qp) {
    abi::QueryQpReply r{};
    return must(try_call(abi::Op::query_qp, abi::HandleRequest{qp.handle, 0}, r), r, "query_qp");
}

Peer Client::self(const Qp& qp, uint32_t gid_index) const {
    const host::DeviceConfig& d = host_.device(device_);
    return {qp.qpn, d.gids.at(gid_index), d.mac};
}

void connect(Client& ca, Qp& a, Client& cb, Qp& b, const PathOptions& o) {
    PathOptions other = o;
    std::swap(other.psn, other.peer_psn);
    ca.to_init(a, o.access);
    cb.to_init(b, o.access);
    ca.to_rtr(a, o, cb.self(b, o.gid_index));
    cb.to_rtr(b, other, ca.self(a, o.gid_index));
    ca.to_rts(a, o);
    cb.to_rts(b, other);
}

// ---- work -----------------------------------------------------------------------------------------------------------

bool Client::post_send(Qp& qp, const SendWr& wr) {
    if (qp.sq.free_slots() == 0) return false;
    const size_t tail = wr.inline_bytes.size() + wr.sges.size() * sizeof(abi::Sge);
    if (abi::kSendWqeHead + tail > qp.sq.stride) return false;
    abi::SendWqe* w = qp.sq.slot(qp.sq.head);
    *w = abi::SendWqe{};
    w->wr_id = wr.id;
    w->opcode = wr.opcode;
    w->send_flags = wr.flags;
    w->imm_or_inv = wr.imm_or_inv;
    w->remote_addr = wr.remote_addr;
    w->rkey = wr.rkey;
    if (wr.ah != 0 || wr.remote_qpn != 0) {
        w->ud = {wr.ah, wr.remote_qpn};
        w->remote_qkey = wr.remote_qkey;
    }
    w->compare_add = wr.compare_add;
    w->swap = wr.swap;
    if (wr.opcode == abi::WrOpcode::bind_mw) {
        w->bind_mr_lkey = wr.bind_lkey;
        w->bind_length = wr.bind_length;
        w->bind_access = wr.bind_access;
    } else if (wr.opcode == abi::WrOpcode::atomic_cmp_swp || wr.opcode == abi::WrOpcode::atomic_fetch_add) {
        w->atomic_srqn = wr.srqn;
    } else if (wr.opcode == abi::WrOpcode::flush) {
        w->flush = wr.flush;
        w->flush_length = wr.flush_length;
        w->remote_srqn = wr.srqn;
    } else if (qp.type == IBV_QPT_XRC_SEND) {
        w->remote_srqn = wr.srqn;
    }
    if ((wr.flags & abi::kSendInline) != 0) {
        w->inline_length = uint32_t(wr.inline_bytes.size());
        if (!wr.inline_bytes.empty()) std::memcpy(abi::inline_data(w), wr.inline_bytes.data(), wr.inline_bytes.size());
    } else {
        w->num_sge = uint8_t(wr.sges.size());
        for (size_t i = 0; i < wr.sges.size(); ++i) abi::sges(w)[i] = {wr.sges[i].addr, wr.sges[i].length, wr.sges[i].lkey};
    }
    ++qp.sq.head;
    if (qp.sq.publish()) ring(qp.engine, qp.slot);
    return true;
}

namespace {

bool fill_recv(abi::RqProducer& rq, uint64_t id, const std::vector<Sge>& sges) {
    if (rq.depth == 0 || rq.free_slots() == 0 || abi::kRecvWqeHead + sges.size() * sizeof(abi::Sge) > rq.stride) return false;
    abi::RecvWqe* w = rq.slot(rq.head);
    *w = {id, uint32_t(sges.size()), 0};
    for (size_t i = 0; i < sges.size(); ++i) abi::sges(w)[i] = {sges[i].addr, sges[i].length, sges[i].lkey};
    ++rq.head;
    return true;
}

}  // namespace

bool Client::post_recv(Qp& qp, uint64_t id, const std::vector<Sge>& sges) {
    if (!fill_recv(qp.rq, id, sges)) return false;
    if (qp.rq.publish()) ring(qp.engine, qp.slot);
    return true;
}

bool Client::post_srq_recv(Srq& srq, uint64_t id, const std::vector<Sge>& sges) {
    if (!fill_recv(srq.ring, id, sges)) return false;
    (void)srq.ring.publish();
    return true;
}

int Client::post_tag(Srq& srq, abi::TagOp& op) {
    const int error = srq.tags.post(op);
    if (srq.tags.publish()) ring(srq.tags.shape().engine, srq.tags.shape().slot);
    return error;
}

std::optional<abi::Cqe> Client::poll(Cq& cq) {
    const abi::Cqe* e = cq.ring.peek();
    if (e == nullptr) return std::nullopt;
    const abi::Cqe copy = *e;
    cq.ring.pop();
    if (copy.queue == abi::kCqeSrq) {
        for (const auto& srq : srqs_)
            if (srq->handle == copy.srq_handle) srq->ring.free_recv();
        return copy;
    }
    auto it = by_qpn_.find(copy.qpn);
    if (it == by_qpn_.end()) return copy;
    if (copy.queue == abi::kCqeSend) it->second->sq.free_send(copy.wqe_index);
    if (copy.queue == abi::kCqeRecv) it->second->rq.free_recv();
    return copy;
}

bool Client::guards_intact() const {
    for (const auto& m : mrs_)
        if (!m->guards_intact()) return false;
    return true;
}

}  // namespace roci::sim
