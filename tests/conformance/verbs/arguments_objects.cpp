// Wrong arguments of the verbs that create, query and destroy objects: PDs, CQs, channels, SRQs, address handles and
// the device.
#include <fcntl.h>

#include "arguments.hpp"

namespace verbs_test {
namespace {

using enum Way;

template <class F>
Got cq(Stage& s, int cqe, ibv_comp_channel* channel, int vector, F context_of) {
    return made(ibv_create_cq(context_of(s), cqe, nullptr, channel, vector), ibv_destroy_cq);
}
Got cq(Stage& s, int cqe, ibv_comp_channel* channel = nullptr, int vector = 0) {
    return cq(s, cqe, channel, vector, [](Stage& stage) { return stage.a.context; });
}

template <class F>
Got cq_ex(Stage& s, F spoil) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 16;
    spoil(attr);
    ibv_cq_ex* made_cq = ibv_create_cq_ex(s.a.context, &attr);
    const Got got{made_cq != nullptr ? 0 : errno, errno};
    if (made_cq != nullptr) ibv_destroy_cq(ibv_cq_ex_to_cq(made_cq));
    return got;
}

template <class F>
Got srq(Stage& s, F spoil) {
    ibv_srq_init_attr attr{};
    attr.attr = {16, 1, 0};
    spoil(attr, s.device);
    return made(ibv_create_srq(s.a.pd, &attr), ibv_destroy_srq);
}

template <class F>
Got ah(Stage& s, F spoil) {
    ibv_ah_attr attr = End::address_of(s.b);
    spoil(attr);
    return made(ibv_create_ah(s.a.pd, &attr), ibv_destroy_ah);
}

template <class F>
Got modify_srq(Stage& s, int mask, F spoil) {
    ibv_srq_attr attr{};
    spoil(attr, s.device);
    return returned(ibv_modify_srq(s.srq, &attr, mask));
}

template <class F>
Got xrcd(Stage& s, F spoil) {
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = -1;
    attr.oflags = O_CREAT;
    spoil(attr);
    return made(ibv_open_xrcd(s.a.context, &attr), ibv_close_xrcd);
}

Got port(Stage& s, uint8_t number) {
    ibv_port_attr attr{};
    return returned(ibv_query_port(s.a.context, number, &attr));
}
Got gid(Stage& s, uint8_t port_num, int index) {
    ibv_gid out{};
    return minus_one(ibv_query_gid(s.a.context, port_num, index, &out));
}
Got pkey(Stage& s, uint8_t port_num, int index) {
    __be16 out = 0;
    return minus_one(ibv_query_pkey(s.a.context, port_num, index, &out));
}
template <class F>
Got from_wc(Stage& s, F spoil) {
    ibv_wc wc{};
    ibv_grh grh{};
    ibv_ah_attr attr{};
    wc.wc_flags = IBV_WC_GRH;
    spoil(grh);
    return minus_one(ibv_init_ah_from_wc(s.a.context, 1, &wc, &grh, &attr));
}

constexpr const char* kNoXrc = "it has no XRC";
constexpr const char* kSysfs = "the library reads sysfs there";

const Row kRows[] = {
    // ---- the device and its tables ----
    {"query_port", "port 0", value, EINVAL, [](Stage& s) { return port(s, 0); }},
    {"query_port", "a port that is not there", value, EINVAL, [](Stage& s) { return port(s, 9); }},
    {"query_gid", "port 0", negative, EINVAL, [](Stage& s) { return gid(s, 0, 0); }},
    {"query_gid", "a port that is not there", negative, EINVAL, [](Stage& s) { return gid(s, 9, 0); }},
    {"query_gid", "an index beyond the table", negative, EINVAL, [](Stage& s) { return gid(s, 1, 100000); }},
    {"query_gid", "a negative index", negative, EINVAL, [](Stage& s) { return gid(s, 1, -1); }},
    {"query_gid_ex", "flags", value, EINVAL,
     [](Stage& s) {
         ibv_gid_entry entry{};
         return returned(ibv_query_gid_ex(s.a.context, 1, 0, &entry, 1));
     }},
    {"query_gid_ex", "an index beyond the table", value, EINVAL,
     [](Stage& s) {
         ibv_gid_entry entry{};
         return returned(ibv_query_gid_ex(s.a.context, 1, 100000, &entry, 0));
     }},
    {"query_gid_table", "flags", value, EINVAL,
     [](Stage& s) {
         ibv_gid_entry entries[1];
         return returned(int(-ibv_query_gid_table(s.a.context, entries, 1, 1)));
     }},
    {"query_gid_table", "no room", value, EINVAL,
     [](Stage& s) {
         ibv_gid_entry entries[1];
         return returned(int(-ibv_query_gid_table(s.a.context, entries, 0, 0)));
     }},
    {"query_pkey", "port 0", negative, EINVAL, [](Stage& s) { return pkey(s, 0, 0); }, ENOENT, kSysfs},
    {"query_pkey", "an index beyond the table", negative, EINVAL, [](Stage& s) { return pkey(s, 1, 9999); }, ENOENT, kSysfs},
    {"query_pkey", "a negative index", negative, EINVAL, [](Stage& s) { return pkey(s, 1, -1); }, ENOENT, kSysfs},
    {"get_async_event", "none, O_NONBLOCK", negative, EAGAIN,
     [](Stage& s) {
         ibv_async_event event;
         return minus_one(ibv_get_async_event(s.a.context, &event));
     }},
    // ---- PDs ----
    {"dealloc_pd", "in use", value, EBUSY, [](Stage& s) { return returned(ibv_dealloc_pd(s.a.pd)); }},
    {"dealloc_pd", "a region is in it", value, EBUSY, [](Stage& s) { return returned(ibv_dealloc_pd(s.other)); }},
    {"open_xrcd", "no attributes", negative, EINVAL, [](Stage& s) { return xrcd(s, [](auto& x) { x.comp_mask = 0; }); }, kSkip,
     kNoXrc},
    {"open_xrcd", "no file and no O_CREAT", negative, EINVAL, [](Stage& s) { return xrcd(s, [](auto& x) { x.oflags = 0; }); },
     kSkip, kNoXrc},
    {"open_xrcd", "a descriptor that is closed", negative, EBADF, [](Stage& s) { return xrcd(s, [](auto& x) { x.fd = 9999; }); },
     kSkip, kNoXrc},
    {"open_xrcd", "unknown flags", negative, EINVAL,
     [](Stage& s) { return xrcd(s, [](auto& x) { x.oflags = O_CREAT | O_APPEND; }); }, kSkip, kNoXrc},
    // ---- CQs ----
    {"create_cq", "no entries", negative, EINVAL, [](Stage& s) { return cq(s, 0); }},
    {"create_cq", "a negative number of entries", negative, EINVAL, [](Stage& s) { return cq(s, -1); }},
    {"create_cq", "more entries than the device has", negative, EINVAL, [](Stage& s) { return cq(s, s.device.max_cqe + 1); }},
    {"create_cq", "a vector that is not there", negative, EINVAL,
     [](Stage& s) { return cq(s, 16, nullptr, s.a.context->num_comp_vectors); }},
    {"create_cq", "a negative vector", negative, EINVAL, [](Stage& s) { return cq(s, 16, nullptr, -1); }},
    {"create_cq", "another open device's channel", negative, EINVAL,
     [](Stage& s) { return cq(s, 16, s.channel, 0, [](Stage& stage) { return stage.b.context; }); }, kSkip,
     "it takes any descriptor"},
    {"create_cq_ex", "unknown completion fields", negative, EOPNOTSUPP,
     [](Stage& s) { return cq_ex(s, [](auto& x) { x.wc_flags = uint64_t(1) << 40; }); }, kSkip,
     "its library offers fewer fields"},
    {"create_cq_ex", "no entries", negative, EINVAL, [](Stage& s) { return cq_ex(s, [](auto& x) { x.cqe = 0; }); }},
    {"resize_cq", "no entries", value, EINVAL, [](Stage& s) { return returned(ibv_resize_cq(s.on_channel, 0)); }},
    {"resize_cq", "more entries than the device has", value, EINVAL,
     [](Stage& s) { return returned(ibv_resize_cq(s.on_channel, s.device.max_cqe + 1)); }},
    {"destroy_cq", "in use", value, EBUSY, [](Stage& s) { return returned(ibv_destroy_cq(s.a.cq)); }},
    {"destroy_comp_channel", "in use", value, EBUSY, [](Stage& s) { return returned(ibv_destroy_comp_channel(s.channel)); }},
    {"get_cq_event", "none, O_NONBLOCK", negative, EAGAIN,
     [](Stage& s) {
         ibv_cq* from = nullptr;
         void* user = nullptr;
         return minus_one(ibv_get_cq_event(s.channel, &from, &user));
     }},
    // ---- SRQs ----
    {"create_srq", "no entries", negative, EINVAL, [](Stage& s) { return srq(s, [](auto& x, auto&) { x.attr.max_wr = 0; }); }},
    {"create_srq", "more entries than the device has", negative, EINVAL,
     [](Stage& s) { return srq(s, [](auto& x, auto& d) { x.attr.max_wr = uint32_t(d.max_srq_wr) + 1; }); }},
    {"create_srq", "more SGEs than the device has", negative, EINVAL,
     [](Stage& s) { return srq(s, [](auto& x, auto& d) { x.attr.max_sge = uint32_t(d.max_srq_sge) + 1; }); }},
    {"modify_srq", "a limit above the depth", value, EINVAL,
     [](Stage& s) { return modify_srq(s, IBV_SRQ_LIMIT, [](auto& x, auto&) { x.srq_limit = 100000; }); }},
    {"modify_srq", "no entries", value, EINVAL, [](Stage& s) { return modify_srq(s, IBV_SRQ_MAX_WR, [](auto&, auto&) {}); }},
    {"modify_srq", "more entries than the device has", value, EINVAL,
     [](Stage& s) { return modify_srq(s, IBV_SRQ_MAX_WR, [](auto& x, auto& d) { x.max_wr = uint32_t(d.max_srq_wr) + 1; }); }},
    {"modify_srq", "an unknown attribute", value, EINVAL, [](Stage& s) { return modify_srq(s, 1 << 7, [](auto&, auto&) {}); }, 0,
     "the kernel ignores attributes that it does not know"},
    {"destroy_srq", "in use", value, EBUSY, [](Stage& s) { return returned(ibv_destroy_srq(s.srq)); }},
    // ---- address handles ----
    {"create_ah", "no GRH", negative, EINVAL, [](Stage& s) { return ah(s, [](auto& x) { x.is_global = 0; }); }},
    {"create_ah", "port 0", negative, EINVAL, [](Stage& s) { return ah(s, [](auto& x) { x.port_num = 0; }); }},
    {"create_ah", "a port that is not there", negative, EINVAL, [](Stage& s) { return ah(s, [](auto& x) { x.port_num = 9; }); }},
    {"create_ah", "an empty GID index", negative, ENODATA,
     [](Stage& s) { return ah(s, [](auto& x) { x.grh.sgid_index = 15; }); }},
    {"create_ah", "no destination", negative, EINVAL, [](Stage& s) { return ah(s, [](auto& x) { x.grh.dgid = {}; }); }, kSkip,
     "the route to it decides"},
    {"init_ah_from_wc", "neither IPv4 nor IPv6", negative, EPROTONOSUPPORT, [](Stage& s) { return from_wc(s, [](auto&) {}); }},
    {"init_ah_from_wc", "an address that is not ours", negative, ENOENT,
     [](Stage& s) {
         return from_wc(s, [](ibv_grh& grh) {
             grh.version_tclass_flow = htobe32(6u << 28);
             grh.next_hdr = 17;
             grh.dgid.raw[0] = 0xfc;
         });
     },
     kSkip, "it answers EINVAL or ENOENT, as its GID table is read"},
};

}  // namespace

std::span<const Row> object_rows() { return kRows; }

}  // namespace verbs_test
