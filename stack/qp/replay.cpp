// Schedules the responses to repeated READs, atomics, ATOMIC WRITEs and FLUSHes, in PSN order.
#include "qp/roles.hpp"

namespace roci::qp {
namespace {

enum class Relation : uint8_t {
    apart,     ///< both jobs are answered
    included,  ///< the other job still has to send the repeated part
    replaced,  ///< the new job replaces the other job
};

Relation relation(const Qp& qp, const ResponderJob& job, const ResponderJob& other) {
    if (!overlap(qp, job, other)) return Relation::apart;
    const int32_t beyond = end_psn(qp, job).distance_from(end_psn(qp, other));
    const int32_t ahead = job.first.distance_from(other.first + other.sent);
    if (beyond <= 0 && ahead >= 0) return Relation::included;
    // The other job has already sent the repeated part, or the beginning of that part. So both jobs are answered: the new job
    // sends the part again, then the other job continues.
    if (beyond < 0) return Relation::apart;
    return beyond == 0 || ahead <= 0 ? Relation::replaced : Relation::apart;
}

}  // namespace

void answer_again(Context& ctx, Qp& qp, ResponderJob job) {
    JobRing& jobs = qp.responder.jobs;
    job.replay = true;
    for (uint32_t i = 0; i < jobs.count;) {
        const ResponderJob& other = jobs.at(i);
        const Relation r = relation(qp, job, other);
        if (r == Relation::included) return;
        if (r == Relation::apart) {
            ++i;
            continue;
        }
        job.replay = job.replay && other.replay;
        jobs.remove(i);
    }
    uint32_t place = 0, replays = 0;
    for (uint32_t i = 0; i < jobs.count; ++i) {
        if (end_psn(qp, jobs.at(i)).distance_from(end_psn(qp, job)) < 0) place = i + 1;
        replays += jobs.at(i).replay;
    }
    if (job.replay && replays >= qp.max_dest_rd_atomic) return;
    jobs.insert(place, job);
    activate_responder(ctx, qp);
}

}  // namespace roci::qp
