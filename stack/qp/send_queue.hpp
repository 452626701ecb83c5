// The work requests of a requester that were fetched and are not complete, and the cursor at the next packet to send. Only
// SendQueue adds and removes records and moves the cursor.
#pragma once

#include <cassert>
#include <cstdint>
#include <new>

#include "base/slab.hpp"
#include "qp/send_window.hpp"
#include "qp/tables.hpp"

namespace roci::qp {

/// A fetched send WQE. The engine's copy of the WQE follows the record in memory; retransmission uses only this copy. The
/// record occupies a block of the engine's slab until the WQE completes. Only few WQEs are fetched at a time. The records
/// therefore remain in the nearest cache, whatever the number of QPs and the length of their queues.
struct alignas(64) SendRecord {
    uint32_t length = 0;   ///< message length in bytes
    uint32_t packets = 0;  ///< number of PSNs: request packets, or response packets of a READ
    Psn first_psn;
    uint32_t ssn = 0;  ///< send sequence number, compared with the limit of end-to-end credits (IBA 9.7.7.2)
    WorkKind kind = WorkKind::none;
    abi::WcStatus fault = abi::WcStatus::success;  ///< local fault; reported when the record is the oldest
    bool signaled = false, fence = false;
    /// READ or atomic: number of requests that were sent and are not answered. Only SendQueue writes this field.
    uint8_t outstanding = 0;
    bool executed = false;  ///< local operation that was executed; retransmission does not repeat the operation
    bool takes_recv = false;
    bool divided = false;  ///< READ that was divided into several requests (read_cuts.hpp)
    bool partly = false;   ///< READ of which a part was requested again; a Last packet may end that part
    abi::WcOpcode wc = abi::WcOpcode::send;
    SendRecord* next = nullptr;  ///< the record that was posted next
};
static_assert(sizeof(SendRecord) == 64);

/// Returns the engine's copy of the WQE.
inline abi::SendWqe& wqe(SendRecord& r) { return *reinterpret_cast<abi::SendWqe*>(&r + 1); }
inline const abi::SendWqe& wqe(const SendRecord& r) { return *reinterpret_cast<const abi::SendWqe*>(&r + 1); }

/// Returns the first record, from `r` on, whose PSNs include `psn`. Returns nullptr if there is no such record.
inline SendRecord* record_at(SendRecord* r, Psn psn) {
    while (r != nullptr && psn_span(r->first_psn, psn) >= r->packets) r = r->next;
    return r;
}

/// The fetched part of a client's send queue. Its indices into the client's ring are free-running, with tail <= cursor <=
/// fetched.
class SendQueue {
public:
    uint32_t tail() const { return tail_; }        ///< oldest WQE that is not completed
    uint32_t fetched() const { return fetched_; }  ///< next WQE to be fetched from the client's ring
    uint32_t length() const { return fetched_ - tail_; }
    bool empty() const { return tail_ == fetched_; }
    bool all_sent() const { return cursor_ == fetched_; }
    /// Returns true if all records before the cursor are complete.
    bool at_oldest() const { return tail_ == cursor_; }
    uint32_t cursor() const { return cursor_; }  ///< WQE of the packet to be sent next
    bool within_message() const { return packet_ != 0; }
    uint32_t packet() const { return packet_; }       ///< index of the next packet to be sent, within the record at the cursor
    SendRecord* oldest() const { return oldest_; }    ///< record at tail; nullptr if there is none
    SendRecord* current() const { return current_; }  ///< record at the cursor; nullptr if all are sent
    uint32_t reads_outstanding() const { return reads_outstanding_; }
    bool attached() const { return records_ != nullptr; }

    /// Sets the slab of the records. The caller has reserved blocks for the whole queue in this slab.
    void attach(Slab* records) { records_ = records; }
    Slab* detach() { return std::exchange(records_, nullptr); }
    /// Appends a record for a WQE. The caller fills in the copy of the WQE and then calls admit().
    SendRecord& append() {
        auto& r = *new (records_->take()) SendRecord;
        (oldest_ != nullptr ? newest_->next : oldest_) = &r;
        newest_ = &r;
        if (current_ == nullptr) current_ = &r;
        ++fetched_;
        return r;
    }
    /// Removes the oldest record, which is complete.
    void drop_oldest() {
        SendRecord* r = oldest_;
        assert(r != nullptr);
        reads_outstanding_ = uint8_t(reads_outstanding_ - r->outstanding);
        oldest_ = r->next;
        if (current_ == r) current_ = r->next;
        ++tail_;
        records_->give_back(r);
    }
    void drop_all() {
        while (oldest_ != nullptr) drop_oldest();
        rewind({});
    }
    /// Records that the packet at the cursor, which uses `psns` PSNs, was sent.
    void sent(uint32_t psns) {
        SendRecord& r = *current_;
        if (needs_response(r.kind)) {
            ++r.outstanding;
            ++reads_outstanding_;
        }
        packet_ += psns;
        if (packet_ >= r.packets) advance();
    }
    /// Called when the oldest record, a READ that was divided into several requests, has all responses of one request.
    void part_answered() {
        if (oldest_->outstanding == 0) return;  // the QP has gone back, and the request was not sent again
        --oldest_->outstanding;
        --reads_outstanding_;
    }
    /// Called when a further request of the READ at the cursor was sent. The peer's MSN counts the requests, so the SSNs of all
    /// later records increase.
    void count_part() {
        for (SendRecord* r = current_->next; r != nullptr; r = r->next) ++r->ssn;
    }
    /// Moves the cursor to the next record. Called when the record at the cursor was sent, or executed as a local operation.
    void advance() {
        ++cursor_;
        current_ = current_->next;
        packet_ = 0;
    }
    /// Returns true if records at the cursor were completed, so the cursor is before the oldest record.
    bool behind() const { return int32_t(cursor_ - tail_) < 0; }
    /// Moves the cursor to `acked`, the oldest unacknowledged PSN.
    void rewind(Psn acked) {
        cursor_ = tail_;
        current_ = oldest_;
        packet_ = oldest_ == nullptr ? 0 : psn_span(oldest_->first_psn, acked);
    }
    /// Marks all outstanding READs and atomics as not sent.
    void forget_requests() {
        for (SendRecord* r = oldest_; r != nullptr && reads_outstanding_ != 0; r = r->next) {
            reads_outstanding_ = uint8_t(reads_outstanding_ - r->outstanding);
            r->outstanding = 0;
        }
    }
    /// For the transition to RESET: drops all records. The client's ring begins at index 0 again.
    void reset() {
        drop_all();
        *this = SendQueue(records_);
    }

    /// Returns a description of a violated invariant, or nullptr. `window` contains the PSNs of the same requester. The QP must
    /// be in RTS or SQD.
    const char* check(const SendWindow& window) const;

    SendQueue() = default;

private:
    explicit SendQueue(Slab* records) : records_(records) {}

    uint32_t tail_ = 0, cursor_ = 0, packet_ = 0, fetched_ = 0;
    SendRecord* oldest_ = nullptr;
    SendRecord* current_ = nullptr;
    SendRecord* newest_ = nullptr;
    Slab* records_ = nullptr;  ///< slab of the engine for WQEs of this stride; nullptr before attach() and after detach()
    uint8_t reads_outstanding_ = 0;
};

}  // namespace roci::qp
