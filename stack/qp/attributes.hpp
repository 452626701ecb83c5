// Checks the state transitions and attributes of ibv_modify_qp. attributes.cpp contains the state machine of IBA 10.3.1 and the
// required and optional attributes of IBA 11.2.5.3 ("QP state transition properties") as tables.
#pragma once

#include <cstdint>
#include <string>

#include "qp/spec.hpp"

namespace roci::qp {

/// The bits of enum ibv_qp_attr_mask.
enum AttrMask : uint32_t {
    kAttrState = 1 << 0,
    kAttrCurState = 1 << 1,
    kAttrEnSqdAsyncNotify = 1 << 2,
    kAttrAccessFlags = 1 << 3,
    kAttrPkeyIndex = 1 << 4,
    kAttrPort = 1 << 5,
    kAttrQkey = 1 << 6,
    kAttrAv = 1 << 7,
    kAttrPathMtu = 1 << 8,
    kAttrTimeout = 1 << 9,
    kAttrRetryCount = 1 << 10,
    kAttrRnrRetry = 1 << 11,
    kAttrRqPsn = 1 << 12,
    kAttrMaxRdAtomic = 1 << 13,
    kAttrAltPath = 1 << 14,
    kAttrMinRnrTimer = 1 << 15,
    kAttrSqPsn = 1 << 16,
    kAttrMaxDestRdAtomic = 1 << 17,
    kAttrPathMigState = 1 << 18,
    kAttrCap = 1 << 19,
    kAttrDestQpn = 1 << 20,
    kAttrRateLimit = 1 << 25,
};

/// Returns "RC", "UD", and so on; "?" for an unknown type.
const char* type_name(Type type);
/// Returns "RESET", "INIT", and so on; "?" for an unknown state.
const char* state_name(State state);
/// Returns the name of one AttrMask bit as programs write it, such as "IBV_QP_AV".
const char* attribute_name(uint32_t bit);

/// Returns the attributes that modify_qp ignores for this type. Programs that treat XRC like RC set attributes that an XRC
/// initiator or target does not use. The Linux kernel ignores the same attributes for all devices.
uint32_t ignored_attributes(Type type);

/// Decides whether a QP of `type` in state `current` may execute the change with exactly these attributes. Only the QP's engine
/// calls this function, because only the engine has the current state.
Decision check_step(Type type, State current, const Change& change);
/// Returns a text for the author of the program that explains why the change was refused.
std::string explain(Type type, const Decision& step);

}  // namespace roci::qp
