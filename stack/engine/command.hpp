// Commands from the conductor (rocid's control thread) to an engine, one struct per operation. The conductor creates and frees
// objects. Commands add objects to an engine, change, query or remove them. An engine executes commands in order, between its
// rounds. The engine sets `error` to 0 or an errno. The other fields that the engine sets have the comment "out".
#pragma once

#include <cstdint>
#include <type_traits>
#include <variant>

#include "io/gsi.hpp"
#include "neighbour/frames.hpp"
#include "qp/spec.hpp"
#include "qp/user_rate.hpp"

namespace roci::engine {

/// Adds a session to the engine. The engine then collects the session's doorbells.
struct AttachSession {
    uint32_t session = 0;
    abi::DoorbellPage* doorbells = nullptr;
    uint32_t user = 0;             ///< UID of the session's user, who gets a share of the engine
    qp::UserRate* rate = nullptr;  ///< limits what the user sends; nullptr: no limit
    int error = 0;
};
/// Removes a session from the engine. The session's QPs must have been removed.
struct DetachSession {
    uint32_t session = 0;
};

/// Adds a QP that qp::Pool::create() has made.
struct AddQp {
    qp::Qp* qp = nullptr;
    Nanos* at = nullptr;  ///< out: time of the engine's clock
    int error = 0;
};
struct ModifyQp {
    qp::Qp* qp = nullptr;
    const qp::Change* change = nullptr;
    qp::Decision* step = nullptr;  ///< out; `error` is EINVAL if the transition is refused
    int error = 0;
};
struct QueryQp {
    const qp::Qp* qp = nullptr;
    qp::Snapshot* snapshot = nullptr;  ///< out
    qp::Journal* journal = nullptr;    ///< out, if the QP has a journal; nullptr: the engine sets neither journal nor habits
    int error = 0;
};
/// Moves a QP to another session, because the owning session closes its handle of the QP (XRC target).
struct MoveQp {
    qp::Qp* qp = nullptr;
    const qp::Owner* owner = nullptr;
};
/// Removes a QP. First sends its posted requests, up to a limit (Engine::Impl::send_last_requests). Afterwards the engine writes
/// no more completions or frames for the QP and does not read the QP's memory. CQEs that were written before remain. Fails with
/// EAGAIN while a worker thread may still write the QP's memory (mem/slow_memory.hpp).
struct RemoveQp {
    qp::Qp* qp = nullptr;
    bool force = false;  ///< removes the QP even if a worker may still write
    int error = 0;
};

/// Sends the posted requests of a QP, up to the same limit as RemoveQp. Sends nothing while QPs of several users have turns.
struct SendPosted {
    qp::Qp* qp = nullptr;
    bool more = false;  ///< out: the QP has further requests that could be sent now
};

struct AddSrq {
    qp::Srq* srq = nullptr;
    int error = 0;
};
struct ModifySrq {
    qp::Srq* srq = nullptr;
    uint32_t limit = 0;
    int error = 0;
};
struct QuerySrq {
    const qp::Srq* srq = nullptr;
    uint32_t limit = 0;  ///< out
    int error = 0;
};
/// Moves an SRQ to the ring `new_queue`.
struct ResizeSrq {
    qp::Srq* srq = nullptr;
    const rings::RqView* new_queue = nullptr;
    int error = 0;
};
struct RemoveSrq {
    qp::Srq* srq = nullptr;
};

/// Moves this engine's lane (part) of a CQ to new memory.
struct ResizeCq {
    rings::Cq* cq = nullptr;
    rings::CqLane new_lane{};
    uint32_t consumer = 0;
    int error = 0;
};

/// Sends a frame that is not RoCE, for example ARP.
struct SendFrame {
    const neighbour::Frame* frame = nullptr;
    int error = 0;
};
/// Sends a management datagram from QP 1.
struct SendGsi {
    io::GsiSend datagram;
};
/// Does nothing. If a barrier is submitted after an earlier barrier was done, the engine runs a whole round between the two
/// barriers.
struct Barrier {};

/// A command to an engine. If an operation has results, the command is a pointer to its struct, and the conductor keeps the
/// struct until the command is done. Other operations are stored in the command by value.
using Command = std::variant<AttachSession*, DetachSession*, AddQp*, ModifyQp*, QueryQp*, MoveQp*, RemoveQp*, SendPosted*,
                             AddSrq*, ModifySrq*, QuerySrq*, ResizeSrq*, RemoveSrq*, ResizeCq*, SendFrame*, SendGsi, Barrier>;

/// Calls `f` with the struct of the operation.
template <class F>
void visit(const Command& command, F&& f) {
    std::visit(
        [&](const auto& c) {
            if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(c)>>)
                f(*c);
            else
                f(c);
        },
        command);
}

/// Sets `error` of a command that no engine will execute, if the command has this field.
inline void refuse(const Command& command, int error) {
    visit(command, [&](auto& c) {
        if constexpr (requires { c.error; }) c.error = error;
    });
}

}  // namespace roci::engine
