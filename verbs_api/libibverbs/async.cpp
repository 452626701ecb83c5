// Asynchronous events: reads records from the session's event socket and looks up the objects of the records.
#include <unistd.h>

#include "context.hpp"

namespace roci::client {
namespace {

// rocid sends the numbers of <infiniband/verbs.h>.
static_assert(uint32_t(abi::AsyncEvent::cq_err) == IBV_EVENT_CQ_ERR);
static_assert(uint32_t(abi::AsyncEvent::qp_fatal) == IBV_EVENT_QP_FATAL);
static_assert(uint32_t(abi::AsyncEvent::qp_req_err) == IBV_EVENT_QP_REQ_ERR);
static_assert(uint32_t(abi::AsyncEvent::qp_access_err) == IBV_EVENT_QP_ACCESS_ERR);
static_assert(uint32_t(abi::AsyncEvent::comm_est) == IBV_EVENT_COMM_EST);
static_assert(uint32_t(abi::AsyncEvent::sq_drained) == IBV_EVENT_SQ_DRAINED);
static_assert(uint32_t(abi::AsyncEvent::port_active) == IBV_EVENT_PORT_ACTIVE);
static_assert(uint32_t(abi::AsyncEvent::port_err) == IBV_EVENT_PORT_ERR);
static_assert(uint32_t(abi::AsyncEvent::srq_err) == IBV_EVENT_SRQ_ERR);
static_assert(uint32_t(abi::AsyncEvent::srq_limit_reached) == IBV_EVENT_SRQ_LIMIT_REACHED);
static_assert(uint32_t(abi::AsyncEvent::qp_last_wqe_reached) == IBV_EVENT_QP_LAST_WQE_REACHED);
static_assert(uint32_t(abi::AsyncEvent::gid_change) == IBV_EVENT_GID_CHANGE);

/// The kind of object to which an event belongs (IBA 11.6.3). An unaffiliated event belongs to the port.
enum class About : uint8_t { port, cq, qp, srq };

About about(ibv_event_type type) {
    switch (type) {
        case IBV_EVENT_CQ_ERR:
            return About::cq;
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_COMM_EST:
        case IBV_EVENT_SQ_DRAINED:
        case IBV_EVENT_PATH_MIG:
        case IBV_EVENT_PATH_MIG_ERR:
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            return About::qp;
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_SRQ_LIMIT_REACHED:
            return About::srq;
        default:
            return About::port;
    }
}

/// Fills in `event` from the record. Returns false if the record's object was destroyed meanwhile.
bool resolve(Context& c, const abi::AsyncEventRecord& record, ibv_async_event& event) {
    event.event_type = ibv_event_type(record.event_type);
    switch (about(event.event_type)) {
        case About::cq: {
            Cq* cq = c.cq_events.deliver(record.handle, record.generation, &Cq::async_delivered);
            event.element.cq = cq != nullptr ? cq->base() : nullptr;
            return cq != nullptr;
        }
        case About::qp: {
            Qp* qp = c.qp_events.deliver(record.handle, record.generation, &Qp::delivered);
            event.element.qp = qp != nullptr ? qp->base() : nullptr;
            return qp != nullptr;
        }
        case About::srq: {
            Srq* srq = c.srq_events.deliver(record.handle, record.generation, &Srq::delivered);
            event.element.srq = srq != nullptr ? &srq->srq : nullptr;
            return srq != nullptr;
        }
        case About::port:
            break;
    }
    event.element.port_num = int(record.handle);
    return true;
}

/// Called after rocid has ended. The first call per context sets `event` to IBV_EVENT_DEVICE_FATAL. Later calls fail with EIO.
int device_fatal(Context& c, ibv_async_event& event) {
    rocid_ended(c);
    if (c.fatal_reported.exchange(true)) {
        errno = EIO;
        return -1;
    }
    event.event_type = IBV_EVENT_DEVICE_FATAL;
    event.element.port_num = 0;
    return 0;
}

/// Counts an acknowledgement on the object and wakes a thread that waits to destroy the object. T is ibv_cq, ibv_qp or ibv_srq.
template <class T>
void acknowledge(T* object, uint32_t T::*counter) {
    pthread_mutex_lock(&object->mutex);
    ++(object->*counter);
    pthread_cond_signal(&object->cond);
    pthread_mutex_unlock(&object->mutex);
}

}  // namespace
}  // namespace roci::client

using namespace roci::client;

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
    Context& c = *Context::from(context);
    for (;;) {
        roci::abi::AsyncEventRecord record{};
        const ssize_t n = read(context->async_fd, &record, sizeof record);
        if (n == 0) return device_fatal(c, *event);
        if (n != sizeof record) {
            if (n > 0) errno = EIO;
            return -1;
        }
        if (resolve(c, record, *event)) return 0;
    }
}

void ibv_ack_async_event(ibv_async_event* event) {
    switch (about(event->event_type)) {
        case About::cq:
            return acknowledge(event->element.cq, &ibv_cq::async_events_completed);
        case About::qp:
            return acknowledge(event->element.qp, &ibv_qp::events_completed);
        case About::srq:
            return acknowledge(event->element.srq, &ibv_srq::events_completed);
        case About::port:
            return;
    }
}
