// Tag matching SRQs: additional steps of create_srq, and the send queues of the QPs that use such an SRQ.
#pragma once

#include "host/call.hpp"
#include "host/objects/queue_memory.hpp"

namespace roci::host::objects {

inline constexpr uint32_t kTagMatchingSrq = 2;  ///< IBV_SRQT_TM of enum ibv_srq_type

/// The limits that the device reports. create_srq enforces max_num_tags and max_ops.
inline constexpr abi::TagCaps kTagCaps{.max_rndv_hdr_size = qp::kMaxRndvRequest,
                                       .max_num_tags = 1024,
                                       .flags = 1,  // IBV_TM_CAP_RC
                                       .max_ops = 1024,
                                       .max_sge = abi::kMaxTagSge,
                                       .reserved = 0};

/// Limit of QPs per session. The handle of a QP is also the QP's doorbell slot. So all handles must be below kFirstTagSlot, the
/// first slot of tag matching SRQs. HandleTable keeps up to kRest freed handles unused. One further slot is a reserve.
inline constexpr uint32_t kQpSlots = abi::kFirstTagSlot - uint32_t(HandleTable<Qp>::kRest) - 1;

/// For a tag matching SRQ, allocates the ring of operations and a doorbell slot, and takes a reference to the CQ. The caller has
/// set spec.engine. Does nothing for other types of SRQs.
Outcome add_tag_matching(Call& c, const abi::CreateSrqRequest& in, Srq& srq, qp::SrqSpec& spec, abi::TagQueue& reply);
/// Checks the type and PD of a QP that uses a tag matching SRQ. If `srq` is nullptr or of another type, accepts every request.
Outcome check_tag_qp(const abi::CreateQpRequest& in, const Pd& pd, const Srq* srq);
inline bool matches_tags(const Srq* srq) { return srq != nullptr && srq->spec().tags.shared != nullptr; }
/// Returns the capabilities of the send queue of a QP with a tag matching SRQ. rocid posts the READs and FINs of matched
/// rendezvous messages to this send queue. The client cannot post to this send queue.
abi::QpCap rendezvous_cap();

}  // namespace roci::host::objects
