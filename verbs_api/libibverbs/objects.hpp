// The library's objects (contexts, PDs, MRs, CQs, QPs and so on). Each object begins with its public struct of
// <infiniband/verbs.h>, to which the program holds a pointer.
#pragma once

#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>

#include "abi/client_rings.hpp"
#include "arena.hpp"
#include "connection.hpp"
#include "device.hpp"
#include "device_page.hpp"
#include "newer.hpp"
#include "regions.hpp"
#include "spinlock.hpp"
#include "tables.hpp"
#include "verbs.hpp"

namespace roci::client {

struct Context;

struct Td {
    ibv_td td;
    std::atomic<uint32_t> users{0};
    static Td* from(ibv_td* p) { return reinterpret_cast<Td*>(p); }
};

/// A protection domain, or a parent domain if `contained` is set. In rocid only the contained domain exists.
struct Pd {
    ibv_pd pd;
    Pd* contained = nullptr;
    Td* thread_domain = nullptr;
    std::atomic<uint32_t> parents{0};  ///< number of parent domains that contain this domain
    /// Returns true for a parent domain with a thread domain. The program promises that only one thread at a time uses the
    /// objects of such a domain (ibv_alloc_td(3)).
    bool one_thread() const { return thread_domain != nullptr; }
    static Pd* from(ibv_pd* p) { return reinterpret_cast<Pd*>(p); }
};

struct Mr {
    ibv_mr mr;
    RegisteredMemory memory;
    unsigned int access = 0;
    uint64_t iova = 0;
    static Mr* from(ibv_mr* p) { return reinterpret_cast<Mr*>(p); }
};

/// Device memory: a part of the session's arena.
struct Dm {
    ibv_dm dm;
    Context* owner = nullptr;  ///< context that allocated the memory; in a fork's child possibly Context::heir
    std::byte* base = nullptr;
    uint64_t length = 0;
    static Dm* from(ibv_dm* p) { return reinterpret_cast<Dm*>(p); }
};

/// The bits of an rkey that the program may choose. The other bits are the index of the memory window.
inline constexpr uint32_t kConsumerKey = 0xff;

struct Mw {
    ibv_mw mw;
    uint32_t index = 0;  ///< the constant bits of the window's key
    static Mw* from(ibv_mw* p) { return reinterpret_cast<Mw*>(p); }
};

struct Ah {
    ibv_ah ah;
    static Ah* from(ibv_ah* p) { return reinterpret_cast<Ah*>(p); }
};

struct Xrcd {
    ibv_xrcd xrcd;
    uint32_t handle = 0;
    static Xrcd* from(ibv_xrcd* p) { return reinterpret_cast<Xrcd*>(p); }
};

struct Channel {
    ibv_comp_channel channel;
    uint32_t handle = 0;
    static Channel* from(ibv_comp_channel* p) { return reinterpret_cast<Channel*>(p); }
};

/// The QPN that marks an entry of a completion ring as dead: the QP was destroyed or reset, or the SRQ was destroyed. Polling
/// skips dead entries.
inline constexpr uint32_t kDeadQpn = 0xffffffff;

struct Cq {
    ibv_cq_ex cq;
    uint32_t generation = 0;
    uint32_t comp_delivered = 0, async_delivered = 0;  ///< protected by HandleMap's lock
    Spinlock lock;                                     ///< protects `ring` and `current`
    Spinlock arm_lock;  ///< protects only the arm word, so that the CQ can be armed between start_poll and end_poll
    abi::CqConsumer ring;
    abi::Cqe current{};    ///< the entry that the read_* functions return
    bool flushed = false;  ///< protected by `lock`; true once rocid has ended and all requests of this CQ are flushed
    static Cq* from(ibv_cq* p) { return reinterpret_cast<Cq*>(p); }
    static Cq* from(ibv_cq_ex* p) { return reinterpret_cast<Cq*>(p); }
    ibv_cq* base() { return reinterpret_cast<ibv_cq*>(&cq); }
};

struct Srq {
    ibv_srq srq;
    uint32_t generation = 0;
    uint32_t delivered = 0;
    uint32_t srqn = 0;
    uint32_t max_sge = 0, limit = 0;  ///< `limit`: maximum number of outstanding WQEs
    Cq* cq = nullptr;                 ///< XRC and tag matching: CQ of the SRQ's completions
    Spinlock lock;
    abi::RqProducer rq;
    abi::TagProducer tags;  ///< tag matching: operations on the tag list; protected by `lock`
    static Srq* from(ibv_srq* p) { return reinterpret_cast<Srq*>(p); }
};

/// A memory window, and the rkey that ibv_wr_complete() stores in the window.
struct Bind {
    ibv_mw* window;
    uint32_t rkey;
};

struct Qp {
    QpEx qp;
    uint32_t generation = 0;
    uint32_t delivered = 0;
    bool extended = false;      ///< true if the QP was created with send_ops_flags
    uint32_t send_opcodes = 0;  ///< bit n is set if opcode n may be posted
    abi::QpCap cap{};
    int sq_sig_all = 0;
    // send side
    alignas(64) Spinlock sq_lock;
    abi::SqProducer sq;
    uint32_t send_limit = 0;  ///< maximum number of outstanding WQEs
    uint32_t slot = 0;
    const int* wake_fd = nullptr;  ///< points to Context::wake_fd of the QP's engine, because a forked child closes that
                                   ///< descriptor and sets it to -1
    abi::DoorbellTarget bell;
    std::vector<Bind> binds;           ///< ibv_wr_*: the binds since ibv_wr_start
    abi::SendWqe* building = nullptr;  ///< ibv_wr_*: the WQE that the setters fill, or nullptr
    uint32_t first = 0;                ///< ibv_wr_*: sq.head at ibv_wr_start
    int error = 0;                     ///< ibv_wr_*: the first error since ibv_wr_start
    // receive side
    alignas(64) Spinlock rq_lock;
    abi::RqProducer rq;
    uint32_t recv_limit = 0;
    static Qp* from(ibv_qp* p) { return reinterpret_cast<Qp*>(p); }
    static Qp* from(ibv_qp_ex* p) { return reinterpret_cast<Qp*>(p); }
    ibv_qp* base() { return &qp.qp_base; }
};

/// Sets errno and returns `err`. Calls that return an errno use this function, so that perror() prints the reason too.
inline int refuse(int err) {
    errno = err;
    return err;
}

/// An open device: one session with rocid.
struct Context {
    verbs_context verbs;  // first: programs hold &verbs.context
    Connection link;
    Arena arena;
    abi::DeviceAttr attr{};  ///< constant once the device is open
    DevicePage page;
    uint32_t engines = 0;
    Mapping engine_page, doorbells;
    uint64_t doorbell_stride = 0;
    int wake_fd[abi::kMaxEngines];

    IndexTable<Qp> qps;    ///< by QPN
    IndexTable<Srq> srqs;  ///< by handle
    HandleMap<Cq> cq_events;
    HandleMap<Qp> qp_events;
    HandleMap<Srq> srq_events;
    RegionTable regions;
    Registry<Mr> mrs;         ///< by lkey
    Registry<Mr> mr_handles;  ///< by handle
    Registry<Dm> dms;         ///< by handle
    std::mutex lifecycle;  ///< held while a QP or SRQ is created, destroyed or reset: from the request to rocid until the tables
                           ///< are updated
    std::atomic<bool> fatal_reported{false};
    std::atomic<bool> flushes{false};    ///< true after the end of rocid: posts fail, outstanding requests complete as flushed
    std::atomic<uint64_t> looked_at{0};  ///< time of the last check whether rocid runs (CLOCK_MONOTONIC_COARSE, nanoseconds)
    bool inherited = false;              ///< true in a fork's child if the parent opened the context
    uint32_t opens = 1;         ///< number of ibv_open_device and ibv_import_device calls; protected by the lock of all contexts
    std::vector<int> imported;  ///< descriptors of ibv_import_device calls; the library closes them with the device
    std::mutex heir_mutex;      ///< locked in a fork's child only
    ibv_context* heir = nullptr;  ///< in a fork's child: a new session, for requests that need no object of the parent

    static Context* from(ibv_context* c) {
        return reinterpret_cast<Context*>(reinterpret_cast<std::byte*>(c) - offsetof(verbs_context, context));
    }
    ibv_context* base() { return &verbs.context; }

    template <class Request, class Answer>
    int call(abi::Op op, const Request& request, Answer& answer, ReplyFds* fds = nullptr) {
        return inherited ? refuse(EIO) : link.call(op, request, answer, fds);
    }
    template <class Request>
    int tell(abi::Op op, const Request& request) {
        return inherited ? refuse(EIO) : link.tell(op, request);
    }
    /// Destroys an object in rocid. Returns 0 or an errno. If rocid has ended or the object belongs to the parent process, there
    /// is nothing to destroy, and the function also returns 0.
    int destroy(abi::Op op, uint32_t handle) {
        if (inherited) return 0;
        const int err = link.tell(op, abi::HandleRequest{handle, 0});
        return link.gone() ? 0 : err;
    }
};

/// Sets errno to `err` and returns nullptr.
template <class T = void>
T* fail(int err) {
    errno = err;
    return nullptr;
}

/// Returns true if the object belongs to this open device, or is null. Each open device has its own handles, and objects of two
/// devices may have the same handle. Without this check, rocid would use the wrong object.
template <class T>
bool belongs(const T* object, const ibv_context* context) {
    return object == nullptr || object->context == context;
}

/// Waits until the program has acknowledged all delivered events. `mutex`, `cond` and `completed` are fields of the object's
/// public struct.
void await_acks(pthread_mutex_t& mutex, pthread_cond_t& cond, const uint32_t& completed, uint32_t delivered);

}  // namespace roci::client
