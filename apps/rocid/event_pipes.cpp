#include "event_pipes.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace roci::rocid {
namespace {

/// Interval in ns of the retries while a pipe is full.
constexpr Nanos kRetry = 2'000'000;

/// Value of SO_SNDBUF, which limits the kernel memory for a channel's unread records. The kernel doubles the value.
constexpr int kSendBuffer = 64 << 10;

uint64_t key(uint32_t session, uint32_t channel) { return uint64_t(session) << 32 | channel; }

void count(std::atomic<uint64_t>& c) { c.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

EventPipes::EventPipes() = default;

EventPipes::~EventPipes() {
    stop();
    for (auto& [k, p] : pipes_) ::close(p.fd);
}

void EventPipes::start(std::vector<io::EventRing*> rings) {
    rings_ = std::move(rings);
    stop_ = false;
    for (Dispatcher& d : dispatchers_) {
        d.stop = false;
        d.thread = std::thread([this, &d] { dispatch(d); });
    }
    thread_ = std::thread([this] { run(); });
}

void EventPipes::stop() {
    if (thread_.joinable()) {
        stop_.store(true, std::memory_order_seq_cst);
        wake_.sleeper.wake();
        thread_.join();
    }
    for (Dispatcher& d : dispatchers_) {
        if (!d.thread.joinable()) continue;  // start() has failed before
        {
            const std::lock_guard lock(d.mutex);
            d.stop = true;
        }
        d.work.notify_one();
        d.thread.join();
    }
}

/// Uses a pair of sockets instead of a pipe. A hostile reader can pass a buffer whose page is never loaded (FUSE, userfaultfd).
/// While the kernel waits for the page, the reader holds the lock of a pipe, and even a non-blocking write waits for this lock. A
/// sender on a socket never waits for a lock of the receiver.
int EventPipes::make(uint32_t session, uint32_t channel) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return -1;
    // rocid never reads from this socket. Without shutdown(), messages of a client and the descriptors in the messages would
    // remain in the socket.
    shutdown(ends[1], SHUT_RD);
    setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
    close(session, channel);
    const std::lock_guard lock(mutex_);
    pipes_[key(session, channel)].fd = ends[1];
    return ends[0];
}

void EventPipes::close(uint32_t session, uint32_t channel) {
    const std::lock_guard lock(mutex_);
    const auto it = pipes_.find(key(session, channel));
    if (it == pipes_.end()) return;
    if (it->second.has_kept()) --kept_pipes_;
    ::close(it->second.fd);
    pipes_.erase(it);
}

size_t EventPipes::pipes() const {
    const std::lock_guard lock(mutex_);
    return pipes_.size();
}

bool EventPipes::has_kept() const {
    const std::lock_guard lock(mutex_);
    return kept_pipes_ != 0;
}

EventPipes::Pipe* EventPipes::find(uint32_t session, uint32_t channel) {
    const auto it = pipes_.find(key(session, channel));
    return it == pipes_.end() ? nullptr : &it->second;
}

void EventPipes::send_async(uint32_t session, const abi::AsyncEventRecord& record) {
    {
        const std::lock_guard lock(mutex_);
        Pipe* p = find(session, abi::kNoHandle);
        if (p == nullptr) return count(counters_.no_pipe);
        write_or_keep(*p, p->asyncs, record.event_type, record);
    }
    wake_.notify();  // if the pipe is full, the event thread must retry
}

void EventPipes::signal(uint32_t session, uint32_t channel, uint32_t number) {
    {
        const std::lock_guard lock(mutex_);
        Pipe* p = find(session, channel);
        if (p == nullptr) return count(counters_.no_pipe);
        write_or_keep(*p, p->completions, 0, abi::CompEventRecord{number, 0});
    }
    wake_.notify();
}

/// Writes a record as one packet of the socket, completely or not at all. Returns false if the caller must retry later. Ignores a
/// record for a reader that has closed its end.
template <class Record>
bool EventPipes::write_now(Pipe& p, const Record& r) {
    if (p.broken) return true;
    const ssize_t n = ::send(p.fd, &r, sizeof r, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n == ssize_t(sizeof r)) {
        count(counters_.written);
        return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)) return false;
    p.broken = true;  // EPIPE: the reader has closed its end
    return true;
}

template <class Record>
void EventPipes::write_or_keep(Pipe& p, Kept<Record>& kept, uint32_t kind, const Record& r) {
    uint32_t handle = 0;
    if constexpr (std::is_same_v<Record, abi::CompEventRecord>)
        handle = r.cq_handle;
    else
        handle = r.handle;
    // A record must not overtake kept records. A second event of the same kind and object adds no information, so the second
    // record replaces the first.
    if (!p.has_kept() && write_now(p, r)) return;
    if (!p.has_kept()) ++kept_pipes_;
    const auto [it, fresh] = kept.insert_or_assign(std::pair(kind, handle), r);
    count(fresh ? counters_.kept : counters_.merged);
}

template <class Record>
void EventPipes::write_kept(Pipe& p, Kept<Record>& kept) {
    while (!kept.empty() && write_now(p, kept.begin()->second)) kept.erase(kept.begin());
}

void EventPipes::deliver(const io::Event& e) {
    if (e.kind == io::Event::Kind::gsi) {
        if (on_gsi_) on_gsi_();
        return;
    }
    const std::lock_guard lock(mutex_);
    const bool completion = e.kind == io::Event::Kind::completion;
    Pipe* p = find(e.session, completion ? e.channel : abi::kNoHandle);
    if (p == nullptr) return count(counters_.no_pipe);
    if (completion) return write_or_keep(*p, p->completions, 0, abi::CompEventRecord{e.handle, e.generation});
    write_or_keep(*p, p->asyncs, e.type, abi::AsyncEventRecord{e.type, e.handle, e.generation, 0});
}

/// Passes completions of a vector other than 0 to the dispatcher of the vector. Delivers all other events in the calling thread,
/// which saves a wake-up.
void EventPipes::hand_on(const io::Event& e) {
    const uint32_t vector = e.kind == io::Event::Kind::completion ? e.vector % kVectors : 0;
    if (vector == 0) return deliver(e);
    Dispatcher& d = dispatchers_[vector - 1];
    {
        const std::lock_guard lock(d.mutex);
        d.queue.push_back(e);
    }
    d.work.notify_one();
}

void EventPipes::dispatch(Dispatcher& d) {
    std::unique_lock lock(d.mutex);
    for (;;) {
        d.work.wait(lock, [&] { return d.stop || !d.queue.empty(); });
        if (d.queue.empty()) return;
        const io::Event e = d.queue.front();
        d.queue.pop_front();
        lock.unlock();
        deliver(e);
        if (has_kept()) wake_.notify();  // the event thread retries full pipes
        lock.lock();
    }
}

/// Sends the first event of the ring and removes it. Returns false if the ring is empty, if the event is not a completion of
/// vector 0, or if the event cannot be sent at once. The caller holds both locks.
bool EventPipes::send_first(io::EventRing& ring) {
    io::Event e;
    if (!ring.peek(e) || e.kind != io::Event::Kind::completion || e.vector % kVectors != 0) return false;
    Pipe* p = find(e.session, e.channel);
    if (p == nullptr || p->has_kept() || !write_now(*p, abi::CompEventRecord{e.handle, e.generation})) return false;
    count(counters_.by_lcore);
    return ring.pop(e);
}

void EventPipes::pushed(io::EventRing& ring) {
    constexpr int kMost = 4;  // if there are more events, the event thread sends the others
    if (wake_.sleeping.load(std::memory_order_relaxed) != 0) {
        const std::unique_lock consumer(consumer_, std::try_to_lock);
        const std::unique_lock pipes =
            consumer.owns_lock() ? std::unique_lock(mutex_, std::try_to_lock) : std::unique_lock<std::mutex>();
        if (pipes.owns_lock()) {
            for (int i = 0; i < kMost && send_first(ring); ++i) continue;
        }
    }
    if (!ring.empty()) wake_.notify();
}

bool EventPipes::drain() {
    const std::lock_guard consumer(consumer_);
    bool any = false;
    for (io::EventRing* r : rings_) {
        constexpr int kTurn = 256;  // events taken from one engine before the next engine, so that a busy engine does not delay
                                    // other engines' events
        io::Event e;
        for (int i = 0; i < kTurn && r->pop(e); ++i) {
            hand_on(e);
            any = true;
        }
    }
    return any;
}

/// Writes kept records. Returns true if records remain because their pipes are full.
bool EventPipes::retry_kept() {
    const std::lock_guard lock(mutex_);
    if (kept_pipes_ == 0) return false;
    for (auto& [k, p] : pipes_) {
        if (!p.has_kept()) continue;
        write_kept(p, p.completions);
        write_kept(p, p.asyncs);
        if (!p.has_kept()) --kept_pipes_;
    }
    return kept_pipes_ != 0;
}

void EventPipes::run() {
    while (!stop_.load(std::memory_order_seq_cst)) {
        if (drain()) continue;
        wake_.sleeping.store(1, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        const bool full = retry_kept();
        if (!drain() && !stop_.load(std::memory_order_seq_cst)) wake_.sleeper.sleep(full ? kRetry : kNever);
        wake_.sleeping.store(0, std::memory_order_relaxed);
    }
    drain();
}

}  // namespace roci::rocid
