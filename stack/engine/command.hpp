// Commands from the conductor to an engine. The conductor creates objects; commands add them to an engine, change them or remove
// them. An engine executes commands in order, between its rounds. It sets `done` with release order.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "io/gsi.hpp"
#include "neighbour/frames.hpp"
#include "qp/spec.hpp"

namespace roci::engine {

/// One row of query_qps.
struct QpQuery {
    const qp::Qp* qp = nullptr;
    qp::Snapshot* out = nullptr;
    qp::Journal* journal = nullptr;  ///< copied to, if the QP has one; nullptr: not wanted, and neither are its habits
};
/// Limit of rows of one query_qps command, because the engine does nothing else meanwhile.
inline constexpr size_t kMostQpQueries = 64;

struct Command {
    enum class Kind : uint8_t {
        attach_session,  ///< watch this session's doorbells
        detach_session,  ///< stop; its QPs must be gone
        add_qp,          ///< add a QP made by qp::create
        modify_qp,
        query_qp,
        query_qps,  ///< many of them in one command
        move_qp,    ///< to another session, after its own has given it up
        /// Forget it: no more completions, frames or reads of its memory afterwards. CQEs already written stay. EAGAIN: a worker
        /// may still write its memory (mem/slow_memory.hpp).
        remove_qp,
        add_srq,
        modify_srq,
        query_srq,
        resize_srq,  ///< move it to new memory
        remove_srq,
        resize_cq,   ///< move this engine's lane to new memory
        fence,       ///< nothing that was read from shared tables before is used afterwards (keys, address handles, groups)
        send_gsi,    ///< send a management datagram
        send_frame,  ///< send a frame that is not RoCE
    };
    Kind kind = Kind::fence;
    uint32_t session = 0;
    abi::DoorbellPage* doorbells = nullptr;  // attach_session
    qp::Qp* qp = nullptr;
    qp::Srq* srq = nullptr;
    bool force = false;                  // remove_qp: do not wait for workers
    const qp::Change* change = nullptr;  // modify_qp
    const qp::Owner* owner = nullptr;    // move_qp
    /// query_qp: out. modify_qp: in, the expected state of the QP; if it is in another state, it is not changed (ESTALE).
    qp::Snapshot* snapshot = nullptr;
    std::span<const QpQuery> queries{};        // query_qps, kMostQpQueries at most
    uint32_t srq_limit = 0;                    // modify_srq in, query_srq out
    const rings::RqView* new_queue = nullptr;  // resize_srq
    rings::Cq* cq = nullptr;                   // resize_cq
    rings::CqLane new_lane{};
    uint32_t consumer = 0;
    const io::GsiSend* gsi = nullptr;         // send_gsi
    const neighbour::Frame* frame = nullptr;  // send_frame
    int error = 0;                            ///< out: errno
    std::atomic<bool> done{false};            ///< out
};

/// The conductor's interface to the engines. rocid passes a command to the lcore and wakes it; the simulator executes it at once.
/// Functions return when the command is done.
class CommandPort {
public:
    virtual ~CommandPort() = default;
    virtual uint32_t engines() const = 0;
    virtual void execute(uint32_t engine, Command& command) = 0;
    /// commands[e] goes to engine e (nullptr: nothing does); the engines run them at the same time. Returns when all are done.
    virtual void execute_all(std::span<Command* const> commands) {
        for (uint32_t e = 0; e < commands.size(); ++e)
            if (commands[e] != nullptr) execute(e, *commands[e]);
    }
    /// After it returns, no engine uses an entry that was cleared from the shared tables before the call.
    void fence_all() {
        std::vector<Command> fences(engines());
        std::vector<Command*> all;
        for (Command& c : fences) all.push_back(&c);
        execute_all(all);
    }
    /// Sends a management datagram; need not wait until it is sent. `send` is the caller's again.
    virtual void send_gsi(uint32_t engine, const io::GsiSend& send) {
        Command command;
        command.kind = Command::Kind::send_gsi;
        command.gsi = &send;
        execute(engine, command);
    }
};

}  // namespace roci::engine
