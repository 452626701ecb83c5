// Communication management messages in MADs on QP 1 (IBA 12.6, 12.11). Each message is a struct. encode() and decode() use the
// same list of fields per message. decode() cannot fail after parse_header() has accepted the header, because decode() accepts
// every value of a field. The manager checks the values.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/types.hpp"

namespace roci::cm {

inline constexpr uint32_t kMadLength = 256;
inline constexpr uint32_t kMadHeader = 24;
/// QP 1 and its well-known Q_Key (IBA 10.2.5, 13.3.1).
inline constexpr Qpn kGsiQpn{1};
inline constexpr uint32_t kGsiQkey = 0x80010000;
inline constexpr uint16_t kPermissiveLid = 0xffff;  ///< RoCE has no LIDs

using Mad = std::array<uint8_t, kMadLength>;

/// Attribute IDs of the communication management class (IBA table 106).
enum class Attribute : uint16_t { req = 0x10, mra, rej, rep, rtu, dreq, drep, sidr_req, sidr_rep, lap, apr };
const char* attribute_name(Attribute a);

struct Header {
    uint64_t transaction = 0;
    Attribute attribute = Attribute::req;
};
/// Returns false if the MAD is too short, is not of the communication management class, or has an unsupported version or method.
bool parse_header(std::span<const uint8_t> mad, Header& out);

/// Reasons for the rejection of a connection (IBA table 115). A peer may also send other values.
enum class Reason : uint16_t {
    no_qp = 1,
    no_eec = 2,
    no_resources = 3,
    timeout = 4,
    unsupported = 5,
    invalid_comm_id = 6,
    invalid_comm_instance = 7,
    invalid_service_id = 8,
    invalid_transport = 9,
    stale_connection = 10,
    rdc_not_supported = 11,
    invalid_gid = 12,
    invalid_lid = 13,
    invalid_sl = 14,
    invalid_traffic_class = 15,
    invalid_hop_limit = 16,
    invalid_packet_rate = 17,
    invalid_alt_gid = 18,
    invalid_mtu = 26,
    insufficient_resources = 27,
    consumer = 28,
    duplicate_local_comm_id = 30,
    unsupported_class_version = 31,
};

/// The message to which an MRA or REJ responds (IBA 12.6.6, 12.6.7).
enum class Answered : uint8_t { req = 0, rep = 1, other = 2 };

struct PathFields {
    uint16_t local_lid = kPermissiveLid, remote_lid = kPermissiveLid;
    Gid local_gid, remote_gid;
    uint32_t flow_label = 0;
    uint8_t packet_rate = 0, traffic_class = 0, hop_limit = 0, sl = 0;
    uint8_t subnet_local = 0;
    uint8_t ack_timeout = 0;  ///< 4.096 us * 2^n
};

enum class Service : uint8_t { rc = 0, uc = 1, rd = 2, extended = 3 };
inline constexpr uint8_t kExtendedXrc = 1;

struct Req {
    static constexpr Attribute kAttribute = Attribute::req;
    uint32_t local_comm_id = 0;
    uint64_t service_id = 0;
    uint64_t ca_guid = 0;  ///< in host byte order
    uint32_t qkey = 0, qpn = 0;
    uint8_t responder_resources = 0, initiator_depth = 0;
    uint8_t remote_response_timeout = 0, local_response_timeout = 0;
    Service service = Service::rc;
    uint8_t flow_control = 0;
    uint32_t psn = 0;
    uint8_t retry_count = 0, rnr_retry_count = 0;
    uint16_t pkey = 0xffff;
    uint8_t mtu = 0;  ///< a value of enum ibv_mtu
    uint8_t max_cm_retries = 0;
    uint8_t srq = 0, extended_transport = 0;
    PathFields primary;
    PathFields alternate{0, 0, {}, {}};
    std::array<uint8_t, 92> private_data{};
};
struct Mra {
    static constexpr Attribute kAttribute = Attribute::mra;
    uint32_t local_comm_id = 0, remote_comm_id = 0;
    Answered message = Answered::req;
    uint8_t service_timeout = 0;
    std::array<uint8_t, 222> private_data{};
};
struct Rej {
    static constexpr Attribute kAttribute = Attribute::rej;
    uint32_t local_comm_id = 0, remote_comm_id = 0;
    Answered message = Answered::req;
    uint8_t info_length = 0;
    Reason reason = Reason::consumer;
    std::array<uint8_t, 72> info{};
    std::array<uint8_t, 148> private_data{};
};
struct Rep {
    static constexpr Attribute kAttribute = Attribute::rep;
    uint32_t local_comm_id = 0, remote_comm_id = 0;
    uint32_t qkey = 0, qpn = 0, psn = 0;
    uint8_t responder_resources = 0, initiator_depth = 0;
    uint8_t target_ack_delay = 0, failover_accepted = 0, flow_control = 0, rnr_retry_count = 0, srq = 0;
    uint64_t ca_guid = 0;
    std::array<uint8_t, 196> private_data{};
};
struct Rtu {
    static constexpr Attribute kAttribute = Attribute::rtu;
    uint32_t local_comm_id = 0, remote_comm_id = 0;
    std::array<uint8_t, 224> private_data{};
};
struct Dreq {
    static constexpr Attribute kAttribute = Attribute::dreq;
    uint32_t local_comm_id = 0, remote_comm_id = 0, remote_qpn = 0;
    std::array<uint8_t, 220> private_data{};
};
struct Drep {
    static constexpr Attribute kAttribute = Attribute::drep;
    uint32_t local_comm_id = 0, remote_comm_id = 0;
    std::array<uint8_t, 224> private_data{};
};
struct SidrReq {
    static constexpr Attribute kAttribute = Attribute::sidr_req;
    uint32_t request_id = 0;
    uint16_t pkey = 0xffff;
    uint64_t service_id = 0;
    std::array<uint8_t, 216> private_data{};
};
/// Status of a SIDR_REP (IBA table 121).
enum class SidrStatus : uint8_t {
    valid = 0,
    invalid_service_id = 1,
    rejected = 2,
    no_qp = 3,
    redirect = 4,
    unsupported_version = 5
};
struct SidrRep {
    static constexpr Attribute kAttribute = Attribute::sidr_rep;
    uint32_t request_id = 0;
    SidrStatus status = SidrStatus::valid;
    uint8_t info_length = 0;
    uint32_t qpn = 0;
    uint64_t service_id = 0;
    uint32_t qkey = 0;
    std::array<uint8_t, 72> info{};
    std::array<uint8_t, 136> private_data{};
};

/// Returns a whole MAD. mad.cpp instantiates encode() and decode() for the messages above.
template <class Message>
Mad encode(uint64_t transaction, const Message& message);
template <class Message>
Message decode(const Mad& mad);

}  // namespace roci::cm
