// The table of operations: handlers, and the conditions that are checked before a handler runs.
#pragma once

#include "host/call.hpp"

namespace roci::host::sessions {

/// The stage that a session must have reached.
enum class Stage : uint8_t { connected, greeted, device };

inline constexpr uint32_t kVariable = ~uint32_t{0};

struct OpRule {
    uint32_t min_body;    ///< bytes of the first ABI version: shorter bodies are refused
    uint32_t known_body;  ///< bytes that we understand: further bytes must be zero; kVariable: the handler checks
    uint32_t fds;         ///< required descriptors
    Stage stage;
    Outcome (*handler)(Call&);
    uint32_t optional_fds = 0;  ///< further allowed descriptors
};

/// nullptr: no such operation.
const OpRule* find_op(abi::Op op);

/// Checks `call` against the rule, then runs the handler.
Outcome dispatch(Call& call, abi::Op op);

}  // namespace roci::host::sessions
