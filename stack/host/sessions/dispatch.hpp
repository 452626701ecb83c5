// From an operation number to its handler, and what must hold before the handler runs.
#pragma once

#include "host/call.hpp"

namespace roci::host::sessions {

/// How far a session must have come.
enum class Stage : uint8_t { connected, greeted, device };

inline constexpr uint32_t kVariable = ~uint32_t{0};

struct OpRule {
    uint32_t min_body;    ///< bytes of the first ABI version: less is refused
    uint32_t known_body;  ///< bytes that we understand: what follows must be zero; kVariable: the handler looks
    uint32_t fds;         ///< that must come
    Stage stage;
    Outcome (*handler)(Call&);
    uint32_t optional_fds = 0;  ///< that may come besides
};

/// nullptr: no such operation.
const OpRule* find_op(abi::Op op);

/// Checks `call` against the rule, then runs the handler.
Outcome dispatch(Call& call, abi::Op op);

}  // namespace roci::host::sessions
