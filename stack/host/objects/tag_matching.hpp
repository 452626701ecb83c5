// Tag matching SRQs: what create_srq does for them besides the ordinary, and what their QPs have for a send queue.
#pragma once

#include "host/call.hpp"
#include "host/objects/queue_memory.hpp"

namespace roci::host::objects {

inline constexpr uint32_t kTagMatchingSrq = 2;  ///< enum ibv_srq_type: IBV_SRQT_TM

/// What the device reports, and create_srq enforces.
inline constexpr abi::TagCaps kTagCaps{.max_rndv_hdr_size = qp::kMaxRndvRequest,
                                       .max_num_tags = 1024,
                                       .flags = 1,  // IBV_TM_CAP_RC
                                       .max_ops = 1024,
                                       .max_sge = abi::kMaxTagSge,
                                       .reserved = 0};

/// QPs of a session: their doorbell slots are their handles, of which some rest; the last slots are those of tag matching SRQs.
inline constexpr uint32_t kQpSlots = abi::kFirstTagSlot - uint32_t(HandleTable<Qp>::kRest) - 1;

/// Lays out the ring of operations, takes a doorbell slot and holds the CQ. srq.engine is set. Nothing for other types.
Outcome add_tag_matching(Call& c, const abi::CreateSrqRequest& in, Srq& srq, abi::TagQueue& reply);
/// Whether a QP can be of this SRQ.
Outcome check_tag_qp(const abi::CreateQpRequest& in, const Pd& pd, const Srq* srq);
inline bool matches_tags(const Srq* srq) { return srq != nullptr && srq->spec.tags.shared != nullptr; }
/// The send queue of a QP that belongs to its SRQ: READs and FINs of matched rendezvous, no work of the client.
abi::QpCap rendezvous_cap();

}  // namespace roci::host::objects
