// A small client with functions like those of verbs. It passes control messages directly to Conductor::handle. It
// posts and polls with the classes of abi/client_rings.hpp. Guard bytes surround its registered memory.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "abi/client_rings.hpp"
#include "abi/control.hpp"
#include "base/types.hpp"
#include "mem/memory_region.hpp"

namespace roci::sim {

class Host;

/// Local write, remote write, read and atomic, and FLUSH with global visibility.
inline constexpr uint32_t kAllRights = mem::kLocalWrite | mem::kRemoteRights;

/// Registered memory with guard bytes before and after it.
struct Mr {
    static constexpr uint64_t kGuard = 512;
    static constexpr uint8_t kGuardByte = 0xa5;
    uint32_t handle = 0, lkey = 0, rkey = 0, region = abi::kNoHandle;
    uint64_t length = 0;
    uint64_t iova = 0;  ///< address of the first byte in requests; 0: the address of data()
    std::unique_ptr<std::byte[]> memory;
    uint8_t* data() const { return reinterpret_cast<uint8_t*>(memory.get()) + kGuard; }
    uint64_t address() const { return iova != 0 ? iova : reinterpret_cast<uint64_t>(data()); }
    bool guards_intact() const;
};
struct MrOptions {
    uint32_t access = kAllRights;
    uint32_t segments = 1;  ///< number of segments
    bool slow = false;      ///< rocid does not map the memory, but copies from and to it by address (slow memory)
    bool writable = true;
    uint64_t iova = 0;  ///< see Mr::iova
};

struct Cq {
    uint32_t handle = 0, generation = 0, channel = abi::kNoHandle;
    abi::CqConsumer ring;
};
struct Srq {
    uint32_t handle = 0, generation = 0, srqn = 0;
    abi::RqProducer ring;
    abi::TagProducer tags;  ///< used by tag matching SRQs
    abi::TagShared* tag_ring = nullptr;
};
struct Qp {
    uint32_t handle = 0, generation = 0, qpn = 0, engine = 0, slot = 0;
    abi::SqProducer sq;
    abi::RqProducer rq;
    abi::QpCap cap{};
    Srq* srq = nullptr;
    uint32_t type = 2;
};
/// A memory window; its rkey changes with every bind.
struct Window {
    uint32_t handle = 0, rkey = 0;
};

struct QpOptions {
    uint32_t type = 2;  ///< 2 is IBV_QPT_RC
    uint32_t max_send_wr = 64, max_recv_wr = 64, max_send_sge = 4, max_recv_sge = 4, max_inline = 64;
    bool signal_all = false;
    Srq* srq = nullptr;
    uint32_t xrcd = abi::kNoHandle;  ///< used by XRC targets
};

/// Parameters of a connection.
struct PathOptions {
    uint32_t mtu = 3;  ///< as in enum ibv_mtu; 3 is 1024 bytes
    uint32_t gid_index = 0;
    uint32_t psn = 0x100;  ///< first PSN that this side sends
    uint32_t peer_psn = 0x100;
    uint8_t timeout = 8;  ///< as in ibv_qp_attr; 8 is 1 ms
    uint8_t retry_cnt = 7, rnr_retry = 7;
    uint8_t min_rnr_timer = 1;  ///< as in ibv_qp_attr; 1 is 10 us
    uint8_t max_rd_atomic = 4, max_dest_rd_atomic = 4;
    uint32_t access = kAllRights;
};
/// The address of the peer.
struct Peer {
    uint32_t qpn = 0;
    Gid gid;
    MacAddress mac;
};

struct Sge {
    uint64_t addr = 0;
    uint32_t length = 0;
    uint32_t lkey = 0;
};
struct SendWr {
    uint64_t id = 0;
    abi::WrOpcode opcode = abi::WrOpcode::send;
    uint8_t flags = abi::kSendSignaled;
    std::vector<Sge> sges;
    std::vector<uint8_t> inline_bytes;  ///< payload if kSendInline is set
    uint32_t imm_or_inv = 0;
    uint64_t remote_addr = 0;
    uint32_t rkey = 0;
    uint64_t compare_add = 0, swap = 0;
    uint32_t ah = 0, remote_qpn = 0, remote_qkey = 0;
    uint32_t srqn = 0;                                         ///< used by XRC requests
    uint32_t bind_lkey = 0, bind_length = 0, bind_access = 0;  ///< used by bind_mw, together with remote_addr and rkey
    uint32_t flush = 0;                                        ///< used by flush: abi::Flush
    uint64_t flush_length = 0;
};

class Client {
public:
    /// Opens a session on a device of the host. `uid` is the user of the client. With kNextUser, the clients get the
    /// users of WorldOptions in turn. If the host refuses a call, the functions of this class throw an exception,
    /// except those that return an errno.
    Client(Host& host, uint32_t device, uint32_t uid = kNextUser);
    static constexpr uint32_t kNextUser = ~0u;
    ~Client();
    Client(const Client&) = delete;

    uint32_t session() const { return session_; }
    int pid() const { return pid_; }
    Host& host() { return host_; }

    /// Sends a request and returns the errno of the reply. Writes the body of the reply to `body`. If the reply
    /// requests a chunk, the function adds the chunk and repeats the request.
    int call(abi::Op op, std::span<const std::byte> request, std::span<std::byte> body, std::span<const int> fds = {});
    int call_once(abi::Op op, std::span<const std::byte> request, std::span<std::byte> body, std::span<const int> fds);
    int add_chunk(uint64_t length);
    template <class Req>
    int try_call(abi::Op op, const Req& req) {
        return call(op, bytes(req), {});
    }
    template <class Rep, class Req>
    int try_call(abi::Op op, const Req& req, Rep& rep) {
        return call(op, bytes(req), std::as_writable_bytes(std::span(&rep, 1)));
    }
    const std::string& reason() const { return reason_; }
    /// Sets a function that receives every later request of call().
    void set_watch(std::function<void(abi::Op, std::span<const std::byte>)> watch) { watch_ = std::move(watch); }

    uint32_t alloc_pd();
    Mr& reg_mr(uint32_t pd, uint64_t length, const MrOptions& o = {});
    void dereg_mr(Mr& mr);
    Cq& create_cq(uint32_t entries, bool with_channel = false);
    int try_resize(Cq& cq, uint32_t entries);
    int try_resize(Srq& srq, uint32_t entries);
    Srq& create_srq(uint32_t pd, uint32_t max_wr, uint32_t max_sge = 4);
    Srq& create_xrc_srq(uint32_t pd, uint32_t xrcd, Cq& cq, uint32_t max_wr);
    Srq& create_tag_srq(uint32_t pd, Cq& cq, uint32_t max_wr, uint32_t max_tags, uint32_t max_ops);
    void set_srq_limit(Srq& srq, uint32_t limit);
    uint32_t open_xrcd();
    Window alloc_mw(uint32_t pd, uint32_t type);
    int try_mcast(abi::Op op, const Qp& qp, const Gid& group);
    Qp& create_qp(uint32_t pd, Cq& send_cq, Cq& recv_cq, const QpOptions& o = {});
    uint32_t create_ah(uint32_t pd, const Peer& peer, uint32_t gid_index = 0);
    void destroy_qp(Qp& qp);

    int try_modify(Qp& qp, uint32_t mask, const abi::QpAttr& attr);
    /// Moves the QP to INIT. For a UD QP, `access` is the Q_Key.
    void to_init(Qp& qp, uint32_t access = kAllRights);
    void to_rtr(Qp& qp, const PathOptions& o, const Peer& peer);
    void to_rts(Qp& qp, const PathOptions& o);
    void to_state(Qp& qp, uint32_t state);
    abi::QueryQpReply query(Qp& qp);

    /// Returns false if the queue has no free slot or if the request does not fit into a slot.
    bool post_send(Qp& qp, const SendWr& wr);
    bool post_recv(Qp& qp, uint64_t id, const std::vector<Sge>& sges);
    bool post_srq_recv(Srq& srq, uint64_t id, const std::vector<Sge>& sges);
    /// Returns the errno of the post. If `op` adds a tagged buffer, sets op.handle.
    int post_tag(Srq& srq, abi::TagOp& op);
    std::optional<abi::Cqe> poll(Cq& cq);
    void ring(uint32_t engine, uint32_t slot);

    /// Returns the address of a QP of this client. The peer uses it to connect.
    Peer self(const Qp& qp, uint32_t gid_index = 0) const;
    abi::DoorbellPage* doorbells(uint32_t engine);
    /// Returns true if all guard bytes of this client's registered memory are unchanged.
    bool guards_intact() const;
    void close();

private:
    /// Returns the bytes of the body of a request. An empty struct has no bytes.
    template <class Req>
    static std::span<const std::byte> bytes(const Req& req) {
        if constexpr (std::is_empty_v<Req>) return {};
        return std::as_bytes(std::span(&req, 1));
    }
    std::byte* at(const abi::Location& where);
    Srq& add_srq(const abi::CreateSrqRequest& q);
    void place_ring(Cq& cq, const abi::CreateCqReply& r);
    template <class T>
    T must(int error, const T& value, const char* what) {
        must(error, what);
        return value;
    }
    void must(int error, const char* what);

    Host& host_;
    uint32_t device_;
    uint32_t session_ = 0;
    int pid_ = 0;
    bool open_ = false;
    uint32_t engines_ = 0;
    std::byte* doorbell_base_ = nullptr;
    uint64_t doorbell_stride_ = 0;
    const abi::EnginePage* engine_page_ = nullptr;
    std::vector<std::byte*> chunks_;
    std::vector<int> reply_fds_;  ///< file descriptors of the last reply
    uint64_t wanted_chunk_ = 0;   ///< bytes of the chunk that the last reply requests; 0: none
    std::string reason_;
    std::function<void(abi::Op, std::span<const std::byte>)> watch_;
    std::vector<std::unique_ptr<Mr>> mrs_;
    std::vector<std::unique_ptr<Cq>> cqs_;
    std::vector<std::unique_ptr<Srq>> srqs_;
    std::vector<std::unique_ptr<Qp>> qps_;
    std::unordered_map<uint32_t, Qp*> by_qpn_;
};

/// Moves both QPs to RTS, connected to each other. The PSNs of `o` apply to `a`. For `b` they are exchanged: the first
/// PSN of `b` is o.peer_psn.
void connect(Client& ca, Qp& a, Client& cb, Qp& b, const PathOptions& o = {});

}  // namespace roci::sim
