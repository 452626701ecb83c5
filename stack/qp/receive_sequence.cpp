#include "qp/receive_sequence.hpp"

namespace roci::qp {

const char* ReceiveSequence::check() const {
    if (expected_.distance_from(acknowledged_) < 0) return "a PSN was acknowledged and is expected again";
    if (nak_due_ && !missing_) return "a NAK is due although nothing is missing";
    if (fatal_ && !missing_) return "requests are refused although nothing is missing";
    if (msn_.value > kMask24) return "the MSN has more than 24 bits";
    return nullptr;
}

}  // namespace roci::qp
