// Completion channels. A channel is a socket to which rocid sends one record per event.
#include <fcntl.h>
#include <unistd.h>

#include "abi/time_slice.hpp"
#include "context.hpp"

using namespace roci::client;
using roci::abi::Op;

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
    auto channel = std::unique_ptr<Channel>(new (std::nothrow) Channel{});
    if (!channel) return fail<ibv_comp_channel>(ENOMEM);
    roci::abi::HandleReply reply{};
    ReplyFds fds;
    if (const int err = Context::from(context)->call(Op::create_channel, roci::abi::Empty{}, reply, &fds); err != 0)
        return fail<ibv_comp_channel>(err);
    if (fds.size() != 1) return fail<ibv_comp_channel>(EPROTO);
    channel->handle = reply.handle;
    channel->channel = {context, fds.take(0), 0};
    fcntl(channel->channel.fd, F_SETFL, fcntl(channel->channel.fd, F_GETFL) & ~O_NONBLOCK);
    return &channel.release()->channel;
}

int ibv_destroy_comp_channel(ibv_comp_channel* p) {
    Context& c = *Context::from(p->context);
    pthread_mutex_lock(&p->context->mutex);
    const bool busy = p->refcnt != 0;
    pthread_mutex_unlock(&p->context->mutex);
    if (busy) return refuse(EBUSY);
    if (const int err = c.destroy(Op::destroy_channel, Channel::from(p)->handle); err != 0) return err;
    close(p->fd);
    delete Channel::from(p);
    return 0;
}

// Blocks until an event arrives. If the descriptor has O_NONBLOCK and no event waits, fails with EAGAIN. Skips records of
// destroyed CQs.
int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** user) {
    Context& c = *Context::from(channel->context);
    if (c.inherited) {
        errno = EIO;
        return -1;
    }
    roci::abi::ask_for_short_slices();
    for (;;) {
        roci::abi::CompEventRecord record{};
        const ssize_t n = read(channel->fd, &record, sizeof record);
        if (n != sizeof record) {
            if (n == 0 || (n < 0 && errno == ECONNRESET)) {
                rocid_ended(c);
                errno = EIO;
            }
            return -1;
        }
        Cq* found = c.cq_events.deliver(record.cq_handle, record.generation, &Cq::comp_delivered);
        if (found == nullptr) continue;
        *cq = found->base();
        *user = found->cq.cq_context;
        return 0;
    }
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned int events) {
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += events;
    pthread_cond_signal(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}
