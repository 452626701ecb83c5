#include "qp/send_window.hpp"

namespace roci::qp {

const char* SendWindow::check() const {
    const uint32_t allocated = psn_span(acked_, allocated_);
    if (in_flight() > unanswered()) return "the next PSN is not between the oldest unacknowledged and the highest sent";
    if (unanswered() > allocated) return "a PSN was sent that no work request has";
    if (allocated > kMaxSpan) return "more PSNs are allocated than fit the circle";
    if (repaired_ > lost_) return "more PSNs are repaired than were lost";
    if (lost_ > in_flight()) return "more PSNs are lost than are under way";
    return nullptr;
}

}  // namespace roci::qp
