// The table of operations: handlers, and conditions that are checked before a handler runs.
#pragma once

#include "host/call.hpp"

namespace roci::host::sessions {

/// The stage that a session must have reached before an operation.
enum class Stage : uint8_t { connected, greeted, device };

inline constexpr uint32_t kVariable = ~uint32_t{0};

struct OpRule {
    uint32_t min_body;    ///< smallest length of the body in bytes; shorter bodies are refused
    uint32_t known_body;  ///< bytes that rocid can parse; further bytes must be zero; kVariable: the handler checks the length
    uint32_t fds;         ///< number of required descriptors
    Stage stage;
    Outcome (*handler)(Call&);
    uint32_t optional_fds = 0;  ///< number of optional descriptors, in addition to `fds`
};

/// Returns the rule of an operation, or nullptr if there is no such operation.
const OpRule* find_op(abi::Op op);

/// Checks the call against the operation's rule and the limits. Then runs the handler. If the handler fails, records the failure
/// in the journal of the rdma_cm id.
Outcome dispatch(Call& call, abi::Op op);

}  // namespace roci::host::sessions
