// Commands from the conductor to an engine, one struct per operation. The conductor creates objects; commands add them to an
// engine, change them or remove them. An engine executes commands in order, between its rounds. `error` is a result (an errno);
// other results are marked "out".
#pragma once

#include <cstdint>
#include <type_traits>
#include <variant>

#include "io/gsi.hpp"
#include "neighbour/frames.hpp"
#include "qp/spec.hpp"

namespace roci::engine {

/// Watches a session's doorbells.
struct AttachSession {
    uint32_t session = 0;
    abi::DoorbellPage* doorbells = nullptr;
    uint32_t user = 0;  ///< the UID that the session's turns are counted for
    int error = 0;
};
/// Stops watching them. The session's QPs must be gone.
struct DetachSession {
    uint32_t session = 0;
};

/// Adds a QP made by qp::create.
struct AddQp {
    qp::Qp* qp = nullptr;
    int error = 0;
};
struct ModifyQp {
    qp::Qp* qp = nullptr;
    const qp::Change* change = nullptr;
    qp::Decision* step = nullptr;  ///< out; if it is refused, `error` is EINVAL
    int error = 0;
};
struct QueryQp {
    const qp::Qp* qp = nullptr;
    qp::Snapshot* snapshot = nullptr;  ///< out
    qp::Journal* journal = nullptr;    ///< out, if the QP has one; nullptr: not wanted, and neither are its habits
    int error = 0;
};
/// Moves a QP to another session, after its own has given it up.
struct MoveQp {
    qp::Qp* qp = nullptr;
    const qp::Owner* owner = nullptr;
};
/// Removes a QP: no more completions, frames or reads of its memory afterwards. CQEs already written stay. EAGAIN: a worker may
/// still write its memory (mem/slow_memory.hpp).
struct RemoveQp {
    qp::Qp* qp = nullptr;
    bool force = false;  ///< do not wait for workers
    int error = 0;
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
/// Moves an SRQ to new memory.
struct ResizeSrq {
    qp::Srq* srq = nullptr;
    const rings::RqView* new_queue = nullptr;
    int error = 0;
};
struct RemoveSrq {
    qp::Srq* srq = nullptr;
};

/// Moves this engine's lane of a CQ to new memory.
struct ResizeCq {
    rings::Cq* cq = nullptr;
    rings::CqLane new_lane{};
    uint32_t consumer = 0;
    int error = 0;
};

/// Sends a frame that is not RoCE.
struct SendFrame {
    const neighbour::Frame* frame = nullptr;
    int error = 0;
};
/// Sends a management datagram.
struct SendGsi {
    io::GsiSend datagram;
};
/// Does nothing. An engine runs a whole round between two barriers of which the second was submitted after the first was done.
struct Barrier {};

/// A command on its way. The conductor owns the struct of an operation with results until the command is done; the others travel
/// by value.
using Command = std::variant<AttachSession*, DetachSession*, AddQp*, ModifyQp*, QueryQp*, MoveQp*, RemoveQp*, AddSrq*, ModifySrq*,
                             QuerySrq*, ResizeSrq*, RemoveSrq*, ResizeCq*, SendFrame*, SendGsi, Barrier>;

/// Calls `f` with the struct of the command's operation.
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

/// Sets the result of a command that no engine will execute.
inline void refuse(const Command& command, int error) {
    visit(command, [&](auto& c) {
        if constexpr (requires { c.error; }) c.error = error;
    });
}

}  // namespace roci::engine
