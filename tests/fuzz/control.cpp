// Control messages of a hostile client with two sessions to a conductor (rocid's control thread) with a running engine. Every
// reply must be well formed. After the end of the sessions, none of their objects may be left, and the objects of a bystander
// (rig.hpp) must work.
#include <cstring>

#include "abi/op_names.hpp"
#include "control_seeds.hpp"
#include "records.hpp"
#include "targets.hpp"

namespace roci::fuzz::control {
namespace {

using abi::Op;

constexpr size_t kOps = size_t(Op::last_op);
enum : size_t { kRefused = kOps, kDeferred, kClosed, kOther };

class Intruder {
public:
    explicit Intruder(Rig& rig) : rig_(rig), memory_(kMemory) {}
    ~Intruder() {
        for (Session& s : sessions_) close(s);
    }

    void apply(const Record& r, Reach& reach) {
        Fields f(r.body);
        if (r.kind == kRun) return run(1'000 * uint64_t(f.u16()), reach);
        Session& s = sessions_[f.u8() % kSessions];
        const uint8_t fds = f.u8();
        if (r.kind == kClose) return close(s);
        if (s.id == abi::kNoHandle) open(s);
        if (s.waits || s.id == abi::kNoHandle) return;
        std::vector<std::byte> packet;
        if (r.kind != kRaw) {
            const abi::RequestHeader head{Op(r.kind), 0, kCookie};
            const auto* p = reinterpret_cast<const std::byte*>(&head);
            packet.assign(p, p + sizeof head);
        }
        const auto body = std::as_bytes(f.rest());
        packet.insert(packet.end(), body.begin(), body.end());
        send(s, r.kind, packet, fds, reach);
        run(1'000, reach);
    }
    void end(Reach& reach) {
        run(200'000, reach);
        for (Session& s : sessions_) close(s);
        run(200'000, reach);
    }

private:
    struct Session {
        uint32_t id = abi::kNoHandle;
        int pid = 0;
        bool waits = false;  ///< its reply is deferred
    };

    void open(Session& s) {
        s.pid = rig_.host().platform().new_pid();
        s.id = rig_.host().serviced().open_session({.pid = s.pid, .uid = kHostile});
        s.waits = false;
    }
    void close(Session& s) {
        if (s.id == abi::kNoHandle) return;
        rig_.host().platform().end_process(s.pid);
        rig_.host().close_session(s.id);
        s.id = abi::kNoHandle;
    }
    void run(Nanos time, Reach& reach) {
        rig_.world().run_for(time);
        host::Reply reply;
        uint32_t id = 0;
        for (bool ends = false; rig_.host().conductor().next_reply(id, reply, ends);) {
            for (Session& s : sessions_) {
                if (s.id != id) continue;
                require(s.waits, "only a request without a reply gets one later");
                s.waits = false;
                take(s, reply, ends, kOther, reach);
            }
        }
    }

    /// Creates the descriptors of a packet. The low two bits of `form` are the number of descriptors. The next two bits select
    /// their kind: memory of the client, memory that is too short, a chunk for queues, or a number that is no descriptor.
    std::vector<int> descriptors(uint8_t form, std::span<const std::byte> packet) {
        std::vector<int> fds;
        auto& platform = rig_.host().platform();
        for (int n = form & 3; n > 0; --n) {
            std::string why;
            uint64_t length = 0;
            if (packet.size() >= sizeof(abi::RequestHeader) + sizeof length)
                std::memcpy(&length, packet.data() + sizeof(abi::RequestHeader), sizeof length);
            switch (form >> 2 & 3) {
                case 0:
                    fds.push_back(platform.lend(memory_.data(), kMemory));
                    break;
                case 1:
                    fds.push_back(platform.lend(memory_.data(), 4096));
                    break;
                case 2:
                    fds.push_back(platform.make_memory(std::min<uint64_t>(length, kLargestChunk), why).fd);
                    chunks_.push_back(fds.back());
                    break;
                default:
                    fds.push_back(12345);
            }
        }
        return fds;
    }
    /// Frees chunks that the conductor did not take over.
    void free_chunks(bool taken) {
        auto& platform = rig_.host().platform();
        for (const int fd : std::exchange(chunks_, {}))
            if (!taken && platform.memory_of(fd) != nullptr) platform.free_memory({platform.memory_of(fd), 0, fd});
    }

    host::Reply handle(Session& s, std::span<const std::byte> packet, std::span<const int> fds, bool& ends) {
        ends = false;
        return rig_.host().serviced().handle(s.id, packet, fds, ends);
    }
    /// Sends a packet. If the reply asks for a chunk, adds the chunk and sends the packet again, as a client does.
    void send(Session& s, uint8_t kind, const std::vector<std::byte>& packet, uint8_t form, Reach& reach) {
        bool ends = false;
        host::Reply reply = handle(s, packet, descriptors(form, packet), ends);
        if (reply.deferred) {
            s.waits = true;
            reach(kDeferred);
            return;
        }
        const abi::ReplyHeader h = take(s, reply, ends, kind, reach);
        free_chunks(Op(kind) == Op::add_chunk && h.error == 0);
        if (h.wanted_chunk == 0 || h.wanted_chunk > kLargestChunk || !add_chunk(s, h.wanted_chunk)) return;
        reply = handle(s, packet, {}, ends);
        if (!reply.deferred) take(s, reply, ends, kind, reach);
        s.waits = reply.deferred;
    }
    bool add_chunk(Session& s, uint64_t length) {
        std::string why;
        auto& platform = rig_.host().platform();
        const host::SharedMemory chunk = platform.make_memory(length, why);
        struct {
            abi::RequestHeader head{Op::add_chunk, 0, kCookie};
            abi::AddChunkRequest body;
        } request{.body = {length}};
        bool ends = false;
        const host::Reply reply = handle(s, std::as_bytes(std::span(&request, 1)), std::span(&chunk.fd, 1), ends);
        abi::ReplyHeader h{};
        std::memcpy(&h, reply.bytes.data(), sizeof h);
        if (h.error != 0) platform.free_memory(chunk);
        return h.error == 0;
    }
    abi::ReplyHeader take(Session& s, const host::Reply& reply, bool ends, size_t op, Reach& reach) {
        abi::ReplyHeader h{};
        require(reply.bytes.size() >= sizeof h, "a reply has a header");
        std::memcpy(&h, reply.bytes.data(), sizeof h);
        require(reply.bytes.size() == sizeof h + h.body_length + h.reason_length, "a reply has the length of its parts");
        require(reply.bytes.size() <= abi::kMaxMessage, "a reply fits into a packet");
        require(reply.fds.size() == reply.shared_fds_mask.size(), "each descriptor of a reply has its mark");
        require(h.error >= 0 && (h.error != 0) == (h.reason_length != 0), "an error has a reason, success has none");
        require(h.wanted_chunk == 0 || h.error == ENOMEM, "only a request without memory needs a chunk");
        reach(h.error != 0 ? size_t(kRefused) : op < kOps ? op : size_t(kOther));
        if (ends) reach(kClosed), close(s);
        return h;
    }

    static constexpr uint32_t kCookie = 0x5eed;
    static constexpr size_t kSessions = 2, kMemory = 80 << 10;
    static constexpr uint64_t kLargestChunk = 4 << 20;
    Rig& rig_;
    Session sessions_[kSessions];
    std::vector<std::byte> memory_;  ///< memory that the client passes to rocid
    std::vector<int> chunks_;        ///< chunks of the packet that is sent now
};

/// The simulator has neither captures nor a counter page.
bool needs_rocid(Op op) { return op == Op::start_capture || op == Op::stop_capture || op == Op::counters; }

}  // namespace

void run(Input in, Reach& reach) {
    Rig rig(1, 2);
    {
        Intruder intruder(rig);
        RecordReader reader(in);
        for (Record r; reader.next(r);) intruder.apply(r, reach);
        intruder.end(reach);
    }
    rig.require_only_bystander();
    rig.exchange();
    rig.end();
}

std::vector<Outcome> outcomes() {
    std::vector<Outcome> all = {{kRefused, "refused"}, {kDeferred, "deferred"}, {kClosed, "session closed by rocid"}};
    for (size_t op = 1; op < kOps; ++op)
        if (!needs_rocid(Op(op))) all.push_back({op, abi::op_name(Op(op))});
    return all;
}

}  // namespace roci::fuzz::control
