// The pool for frames that arrive before an earlier frame. The pool keeps the frame itself if the port lends frames, else a copy.
// A port lends a limited number of frames, because a port could not receive the missing frame if all its receive buffers were
// kept. There is one pool per engine. A QP may use a fraction of the free frames, so that no peer can exhaust the pool for other
// QPs.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/slab.hpp"
#include "base/timer_wheel.hpp"
#include "base/types.hpp"
#include "io/port.hpp"
#include "qp/asked.hpp"
#include "wire/loss_report.hpp"
#include "wire/packet.hpp"

namespace roci::qp {

struct ReorderLimits {
    uint32_t frames = 1024;     ///< limit of the distance of a kept frame from the missing PSN; power of two; 0: keep none
    uint64_t bytes = 32 << 20;  ///< size of the engine's pool
};

struct ReorderCounters {
    uint64_t kept = 0, delivered = 0;
    uint64_t duplicates = 0;       ///< copies of frames that were kept already
    uint64_t beyond = 0;           ///< frames not kept: ReorderLimits::frames or more PSNs behind the missing PSN
    uint64_t share = 0;            ///< frames not kept: the QP has used its share of the pool
    uint64_t no_memory = 0;        ///< allocations that failed: the pool or its memory is exhausted
    uint64_t late = 0;             ///< frames that were reported as missing but were only late
    uint64_t inquiries = 0;        ///< inquiries sent, which request loss reports
    uint64_t reports_sent = 0;     ///< loss reports sent
    uint64_t reports_used = 0;     ///< loss reports of peers that were used
    uint64_t reports_refused = 0;  ///< malformed, contradictory or unsolicited loss reports and inquiries
    uint64_t bad_icrc = 0;         ///< kept frames that were dropped because their ICRC was wrong
    uint64_t freed = 0;            ///< kept frames that were freed without execution, for example at a reset of the QP
};

/// A frame that the engine executes now. `frame` is nullptr if the frame belongs to a port of another engine, and after the pool
/// has taken the frame. The engine then does not return the frame to the port.
struct Arrival {
    const io::RxFrame* frame = nullptr;
    uint32_t port = 0;
};

/// A parsed frame that is kept. `packet` points into `lent` or into `copy`.
struct KeptFrame {
    wire::Packet packet;
    uint8_t* copy = nullptr;  ///< nullptr: the frame is lent by a port
    io::RxFrame lent;
    uint32_t port = 0;  ///< port that lends the frame
};

struct Reorder;

class ReorderPool {
public:
    /// Memory of a kept frame whose bytes are copied. ReorderLimits::bytes counts each kept frame as this number of bytes.
    static constexpr size_t kFrameBytes = sizeof(KeptFrame) + wire::kMaxFrame;

    uint32_t keepers = 0;  ///< number of QPs that keep requests (Qp::keeps_requests)

    /// `ports` are the engine's ports, which must outlive the kept frames.
    ReorderPool(ChunkSource& memory, const ReorderLimits& limits, std::span<io::Port* const> ports = {});

    /// Keeps a frame: takes the arrival from its port if the port lends further frames, else copies the frame. If the frame
    /// cannot be kept, counts the reason and returns nullptr. `has` is the number of frames of the same direction (requests or
    /// responses) that the QP keeps already.
    KeptFrame* keep(const wire::Packet& p, uint32_t has, Arrival& arrival);
    /// Allocates an empty table of pointers to frames for one direction of a QP. Returns nullptr if memory is exhausted.
    KeptFrame** take_places();
    void give_back(KeptFrame** places) noexcept { places_.give_back(places); }
    /// Allocates the reorder state of a QP. Returns nullptr if memory is exhausted.
    Reorder* make(void* owner);
    void give_back(Reorder* r) noexcept { reorders_.give_back(r); }

    uint32_t window() const { return limits_.frames; }
    size_t in_use() const { return frames_.taken(); }
    size_t capacity() const { return capacity_; }
    /// Returns an upper limit of the number of frames that a QP keeps per direction (requests or responses).
    size_t most_per_qp() const { return std::max<size_t>(capacity_ / kPart, 1); }
    void count(uint64_t ReorderCounters::*what, uint64_t n = 1) {
        counters_.*what += n;
        counted_ = true;
    }
    const ReorderCounters& counters() const { return counters_; }
    /// Returns true if any counter changed since the last call.
    bool take_counted() { return std::exchange(counted_, false); }

private:
    friend class ReturnedFrames;
    struct Lender {
        io::Port* port;
        uint32_t left;  ///< number of frames that the port still lends
    };
    /// A QP may keep one frame. It may keep more frames per direction only up to the number of free frames divided by this
    /// number. With the default limits, a single QP can thus keep a whole window of frames. If many QPs lose frames at the same
    /// time, each QP can still keep some.
    static constexpr size_t kPart = 4;
    static bool copy(const wire::Packet& p, KeptFrame& to, Slab& copies);

    ReorderCounters counters_;
    bool counted_ = false;
    ReorderLimits limits_;
    size_t capacity_;              ///< in frames
    std::vector<Lender> lenders_;  ///< by port
    Slab frames_, copies_, places_, reorders_;
};

/// Returns kept frames to the pool, and lent frames to their ports in bursts, because a port needs less time per frame for a
/// burst. The destructor returns the last burst.
class ReturnedFrames {
public:
    explicit ReturnedFrames(ReorderPool& pool) : pool_(pool) {}
    ReturnedFrames(const ReturnedFrames&) = delete;
    ~ReturnedFrames() { flush(); }
    void add(KeptFrame* frame) noexcept;

private:
    static constexpr uint32_t kBurst = 32;
    io::RxFrame* frames() { return reinterpret_cast<io::RxFrame*>(frames_.data()); }
    void flush() noexcept;

    ReorderPool& pool_;
    uint32_t port_ = 0, count_ = 0;
    alignas(io::RxFrame) std::array<std::byte, kBurst * sizeof(io::RxFrame)> frames_;  // not initialised, which would cost more
};

/// A frame that was reported as missing and has arrived since. If the frame arrives a second time, the first copy was only
/// late.
struct Suspect {
    Psn psn;
    uint16_t places = 0;  ///< number of frames that overtook this frame
    Nanos lateness = 0;   ///< time from Backlog::opened to the arrival of this frame, ns
    bool valid = false;
};

/// The limits after which a QP treats a missing frame as lost: a number of frames that overtake the missing frame, or a time.
/// Both limits adapt to the network. The limits grow when a frame that was treated as lost was only late, and shrink while
/// frames are really lost.
class Patience {
public:
    static constexpr uint16_t kFewest = 3, kMost = 128;                      ///< limits of the number of overtaking frames
    static constexpr Nanos kShortest = 8 * 4096, kLongest = Nanos{1} << 21;  ///< limits of the time: 33 us and 2.1 ms

    bool exhausted(uint32_t places, Nanos waited) const { return places > places_ || waited >= wait_; }
    uint16_t places() const { return places_; }
    Nanos wait() const { return wait_; }
    /// Called when a frame that was reported as missing arrives. `places` is the number of frames that overtook this frame.
    /// `lateness` is the delay of this frame in ns.
    void arrived(Psn psn, uint32_t places, Nanos lateness);
    /// Called for a duplicate. Returns true if the first copy was late, not lost.
    bool repeated(Psn psn);

private:
    static constexpr uint8_t kCalm = 16;        ///< number of really lost frames after which the limits shrink
    static constexpr uint32_t kSettled = 1024;  ///< number of PSNs after which a second copy would have arrived
    uint16_t places_ = kFewest;
    uint8_t next_ = 0, calm_ = 0;
    Nanos wait_ = kShortest;
    std::array<Suspect, 8> suspects_{};
};

/// If a gap is not closed within this time, the kept frames are freed, because the peer has probably ended or started again.
inline constexpr Nanos kStalled = Nanos{1} << 29;  // 0.5 s

/// The kept frames of one direction of a QP. `base` is the first missing PSN. All kept frames are behind `base`.
struct Backlog {
    KeptFrame** places = nullptr;  ///< indexed by PSN modulo the window; nullptr if nothing is kept
    uint32_t count = 0;
    Psn base;
    Psn first, end;      ///< PSN of the first kept frame, and one past the PSN of the last kept frame
    bool asked = false;  ///< the gap at `base` was reported, or its responses were requested again
    /// Frames before this PSN were requested more than once. `patience` ignores the arrival of these frames. A second copy of
    /// such a frame may answer a repeated request and does not prove that the first copy was late.
    Psn again;
    Nanos opened = 0;  ///< time from which the limits of the gap at `base` count
    Patience patience;
};

/// Returns true if the backlog contains `psn`. `psn` must be less than `window` PSNs behind `base`.
inline bool keeps(const Backlog& b, uint32_t window, Psn psn) {
    const KeptFrame* k = b.count == 0 ? nullptr : b.places[psn.value() & (window - 1)];
    return k != nullptr && k->packet.psn == psn;
}

/// Returns the first range of missing PSNs at or behind `from`. The result has length 0 if no PSN from `from` to the last kept
/// frame is missing.
Hole hole_from(const Backlog& b, uint32_t window, Psn from);

/// The missing responses of a requester that keeps later responses (missing.cpp).
struct Missing {
    Asked asked;
    Psn frontier;           ///< holes before this PSN count as lost and are requested again
    Psn hole;               ///< the first hole behind the frontier
    Nanos since = 0;        ///< time when `hole` was detected
    bool waits = false;     ///< the responses of `hole` may only be late
    bool request = false;   ///< the request `named` is to be sent again
    Psn named;              ///< request that a kept NAK reports as missing
    uint64_t examined = 0;  ///< number of PSNs examined in the search for holes; tests limit this work
};

/// The state of the loss reports between a QP and its peer (loss_reports.cpp).
struct LossReports {
    enum class Peer : uint8_t {
        unknown,  ///< the peer has not answered an inquiry
        reports,  ///< the peer sends reports
        refused,  ///< kMostWrong reports contradicted what was sent; further reports are ignored until the QP is reset
    };
    static constexpr uint8_t kMostWrong = 8;  ///< limit of `wrong`; not 1, because other hosts can forge reports
    static constexpr uint8_t kMostInquiries = 3;
    static constexpr uint8_t kMostAnswers = 8;  ///< limit of `answers`, because answers are sent outside of the QP's turns
    // ---- requester
    Peer peer = Peer::unknown;
    uint8_t inquiries = 0;  ///< number of inquiries sent
    uint8_t wrong = 0;      ///< number of reports that contradicted what was sent
    uint32_t inquired_at = 0;
    wire::LossReport known;  ///< the newest report of the peer
    Asked repeated;          ///< packets that were sent again
    // ---- responder
    uint8_t answers = 0;  ///< number of inquiries that were answered
    bool wanted = false;  ///< the peer has sent an inquiry
    bool due = false;     ///< a report is to be sent
    bool waits = false;   ///< the packets of `hole` may only be late
    uint16_t serial = 0;  ///< serial number of the last report sent
    Psn frontier;         ///< holes before this PSN count as lost and are reported
    Psn hole;             ///< the first hole behind the frontier
    Psn newest;           ///< newest PSN of the last report
    Nanos since = 0;      ///< time when `hole` was detected
};

/// The reorder state of a QP. This object exists from the first frame out of order, or the first inquiry for loss reports,
/// until the QP is reset, fails or is removed.
struct Reorder {
    Timer timer;
    Backlog requests, responses;
    Missing missing;
    LossReports reports;
    /// The newest ACK or NAK that arrived while an earlier response was missing. This packet is not kept in `responses`,
    /// because a response may have the same PSN.
    wire::Packet ack;
    bool has_ack = false;
};

}  // namespace roci::qp
