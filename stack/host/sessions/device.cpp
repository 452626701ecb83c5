// Handlers of a session: hello, the list of devices, the opening of a device, and queries of its attributes.
#include <endian.h>

#include <algorithm>
#include <cctype>

#include "host/objects/handlers.hpp"
#include "host/objects/tag_matching.hpp"
#include "host/port_attributes.hpp"
#include "host/sessions/handlers.hpp"
#include "host/sessions/quotas.hpp"

namespace roci::host::sessions {
namespace {

constexpr uint32_t kMaxListedDevices = std::size(abi::ListDevicesReply{}.device);

template <size_t N>
void copy_text(char (&to)[N], const std::string& from) {
    const size_t n = std::min(from.size(), N - 1);
    std::memcpy(to, from.data(), n);
    to[n] = 0;
}

uint64_t guid(const MacAddress& mac) { return htobe64(guid_of(mac)); }

/// Returns the name of a program for `roci status`. Unprintable characters become question marks.
std::string printable(const char* text, size_t size) {
    std::string out(text, strnlen(text, size));
    for (char& c : out) {
        if (!std::isprint(static_cast<unsigned char>(c))) c = '?';
    }
    return out;
}

}  // namespace

Outcome hello(Call& c) {
    const auto in = c.in<abi::HelloRequest>();
    if (c.session.greeted) return fail(EINVAL, "hello was already sent on this connection");
    if (in.magic != abi::kHelloMagic) {
        c.close = true;
        return fail(EPROTO, "this is not a Rocinante client (magic {:#010x}); is {} set to the right socket?", in.magic,
                    abi::kSocketEnv);
    }
    c.answer(abi::HelloReply{abi::kAbiVersion, abi::kAbiVersion, uint32_t(c.state.devices.size()), c.state.engines.engines()});
    if (in.abi_version != abi::kAbiVersion) {
        c.close = true;
        return fail(EPROTO, "client library speaks ABI version {}, rocid speaks version {}; install both from one release",
                    in.abi_version, abi::kAbiVersion);
    }
    c.session.program = printable(in.program, sizeof in.program);
    c.session.greeted = true;
    return done();
}

Outcome list_devices(Call& c) {
    abi::ListDevicesReply out{};
    out.count = std::min(uint32_t(c.state.devices.size()), kMaxListedDevices);
    for (uint32_t i = 0; i < out.count; ++i) {
        const DeviceConfig& d = c.state.devices[i];
        abi::DeviceEntry& e = out.device[i];
        copy_text(e.name, d.name);
        copy_text(e.netdev, d.netdev);
        e.node_guid = guid(d.mac);
        e.index = i;
    }
    c.answer(out, offsetof(abi::ListDevicesReply, device) + out.count * sizeof(abi::DeviceEntry));
    return done();
}

namespace {

/// Guards the opening of a device. If keep() was not called, the destructor closes the device again.
class Opening {
public:
    Opening(State& state, Session& session) : state_(state), session_(session) {}
    ~Opening() {
        if (!kept_) close_device(state_, session_);
    }
    void keep() { kept_ = true; }

private:
    State& state_;
    Session& session_;
    bool kept_ = false;
};

Outcome attach_engines(State& state, Session& s) {
    auto* pages = reinterpret_cast<abi::DoorbellPage*>(s.doorbells.base);
    std::vector<engine::AttachSession> attach(state.engines.engines());
    engine::Batch batch(state.engines);
    for (uint32_t e = 0; e < attach.size(); ++e) {
        attach[e] = {.session = s.id, .doorbells = pages + e, .user = s.who.uid, .rate = rate_of(state, s.who)};
        batch.submit(e, &attach[e]);
    }
    batch.wait();
    const auto refused = std::ranges::find_if(attach, [](const auto& a) { return a.error != 0; });
    if (refused == attach.end()) return done();
    engine::DetachSession detach{s.id};
    for (uint32_t e = 0; e < attach.size(); ++e)
        if (attach[e].error == 0) batch.submit(e, &detach);
    batch.wait();
    state.platform.free_memory(std::exchange(s.doorbells, {}));
    return fail(refused->error, "an engine refused the session; it serves too many");
}

}  // namespace

Outcome open_device(Call& c) {
    const auto in = c.in<abi::OpenDeviceRequest>();
    Session& s = c.session;
    if (s.device) return fail(EBUSY, "this connection has {} open; open another connection for another device", c.device().name);
    if (in.device >= c.state.devices.size()) return fail(ENODEV, "no device {}; there are {}", in.device, c.state.devices.size());

    const uint32_t engines = c.state.engines.engines();
    std::string why;
    const SharedMemory pages = c.state.platform.make_memory(engines * sizeof(abi::DoorbellPage), why);
    if (pages.base == nullptr) return fail(ENOMEM, "no memory for doorbells: {}", why);
    s.doorbells = pages;
    if (Outcome o = attach_engines(c.state, s); o.failed()) return o;
    Opening opening(c.state, s);
    s.device = in.device;

    std::vector<int> wake(engines);
    for (uint32_t e = 0; e < engines; ++e) {
        wake[e] = c.state.platform.make_wake_fd(s.id, e);
        if (wake[e] < 0 && c.state.real_descriptors()) return fail(EMFILE, "rocid is out of file descriptors; raise its limit");
    }
    const int async = c.state.platform.make_event_pipe(s.id, abi::kNoHandle);
    if (async < 0 && c.state.real_descriptors()) return fail(EMFILE, "rocid is out of file descriptors; raise its limit");
    opening.keep();
    if (c.received.count() != 0) s.process = c.state.platform.process_memory(c.received.take());

    c.give(async, false);
    c.give(c.state.platform.engine_page_fd(), true);
    c.give(s.doorbells.fd, true);
    for (const int fd : wake) c.give(fd, true);
    uint32_t flags = c.state.platform.client_flags();
    if (const int page = c.state.platform.device_page_fd(); page >= 0 && (in.flags & abi::kWantsDevicePage) != 0) {
        c.give(page, true);
        flags |= abi::kDevicePage;
    }
    c.answer(abi::OpenDeviceReply{engines, s.id, sizeof(abi::DoorbellPage), flags, 0});
    return done();
}

void close_device(State& state, Session& s) {
    if (s.doorbells.base == nullptr) return;
    engine::DetachSession detach{s.id};
    engine::Batch batch(state.engines);
    for (uint32_t e = 0; e < state.engines.engines(); ++e) batch.submit(e, &detach);
    batch.wait();
    state.platform.close_event_pipe(s.id, abi::kNoHandle);
    state.platform.close_wake_fds(s.id);
    state.platform.free_memory(std::exchange(s.doorbells, {}));
    s.device.reset();
}

Outcome query_device(Call& c) {
    const Limits& l = c.state.limits;
    const Capabilities& caps = c.state.caps;
    abi::DeviceAttr a{};
    a.node_guid = a.sys_image_guid = guid(c.device().mac);
    a.max_mr_size = caps.max_mr_size;
    a.page_size_cap = caps.page_size_cap;
    a.device_cap_flags = caps.device_cap_flags;
    a.hca_core_clock_khz = caps.clock_khz;
    a.completion_timestamp_mask = caps.timestamp_mask;
    a.vendor_id = caps.vendor_id;
    a.max_qp = std::min({l.max_qps, c.state.qpns.capacity(), objects::kQpSlots});
    a.max_qp_wr = l.max_qp_wr;
    a.max_sge = a.max_sge_rd = l.max_sge;
    a.max_inline = l.max_inline;
    a.max_cq = caps.max_cqs;
    a.max_cqe = l.max_cqe;
    a.max_mr = std::min(l.max_keys, c.state.keys.capacity());
    a.max_pd = caps.max_pds;
    a.max_qp_rd_atom = a.max_qp_init_rd_atom = caps.max_rd_atomic;
    a.max_res_rd_atom = a.max_qp * caps.max_rd_atomic;
    a.atomic_cap = caps.atomic_cap;
    a.max_mw = a.max_mr;
    a.max_mcast_grp = caps.max_mcast_groups;
    a.max_mcast_qp_attach = caps.max_mcast_attach;
    a.max_ah = std::min(l.max_ahs, c.state.ahs.capacity());
    a.max_srq = caps.max_srqs;
    a.max_srq_wr = caps.max_srq_wr;
    a.max_srq_sge = caps.max_srq_sge;
    a.max_pkeys = caps.pkeys;
    a.local_ca_ack_delay = caps.local_ca_ack_delay;
    a.phys_ports = 1;
    a.comp_vectors = caps.comp_vectors;
    a.max_dm_size = caps.max_dm_bytes;
    a.max_cq_count = caps.max_moderation_count;
    a.max_cq_period = caps.max_moderation_us;
    if (objects::may_reach(c)) {
        a.odp_general = caps.odp_general;
        a.odp_rc = caps.odp_rc;
        a.odp_uc = caps.odp_uc;
        a.odp_ud = caps.odp_ud;
        a.odp_xrc = caps.odp_xrc;
    }
    copy_text(a.fw_ver, caps.firmware);
    a.tm = objects::kTagCaps;
    c.answer(a);
    return done();
}

Outcome query_port(Call& c) {
    const uint32_t port = c.in<abi::HandleRequest>().handle;
    if (port > kPortNumber) return fail(EINVAL, "no port {}: a device has one port, number 1", port);
    c.answer(port_attributes(c.state, c.device()));
    return done();
}

Outcome query_gid_table(Call& c) {
    const abi::QueryGidTableReply out = gid_table(c.device());
    c.answer(out, offsetof(abi::QueryGidTableReply, entry) + out.count * sizeof(abi::GidEntry));
    return done();
}

}  // namespace roci::host::sessions
