#include "context.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "log.hpp"

namespace roci::client {
namespace {

using abi::Op;

/// A wrapper of a verb that returns an errno. The wrapper calls the verb and also sets errno on failure.
template <auto verb>
struct Reporting;
template <class... Args, int (*verb)(Args...)>
struct Reporting<verb> {
    static int call(Args... args) {
        const int err = verb(args...);
        return err == 0 ? 0 : refuse(err);
    }
};
template <auto verb>
constexpr auto reporting = &Reporting<verb>::call;

/// Fills in the function pointers through which the inline functions of <infiniband/verbs.h> call this library. If a pointer
/// remains NULL, the library does not support the verb.
void set_ops(verbs_context& v) {
    ibv_context_ops& o = v.context.ops;
    o._compat_query_device = ibv_query_device;
    o._compat_query_port = ibv_query_port;
    o.alloc_mw = alloc_mw;
    o.bind_mw = reporting<bind_mw>;
    o.dealloc_mw = reporting<dealloc_mw>;
    o.poll_cq = poll_cq;
    o.req_notify_cq = req_notify_cq;
    o.post_srq_recv = post_srq_recv;
    o.post_send = post_send;
    o.post_recv = post_recv;
    v.query_port = reporting<query_port_ex>;
    v.query_device_ex = reporting<query_device_ex>;
    v.query_rt_values = reporting<query_rt_values>;
    v.alloc_parent_domain = alloc_parent_domain;
    v.alloc_td = alloc_td;
    v.dealloc_td = reporting<dealloc_td>;
    v.create_cq_ex = create_cq_ex;
    v.modify_cq = reporting<modify_cq>;
    v.create_srq_ex = create_srq_ex;
    v.get_srq_num = reporting<get_srq_num>;
    v.post_srq_ops = reporting<post_srq_ops>;
    v.create_qp_ex = create_qp_ex;
    v.open_qp = open_qp;
    v.open_xrcd = open_xrcd;
    v.close_xrcd = reporting<close_xrcd>;
    v.advise_mr = reporting<advise_mr>;
    v.alloc_null_mr = alloc_null_mr;
    v.alloc_dm = alloc_dm;
    v.free_dm = reporting<free_dm>;
    v.reg_dm_mr = reg_dm_mr;
}

void init(Context& c, ibv_device* device) {
    c.verbs.sz = sizeof(verbs_context);
    c.verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    c.verbs.context.device = device;
    c.verbs.context.async_fd = -1;
    c.verbs.context.cmd_fd = -1;
    pthread_mutex_init(&c.verbs.context.mutex, nullptr);
    std::fill(std::begin(c.wake_fd), std::end(c.wake_fd), -1);
    set_ops(c.verbs);
}

/// Opens the device and reads its attributes. The descriptors of the reply are, in this order: the event socket, the engine page,
/// the memfd of the doorbell pages, one eventfd per engine, and with kDevicePage the device page.
int attach(Context& c, uint32_t index) {
    abi::OpenDeviceReply reply{};
    ReplyFds fds;
    const abi::OpenDeviceRequest request{index, abi::kWantsDevicePage};
    // rocid uses this descriptor to access memory that it cannot map. Such an access has the rights of this process.
    const int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    const int err = c.link.request({Op::open_device, Connection::bytes_of(request), {}, memory},
                                   std::as_writable_bytes(std::span(&reply, 1)), &fds);
    if (memory >= 0) close(memory);
    if (err != 0) return err;
    const uint32_t pages = (reply.flags & abi::kDevicePage) != 0 ? 1 : 0;
    if (reply.engines == 0 || reply.engines > abi::kMaxEngines || uint32_t(fds.size()) != 3 + reply.engines + pages)
        return EPROTO;
    c.engines = reply.engines;
    c.doorbell_stride = reply.doorbell_stride;
    c.arena.use_huge_pages((reply.flags & abi::kHugeChunks) != 0);
    c.regions.populate((reply.flags & abi::kPopulate) != 0);
    c.verbs.context.async_fd = fds.take(0);
    c.engine_page = map_fd(fds.take(1), false);
    c.doorbells = map_fd(fds.take(2), true);
    if (c.engine_page.base == nullptr || c.doorbells.base == nullptr) return errno;
    const uint64_t last = (reply.engines - 1) * reply.doorbell_stride;
    if (c.engine_page.length < sizeof(abi::EnginePage) || c.doorbells.length < last + sizeof(abi::DoorbellPage)) return EPROTO;
    for (uint32_t e = 0; e < reply.engines; ++e) c.wake_fd[e] = fds.take(int(3 + e));
    if (pages != 0) c.page.map(fds.take(int(3 + reply.engines)), index);
    const int flags = fcntl(c.verbs.context.async_fd, F_GETFL);
    fcntl(c.verbs.context.async_fd, F_SETFL, flags & ~O_NONBLOCK);  // by default ibv_get_async_event() blocks
    return c.link.ask(Op::query_device, c.attr);
}

int connect(Context& c, const char* name) {
    if (const int err = c.link.open(); err != 0) return err;
    c.link.use(&c.arena);
    abi::DeviceEntry entry{};
    if (const int err = find_device(c.link, name, entry); err != 0) return err;
    if (const int err = attach(c, entry.index); err != 0) return err;
    c.verbs.context.cmd_fd = c.link.fd();
    c.verbs.context.num_comp_vectors = int(std::max<uint32_t>(c.attr.comp_vectors, 1));
    return 0;
}

void close_all(Context& c) {
    if (c.verbs.context.async_fd >= 0) close(c.verbs.context.async_fd);
    for (int fd : c.wake_fd)
        if (fd >= 0) close(fd);
    for (int fd : c.imported) close(fd);
    if (c.heir != nullptr) ibv_close_device(c.heir);
    unmap(c.engine_page);
    unmap(c.doorbells);
    pthread_mutex_destroy(&c.verbs.context.mutex);
    delete &c;
}

}  // namespace

void await_acks(pthread_mutex_t& mutex, pthread_cond_t& cond, const uint32_t& completed, uint32_t delivered) {
    pthread_mutex_lock(&mutex);
    while (completed != delivered) pthread_cond_wait(&cond, &mutex);
    pthread_mutex_unlock(&mutex);
}

}  // namespace roci::client

using namespace roci::client;

ibv_context* ibv_open_device(ibv_device* device) {
    auto* c = new (std::nothrow) Context{};
    if (c == nullptr) return fail<ibv_context>(ENOMEM);
    init(*c, device);
    if (const int err = connect(*c, device->name); err != 0) {
        log("cannot open device %s: %s", device->name, std::strerror(err));
        close_all(*c);
        return fail<ibv_context>(err);
    }
    remember_context(c);
    return c->base();
}

int ibv_close_device(ibv_context* context) {
    Context* c = Context::from(context);
    if (forget_context(c)) close_all(*c);
    return 0;
}

// Returns the context of this process to which the socket `cmd_fd` belongs. A session of another process cannot be imported,
// because the queues and the memory of that session are mapped only in the other process.
ibv_context* ibv_import_device(int cmd_fd) {
    Context* c = find_by_cmd_fd(cmd_fd);
    return c != nullptr ? c->base() : fail<ibv_context>(EOPNOTSUPP);
}
