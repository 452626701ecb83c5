#include "cm/mad.hpp"

#include <cstring>
#include <type_traits>

#include "base/bytes.hpp"

namespace roci::cm {
namespace {

constexpr uint8_t kBaseVersion = 1, kClass = 7, kClassVersion = 2, kMethodSend = 3;

/// Returns bits [at, at + count) of a big-endian bit string.
uint64_t get_bits(const uint8_t* p, uint32_t at, uint32_t count) {
    uint64_t v = 0;
    for (uint32_t i = at; i < at + count; ++i) v = v << 1 | (p[i / 8] >> (7 - i % 8) & 1u);
    return v;
}
void put_bits(uint8_t* p, uint32_t at, uint32_t count, uint64_t v) {
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t bit = at + count - 1 - i;
        const auto mask = uint8_t(0x80 >> bit % 8);
        p[bit / 8] = uint8_t((v >> i & 1) != 0 ? p[bit / 8] | mask : p[bit / 8] & ~mask);
    }
}

/// Decodes the fields of a message. Reader and Writer have the same functions: field() for `count` bits from the bit `at` on, and
/// block() for an array from the byte `at` on.
struct Reader {
    const uint8_t* data;
    template <class T>
    void field(uint32_t at, uint32_t count, T& value) const {
        value = T(get_bits(data, at, count));
    }
    template <size_t N>
    void block(uint32_t at, std::array<uint8_t, N>& bytes) const {
        std::memcpy(bytes.data(), data + at, N);
    }
};
struct Writer {
    uint8_t* data;
    template <class T>
    void field(uint32_t at, uint32_t count, const T& value) const {
        put_bits(data, at, count, uint64_t(value));
    }
    template <size_t N>
    void block(uint32_t at, const std::array<uint8_t, N>& bytes) const {
        std::memcpy(data + at, bytes.data(), N);
    }
};

constexpr uint32_t bytes(uint32_t n) { return n * 8; }

/// The fields of a path, 44 bytes. A REQ contains two paths (IBA table 107).
template <class A, class P>
void path_fields(const A& a, uint32_t at, P& p) {
    a.field(bytes(at), 16, p.local_lid);
    a.field(bytes(at + 2), 16, p.remote_lid);
    a.block(at + 4, p.local_gid.bytes);
    a.block(at + 20, p.remote_gid.bytes);
    a.field(bytes(at + 36), 20, p.flow_label);
    a.field(bytes(at + 36) + 26, 6, p.packet_rate);
    a.field(bytes(at + 40), 8, p.traffic_class);
    a.field(bytes(at + 41), 8, p.hop_limit);
    a.field(bytes(at + 42), 4, p.sl);
    a.field(bytes(at + 42) + 4, 1, p.subnet_local);
    a.field(bytes(at + 43), 5, p.ack_timeout);
}

template <class A, class M>
void comm_ids(const A& a, M& m) {
    a.field(0, 32, m.local_comm_id);
    a.field(bytes(4), 32, m.remote_comm_id);
}

/// True if M is the message type T or const T.
template <class M, class T>
concept Is = std::is_same_v<std::remove_const_t<M>, T>;

// Each overload of fields() lists the fields of one message. Offsets start at the end of the MAD header.

template <class A, Is<Req> M>  // IBA table 107
void fields(const A& a, M& m) {
    a.field(0, 32, m.local_comm_id);
    a.field(bytes(8), 64, m.service_id);
    a.field(bytes(16), 64, m.ca_guid);
    a.field(bytes(28), 32, m.qkey);
    a.field(bytes(32), 24, m.qpn);
    a.field(bytes(35), 8, m.responder_resources);
    a.field(bytes(39), 8, m.initiator_depth);
    a.field(bytes(43), 5, m.remote_response_timeout);
    a.field(bytes(43) + 5, 2, m.service);
    a.field(bytes(43) + 7, 1, m.flow_control);
    a.field(bytes(44), 24, m.psn);
    a.field(bytes(47), 5, m.local_response_timeout);
    a.field(bytes(47) + 5, 3, m.retry_count);
    a.field(bytes(48), 16, m.pkey);
    a.field(bytes(50), 4, m.mtu);
    a.field(bytes(50) + 5, 3, m.rnr_retry_count);
    a.field(bytes(51), 4, m.max_cm_retries);
    a.field(bytes(51) + 4, 1, m.srq);
    a.field(bytes(51) + 5, 3, m.extended_transport);
    path_fields(a, 52, m.primary);
    path_fields(a, 96, m.alternate);
    a.block(140, m.private_data);
}

template <class A, Is<Mra> M>  // table 109
void fields(const A& a, M& m) {
    comm_ids(a, m);
    a.field(bytes(8), 2, m.message);
    a.field(bytes(9), 5, m.service_timeout);
    a.block(10, m.private_data);
}

template <class A, Is<Rej> M>  // table 111
void fields(const A& a, M& m) {
    comm_ids(a, m);
    a.field(bytes(8), 2, m.message);
    a.field(bytes(9), 7, m.info_length);
    a.field(bytes(10), 16, m.reason);
    a.block(12, m.info);
    a.block(84, m.private_data);
}

template <class A, Is<Rep> M>  // table 113
void fields(const A& a, M& m) {
    comm_ids(a, m);
    a.field(bytes(8), 32, m.qkey);
    a.field(bytes(12), 24, m.qpn);
    a.field(bytes(20), 24, m.psn);
    a.field(bytes(24), 8, m.responder_resources);
    a.field(bytes(25), 8, m.initiator_depth);
    a.field(bytes(26), 5, m.target_ack_delay);
    a.field(bytes(26) + 5, 2, m.failover_accepted);
    a.field(bytes(26) + 7, 1, m.flow_control);
    a.field(bytes(27), 3, m.rnr_retry_count);
    a.field(bytes(27) + 3, 1, m.srq);
    a.field(bytes(28), 64, m.ca_guid);
    a.block(36, m.private_data);
}

template <class A, class M>
requires Is<M, Rtu> || Is<M, Drep>
void fields(const A& a, M& m) {
    comm_ids(a, m);
    a.block(8, m.private_data);
}

template <class A, Is<Dreq> M>
void fields(const A& a, M& m) {
    comm_ids(a, m);
    a.field(bytes(8), 24, m.remote_qpn);
    a.block(12, m.private_data);
}

template <class A, Is<SidrReq> M>
void fields(const A& a, M& m) {
    a.field(0, 32, m.request_id);
    a.field(bytes(4), 16, m.pkey);
    a.field(bytes(8), 64, m.service_id);
    a.block(16, m.private_data);
}

template <class A, Is<SidrRep> M>
void fields(const A& a, M& m) {
    a.field(0, 32, m.request_id);
    a.field(bytes(4), 8, m.status);
    a.field(bytes(5), 8, m.info_length);
    a.field(bytes(8), 24, m.qpn);
    a.field(bytes(12), 64, m.service_id);
    a.field(bytes(20), 32, m.qkey);
    a.block(24, m.info);
    a.block(96, m.private_data);
}

}  // namespace

const char* attribute_name(Attribute a) {
    static constexpr const char* kNames[] = {"REQ",  "MRA",      "REJ",      "REP", "RTU", "DREQ",
                                             "DREP", "SIDR_REQ", "SIDR_REP", "LAP", "APR"};
    const size_t i = size_t(a) - size_t(Attribute::req);
    return i < std::size(kNames) ? kNames[i] : "?";
}

bool parse_header(std::span<const uint8_t> mad, Header& out) {
    if (mad.size() < kMadLength) return false;
    if (mad[0] != kBaseVersion || mad[1] != kClass || mad[2] != kClassVersion || mad[3] != kMethodSend) return false;
    out.transaction = load_be<uint64_t>(&mad[8]);
    out.attribute = Attribute(load_be<uint16_t>(&mad[16]));
    return true;
}

template <class Message>
Mad encode(uint64_t transaction, const Message& message) {
    Mad mad{};
    mad[0] = kBaseVersion;
    mad[1] = kClass;
    mad[2] = kClassVersion;
    mad[3] = kMethodSend;
    store_be<uint64_t>(&mad[8], transaction);
    store_be<uint16_t>(&mad[16], uint16_t(Message::kAttribute));
    fields(Writer{&mad[kMadHeader]}, message);
    return mad;
}

template <class Message>
Message decode(const Mad& mad) {
    Message message;
    fields(Reader{&mad[kMadHeader]}, message);
    return message;
}

#define ROCI_CM_MESSAGE(M)                      \
    template Mad encode<M>(uint64_t, const M&); \
    template M decode<M>(const Mad&);
ROCI_CM_MESSAGE(Req)
ROCI_CM_MESSAGE(Mra)
ROCI_CM_MESSAGE(Rej)
ROCI_CM_MESSAGE(Rep)
ROCI_CM_MESSAGE(Rtu)
ROCI_CM_MESSAGE(Dreq)
ROCI_CM_MESSAGE(Drep)
ROCI_CM_MESSAGE(SidrReq)
ROCI_CM_MESSAGE(SidrRep)
#undef ROCI_CM_MESSAGE

}  // namespace roci::cm
