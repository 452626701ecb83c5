// Which attributes ibv_modify_qp must and may carry: the state machine of IBA 10.3.1 and the table of 11.2.5.3 ("QP state
// transition properties"), as data.
#pragma once

#include <cstdint>
#include <string>

#include "qp/spec.hpp"

namespace roci::qp {

/// enum ibv_qp_attr_mask.
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

/// "RC", "UD", …; "?" for none of them.
const char* type_name(Type type);
/// "RESET", "INIT", …
const char* state_name(State state);
/// Name of one AttrMask bit as programs write it ("IBV_QP_AV").
const char* attribute_name(uint32_t bit);

/// Attributes that programs which treat XRC like RC give to the half of a connection that has no use for them; nobody looks at
/// them (the kernel drops the same ones for every device).
uint32_t ignored_attributes(Type type);

/// May a QP of `type` go from `current` to `next` with exactly the attributes `mask`? 0, or EINVAL and a sentence in `why` that
/// names the missing or forbidden attribute. Without kAttrState pass next == current.
int check_modify(Type type, State current, State next, uint32_t mask, std::string& why);

}  // namespace roci::qp
