// Removed QPs that still acknowledge repeated requests. A program may destroy its QP as soon as it has the last message. If the
// ACK of this message is lost, the peer repeats the message. Without an answer, the peer's request would fail although it was
// executed. So the engine remembers for some time what the last QPs have executed, and acknowledges it again.
#pragma once

#include <array>

#include "base/types.hpp"
#include "qp/state.hpp"
#include "wire/build.hpp"
#include "wire/packet.hpp"

namespace roci::engine {

/// Returns true if the packet comes from the destination of the path, and goes to its source (A17.4.5).
bool from_peer(const wire::PathTemplate& path, const wire::Packet& p);

/// What a removed QP has executed.
struct Departed {
    Qpn dest;
    uint32_t port = 0;
    Psn expected;  ///< all requests before this PSN were executed
    Msn msn;
    wire::Service service{};
    uint8_t answers = 0;
    Nanos until = 0;
    wire::PathTemplate path;
};

class DepartedQps {
public:
    /// The time for which a QP is remembered, ns. It covers several ACK timeouts of usual length (67 ms with timeout = 14).
    static constexpr Nanos kRemembered = 2'000'000'000;
    /// Limit of the ACKs that are sent for a removed QP.
    static constexpr uint8_t kMostAnswers = 16;

    /// Remembers a QP that is being removed. Does nothing if the QP is not the responder of a reliable connection, or if it is in
    /// error. Replaces the oldest entry.
    void add(const qp::Qp& qp, Nanos now);
    /// Returns the QP that has executed this request and should acknowledge it again. Returns nullptr if there is none. READs and
    /// atomics are not acknowledged, because their responses would need the QP's memory regions. Counts the answer.
    const Departed* answer_to(const wire::Packet& p, uint32_t port, Nanos now);

private:
    static constexpr size_t kMost = 256;
    /// The QP numbers of the entries. Each frame for an unknown QP searches this array, so it is short.
    std::array<Qpn, kMost> qpns_{};
    std::array<Departed, kMost> ring_{};
    uint8_t next_ = 0;  ///< index of the oldest entry; wraps at kMost
};

}  // namespace roci::engine
